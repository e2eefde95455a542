"""Compaction: file slices with log files become base files."""
