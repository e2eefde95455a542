"""``spark.sql`` after ``register``: statements that change a table of this format are run by `lakeformat.spark.sql`.

Spark itself cannot change a table that its catalog does not have. Its errors for ``merge``, ``update`` and ``delete``
name neither the cause nor a cure. All other statements reach PySpark's own method with the same arguments. The name of
a temporary view that Spark itself made says nothing of its table, so Spark's error gets a note; so does a query of a
path, which Spark allows for its own formats alone.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from threading import Lock
from typing import Any, Final

__all__ = ["unwrap_sql", "wrap_sql"]

_CLASSES: Final = ("pyspark.sql.session", "pyspark.sql.connect.session")
#: Finds the target of a statement that changes rows: a path, or a name.
_CHANGE: Final = re.compile(
    r"\s*(?:merge\s+into|update|delete\s+from)\s+(?:(?P<path>lakehouse\s*\.\s*[`\"])|`?(?P<name>\w+)`?(?![\w.`]))",
    re.IGNORECASE,
)
#: Spark's error for a path of ours in a query.
_PATH_REFUSED: Final = re.compile(r"UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY\].*\blakehouse\b", re.DOTALL)
#: The module that runs a statement. It reads tables, and reading needs `register`, so it is imported at the call.
_STATEMENTS: Final = "lakeformat.spark.statements"
#: Prefix of the session's settings that store the path of each named table.
_VIEW: Final = "lakeformat.view."
_ORIGINALS: Final[dict[type, Callable[..., Any]]] = {}
_LOCK: Final = Lock()


def wrap_sql() -> None:
    """Replace ``SparkSession.sql``, also that of Spark Connect if it is in use. Do nothing the second time."""
    with _LOCK:
        for module in filter(sys.modules.__contains__, _CLASSES):
            owner = import_module(module).SparkSession
            if owner not in _ORIGINALS:
                _ORIGINALS[owner] = owner.__dict__["sql"]
                owner.sql = _wrapper_of(owner.__dict__["sql"])


def unwrap_sql() -> None:
    """Put PySpark's own method back."""
    with _LOCK:
        for owner, original in _ORIGINALS.items():
            owner.sql = original  # type: ignore[attr-defined]
        _ORIGINALS.clear()


def _wrapper_of(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(self: Any, sqlQuery: str, *arguments: Any, **named: Any) -> Any:  # noqa: N803  PySpark's name.
        if arguments or named or not _changes_ours(self, sqlQuery):
            try:
                return original(self, sqlQuery, *arguments, **named)
            except Exception as error:
                _add_advice(error, self, sqlQuery)
                raise
        from lakeformat.spark.host import plain_errors

        with plain_errors():
            return import_module(_STATEMENTS).sql(self, sqlQuery)

    return wrapper


def _changes_ours(spark: Any, text: object) -> bool:
    """Tell whether a statement changes a table that is named by its path or by `lakeformat.spark.view`."""
    match = _CHANGE.match(text) if isinstance(text, str) else None
    if match is None:
        return False
    return bool(match["path"]) or spark.conf.get(_VIEW + match["name"].lower(), None) is not None


def _add_advice(error: Exception, spark: Any, text: object) -> None:
    """Add a note to Spark's error for a query of a path, or for a change of a temporary view, which may be of ours."""
    match = _CHANGE.match(text) if isinstance(text, str) else None
    with suppress(Exception):  # Spark's own error is what counts.
        if _PATH_REFUSED.search(str(error)):
            error.add_note("Spark queries no paths of lakeformat: write lakeformat.spark.sql(spark, statement)")
        elif match is not None and (name := (match["name"] or "").lower()) and _is_temporary_view(spark, name):
            error.add_note(
                f"Spark cannot change a temporary view. If {name} shows a table of lakeformat, make the view by "
                f"lakeformat.spark.view(spark, '{name}', path), or name the path: lakehouse.`path`"
            )


def _is_temporary_view(spark: Any, name: str) -> bool:
    return any(table.isTemporary and table.name.lower() == name for table in spark.catalog.listTables(pattern=name))
