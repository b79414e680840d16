"""A live run: strategies measured side by side, its record on disk, checks of the text, calibration."""
