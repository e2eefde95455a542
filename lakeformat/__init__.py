"""lakeformat: Apache Hudi tables for PySpark 4 and plain Python, with no JVM jar.

>>> import lakeformat
>>> table = lakeformat.open("/data/flights")  # doctest: +SKIP
>>> table.to_arrow(columns=["carrier"], where="distance > 2000")  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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
        StorageError,
        TableNotFoundError,
        UnsupportedTableError,
        WriteConflictError,
    )
    from lakeformat.table import HistoryEntry, Table, create
    from lakeformat.table import open_table as open  # noqa: A004  The public verb; nothing here opens files.
    from lakeformat.write.clauses import Merge
    from lakeformat.write.session import WriteResult

__version__: Final = "0.1.0"

__all__ = [
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
    "SchemaMismatchError",
    "StorageError",
    "Table",
    "TableNotFoundError",
    "UnsupportedTableError",
    "WriteConflictError",
    "WriteResult",
    "__version__",
    "create",
    "open",
]

#: Where names live. They are imported when first asked for: a Spark worker that only looks up sources must
#: neither wait for pyarrow nor fail without it.
_PLACES: Final = {
    "HistoryEntry": ("lakeformat.table", "HistoryEntry"),
    "Merge": ("lakeformat.write.clauses", "Merge"),
    "Table": ("lakeformat.table", "Table"),
    "WriteResult": ("lakeformat.write.session", "WriteResult"),
    "create": ("lakeformat.table", "create"),
    "open": ("lakeformat.table", "open_table"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES.get(name, ("lakeformat.errors", name))
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value
