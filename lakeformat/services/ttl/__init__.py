"""Partitions that expire."""
