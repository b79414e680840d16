"""A live run: strategies measured in one process, the record on disk, checks of the text, calibration."""
