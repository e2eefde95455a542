"""Step 2 of a write: read the user's rows, add their record keys and partition paths, and stage them."""
