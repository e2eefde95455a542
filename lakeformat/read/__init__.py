"""Reads of a table: planning of files and row groups, and reading of rows, changes and streams."""
