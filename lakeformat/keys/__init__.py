"""Computation of record keys and partition paths from rows, and parsing of partition paths to values."""
