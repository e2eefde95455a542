"""The plain Python host: a table on Arrow data, no Spark needed.

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
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.config.resolve import Options, resolve
from lakeformat.config.storage_options import storage_options_of
from lakeformat.errors import InvalidInputError, InvalidOptionError
from lakeformat.keys.partition_paths import distinct_partitions
from lakeformat.merge import MergeFunction
from lakeformat.model.operation import Operation, operation_of
from lakeformat.model.table_config import TableConfig
from lakeformat.predicate import Where
from lakeformat.read.query import in_zone
from lakeformat.read.reading import Reading
from lakeformat.services.clustering import Clustering
from lakeformat.services.compaction import Compaction
from lakeformat.services.inline import check_services, with_services
from lakeformat.services.life import Life
from lakeformat.services.versioning import Versioning
from lakeformat.statements import delete_where, merge_rows, update
from lakeformat.storage import Clock, Ids, RandomIds, Storage, SystemClock, open_storage
from lakeformat.table_state.engine import Engine
from lakeformat.timeline.history import HistoryEntry
from lakeformat.timeline.standing import check_free
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.hooks import HookArguments, check_hook_names, hooks_of
from lakeformat.transaction.result import WriteResult
from lakeformat.transaction.validators import check_validators
from lakeformat.write.decide.job import plan_job
from lakeformat.write.decide.merging import upsert_options
from lakeformat.write.decide.table_settings import check_options, create_table
from lakeformat.write.direct_session import write_direct
from lakeformat.write.intake import taken_in
from lakeformat.write.preview import Planning
from lakeformat.write.rows.arrow_input import (
    arrow_reader,
    check_fillable,
    fitted,
    is_schema,
    schema_of,
    warn_of_rows,
    without_index,
)
from lakeformat.write.rows.arrow_pool import reused_memory
from lakeformat.write.rows.layout import PARTITIONER, SORT_COLUMNS, Partitioner
from lakeformat.write.rows.python_data import is_python_data
from lakeformat.write.rows.schema import incoming_schema
from lakeformat.write.session import WriteSession
from lakeformat.write.statements.clauses import Merge

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["HistoryEntry", "Table", "create", "exists", "open_table"]

_OPERATION: Final = "hoodie.datasource.write.operation"
_RECORD_KEY: Final = "hoodie.datasource.write.recordkey.field"
_PARTITION_PATH: Final = "hoodie.datasource.write.partitionpath.field"
_ORDERING: Final = "hoodie.table.ordering.fields"
_PARTITIONS_TO_DELETE: Final = "hoodie.datasource.write.partitions.to.delete"


def create(
    path: str | os.PathLike[str],
    schema: Any,
    *,
    record_key: str | Sequence[str] = (),
    partition_by: str | Sequence[str] = (),
    ordering: str | None = None,
    if_exists: str = "open",
    insert: bool = False,
    **options: Any,
) -> Table:
    """Make a table: empty, of version 6 and copy-on-write, unless the arguments say otherwise.

    Args:
        path: folder or URL.
        schema: the columns: an Arrow schema, names with Arrow types (``{"id": "int64"}``), or rows that have them;
            types are stored as Hudi stores them (small integers as int32 ...). No row is written without ``insert``.
        record_key: columns that identify a row; without one each row gets a generated key, and rows can be added
            and overwritten, but not upserted.
        partition_by: columns that make the folders.
        ordering: column that tells the newer of two rows with one key.
        if_exists: ``open`` a table of the same settings that is there already (the default), or ``error``.
        insert: insert the rows that ``schema`` holds. A table that has a commit already is refused.
        options: Hudi's option names or the short aliases; ``storage_options`` goes to fsspec.

    Raises:
        InvalidOptionError: an unknown or bad option, or a table with other settings stands there already.
        SchemaMismatchError: a named column is not in the schema, or a type cannot be stored.
    """
    named = {"recordkey": record_key, "partitionpath": partition_by, "ordering": ordering}
    given = {name: value for name, value in named.items() if value}
    if if_exists not in {"open", "error"}:
        cure = "; to put other rows in place of those there, open it and call overwrite" * (if_exists == "replace")
        raise InvalidOptionError(f"if_exists={if_exists!r} is not known; give 'open' or 'error'{cure}")
    table = _make(path, {**given, **options})
    said = table.options
    roles = [*said[_RECORD_KEY], *(name.partition(":")[0] for name in said[_PARTITION_PATH]), said[_ORDERING] or ""]
    rows = None if is_schema(schema) else arrow_reader(schema)
    if insert:
        check_fillable(table.engine.store, has_rows=rows is not None)
    stored = incoming_schema(without_index(schema_of(schema) if rows is None else rows.schema, roles))
    check_free(table.engine.storage)
    new = if_exists == "error"
    config = create_table(table.engine.store, table.options, stored, table.engine.clock, must_be_new=new)
    check_options(config, table.options, table.engine.storage.location)
    if insert:
        table.insert(rows)
    elif rows is not None:
        warn_of_rows(table.location, schema)
    return table


def open_table(path: str | os.PathLike[str], **options: Any) -> Table:
    """Open the table at a path.

    Raises:
        TableNotFoundError, UnsupportedTableError, CorruptTableError: the path holds no table that can be read.
    """
    table = _make(path, options)
    config = table.config
    config.check_readable(table.engine.storage.location)
    check_options(config, table.options, table.engine.storage.location)
    return table


def exists(path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Whether a table stands at a path or URL.

    Raises:
        StorageError: the storage cannot be asked.
    """
    return TimelineStore(open_storage(path, **(storage_options or {}))).exists()


def _make(path: str | os.PathLike[str], options: Mapping[str, Any]) -> Table:
    given = dict(options)
    said = given.pop("storage_options", None) or {}
    storage_options = {**storage_options_of(os.fspath(path), given), **said}
    resolved = resolve(given, table=os.fspath(path))
    storage = open_storage(path, sync=resolved["lakeformat.storage.sync"], **storage_options)
    return Table(storage, resolved)


class Table(Reading, Planning, Clustering, Compaction, Life, Versioning):
    """A Hudi table. Cheap to make: nothing is read before it is asked for, and nothing is kept but settings."""

    def __init__(
        self, storage: Storage, options: Options | None = None, *, clock: Clock | None = None, ids: Ids | None = None
    ) -> None:
        if isinstance(storage, (str, os.PathLike)):
            raise InvalidInputError(f"a Table is made of a storage; write lakeformat.open({os.fspath(storage)!r})")
        self.options = options if options is not None else resolve({})
        use_index = self.options.write.file_index
        self.engine = Engine(storage, clock or SystemClock(), ids or RandomIds(), use_index)

    def __repr__(self) -> str:
        return f"Table({self.engine.storage.location!r})"

    @property
    def config(self) -> TableConfig:
        """The table's settings, read anew."""
        return TimelineStore(self.engine.storage).config()

    # --- writing --------------------------------------------------------------------------------------

    def upsert(
        self,
        rows: Any,
        *,
        partial_update: bool | str | Sequence[str] | None = None,
        merger: MergeFunction | str | None = None,
        **hooks: Unpack[HookArguments],
    ) -> WriteResult:
        """Update the rows whose keys are there, insert the others.

        Args:
            rows: an Arrow table, batch, reader, dataset or iterable of batches, anything with ``__arrow_c_stream__``
                (pandas, polars, duckdb), a polars LazyFrame, a list of dicts, or a dict of lists.
            partial_update: write only some columns of stored rows, nulls included, and keep the others: True for the
                columns that ``rows`` has, or names. The table's option by default.
            merger: a function ``(stored, incoming) -> merged`` on two Arrow tables, or ``package.module:function``;
                see `lakeformat.merge.Merger`. The table's option by default.
            hooks: ``validators``, ``callbacks`` and ``extra_metadata`` of this write, see `HookArguments`.

        Raises:
            SchemaMismatchError, InvalidInputError: the rows cannot be written; nothing was published.
            ValidationFailedError: a validator refused the write; nothing was published.
            WriteConflictError, LockTimeoutError: another writer was in the way; a retry is safe.
        """
        return self._write(
            rows, Operation.UPSERT, hooks, upsert_options(partial_update, merger), own=("partial_update", "merger")
        )

    def insert(self, rows: Any, **hooks: Unpack[HookArguments]) -> WriteResult:
        """Add the rows, topping up small files; keys are not looked up."""
        return self._write(rows, Operation.INSERT, hooks)

    def bulk_insert(
        self,
        rows: Any,
        *,
        sort_columns: Sequence[str] = (),
        partitioner: Partitioner | None = None,
        **hooks: Unpack[HookArguments],
    ) -> WriteResult:
        """Add the rows as new files, streaming: memory does not grow with the input.

        Args:
            sort_columns: sort each partition's rows by these; by default what ``hoodie.bulkinsert.sort.mode`` says.
            partitioner: from the Arrow table of a part of a partition's rows to the number of each row's output file
                (an integer array): rows with one number end in one file, or in several if the size limit cuts it.
            hooks: as of `upsert`.
        """
        options: dict[str, Any] = {SORT_COLUMNS: tuple(sort_columns)} if sort_columns else {}
        if partitioner is not None:
            options[PARTITIONER] = partitioner
        return self._write(rows, Operation.BULK_INSERT, hooks, options, own=("sort_columns", "partitioner"))

    def delete(
        self,
        keys: Any = None,
        *,
        where: Where | None = None,
        time_zone: str | None = None,
        **hooks: Unpack[HookArguments],
    ) -> WriteResult:
        """Delete the rows with these keys, or those that a condition selects.

        Args:
            keys: rows with the key columns and the partition columns; without partition columns every
                partition is searched. Other columns are not looked at.
            where: a Spark SQL condition or a ``pyarrow.compute`` expression; rows for which it is null
                stay. ``true`` deletes every row.
            time_zone: of times without one in ``where``; by default the option ``time_zone``, else UTC.

        Raises:
            InvalidInputError: neither or both are given, or the condition cannot be answered exactly.
            WriteConflictError, LockTimeoutError: another writer was in the way; a retry is safe.
        """
        check_hook_names(hooks, "delete", ("where", "time_zone"))
        if isinstance(keys, str | pc.Expression):
            shown = repr(keys) if isinstance(keys, str) else "..."
            raise InvalidInputError(f"delete({shown}) gives a condition in place of keys; say delete(where={shown})")
        if (keys is None) == (where is None):
            raise InvalidInputError("delete takes keys or a condition: give keys, or where='...'; where='true' is all")
        if where is not None:
            return self._served(delete_where(self.engine, in_zone(self.options, time_zone), where, **hooks))
        return self._write(keys, Operation.DELETE, hooks)

    def update(
        self,
        set: Mapping[str, Any],  # noqa: A002  SQL's word.
        where: Where | None = None,
        time_zone: str | None = None,
        **hooks: Unpack[HookArguments],
    ) -> WriteResult:
        """Set columns of the rows that a condition selects; only files that hold such rows are written anew.

        The rows stay where they are, so record key and partition columns cannot be set. The ordering column can:
        the event-time rule is for rows that meet a stored row of their key, and does not look at updates.

        Args:
            set: column -> its new value: a Python value, an Arrow scalar, or a function that is given the selected
                rows (a ``pa.RecordBatch`` with the meta columns, a part of the rows at a time) and returns an Arrow
                array with one value a row. All functions see the rows as they were.
            where: as for `delete`; None is every row.
            time_zone: as for `delete`.

        Raises:
            SchemaMismatchError: a column that cannot be set, or a value that would not fit it unchanged.
            InvalidInputError: the condition cannot be answered exactly, or a function fails.
            WriteConflictError, LockTimeoutError: another writer was in the way; a retry is safe.
        """
        check_hook_names(hooks, "update", ("where", "time_zone"))
        return self._served(update(self.engine, in_zone(self.options, time_zone), set, where, **hooks))

    def merge(self, rows: Any, *, time_zone: str | None = None, **hooks: Unpack[HookArguments]) -> Merge:
        """Merge a source by record key; nothing happens before `Merge.execute`.

        Examples:
            >>> merge = table.merge(marked).when_matched_delete("op = 'd'").when_matched_update()
            >>> merge.when_not_matched_insert("op <> 'd'").execute().report["rows"]
            {'incoming': 40, 'inserted': 16, 'updated': 16, 'deleted': 4}

        Args:
            rows: Arrow data, as for `upsert`, each key once. Without partition columns every partition is searched,
                and nothing can be inserted. Columns that the table does not have are for conditions and functions.
            time_zone: of the clauses' conditions, as for `delete`.
            hooks: as of `upsert`.
        """
        check_hook_names(hooks, "merge", ("time_zone",))
        options = in_zone(self.options, time_zone)
        return Merge(lambda clauses: self._served(merge_rows(self.engine, options, self._read(rows), clauses, **hooks)))

    def _read(self, rows: Any) -> pa.RecordBatchReader:
        """Rows as a stream; the table is asked for its types only where the rows have none of their own."""
        return arrow_reader(rows, self.engine.snapshot().schema if is_python_data(rows) else None)

    def _served(self, result: WriteResult) -> WriteResult:
        """The result of a write, with what services after it did."""
        return with_services(result, self.engine, self.options)

    def overwrite(self, rows: Any, **hooks: Unpack[HookArguments]) -> WriteResult:
        """Replace the contents of the table by these rows, in one step; no rows empty it."""
        return self._write(rows, Operation.INSERT_OVERWRITE_TABLE, hooks, combine=True)

    def insert_overwrite(self, rows: Any, **hooks: Unpack[HookArguments]) -> WriteResult:
        """Replace the contents of the partitions that these rows belong to; the others stay."""
        return self._write(rows, Operation.INSERT_OVERWRITE, hooks, combine=True)

    def delete_partitions(self, partitions: str | Sequence[str], **hooks: Unpack[HookArguments]) -> WriteResult:
        """Delete whole partitions. No data is read or written, so it costs the same for any size.

        Args:
            partitions: partition paths as they stand in the table (``month=1``); ``*`` stands for any text.

        Raises:
            InvalidInputError: none of them is there, or a path leads out of the table.
        """
        wanted = (partitions,) if isinstance(partitions, str) else tuple(partitions)
        if not wanted:
            raise InvalidInputError("no partition is named; give partition paths")
        options = {_PARTITIONS_TO_DELETE: wanted}
        return self._write(pa.table({}), Operation.DELETE_PARTITION, hooks, options)

    def write(
        self,
        rows: Any,
        operation: Operation | str,
        *,
        combine: bool = False,
        options: Mapping[str, Any] | None = None,
        **hooks: Unpack[HookArguments],
    ) -> WriteResult:
        """Write by any operation; see the methods named after them.

        Args:
            operation: an `Operation` or its name, as ``hoodie.datasource.write.operation`` has it.
            options: parsed values for this write alone.
        """
        return self._write(rows, operation_of(operation), hooks, options, combine=combine, own=("combine", "options"))

    def _write(
        self,
        rows: Any,
        operation: Operation,
        hooks: HookArguments,
        options: Mapping[str, Any] | None = None,
        *,
        combine: bool = False,
        own: Sequence[str] = (),
    ) -> WriteResult:
        """Write by one operation.

        Args:
            own: names of the method's own arguments, for the guess at an unknown one.
        """
        check_hook_names(hooks, "", own)
        values: dict[str, Any] = {**(options or {}), _OPERATION: operation.value}
        config = self.config
        if combine and config.record_fields:
            values["hoodie.combine.before.insert"] = True
        resolved = self.options.with_values(**values)
        config.check_writable(self.engine.storage.location)
        snapshot = self.engine.snapshot(config=config)
        reader = fitted(arrow_reader(rows, snapshot.schema), snapshot.schema)
        job = plan_job(self.engine.store, snapshot, resolved, reader.schema, self.engine.ids)
        parsed = hooks_of(resolved, **hooks)
        check_validators(parsed.validators, job.final_schema(snapshot))
        check_services(resolved, snapshot, job.final_schema(snapshot))
        session = WriteSession(self.engine, job, parsed)
        with reused_memory():
            if operation is Operation.DELETE_PARTITION:
                of_rows = (frozenset(), 0) if job.named_partitions else distinct_partitions(reader, job.prepare.keys)
                result = session.run_delete_partitions(*of_rows)
            elif job.staged:
                known = snapshot.timeline.commit_times
                with taken_in(self.engine.storage, job, reader) as (prepared, arrived):
                    result = session.run_staged(prepared, arrived, known, snapshot)
            else:
                result = write_direct(session, reader)
        return with_services(result, self.engine, resolved)
