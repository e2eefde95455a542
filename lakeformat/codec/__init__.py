"""Conversion between the contents of files and the classes of `lakeformat.model`. No module here opens a file."""
