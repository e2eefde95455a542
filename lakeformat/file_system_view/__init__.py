"""The state of a table at an instant: its schema, its live files, and their statistics."""
