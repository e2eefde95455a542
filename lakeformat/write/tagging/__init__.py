"""Step 4 of a write (tagging): combine rows with the same key, and find the file groups that hold their keys."""
