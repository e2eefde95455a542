"""The life of a table: thousands of small commits, the cost of each, and the files that the table has on disk."""
