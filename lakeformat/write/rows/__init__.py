"""Step 2 of a write: rows are taken from the user, given their keys and partition paths, and staged."""
