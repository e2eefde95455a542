"""The class `Table`: a Hudi table that is read and written as Arrow data, without Spark.

Examples:
    >>> import lakeformat
    >>> table = lakeformat.create("/data/t", {"id": "int64", "v": "string"}, record_key="id")
    >>> table.upsert([{"id": 1, "v": "a"}]).rows.inserted
    1
    >>> table.to_arrow().to_pylist()
    [{'id': 1, 'v': 'a'}]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa

from lakeformat.beside.verbs import Syncing
from lakeformat.catalog.verbs import Registering
from lakeformat.concurrency import Attempts
from lakeformat.config.resolve import Options, resolve, storage_options_of
from lakeformat.errors import InvalidInputError, InvalidOptionError
from lakeformat.file_system_view.context import TableContext
from lakeformat.keys.partition_paths import distinct_partitions
from lakeformat.model.operation import Operation
from lakeformat.predicate import Where
from lakeformat.public import public, public_as
from lakeformat.read.scan import ReadArguments, Scan
from lakeformat.read.verbs import ArrowReadVerbs
from lakeformat.services.after_write import check_services
from lakeformat.services.bad_rows import make_collector, put_aside_rows
from lakeformat.services.doctor.findings import Findings
from lakeformat.services.indexes import Indexing
from lakeformat.services.job_check import check_job
from lakeformat.services.maintenance import Clustering, Compaction, Maintenance, Versioning
from lakeformat.statements import delete_where, merge_rows, update
from lakeformat.storage import Clock, Ids, RandomIds, Storage, SystemClock, open_storage
from lakeformat.timeline.history import HistoryEntry
from lakeformat.timeline.path_probe import check_free
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.commit.hooks import HookArguments, check_validators, hooks_of
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order.conflict import StalePlanError, repeat_after
from lakeformat.write.direct_session import write_direct
from lakeformat.write.intake import create_table, plan_job, prepare_input
from lakeformat.write.plan.table_settings import check_options
from lakeformat.write.rows.arrow_input import (
    Rows,
    arrow_reader,
    can_be_read_again,
    check_insert_allowed,
    drop_index_columns,
    fit_to_table,
    has_only_failed_writes,
    is_python_data,
    is_schema,
    schema_of,
    warn_of_ignored_rows,
)
from lakeformat.write.rows.arrow_pool import reuse_memory
from lakeformat.write.rows.schema import incoming_schema
from lakeformat.write.session import WriteSession
from lakeformat.write.statements.clauses import Clause
from lakeformat.write_verbs import WriteVerbs

__all__ = [
    "HistoryEntry",
    "Schema",
    "Table",
    "create",
    "exists",
    "make_table",
    "open_table",
    "repair",
    "scan",
    "table_options",
]

_OPERATION: Final = "hoodie.datasource.write.operation"
_RECORD_KEY: Final = "hoodie.datasource.write.recordkey.field"
_PARTITION_PATH: Final = "hoodie.datasource.write.partitionpath.field"
_ORDERING: Final = "hoodie.table.ordering.fields"

#: The columns of a new table: an Arrow schema, a mapping of column name to Arrow type, or a sequence of Arrow fields or
#: (name, type) pairs.
Schema: TypeAlias = pa.Schema | Mapping[str, pa.DataType | str] | Sequence[pa.Field | tuple[str, pa.DataType]]


@public
def create(
    path: str | os.PathLike[str],
    schema: Rows | Schema,
    *,
    record_key: str | Sequence[str] = (),
    partition_by: str | Sequence[str] = (),
    ordering: str | Sequence[str] | None = None,
    if_exists: str = "open",
    insert: bool = False,
    **options: Any,
) -> Table:
    """Create a table. By default it is empty, copy-on-write and of table version 6.

    Args:
        path: folder or URL of the table.
        schema: the columns: an Arrow schema, names with Arrow types (``{"id": "int64"}``), or rows, whose columns the
            table gets. Types become those that Hudi can store (int8 and int16 become int32). The rows themselves are
            written only with ``insert``.
        record_key: columns that identify a row. By default none: each row gets a generated key, and rows can be
            added and overwritten, but not upserted.
        partition_by: columns whose values name the partition folders; none by default.
        ordering: the column that decides which of two rows with one key is newer; none by default. Table version 9
            takes several, of which the first that differs decides.
        if_exists: what to do if the path holds a table already. ``open`` (the default) opens it if it has the same
            settings; ``error`` raises `InvalidOptionError`.
        insert: whether to insert the rows given as ``schema``; false by default. If the table has a commit already,
            `InvalidInputError` is raised.
        options: Hudi's option names or the short aliases; ``storage_options`` has the credentials of a URL, by the
            names of fsspec, delta-rs, polars or pyarrow.

    Returns:
        the new or existing table.

    Raises:
        InvalidOptionError: an unknown or bad option, or the path holds a table with other settings.
        SchemaMismatchError: a named column is not in the schema, or a type cannot be stored.
        InvalidInputError: ``insert`` is true, but ``schema`` has no rows or the table has commits.
    """
    table = make_table(path, table_options(record_key, partition_by, ordering, if_exists, options))
    said = table.options
    check_job(said)
    roles = [*said[_RECORD_KEY], *(name.partition(":")[0] for name in said[_PARTITION_PATH]), said[_ORDERING] or ""]
    rows = None if is_schema(schema) else arrow_reader(schema)
    if insert:
        check_insert_allowed(table.context.store, has_rows=rows is not None)
    stored = incoming_schema(drop_index_columns(schema_of(schema) if rows is None else rows.schema, roles))
    check_free(table.context.storage)
    new = if_exists == "error" and not (insert and has_only_failed_writes(table.context.store))
    config = create_table(table.context.store, table.options, stored, table.context.clock, must_be_new=new)
    check_options(config, table.options, table.context.storage.location)
    if insert and rows is not None:
        table.insert(rows)
    elif rows is not None:
        warn_of_ignored_rows(table.location, schema)
    return table


@public_as("open")
def open_table(path: str | os.PathLike[str], **options: Any) -> Table:
    """Open the table at a path.

    Args:
        path: folder or URL of the table.
        options: Hudi's option names or the short aliases; ``storage_options`` has the credentials of a URL, by the
            names of fsspec, delta-rs, polars or pyarrow.

    Returns:
        the table.

    Raises:
        TableNotFoundError, UnsupportedTableError, CorruptTableError: the path holds no table that can be read.
        InvalidOptionError: an unknown or bad option, or one that contradicts the table's settings.
    """
    table = make_table(path, options)
    config = table.config
    config.check_readable(table.context.storage.location)
    check_options(config, table.options, table.context.storage.location)
    return table


@public
def scan(path: str | os.PathLike[str], columns: Sequence[str] | str | None = None, **options: Any) -> Scan:
    """Open the table at a path and return a read of its rows that has not started; see `lakeformat.Table.read`.

    Examples:
        >>> lakeformat.scan("/data/flights", ["carrier"], where="distance > 2000").count()
        93

    Args:
        path: folder or URL of the table.
        columns: wanted columns, in order; all by default.
        options: ``where``, ``as_of``, ``limit``, ``meta_columns``, ``verify`` and ``time_zone`` as in
            `lakeformat.Table.read`; all others as in `lakeformat.open`.

    Raises:
        LakeformatError: as in `lakeformat.open` and `lakeformat.Table.read`.
    """
    arguments = {name: options.pop(name) for name in ReadArguments.__annotations__ if name in options}
    return open_table(path, **options).read(columns, **arguments)


@public
def repair(path: str | os.PathLike[str], *, dry_run: bool = False, keep: bool = True, **options: Any) -> Findings:
    """Repair the table at a path, as `lakeformat.Table.repair` does, even if its ``hoodie.properties`` is lost.

    Then the file is made again: from lakeformat's copy of it if that fits the rows, else from the commits and the rows,
    whose stored record keys and partition paths prove the key and partition columns.

    Args:
        path: folder or URL of the table.
        dry_run: whether to change nothing and only return what would be repaired; false by default.
        keep: whether to keep removed files in ``.hoodie/.lakeformat/removed``; true by default.
        options: as in `lakeformat.open`; also what the rows of a table without ``hoodie.properties`` do not show, such
            as ``ordering``, ``recordkey``, ``partitionpath``. The rows must fit them.

    Returns:
        The findings that were repaired, or would be.

    Raises:
        CorruptTableError: the files do not prove what the settings were; the message says what is missing.
    """
    return make_table(path, options).repair(dry_run=dry_run, keep=keep)


@public
def exists(path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Tell whether a path or URL holds a table.

    Args:
        path: folder or URL.
        storage_options: credentials of a URL and other options of its file system; none by default.

    Raises:
        StorageError: the storage denied access or failed.
    """
    return TimelineStore(open_storage(path, **(storage_options or {}))).exists()


def table_options(
    record_key: str | Sequence[str],
    partition_by: str | Sequence[str],
    ordering: str | Sequence[str] | None,
    if_exists: str,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the options of a new table: ``options``, and one option for each non-empty argument of `create`.

    Raises:
        InvalidOptionError: a bad value of ``if_exists``.
    """
    if if_exists not in {"open", "error"}:
        cure = "; to put other rows in place of those there, open it and call overwrite" * (if_exists == "replace")
        raise InvalidOptionError(f"if_exists={if_exists!r} is not known; give 'open' or 'error'{cure}")
    columns = ordering if ordering is None or isinstance(ordering, str) else ",".join(ordering)
    named = {"recordkey": record_key, "partitionpath": partition_by, "ordering": columns}
    return {**{name: value for name, value in named.items() if value}, **options}


def make_table(path: str | os.PathLike[str], options: Mapping[str, Any]) -> Table:
    """Return the table at a path without a look at it. The arguments are those of `open_table`."""
    given = dict(options)
    said = given.pop("storage_options", None)
    storage_options = storage_options_of(os.fspath(path), given, said)
    resolved = resolve(given, table=os.fspath(path))
    storage = open_storage(path, sync=resolved["lakeformat.storage.sync"], **storage_options)
    return Table(storage, resolved)


@public
class Table(
    ArrowReadVerbs, WriteVerbs[Rows], Clustering, Compaction, Indexing, Maintenance, Registering, Syncing, Versioning
):
    """A Hudi table in plain Python. Get one from `lakeformat.open` or `lakeformat.create`.

    The object keeps only the table's settings: each call reads the table as it is at that moment. Rows are passed and
    returned as Arrow data. `lakeformat.spark.LakehouseTable` has the same methods on DataFrames.

    A method does its work when it is called. With ``dry_run=True`` it changes nothing and returns what it would do.
    """

    _options_are_given = "; options are given to lakeformat.open(path, ...) or create"

    def __init__(
        self, storage: Storage, options: Options | None = None, *, clock: Clock | None = None, ids: Ids | None = None
    ) -> None:
        if isinstance(storage, (str, os.PathLike)):
            raise InvalidInputError(f"a Table is made of a storage; write lakeformat.open({os.fspath(storage)!r})")
        self.options = options if options is not None else resolve({})
        use_index = self.options.write.file_index
        self.context = TableContext(storage, clock or SystemClock(), ids or RandomIds(), use_index)

    def __repr__(self) -> str:
        return f"Table({self.context.storage.location!r})"

    def _delete_where(self, where: Where, options: Options, hooks: HookArguments) -> WriteResult:
        return delete_where(self.context, options, where, **hooks)

    def _update(
        self, values: Mapping[str, Any], where: Where | None, options: Options, hooks: HookArguments
    ) -> WriteResult:
        return update(self.context, options, values, where, **hooks)

    def _merge(self, rows: Rows, clauses: tuple[Clause, ...], options: Options, hooks: HookArguments) -> WriteResult:
        return self._plan_again(rows, options, lambda: self._merge_once(rows, clauses, options, hooks))

    def _plan_again(self, rows: Rows | None, options: Options, run: Callable[[], WriteResult]) -> WriteResult:
        """Plan and run a write; again if the table's columns have changed meanwhile, and the rows can be read again."""
        if rows is not None and not can_be_read_again(rows):
            return run()
        result: WriteResult = repeat_after(StalePlanError, run, Attempts(options.patience, self.context.ids.token))
        return result

    def _merge_once(
        self, rows: Rows, clauses: tuple[Clause, ...], options: Options, hooks: HookArguments
    ) -> WriteResult:
        # Dicts and lists have no column types, so their values are converted to the types of the table's columns.
        schema = self.context.snapshot().schema if is_python_data(rows) else None
        bad_rows = make_collector(self.context, options)
        reader = arrow_reader(rows, schema, bad_rows)
        return merge_rows(self.context, options, reader, clauses, bad_rows=bad_rows, **hooks)

    def _arrow_rows(self, rows: Rows) -> Rows:
        return rows

    def _run_operation(
        self, rows: Rows | None, operation: Operation, options: Options, hooks: HookArguments, *, combine: bool
    ) -> WriteResult:
        if combine and self.config.record_fields:
            options = options.with_values(**{"hoodie.combine.before.insert": True})
        return self._plan_again(rows, options, lambda: self._write_once(rows, operation, hooks, options))

    def _write_once(
        self, rows: Rows | None, operation: Operation, hooks: HookArguments, resolved: Options
    ) -> WriteResult:
        config = self.config
        config.check_writable(self.context.storage.location)
        snapshot = self.context.snapshot(config=config)
        given: Any = pa.table({}) if rows is None and operation is Operation.DELETE_PARTITION else rows

        bad_rows = make_collector(self.context, resolved)

        def read_again() -> pa.RecordBatchReader:
            if bad_rows is not None:
                bad_rows.clear()
            return fit_to_table(arrow_reader(given, snapshot.schema, bad_rows), snapshot.schema)

        reader = read_again()
        job = plan_job(self.context.store, snapshot, resolved, reader.schema, self.context.ids)
        parsed = hooks_of(resolved, **hooks)
        columns = job.final_schema(snapshot)
        check_validators(parsed.validators, columns)
        check_services(self.context.storage, resolved, snapshot, columns)
        session = WriteSession(self.context, job, parsed)
        with reuse_memory(), put_aside_rows(session, bad_rows):
            if operation is Operation.DELETE_PARTITION:
                of_rows = (frozenset(), 0) if job.named_partitions else distinct_partitions(reader, job.prepare.keys)
                return session.run_delete_partitions(*of_rows)
            if job.writes_directly:
                again = read_again if can_be_read_again(given) else None
                return write_direct(session, reader, again, bad_rows, snapshot)
            with prepare_input(self.context.storage, job, reader, bad_rows) as (prepared, arrived):
                return session.run_staged(prepared, arrived, snapshot.timeline.commit_times, snapshot)
