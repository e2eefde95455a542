"""SQL on lakeformat tables, which need no catalog: parsing of statements into values, and running these values.

A host is the engine that computes rows: Spark, or duckdb in plain Python.
"""
