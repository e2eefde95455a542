"""The package by which PySpark finds ``format("lakehouse")``: it searches packages ``pyspark_*`` for ``DefaultSource``.

If the import of such a package fails, PySpark finds no Python data source at all, not even those of other packages. So
this package imports only modules that are certain to exist.
"""

from __future__ import annotations

from lakeformat.spark.source import LakehouseSource as DefaultSource

__all__ = ["DefaultSource"]
