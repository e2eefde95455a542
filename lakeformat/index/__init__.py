"""The indexes, which find the file group of a record key: by key ranges, footer filters and key columns."""
