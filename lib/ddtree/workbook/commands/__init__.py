"""The commands of `ddtree`, one in each file; heavy libraries are loaded inside them, so that --help is quick."""
