"""Writes under Spark."""
