"""Change data: rows before and after each commit."""
