"""Spark's host: ``register(spark)`` makes ``format("lakehouse")`` known to a session; `LakehouseTable` has verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeformat.spark.register import register

if TYPE_CHECKING:
    from lakeformat.spark.table import LakehouseTable

__all__ = ["LakehouseTable", "register"]


def __getattr__(name: str) -> Any:
    """`LakehouseTable` is imported when first asked for: a worker that only looks up sources must not wait for it."""
    if name != "LakehouseTable":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lakeformat.spark.table import LakehouseTable

    globals()[name] = LakehouseTable
    return LakehouseTable
