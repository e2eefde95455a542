"""Reading a table: which files, which row groups, which rows."""
