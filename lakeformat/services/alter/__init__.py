"""Changes of a table's columns: renamed, dropped, moved, re-typed and new columns, without a rewrite of files."""
