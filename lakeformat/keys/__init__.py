"""Record keys and partition paths, and the values that partition paths hold."""
