"""Batch writes of Spark DataFrames to tables."""
