"""Cleaning: deleting files that are needed only to read commits older than the retention."""
