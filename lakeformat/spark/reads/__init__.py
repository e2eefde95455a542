"""Reads under Spark."""
