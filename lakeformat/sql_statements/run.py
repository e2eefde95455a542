"""``lakeformat.sql(text, ...)``: SQL without Spark. duckdb reads and computes queries, conditions and values, whole.

Memory: duckdb reads the columns that a query needs, and spills to a temporary folder what is too much for it; the
answer of a query is in memory.
"""

from __future__ import annotations

import copy
import fnmatch
import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from lakeformat.errors import InvalidInputError, TableNotFoundError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.services.after_write import with_services
from lakeformat.sql_statements.ddl import CreateTable, DropTable
from lakeformat.sql_statements.duckdb_changes import copy_rows, find_changes, fitted_rows, run_change
from lakeformat.sql_statements.duckdb_session import DuckDBSession, LazyScan, duckdb_session, quoted
from lakeformat.sql_statements.maintenance import ShowTables
from lakeformat.sql_statements.parse import Call, Dialect, Insert, Query, TableName
from lakeformat.sql_statements.read_changes import Change, find_change, named_columns, plain_where, read_change
from lakeformat.sql_statements.recognize import AnyStatement, understand
from lakeformat.sql_statements.run_ddl import GIVEN, KnownTable, create_table, drop_table
from lakeformat.sql_statements.run_maintenance import called_table, run_call, run_on
from lakeformat.sql_statements.time_travel import FoundTable, PastTable, PathTable, as_of, replace_tables
from lakeformat.statements import merge_rows
from lakeformat.table import Table, exists, open_table
from lakeformat.transaction.hooks import with_statement
from lakeformat.transaction.result import WriteResult
from lakeformat.write.rows.arrow_input import arrow_reader

__all__ = ["sql"]


def sql(text: str, *, time_zone: str = "UTC", **tables: Any) -> pa.Table | WriteResult:
    """Run one statement of DuckDB's SQL on tables and on any Arrow data; needs ``lakeformat[sql]``.

    Examples:
        >>> lakeformat.sql("select carrier, count(*) n from flights group by carrier", flights=table).num_rows
        4
        >>> lakeformat.sql("delete from flights where month = 3", flights=table).rows.deleted
        100

    Args:
        text: ``select``, ``merge into``, ``update``, ``delete from``, ``insert into`` or ``overwrite``, ``call``, or
            one that makes, describes or keeps a table: ``create table``, ``describe``, ``optimize`` ...
        time_zone: where texts and times without a zone are, as duckdb's setting ``TimeZone``.
        tables: name -> a `lakeformat.Table`, the path of one, or rows as `lakeformat.Table.upsert` takes them. Tables
            may also be named by path in the text, ``lakehouse."/data/flights"``, or by the name that ``create table``
            gave them in this process.

    Returns:
        the rows of a query or a call; of a write its result.

    Raises:
        InvalidInputError: what cannot be read or computed; a clause that is not supported.
        TableNotFoundError: a name that is not given.
        WriteConflictError: another writer was in the way; a retry is safe.
    """
    said = text.strip().rstrip(";")
    return _Runner(tables, time_zone, said).run(understand(said, Dialect.DUCKDB, lambda name: True))


class _Runner:
    """Carries one statement out on the tables at hand."""

    def __init__(self, tables: Mapping[str, Any], time_zone: str, text: str) -> None:
        self.tables = {name.lower(): rows for name, rows in tables.items()}
        self.time_zone, self.text = time_zone, text
        self._snapshots: dict[str, Snapshot] = {}

    def run(self, statement: AnyStatement) -> pa.Table | WriteResult:
        """Run it."""
        match statement:
            case Query():
                return self.query(statement.text)
            case Call():
                said = called_table(statement)
                is_path = said.lower() not in self.tables and GIVEN.get(said) is None
                return run_call(statement, self.table(TableName(said, said if is_path else None)))
            case Change():
                return self.change(statement)
            case CreateTable():
                return create_table(statement, self, self)
            case DropTable():
                return drop_table(statement, self)
            case ShowTables():
                names = fnmatch.filter({*self.tables, *GIVEN.all()}, statement.like or "*")
                return pa.table({"tableName": pa.array(sorted(names), pa.string())})
            case _:
                return run_on(statement, self.table(statement.target))

    # --- names, as `KnownTables`: those of the call come before those of the process -------------------

    def get(self, name: str) -> KnownTable | None:
        """What a name stands for."""
        said = self.tables.get(name.lower())
        if said is None:
            return GIVEN.get(name)
        if isinstance(said, Table):
            return KnownTable(said.engine.storage.location)
        if not isinstance(said, str | os.PathLike):
            raise InvalidInputError(f"{name!r} is rows and no table; choose another name")
        return KnownTable(os.fspath(said))

    def put(self, name: str, table: KnownTable) -> None:
        """Give a name, unless the call has."""
        if name.lower() not in self.tables:
            GIVEN.put(name, table)

    def forget(self, name: str) -> None:
        """Take a name back.

        Raises:
            InvalidInputError: the call has given it.
        """
        if name.lower() in self.tables:
            raise InvalidInputError(f"{name!r} is named by this call alone; leave it out of the call")
        GIVEN.forget(name)

    def _is_table(self, name: str) -> bool:
        said = self.tables.get(name.lower(), GIVEN.get(name))
        return isinstance(said, Table | KnownTable | str | os.PathLike)

    # --- rows, as `Host` ------------------------------------------------------------------------------

    def default_path(self, name: str) -> str:
        """Refuse: plain Python has no warehouse.

        Raises:
            InvalidInputError: always.
        """
        raise InvalidInputError(
            f"create table {name} has no place; add location '/its/path', or give {name}='/its/path'"
        )

    def select(self, query: str) -> tuple[pa.Table, pa.Schema]:
        """The rows of a query."""
        rows = self.query(query)
        return rows, rows.schema

    def overwrite(self, table: KnownTable, rows: pa.Table) -> WriteResult:
        """Put rows in place of those of a table."""
        return self._marked(open_table(table.path, **table.options)).overwrite(rows)

    def table(self, named: TableName) -> Table:
        """Find a table of ours, whose commits will keep the statement.

        Raises:
            TableNotFoundError: the name is not given.
            InvalidInputError: what is named so is no table of ours.
        """
        if named.path is not None:
            return self._marked(open_table(named.path))
        known = self.tables.get(named.name.lower())
        if known is None and (given := GIVEN.get(named.name)) is not None:
            known = given
        if known is None:
            raise TableNotFoundError(
                f'no table is known as {named.name!r}; give it by name, sql("...", {named.name}=table), or by path: '
                'lakehouse."/its/path"'
            )
        table = _opened(known)
        if table is None:
            raise InvalidInputError(f"{named.name!r} is rows and no table; they can be read, not changed")
        return self._marked(table)

    def _marked(self, table: Table) -> Table:
        """The same table, with the statement in its commits' extra metadata."""
        marked = copy.copy(table)
        marked.options = with_statement(table.options, self.text)
        return marked

    # --- queries ---------------------------------------------------------------------------------------

    def query(self, text: str) -> pa.Table:
        """Compute a query."""
        plain, found = self._replaced(text)
        with duckdb_session(self.time_zone) as session:
            session.check_query(plain)
            session.give_named(plain, lambda name: self._source(session, name, found))
            return session.rows(plain)

    def _replaced(self, text: str) -> tuple[str, dict[str, FoundTable]]:
        return replace_tables(text, Dialect.DUCKDB, self._is_table, exists)

    def _source(self, session: DuckDBSession, name: str, found: Mapping[str, FoundTable]) -> Any:
        """What a word of the statement stands for; None if for nothing."""
        each = found.get(name)
        if each is None:
            rows = self.tables.get(name, GIVEN.get(name))
            if isinstance(rows, KnownTable) and not exists(rows.path):
                return None  # The word may mean something else.
            table = _opened(rows)
            return self._scan(session, table) if table is not None else _gathered(rows)
        if isinstance(each, PathTable):
            return self._scan(session, open_table(each.path))
        table = self.table(each.target)
        if isinstance(each, PastTable):
            return self._scan(session, table, table.snapshot(as_of(table.engine.store, each.kind, each.point)))
        if each.images:
            return table.changes(each.since, each.until, images=True).to_arrow()
        return table.changes(each.since, each.until).to_arrow()

    def _scan(self, session: DuckDBSession, table: Table, snapshot: Snapshot | None = None) -> LazyScan:
        """The rows of one moment, the same wherever the statement names the table."""
        storage = table.engine.storage
        if snapshot is None:
            snapshot = self._snapshots.setdefault(storage.location, table.snapshot())
        return LazyScan(storage, snapshot, table.options, session.fail)

    # --- changes ---------------------------------------------------------------------------------------

    def change(self, said: Change) -> WriteResult:
        """Run ``insert``, ``update``, ``delete`` or ``merge``.

        Raises:
            InvalidInputError: with ``returning``.
        """
        table = self.table(said.target)
        if any(token.lower == "returning" for token in said.tokens):
            raise InvalidInputError("returning is not supported; the result counts the rows, and a select shows them")
        plain, found = self._replaced(said.text)
        now = find_change(plain, Dialect.DUCKDB)
        assert now is not None  # noqa: S101  Names alone have changed.
        with duckdb_session(self.time_zone) as session:
            if now.action == "insert":
                return self._insert(session, table, now, found)
            where = plain_where(now, table.schema)
            if where is not None:
                session.kind(plain)
                return table.delete(where=where)
            return self._merge(session, table, now, found)

    def _insert(
        self, session: DuckDBSession, table: Table, said: Change, found: Mapping[str, FoundTable]
    ) -> WriteResult:
        """Let duckdb insert the rows into an empty table of these columns, under its rules; then write them."""
        name, columns = f"lakeformat.{quoted(said.target.name)}", table.schema
        session.run("create schema lakeformat")
        session.give("lakeformat_empty", columns.empty_table())
        session.run(f"create table {name} as from lakeformat_empty")
        before, after = said.text[: said.tokens[said.name].at], said.text[said.tokens[said.after - 1].end :]
        overwrite, text = False, f"{before}{name}{after}"
        if {"overwrite", "table", "partition"} & {token.lower for token in said.tokens[: said.after + 1]}:
            parts = read_change(said)
            assert isinstance(parts, Insert)  # noqa: S101
            overwrite, text = parts.overwrite, _insert_text(name, parts, columns)
        session.kind(text)
        session.give_named(text, lambda word: self._source(session, word, found))
        session.run(text)
        rows = fitted_rows(session.stream(f"from {name}"), columns)
        if not overwrite:
            return table.insert(rows)
        return table.insert_overwrite(rows) if table.config.partition_fields else table.overwrite(rows)

    def _merge(
        self, session: DuckDBSession, table: Table, said: Change, found: Mapping[str, FoundTable]
    ) -> WriteResult:
        """Let duckdb change a copy of the rows; then merge what differs, as one commit."""
        seen = table.engine.writable()
        self._snapshots[table.engine.storage.location] = seen
        config, columns, name = seen.config, table.schema, said.target.name
        named = named_columns(said, columns.names)
        if named is not None and not config.record_fields:
            kinds = [columns.field(each).type for each in named]
            named = None if any(map(pa.types.is_nested, kinds)) else named  # duckdb inserts such rows anew, whole.
        if named is not None:
            fixed = {field.partition(".")[0] for field in (*config.record_fields, *config.partition_fields)}
            narrow = pa.schema([field for field in columns if field.name in named | fixed])
            columns = narrow if len(narrow) else pa.schema([columns.field(0)])
        session.kind(said.text)
        session.give_named(said.text, lambda word: None if word == name.lower() else self._source(session, word, found))
        rows = LazyScan(table.engine.storage, seen, table.options, session.fail, with_key=not config.record_fields)
        session.give("lakeformat_rows", rows)
        anywhere = table.options.write.index.startswith("GLOBAL_")
        copied = copy_rows(session, name, "lakeformat_rows", columns, config, anywhere=anywhere)
        is_match = said.action == "merge" or (said.action == "update" and "from" in {each.lower for each in said.tokens})
        run_change(copied, said.text, matches=said.action if is_match else None)
        changes = find_changes(copied, said.action)
        result = merge_rows(table.engine, table.options, changes.rows, changes.clauses, seen, exact=True)
        return with_services(result, table.engine, table.options)


def _opened(rows: Any) -> Table | None:
    """The table that a name was given for; None for rows."""
    if isinstance(rows, str | os.PathLike):
        return open_table(rows)
    if isinstance(rows, KnownTable):
        return open_table(rows.path, **rows.options)
    return rows if isinstance(rows, Table) else None


def _gathered(rows: Any) -> pa.Table | None:
    return rows if rows is None or isinstance(rows, pa.Table) else arrow_reader(rows).read_all()


def _insert_text(name: str, said: Insert, columns: pa.Schema) -> str:
    """The insert without the clauses that duckdb does not know."""
    fixed = {each.lower() for each in said.partition}
    wanted = said.columns or tuple(each for each in columns.names if each.lower() not in fixed)
    query = said.query
    if said.partition:
        query = f"select *, {', '.join(said.partition.values())} from ({query})"
    return f"insert into {name} ({', '.join(map(quoted, (*wanted, *said.partition)))}) {query}"
