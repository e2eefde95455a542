"""Step 4 of a write: combine rows of one key, and find the file groups that hold their keys."""
