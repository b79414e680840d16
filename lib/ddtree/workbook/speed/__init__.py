"""What each stage of a round costs, measured side by side with what others use for it."""
