"""DDTree speculative decoding with temperature: the algorithm in six files, and rooms around it."""
