"""lakeformat: Apache Hudi tables for PySpark 4 and plain Python, with no JVM jar.

>>> import lakeformat
>>> table = lakeformat.open("/data/flights")  # doctest: +SKIP
>>> table.to_arrow(columns=["carrier"], where="distance > 2000")  # doctest: +SKIP
"""

from __future__ import annotations

from lakeformat.errors import (
    CommitStateUnknownError,
    CorruptTableError,
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
from lakeformat.write.session import WriteResult

__version__ = "0.1.0"

__all__ = [
    "CommitStateUnknownError",
    "CorruptTableError",
    "HistoryEntry",
    "InstantNotAvailableError",
    "InvalidInputError",
    "InvalidOptionError",
    "LakeformatError",
    "LockTimeoutError",
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
