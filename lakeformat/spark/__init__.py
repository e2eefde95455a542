"""Spark's host: `read` a table, `write` one from any thread or as `LakehouseTable`, or ``register`` it as a format."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from lakeformat.spark.register import check_pyspark, register

if TYPE_CHECKING:
    from lakeformat.spark.reads.frames import read
    from lakeformat.spark.statements import sql, view
    from lakeformat.spark.streams.writer import each_batch
    from lakeformat.spark.table import LakehouseTable
    from lakeformat.spark.writes.sessions import active_session, write

__all__ = ["LakehouseTable", "active_session", "each_batch", "read", "register", "sql", "view", "write"]

_LATER: Final = {
    "LakehouseTable": "lakeformat.spark.table",
    "active_session": "lakeformat.spark.writes.sessions",
    "each_batch": "lakeformat.spark.streams.writer",
    "read": "lakeformat.spark.reads.frames",
    "sql": "lakeformat.spark.statements",
    "view": "lakeformat.spark.statements",
    "write": "lakeformat.spark.writes.sessions",
}


def __getattr__(name: str) -> Any:
    """Imported when first asked for: a worker that only looks up sources must not wait for it."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_pyspark()
    globals()[name] = getattr(import_module(_LATER[name]), name)
    return globals()[name]
