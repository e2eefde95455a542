"""Describing, checking and repairing a whole table."""
