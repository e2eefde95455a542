"""Spark's host: `read` a table, write it as `LakehouseTable`, or ``register`` it as ``format("lakehouse")``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from lakeformat.spark.register import register

if TYPE_CHECKING:
    from lakeformat.spark.frames import read
    from lakeformat.spark.table import LakehouseTable

__all__ = ["LakehouseTable", "read", "register"]

_LATER: Final = {"LakehouseTable": "lakeformat.spark.table", "read": "lakeformat.spark.frames"}


def __getattr__(name: str) -> Any:
    """Imported when first asked for: a worker that only looks up sources must not wait for it."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = getattr(import_module(_LATER[name]), name)
    return globals()[name]
