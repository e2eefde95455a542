"""A folder of plain Parquet becomes a table."""
