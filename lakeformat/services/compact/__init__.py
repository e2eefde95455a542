"""Compaction: merging file slices that have log files into base files."""
