"""Conversion between the contents of files (bytes or text) and model values. No module here reads or writes files."""
