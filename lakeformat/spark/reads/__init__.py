"""Batch reads of tables as Spark DataFrames."""
