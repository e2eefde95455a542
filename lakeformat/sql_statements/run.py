"""``lakeformat.sql(text, ...)``: SQL without Spark. duckdb computes queries, conditions and values.

Memory: duckdb reads only the columns that a query needs. If they do not fit into memory, it spills them to a temporary
folder. The result of a query is in memory.
"""

from __future__ import annotations

import copy
import fnmatch
import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakeformat.arrow.kinds import kind_of
from lakeformat.arrow.result_table import ResultTable
from lakeformat.concurrency import Attempts
from lakeformat.config.write_options import BAD_ROWS
from lakeformat.errors import InvalidInputError, TableNotFoundError, WriteConflictError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.public import public
from lakeformat.services.bad_rows import make_collector
from lakeformat.sql_statements.duckdb_changes import find_changes, fit_rows, make_copy, run_change
from lakeformat.sql_statements.duckdb_session import DuckDBSession, LazyScan, duckdb_session, quote_name
from lakeformat.sql_statements.maintenance import ShowTables
from lakeformat.sql_statements.parse import Dialect, Insert, TableName
from lakeformat.sql_statements.read_changes import (
    Change,
    find_change,
    find_named_columns,
    find_plain_where,
    read_change,
)
from lakeformat.sql_statements.recognize import recognize
from lakeformat.sql_statements.run_ddl import PROCESS_TABLES, KnownTable
from lakeformat.sql_statements.runner import StatementRunner
from lakeformat.sql_statements.time_travel import FoundTable, PastTable, PathTable, replace_tables, resolve_as_of
from lakeformat.statements import merge_rows
from lakeformat.table import Table, exists, open_table
from lakeformat.transaction.commit.hooks import with_statement
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order.conflict import repeat_after
from lakeformat.write.rows.arrow_input import arrow_reader

__all__ = ["sql"]


@public
def sql(text: str, *, time_zone: str = "UTC", **tables: Any) -> ResultTable | WriteResult:
    """Run one statement of DuckDB's SQL on tables and on any Arrow data; needs ``lakeformat[sql]``.

    Examples:
        >>> lakeformat.sql("select carrier, count(*) n from flights group by carrier", flights=table).num_rows
        4
        >>> lakeformat.sql("delete from flights where month = 3", flights=table).rows.deleted
        100

    Args:
        text: ``select``, ``merge into``, ``update``, ``delete from``, ``insert into`` or ``overwrite``, ``call``, or a
            statement that creates, describes or maintains a table: ``create table``, ``describe``, ``optimize`` ...
        time_zone: time zone of texts and times without a zone (duckdb's setting ``TimeZone``).
        tables: keyword arguments, which give names to tables. A value is a `lakeformat.Table`, the path of a table, or
            rows as `lakeformat.Table.upsert` accepts them. The text may also name tables by path,
            ``lakehouse."/data/flights"``, or by the name that ``create table`` gave them in this process.

    Returns:
        the rows of a query or a call, as Arrow rows that print as a table, or the result of a write.

    Raises:
        InvalidInputError: if the statement cannot be parsed or computed, or a clause is not supported.
        TableNotFoundError: if a name is unknown.
        WriteConflictError: if another writer interfered. A retry is safe.
    """
    statement = text.strip().rstrip(";")
    answer = _Runner(tables, time_zone, statement).run(recognize(statement, Dialect.DUCKDB, lambda name: True))
    return answer if isinstance(answer, WriteResult) else ResultTable(answer)


class _Runner(StatementRunner):
    """The runner of one SQL statement in plain Python. It implements `KnownTables`, too."""

    def __init__(self, tables: Mapping[str, Any], time_zone: str, text: str) -> None:
        self.tables = {name.lower(): rows for name, rows in tables.items()}
        self.time_zone, self.text, self.known = time_zone, text, self
        self._snapshots: dict[str, Snapshot] = {}

    def answer(self, answer: pa.Table | WriteResult) -> pa.Table | WriteResult:
        """Return the answer itself."""
        return answer

    def called_table(self, name: str) -> Table:
        """Open the table that a ``call`` gives by its name or its path."""
        is_path = name.lower() not in self.tables and PROCESS_TABLES.get(name) is None
        return self.table(TableName(name, name if is_path else None))

    def show_tables(self, statement: ShowTables) -> pa.Table:
        """Return the names of the arguments of the call and of the tables of this process."""
        names = fnmatch.filter({*self.tables, *PROCESS_TABLES.list_names()}, statement.like or "*")
        return pa.table({"tableName": pa.array(sorted(names), pa.string())})

    # --- the methods of `KnownTables`: arguments of the call hide registered tables of the same name -------

    def get(self, name: str) -> KnownTable | None:
        """Return the table that an argument of the call or ``create table`` named; None if the name is unknown."""
        rows = self.tables.get(name.lower())
        if rows is None:
            return PROCESS_TABLES.get(name)
        if isinstance(rows, Table):
            return KnownTable(rows.context.storage.location)
        if not isinstance(rows, str | os.PathLike):
            raise InvalidInputError(f"{name!r} is rows, not a table; choose another name")
        return KnownTable(os.fspath(rows))

    def put(self, name: str, table: KnownTable) -> None:
        """Register a table name for later statements of this process, unless it is an argument of this call."""
        if name.lower() not in self.tables:
            PROCESS_TABLES.put(name, table)

    def forget(self, name: str) -> None:
        """Remove a table name from the registry of this process; the table itself is not deleted.

        Raises:
            InvalidInputError: if the name is an argument of this call.
        """
        if name.lower() in self.tables:
            raise InvalidInputError(f"{name!r} is named by this call alone; leave it out of the call")
        PROCESS_TABLES.forget(name)

    def _is_table(self, name: str) -> bool:
        rows = self.tables.get(name.lower(), PROCESS_TABLES.get(name))
        return isinstance(rows, Table | KnownTable | str | os.PathLike)

    # --- the methods of the protocol `Host`, which `create_table` calls ---------------------------------

    def default_path(self, name: str) -> str:
        """Raise an error for a new table without a path: plain Python has no warehouse folder.

        Raises:
            InvalidInputError: always.
        """
        raise InvalidInputError(
            f"create table {name} has no place; add location '/its/path', or give {name}='/its/path'"
        )

    def select(self, query: str) -> tuple[pa.Table, pa.Schema]:
        """Run a query. Return its rows and their schema."""
        rows = self.query(query)
        return rows, rows.schema

    def overwrite(self, table: KnownTable, rows: pa.Table) -> WriteResult:
        """Replace all rows of a table, in a commit that stores the statement."""
        return self._with_statement(open_table(table.path, **table.options)).overwrite(rows)

    def table(self, named: TableName) -> Table:
        """Open a lakeformat table so that its commits store the statement's text.

        Raises:
            TableNotFoundError: if the name is unknown.
            InvalidInputError: if the name means rows, not a table.
        """
        if named.path is not None:
            return self._with_statement(open_table(named.path))
        opened = self.tables.get(named.name.lower())
        if opened is None and (given := PROCESS_TABLES.get(named.name)) is not None:
            opened = given
        if opened is None:
            raise TableNotFoundError(
                f'no table is known as {named.name!r}; give it by name, sql("...", {named.name}=table), or by path: '
                'lakehouse."/its/path"'
            )
        table = _open_table(opened)
        if table is None:
            raise InvalidInputError(f"{named.name!r} is rows, not a table; they can be read, not changed")
        return self._with_statement(table)

    def _with_statement(self, table: Table) -> Table:
        """Return a copy of the table whose commits store the statement in their extra metadata."""
        marked = copy.copy(table)
        marked.options = with_statement(table.options, self.text)
        return marked

    # --- queries ---------------------------------------------------------------------------------------

    def query(self, text: str) -> pa.Table:
        """Run a query and return its rows."""
        plain, found_tables = self._replace_tables(text)
        with duckdb_session(self.time_zone) as session:
            session.check_query(plain)
            session.register_named(plain, lambda name: self._source(session, name, found_tables))
            return session.read_all(plain)

    def _replace_tables(self, text: str) -> tuple[str, dict[str, FoundTable]]:
        return replace_tables(text, Dialect.DUCKDB, self._is_table, exists)

    def _source(self, session: DuckDBSession, name: str, found_tables: Mapping[str, FoundTable]) -> Any:
        """Return the rows of the table with the name ``name``, a word of the statement; None if there is no table."""
        source = found_tables.get(name)
        if source is None:
            rows = self.tables.get(name, PROCESS_TABLES.get(name))
            if isinstance(rows, KnownTable) and not exists(rows.path):
                return None  # The table was deleted. No error: the word may be a column.
            table = _open_table(rows)
            if table is not None:
                return self._scan(session, table)
            if rows is not None:  # A stream can be read only once, but the statement may run again.
                rows = self.tables[name] = _read_all(rows)
            return rows
        if isinstance(source, PathTable):
            return self._scan(session, open_table(source.path))
        table = self.table(source.target)
        if isinstance(source, PastTable):
            return self._scan(
                session, table, table.snapshot(resolve_as_of(table.context.store, source.kind, source.point))
            )
        if source.images:
            return table.changes(source.since, source.until, images=True).to_arrow()
        return table.changes(source.since, source.until).to_arrow()

    def _scan(self, session: DuckDBSession, table: Table, snapshot: Snapshot | None = None) -> LazyScan:
        """Return a scan of the table's rows. All scans of a table in one statement read the same snapshot."""
        storage = table.context.storage
        if snapshot is None:
            snapshot = self._snapshots.setdefault(storage.location, table.snapshot())
        return LazyScan(storage, snapshot, table.options, session.record_error)

    # --- changes ---------------------------------------------------------------------------------------

    def change(self, change: Change) -> WriteResult:
        """Run ``insert``, ``update``, ``delete`` or ``merge``.

        Raises:
            InvalidInputError: if the statement has ``returning``.
        """
        table = self.table(change.target)
        if any(token.lower == "returning" for token in change.tokens):
            raise InvalidInputError("returning is not supported; the result counts the rows, and a select shows them")
        plain, found_tables = self._replace_tables(change.text)
        now = find_change(plain, Dialect.DUCKDB)
        assert now is not None  # noqa: S101  It is the parsed `change` with other table names.
        with duckdb_session(self.time_zone) as session:
            if now.action == "insert":
                return self._insert(session, table, now, found_tables)
            where = find_plain_where(now, table.schema)
            if where is not None:
                session.statement_kind(plain)
                return table.delete(where=where)
        return self._merge(table, now, found_tables)

    def _insert(
        self, session: DuckDBSession, table: Table, change: Change, found_tables: Mapping[str, FoundTable]
    ) -> WriteResult:
        """Run an insert: duckdb inserts into an empty table with the same columns, whose rows are then written.

        So duckdb's rules for inserts apply, such as casts and nulls for missing columns.
        """
        name, columns = f"lakeformat.{quote_name(change.target.name)}", table.schema
        session.run("create schema lakeformat")
        session.register("lakeformat_empty", columns.empty_table())
        session.run(f"create table {name} as from lakeformat_empty")
        before, after = change.text[: change.tokens[change.name].at], change.text[change.tokens[change.after - 1].end :]
        overwrite, text = False, f"{before}{name}{after}"
        if {"overwrite", "table", "partition"} & {token.lower for token in change.tokens[: change.after + 1]}:
            parts = read_change(change)
            assert isinstance(parts, Insert)  # noqa: S101
            overwrite, text = parts.overwrite, _insert_text(name, parts, columns)
        session.statement_kind(text)
        session.register_named(text, lambda word: self._source(session, word, found_tables))
        session.run(text)
        rows: Any = _ComputedRows(session, name, columns)
        if not overwrite:
            return table.insert(rows)
        return table.insert_overwrite(rows) if table.config.partition_fields else table.overwrite(rows)

    def _merge(self, table: Table, change: Change, found_tables: Mapping[str, FoundTable]) -> WriteResult:
        """Run an update, delete or merge. After a conflict, run it again on the newest rows, as the options allow."""

        def run() -> WriteResult:
            with duckdb_session(self.time_zone) as session:
                return self._merge_once(session, table, change, found_tables)

        attempts = Attempts(table.options.patience, table.context.ids.token)
        return repeat_after(WriteConflictError, run, attempts, before_repetition=self._snapshots.clear)

    def _merge_once(
        self, session: DuckDBSession, table: Table, change: Change, found_tables: Mapping[str, FoundTable]
    ) -> WriteResult:
        """Run the statement on a copy of the rows in duckdb, and write the rows that differ in one commit."""
        read_snapshot = table.context.writable_snapshot()
        self._snapshots[table.context.storage.location] = read_snapshot
        config, columns, name = read_snapshot.config, table.schema, change.target.name
        named = find_named_columns(change, columns.names)
        if named is not None and not config.record_fields:
            kinds = [columns.field(name).type for name in named]
            # If an update sets a nested column, duckdb gives the row a new number. Without a record key the row then
            # counts as deleted and inserted again, and an inserted row needs the values of all columns.
            named = None if any(kind_of(kind).is_nested for kind in kinds) else named
        if named is not None:
            fixed = {field.partition(".")[0] for field in (*config.record_fields, *config.partition_fields)}
            narrow = pa.schema([field for field in columns if field.name in named | fixed])
            columns = narrow if len(narrow) else pa.schema([columns.field(0)])
        session.statement_kind(change.text)
        session.register_named(
            change.text, lambda word: None if word == name.lower() else self._source(session, word, found_tables)
        )
        rows = LazyScan(
            table.context.storage, read_snapshot, table.options, session.record_error, with_key=not config.record_fields
        )
        session.register("lakeformat_rows", rows)
        is_global = table.options.write.index.is_global
        copied = make_copy(session, name, "lakeformat_rows", columns, config, is_global=is_global)
        is_match = change.action == "merge" or (
            change.action == "update" and "from" in {token.lower for token in change.tokens}
        )
        run_change(copied, change.text, match_verb=change.action if is_match else None)
        changes = find_changes(copied, change.action)
        options = table.options
        if change.action != "merge":  # A stored row whose new values do not fit must not stay as it is.
            options = options.with_values(**{BAD_ROWS: "fail"})
        result = merge_rows(
            table.context,
            options,
            changes.rows,
            changes.clauses,
            read_snapshot,
            requires_one_match=True,
            bad_rows=make_collector(table.context, options),
        )
        return table._end_write(result)


def _open_table(rows: Any) -> Table | None:
    """Open the table that an argument names: a path, a `KnownTable` or a `Table`. Return None for rows."""
    if isinstance(rows, str | os.PathLike):
        return open_table(rows)
    if isinstance(rows, KnownTable):
        return open_table(rows.path, **rows.options)
    return rows if isinstance(rows, Table) else None


class _ComputedRows:
    """The rows of a table in duckdb with the types of a lakeformat table's columns. They can be read several times."""

    is_repeatable = True

    def __init__(self, session: DuckDBSession, name: str, columns: pa.Schema) -> None:
        self._session, self._name, self._columns = session, name, columns

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows from the first one on. Errors of the reader keep their class, unlike those of a C stream."""
        return fit_rows(self._session.stream(f"from {self._name}"), self._columns)


def _read_all(rows: Any) -> pa.Table:
    return rows if isinstance(rows, pa.Table) else arrow_reader(rows).read_all()


def _insert_text(name: str, statement: Insert, columns: pa.Schema) -> str:
    """Return the insert as duckdb can run it: without OVERWRITE, and with the columns of PARTITION as values."""
    fixed = {column.lower() for column in statement.partition}
    names = statement.columns or tuple(column for column in columns.names if column.lower() not in fixed)
    query = statement.query
    if statement.partition:
        query = f"select *, {', '.join(statement.partition.values())} from ({query})"
    return f"insert into {name} ({', '.join(map(quote_name, (*names, *statement.partition)))}) {query}"
