"""lakeformat in Spark: the data source ``lakehouse``, and the methods of `lakeformat.Table` on DataFrames.

Read and write without a table object:
    `read` returns a DataFrame; `write` saves one from any thread; `sql` runs one SQL statement; `view` gives a table a
    name that `sql` statements can use; `each_batch` writes the batches of a stream.

Change a table with all executors:
    `LakehouseTable` has the methods, arguments and results of `lakeformat.Table`, with DataFrames instead of Arrow
    data.

Set up a session:
    `register` makes ``format("lakehouse")`` known and its ``load`` and ``save`` fast; `unregister` puts PySpark's own
    back; `last_result` returns what the last ``save`` did; `active_session` lets a thread other than the main thread
    use ``df.write`` without `register`.

Errors are those of `lakeformat`. The modules inside this package are not public.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from lakeformat.spark.register import check_pyspark, register, unregister

if TYPE_CHECKING:
    from lakeformat.spark.reads.frames import read
    from lakeformat.spark.statements import sql, view
    from lakeformat.spark.table import LakehouseTable
    from lakeformat.spark.writes.save import last_result
    from lakeformat.spark.writes.sessions import active_session, each_batch, write

__all__ = [
    "LakehouseTable",
    "active_session",
    "each_batch",
    "last_result",
    "read",
    "register",
    "sql",
    "unregister",
    "view",
    "write",
]

#: The module of each public name that `__getattr__` imports when the name is first used.
_MODULES: Final = {
    "LakehouseTable": "lakeformat.spark.table",
    "active_session": "lakeformat.spark.writes.sessions",
    "each_batch": "lakeformat.spark.writes.sessions",
    "last_result": "lakeformat.spark.writes.save",
    "read": "lakeformat.spark.reads.frames",
    "sql": "lakeformat.spark.statements",
    "view": "lakeformat.spark.statements",
    "write": "lakeformat.spark.writes.sessions",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that a worker that only looks up data sources starts fast."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_pyspark()
    globals()[name] = getattr(import_module(_MODULES[name]), name)
    return globals()[name]


def __dir__() -> list[str]:
    return __all__
