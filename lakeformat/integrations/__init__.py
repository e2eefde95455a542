"""Adapters for distributed engines of Python: one module for each of `ray`, `dask` and `daft`.

Each module has `read_table` and `write_table`, and needs the extra of its name (``pip install 'lakeformat[ray]'``).
Importing this package imports none of the engines.
"""
