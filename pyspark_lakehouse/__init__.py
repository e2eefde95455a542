"""Makes ``format("lakehouse")`` known to PySpark, which looks for ``DefaultSource`` in packages named ``pyspark_*``.

A module of that kind that fails on import would hide every other Python source, so this one only imports what
is surely there.
"""

from __future__ import annotations

from lakeformat.spark.source import LakehouseSource as DefaultSource

__all__ = ["DefaultSource"]
