"""Registers ``format("lakehouse")`` with PySpark, which searches packages named ``pyspark_*`` for ``DefaultSource``.

If such a package fails on import, PySpark finds no other Python data source either. So this one imports only modules
that are certain to exist.
"""

from __future__ import annotations

from lakeformat.spark.source import LakehouseSource as DefaultSource

__all__ = ["DefaultSource"]
