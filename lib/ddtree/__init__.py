"""DDTree speculative decoding with temperature: nine files are the algorithm; the packages run, serve and show it."""
