"""Streams under Spark."""
