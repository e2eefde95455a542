"""lakeformat: Apache Hudi tables for PySpark 4 and plain Python, with no JVM jar.

Examples:
    >>> import lakeformat
    >>> table = lakeformat.open("/data/flights")
    >>> table.upsert(changes).rows.updated
    20
    >>> table.to_arrow(columns=["carrier"], where="distance > 2000").num_rows
    113
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lakeformat.bootstrap import adopt
    from lakeformat.errors import (
        CommitStateUnknownError,
        CorruptTableError,
        DuplicateKeyError,
        InstantNotAvailableError,
        InvalidInputError,
        InvalidOptionError,
        LakeformatError,
        LockTimeoutError,
        SchemaMismatchError,
        SkippingError,
        StorageError,
        TableNotFoundError,
        UnsupportedTableError,
        ValidationFailedError,
        WriteConflictError,
    )
    from lakeformat.sql_statements.run import sql
    from lakeformat.table import Table, create, exists
    from lakeformat.table import open_table as open  # noqa: A004  The public verb; nothing here opens files.
    from lakeformat.timeline.history import HistoryEntry
    from lakeformat.transaction.hooks import CommitMessage, ProposedWrite
    from lakeformat.transaction.result import WriteResult
    from lakeformat.write.preview import WritePlan
    from lakeformat.write.statements.clauses import Merge

__version__: Final = "0.1.0"

__all__ = [
    "CommitMessage",
    "CommitStateUnknownError",
    "CorruptTableError",
    "DuplicateKeyError",
    "HistoryEntry",
    "InstantNotAvailableError",
    "InvalidInputError",
    "InvalidOptionError",
    "LakeformatError",
    "LockTimeoutError",
    "Merge",
    "ProposedWrite",
    "SchemaMismatchError",
    "SkippingError",
    "StorageError",
    "Table",
    "TableNotFoundError",
    "UnsupportedTableError",
    "ValidationFailedError",
    "WriteConflictError",
    "WritePlan",
    "WriteResult",
    "__version__",
    "adopt",
    "create",
    "exists",
    "open",
    "sql",
]

#: Where names live. They are imported when first asked for: a Spark worker that only looks up sources must
#: neither wait for pyarrow nor fail without it.
_PLACES: Final = {
    "CommitMessage": ("lakeformat.transaction.callbacks", "CommitMessage"),
    "HistoryEntry": ("lakeformat.timeline.history", "HistoryEntry"),
    "Merge": ("lakeformat.write.statements.clauses", "Merge"),
    "ProposedWrite": ("lakeformat.transaction.validators", "ProposedWrite"),
    "Table": ("lakeformat.table", "Table"),
    "WritePlan": ("lakeformat.write.preview", "WritePlan"),
    "WriteResult": ("lakeformat.transaction.result", "WriteResult"),
    "adopt": ("lakeformat.bootstrap", "adopt"),
    "create": ("lakeformat.table", "create"),
    "exists": ("lakeformat.table", "exists"),
    "open": ("lakeformat.table", "open_table"),
    "sql": ("lakeformat.sql_statements.run", "sql"),
}
#: How delta-rs, pyiceberg, polars and pandas begin.
_OPENS: Final = {
    "DeltaTable",
    "load",
    "load_catalog",
    "load_table",
    "open_table",
    "read_delta",
    "read_table",
    "scan_delta",
}
_WRITES: Final = {"create_table", "write_delta", "write_deltalake", "write_table"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_instead(name)}")
    module, attribute = _PLACES.get(name, ("lakeformat.errors", name))
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def _instead(name: str) -> str:
    if name.startswith("_"):
        return ""
    if name in _OPENS:
        return "; here it is called lakeformat.open(path)"
    if name in _WRITES:
        return "; here it is called lakeformat.create(path, rows, record_key=..., insert=True)"
    from lakeformat.errors import nearest

    return nearest(name, [known for known in __all__ if known[0] != "_"])


def __dir__() -> list[str]:
    return __all__
