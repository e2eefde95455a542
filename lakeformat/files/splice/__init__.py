"""Row groups of Parquet files, copied byte for byte into new files."""
