"""The state of a table at an instant: its schema, its live files, and the column statistics of these files."""
