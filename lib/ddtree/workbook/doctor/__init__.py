"""What `ddtree doctor` looks at: pure checks of gathered facts, one subject in each file, each giving findings."""
