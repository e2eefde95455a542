"""The files of a table: base files, their footers, and what is known of their columns."""
