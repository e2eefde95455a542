"""SQL on lakeformat tables, which need no catalog: parsing of statements into dataclasses, and their execution.

A host is the engine that computes rows: Spark, or duckdb in plain Python.
"""
