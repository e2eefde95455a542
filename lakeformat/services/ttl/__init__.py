"""Expiry of partitions."""
