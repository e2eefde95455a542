"""Record keys and partition paths, and how values are read back from them."""
