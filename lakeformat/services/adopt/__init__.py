"""Adoption of a folder of plain Parquet files as a table."""
