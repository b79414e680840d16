"""A package, so that a file here may share its name with one in tests/backends."""
