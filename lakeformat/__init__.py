"""lakeformat: Apache Hudi tables for PySpark 4 and plain Python, with no JVM jar.

Examples:
    >>> import lakeformat
    >>> table = lakeformat.open("/data/flights")
    >>> table.upsert(changes).rows.updated
    20
    >>> table.to_arrow(columns=["carrier"], where="distance > 2000").num_rows
    113

Start with a function:
    `create` and `open` return a `Table`; `scan` returns a read of one; `exists` tells whether a path holds a table;
    `adopt` turns existing Parquet files into a table, `convert` copies a Delta or Iceberg table; `sql` runs one SQL
    statement; `repair` also repairs a table that cannot be opened.

Then use the methods of `Table`:
    write rows: ``upsert``, ``insert``, ``bulk_insert``, ``update``, ``delete``, ``merge``, ``overwrite``,
    ``insert_overwrite``, ``delete_partitions``; ``plan_upsert``, ``plan_insert`` and ``plan_delete`` return what a
    write would do;
    read rows: ``read``, ``to_arrow``, ``to_batches``, ``to_pandas``, ``to_polars``, ``to_duckdb``,
    ``to_pyarrow_dataset``, ``count``, ``changes``;
    inspect the table: ``schema``, ``config``, ``files``, ``history``, ``describe``, ``report``, ``explain``,
    ``layout_report``;
    maintain the table: ``compact``, ``cluster``, ``clean``, ``archive``, ``expire_partitions``, ``savepoint``,
    ``restore``, ``rollback``, ``check``, ``repair``, ``dedupe``, ``create_index``, ``drop_index``, ``indexes``,
    ``upgrade``, ``downgrade``, ``register``, ``sync``.

A method does its work when it is called; with ``dry_run=True`` it changes nothing and returns what it would do.
Results name a commit by its ``instant_time``; the argument ``as_of`` selects a past state of the table. Errors are
subclasses of `LakeformatError`. `lakeformat.spark` has the same methods on DataFrames. The modules inside this package
are not public, except ``lakeformat.spark``, ``lakeformat.catalog`` and ``lakeformat.merge.Merger``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from lakeformat.arrow.result_table import ResultTable
    from lakeformat.beside.session import FaceSync
    from lakeformat.bootstrap import adopt
    from lakeformat.catalog import Registration
    from lakeformat.conversion import convert
    from lakeformat.errors import (
        CatalogError,
        CommitStateUnknownError,
        CorruptTableError,
        DuplicateKeyError,
        InstantNotAvailableError,
        InvalidInputError,
        InvalidOptionError,
        LakeformatError,
        LockLostError,
        LockTimeoutError,
        SchemaMismatchError,
        SkippingError,
        StorageError,
        SyncError,
        TableNotFoundError,
        UnsupportedTableError,
        ValidationFailedError,
        WriteConflictError,
    )
    from lakeformat.file_system_view.snapshot import Snapshot
    from lakeformat.layout.layout_report import LayoutReport
    from lakeformat.merge import MergeFunction
    from lakeformat.model.instant import AsOf
    from lakeformat.model.operation import Operation
    from lakeformat.model.table_config import TableConfig
    from lakeformat.predicate import Where
    from lakeformat.read.cdc.images import ChangeImages
    from lakeformat.read.dataset import TableDataset
    from lakeformat.read.parts import ReadPart, read_part
    from lakeformat.read.run.session import ReadPlan
    from lakeformat.read.run.view import TableView
    from lakeformat.read.scan import ChangeArguments, Changes, ReadArguments, Scan
    from lakeformat.services.alter.alter import Alter
    from lakeformat.services.archive.run import ArchiveResult
    from lakeformat.services.clean.plan import CleanedFile
    from lakeformat.services.clean.run import CleanResult
    from lakeformat.services.dedupe import DedupeResult
    from lakeformat.services.doctor.describe import Description
    from lakeformat.services.doctor.findings import Finding, Findings
    from lakeformat.services.indexes import Index
    from lakeformat.services.report.table_report import TableReport
    from lakeformat.services.restore.run import RestoreResult
    from lakeformat.services.savepoint import Savepoint
    from lakeformat.services.ttl import ExpiredPartition, ExpireResult
    from lakeformat.services.upgrade.run import VersionChange
    from lakeformat.sql_statements.run import sql
    from lakeformat.table import Schema, Table, create, exists, repair, scan
    from lakeformat.table import open_table as open  # noqa: A004  This module does not use the built-in open.
    from lakeformat.timeline.history import History, HistoryEntry
    from lakeformat.transaction.commit.hooks import CommitMessage, HookArguments, ProposedWrite
    from lakeformat.transaction.commit.result import FileCounts, RowCounts, WriteResult
    from lakeformat.write.preview import PlannedFile, WritePlan
    from lakeformat.write.rows.arrow_input import ArrowDataset, ArrowStream, LazyRows, Rows
    from lakeformat.write.rows.bulk_insert_order import Partitioner
    from lakeformat.write.statements.clauses import Merge

__version__: Final = "0.1.0"

__all__ = [
    "Alter",
    "ArchiveResult",
    "ArrowDataset",
    "ArrowStream",
    "AsOf",
    "CatalogError",
    "ChangeArguments",
    "ChangeImages",
    "Changes",
    "CleanResult",
    "CleanedFile",
    "CommitMessage",
    "CommitStateUnknownError",
    "CorruptTableError",
    "DedupeResult",
    "Description",
    "DuplicateKeyError",
    "ExpireResult",
    "ExpiredPartition",
    "FaceSync",
    "FileCounts",
    "Finding",
    "Findings",
    "History",
    "HistoryEntry",
    "HookArguments",
    "Index",
    "InstantNotAvailableError",
    "InvalidInputError",
    "InvalidOptionError",
    "LakeformatError",
    "LayoutReport",
    "LazyRows",
    "LockLostError",
    "LockTimeoutError",
    "Merge",
    "MergeFunction",
    "Operation",
    "Partitioner",
    "PlannedFile",
    "ProposedWrite",
    "ReadArguments",
    "ReadPart",
    "ReadPlan",
    "Registration",
    "RestoreResult",
    "ResultTable",
    "RowCounts",
    "Rows",
    "Savepoint",
    "Scan",
    "Schema",
    "SchemaMismatchError",
    "SkippingError",
    "Snapshot",
    "StorageError",
    "SyncError",
    "Table",
    "TableConfig",
    "TableDataset",
    "TableNotFoundError",
    "TableReport",
    "TableView",
    "UnsupportedTableError",
    "ValidationFailedError",
    "VersionChange",
    "Where",
    "WriteConflictError",
    "WritePlan",
    "WriteResult",
    "__version__",
    "adopt",
    "convert",
    "create",
    "exists",
    "open",
    "read_part",
    "repair",
    "scan",
    "sql",
]

#: The module of each public name. `__getattr__` imports a name when it is first used: a Spark worker that only looks up
#: data sources must neither wait for the import of pyarrow nor fail without it. Error classes are
#: not listed; all are in `lakeformat.errors`.
_MODULES: Final = {
    "Alter": "lakeformat.services.alter.alter",
    "ArchiveResult": "lakeformat.services.archive.run",
    "ArrowDataset": "lakeformat.write.rows.arrow_input",
    "ArrowStream": "lakeformat.write.rows.arrow_input",
    "AsOf": "lakeformat.model.instant",
    "ChangeArguments": "lakeformat.read.scan",
    "ChangeImages": "lakeformat.read.cdc.images",
    "Changes": "lakeformat.read.scan",
    "CleanResult": "lakeformat.services.clean.run",
    "CleanedFile": "lakeformat.services.clean.plan",
    "CommitMessage": "lakeformat.transaction.commit.hooks",
    "DedupeResult": "lakeformat.services.dedupe",
    "Description": "lakeformat.services.doctor.describe",
    "ExpireResult": "lakeformat.services.ttl",
    "ExpiredPartition": "lakeformat.services.ttl",
    "FaceSync": "lakeformat.beside.session",
    "FileCounts": "lakeformat.transaction.commit.result",
    "Finding": "lakeformat.services.doctor.findings",
    "Findings": "lakeformat.services.doctor.findings",
    "History": "lakeformat.timeline.history",
    "HistoryEntry": "lakeformat.timeline.history",
    "HookArguments": "lakeformat.transaction.commit.hooks",
    "Index": "lakeformat.services.indexes",
    "LayoutReport": "lakeformat.layout.layout_report",
    "LazyRows": "lakeformat.write.rows.arrow_input",
    "Merge": "lakeformat.write.statements.clauses",
    "MergeFunction": "lakeformat.merge",
    "Operation": "lakeformat.model.operation",
    "Partitioner": "lakeformat.write.rows.bulk_insert_order",
    "PlannedFile": "lakeformat.write.preview",
    "ProposedWrite": "lakeformat.transaction.commit.hooks",
    "ReadArguments": "lakeformat.read.scan",
    "ReadPart": "lakeformat.read.parts",
    "ReadPlan": "lakeformat.read.run.session",
    "Registration": "lakeformat.catalog.session",
    "RestoreResult": "lakeformat.services.restore.run",
    "ResultTable": "lakeformat.arrow.result_table",
    "RowCounts": "lakeformat.transaction.commit.result",
    "Rows": "lakeformat.write.rows.arrow_input",
    "Savepoint": "lakeformat.services.savepoint",
    "Scan": "lakeformat.read.scan",
    "Schema": "lakeformat.table",
    "Snapshot": "lakeformat.file_system_view.snapshot",
    "Table": "lakeformat.table",
    "TableConfig": "lakeformat.model.table_config",
    "TableDataset": "lakeformat.read.dataset",
    "TableReport": "lakeformat.services.report.table_report",
    "TableView": "lakeformat.read.run.view",
    "VersionChange": "lakeformat.services.upgrade.run",
    "Where": "lakeformat.predicate",
    "WritePlan": "lakeformat.write.preview",
    "WriteResult": "lakeformat.transaction.commit.result",
    "adopt": "lakeformat.bootstrap",
    "convert": "lakeformat.conversion",
    "create": "lakeformat.table",
    "exists": "lakeformat.table",
    "open": "lakeformat.table",
    "read_part": "lakeformat.read.parts",
    "repair": "lakeformat.table",
    "scan": "lakeformat.table",
    "sql": "lakeformat.sql_statements.run",
}
#: Functions and classes of delta-rs, pyiceberg, polars and pandas that open a table. The error for such a name suggests
#: `open`.
_OPENS: Final = {
    "DeltaTable",
    "HudiTable",
    "connect",
    "load",
    "load_catalog",
    "load_table",
    "open_table",
    "read",
    "read_delta",
    "read_hudi",
    "read_table",
    "scan_delta",
}
#: Functions of delta-rs, polars and other libraries that create or write a table. The error for such a name suggests
#: `create`.
_WRITES: Final = {
    *("create_table", "from_arrow", "from_pandas", "from_polars", "save", "write", "write_delta", "write_deltalake"),
    "write_table",
}
#: Methods of a table that are sought in this module. The error for such a name says where they are.
_METHODS: Final = {
    *("append", "changes", "check", "clean", "cluster", "compact", "count", "delete", "describe", "history", "insert"),
    *("merge", "overwrite", "repair", "report", "restore", "rollback", "to_pandas", "update", "upsert"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_instead(name)}")
    module = importlib.import_module(_MODULES.get(name, "lakeformat.errors"))
    value = getattr(module, "open_table" if name == "open" else name)
    globals()[name] = value
    return value


def _instead(name: str) -> str:
    if name.startswith("_"):
        return ""
    if name in _OPENS:
        return "; here it is called lakeformat.open(path)"
    if name in _WRITES:
        return "; here it is called lakeformat.create(path, rows, record_key=..., insert=True)"
    if name in _METHODS:
        return f"; it is a method of a table: lakeformat.open(path).{'insert' if name == 'append' else name}(...)"
    if name in {"delete_table", "drop", "drop_table"}:
        return "; a table is its folder: delete the folder"
    if name == "read_parquet":
        return "; lakeformat.adopt(path, ...) makes a folder of Parquet files a table"
    from lakeformat.errors import nearest

    return nearest(name, [name for name in __all__ if name[0] != "_"])


def __dir__() -> list[str]:
    return __all__
