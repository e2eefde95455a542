"""Running of ``create table`` and ``drop table``, for all hosts; and the registry of table names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa

from lakeformat.arrow.conform import reader_schema
from lakeformat.errors import InvalidInputError, SchemaMismatchError, TableNotFoundError
from lakeformat.sql_statements.ddl import CreateTable, DropTable
from lakeformat.table import Table, create, exists, open_table
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.write.rows.schema import incoming_schema

__all__ = ["PROCESS_TABLES", "Host", "KnownTable", "KnownTables", "ProcessTables", "create_table", "drop_table"]


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A registered table: its path, and the options of its ``create table``, used whenever it is opened by name."""

    path: str
    options: Mapping[str, Any] = field(default_factory=dict)


class KnownTables(Protocol):
    """A registry of tables by name. Letter case is ignored."""

    def get(self, name: str) -> KnownTable | None:
        """Return the table that is registered under the name; None if there is none."""
        ...

    def put(self, name: str, table: KnownTable) -> None:
        """Register a table under a name, or replace the name's table."""
        ...

    def forget(self, name: str) -> None:
        """Remove a name; the table itself is not deleted."""
        ...


class ProcessTables:
    """The registry of the tables that ``create table`` of `lakeformat.sql` has named in this process."""

    def __init__(self) -> None:
        self._tables: dict[str, KnownTable] = {}

    def get(self, name: str) -> KnownTable | None:
        """Return the table that is registered under the name; None if there is none."""
        return self._tables.get(name.lower())

    def put(self, name: str, table: KnownTable) -> None:
        """Register a table under a name, or replace the name's table."""
        self._tables[name.lower()] = table

    def forget(self, name: str) -> None:
        """Remove a name; the table itself is not deleted."""
        self._tables.pop(name.lower(), None)

    def list_names(self) -> tuple[str, ...]:
        """Return every name, sorted."""
        return tuple(sorted(self._tables))


#: The tables that ``create table`` of `lakeformat.sql` has named, until ``drop table`` or the end of the process.
PROCESS_TABLES: Final = ProcessTables()


class Host(Protocol):
    """The engine that computes and writes the rows of a ``create table``: Spark, or duckdb with plain Python."""

    def default_path(self, name: str) -> str:
        """Return the path of a new table if the statement gives none.

        Raises:
            InvalidInputError: if the engine has no default folder for tables.
        """
        ...

    def select(self, query: str) -> tuple[Any, pa.Schema]:
        """Run a query. Return its rows, in a form that `overwrite` accepts, and their schema."""
        ...

    def overwrite(self, table: KnownTable, rows: Any) -> WriteResult:
        """Replace all rows of a table."""
        ...


@dataclass(frozen=True, slots=True)
class _Place:
    """The path at which a ``create table`` creates its table, and the table that exists there already.

    Attributes:
        path: path of the table to create.
        table: the table that exists at the path; None if there is none.
        is_taken: whether the statement's name, or its path if it has no name, is in use by an existing table.
    """

    path: str
    table: Table | None
    is_taken: bool

    @property
    def has_commits(self) -> bool:
        """Tell whether a table with a commit exists.

        A ``create table ... as`` that fails may leave a table without commits. If the statement is run again, it may
        write its rows to this table.
        """
        return self.table is not None and self.table.snapshot().instant_time is not None


def create_table(statement: CreateTable, registry: KnownTables, host: Host) -> pa.Table | WriteResult:
    """Create a table, with the rows of a query if there is one, and register its name.

    If a table exists at the location, its columns and settings must equal those of the statement, and the name is
    registered for it. Its rows are kept, unless the statement has ``or replace``: then they are replaced by those of
    the query, or deleted if there is no query.

    Raises:
        InvalidInputError: if the name is in use, or no columns or path are given.
        InvalidOptionError, SchemaMismatchError: if the statement's settings or columns differ from the existing
            table's, or contradict each other.
    """
    name, place = statement.target.name, _place(statement, registry, host)
    if place.is_taken and statement.if_not_exists:
        return _make_answer(name, place.path, "is there already")
    if place.is_taken and not statement.or_replace:
        raise InvalidInputError(
            f"table {name} is there already, at {place.path}; write create table if not exists, or create or replace"
        )
    if statement.query is not None and place.has_commits and not statement.or_replace:
        raise InvalidInputError(f"rows are in {place.path} already; write create or replace table, or insert into")
    rows, columns = (None, statement.columns) if statement.query is None else host.select(statement.query)
    if place.table is None:
        if columns is None:
            raise TableNotFoundError(f"no table is at {place.path} to take the columns from; write create table (...)")
        settings: dict[str, Any] = {**_defaults(statement), **statement.options}
        create(place.path, columns, **settings)
    else:
        open_table(place.path, **statement.options)
        _check_same(statement.columns, place)
    new_table = KnownTable(place.path, statement.options)
    result: pa.Table | WriteResult = _make_answer(name, place.path, "named" if place.table else "created")
    if rows is not None:
        result = host.overwrite(new_table, rows)
    elif statement.or_replace and place.has_commits and place.table is not None:
        result = place.table.overwrite(place.table.schema.empty_table())
    if statement.target.path is None:
        registry.put(name, new_table)
    return result


def _defaults(statement: CreateTable) -> dict[str, str]:
    """Return the options that Hudi's SQL sets by default for a new table (``HoodieCatalogTable``)."""
    named = {} if statement.target.path is not None else {"hoodie.table.name": statement.target.name}
    return {"hoodie.datasource.write.hive_style_partitioning": "true", **named}


def _place(statement: CreateTable, registry: KnownTables, host: Host) -> _Place:
    target = statement.target
    if target.path is not None:
        if statement.location not in {None, target.path}:
            raise InvalidInputError(f"location {statement.location!r} is not {target.path!r}; give one of them")
        existing = _open_existing(target.path)
        # A ``create table ... as`` that failed may have left a table without commits, which counts as none.
        is_taken = existing is not None and (statement.query is None or existing.snapshot().timeline.has_writes)
        return _Place(target.path, existing, is_taken)
    if not re.fullmatch(r"\w+", target.name):
        raise InvalidInputError(f"{target.name!r}: names have no database here; use letters, digits and _ alone")
    named = registry.get(target.name)
    existing = _open_existing(named.path) if named is not None else None
    if named is not None and existing is not None:
        if statement.or_replace and statement.location not in {None, named.path}:
            raise InvalidInputError(f"{target.name} is the table at {named.path}; drop table {target.name} first")
        return _Place(named.path, existing, is_taken=True)
    path = statement.location or (named.path if named is not None else host.default_path(target.name))
    return _Place(path, _open_existing(path), is_taken=False)


def _open_existing(path: str) -> Table | None:
    return open_table(path) if exists(path) else None


def _check_same(columns: pa.Schema | None, place: _Place) -> None:
    """Raise `SchemaMismatchError` if the statement's columns differ from those of the existing table."""
    assert place.table is not None  # noqa: S101
    if columns is None:
        return
    asked, existing = reader_schema(incoming_schema(columns)), place.table.schema
    existing_names, wanted_names = set(existing.names), set(asked.names)
    differ = [
        *(f.name for f in asked if f.name not in existing_names or existing.field(f.name).type != f.type),
        *(name for name in existing.names if name not in wanted_names),
    ]
    if differ:
        raise SchemaMismatchError(
            f"the table at {place.path} has other columns, e.g. {differ[0]!r}; leave the columns out to name it as it "
            "is, add some by alter table ... add columns, or choose another location"
        )


def drop_table(statement: DropTable, registry: KnownTables) -> pa.Table:
    """Remove a table's name. No file is deleted.

    Raises:
        InvalidInputError: if the table is named by its path.
        TableNotFoundError: if the name is unknown.
    """
    target = statement.target
    if target.path is not None:
        raise InvalidInputError(
            f"drop table of a path is not supported: no file is deleted by SQL; truncate table "
            f"lakehouse.`{target.path}` empties it, and the storage's own tools delete the folder"
        )
    named = registry.get(target.name)
    if named is None:
        if statement.if_exists:
            return _make_answer(target.name, None, "not known").append_column("files", pa.nulls(1, pa.string()))
        raise TableNotFoundError(f"no table is known as {target.name!r}; drop table if exists ignores an unknown name")
    registry.forget(target.name)
    return _make_answer(target.name, named.path, "forgotten").append_column("files", pa.array(["kept"]))


def _make_answer(name: str, path: str | None, what: str) -> pa.Table:
    row: Mapping[str, Any] = {"table": [name], "location": pa.array([path], pa.string()), "result": [what]}
    return pa.table(row)
