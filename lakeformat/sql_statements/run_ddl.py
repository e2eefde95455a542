"""How ``create table`` and ``drop table`` are carried out, by any host.

Names of tables that no catalog knows: what a name stands for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa

from lakeformat.arrow.conform import read_schema
from lakeformat.errors import InvalidInputError, SchemaMismatchError, TableNotFoundError
from lakeformat.sql_statements.ddl import CreateTable, DropTable
from lakeformat.table import Table, create, exists, open_table
from lakeformat.transaction.result import WriteResult
from lakeformat.write.rows.schema import incoming_schema

__all__ = ["GIVEN", "Host", "KnownTable", "KnownTables", "Names", "create_table", "drop_table"]


@dataclass(frozen=True, slots=True)
class KnownTable:
    """Where a table is; ``options``: those it was made with, which writes and reads by its name are given, too."""

    path: str
    options: Mapping[str, Any] = field(default_factory=dict)


class KnownTables(Protocol):
    """Names in any letter case -> tables."""

    def get(self, name: str) -> KnownTable | None:
        """What a name stands for; None if for nothing."""
        ...

    def put(self, name: str, table: KnownTable) -> None:
        """Give a name, or another table to a name."""
        ...

    def forget(self, name: str) -> None:
        """Take a name back; the table stays."""
        ...


class Names:
    """Names that this process has given."""

    def __init__(self) -> None:
        self._tables: dict[str, KnownTable] = {}

    def get(self, name: str) -> KnownTable | None:
        """See `KnownTables`."""
        return self._tables.get(name.lower())

    def put(self, name: str, table: KnownTable) -> None:
        """See `KnownTables`."""
        self._tables[name.lower()] = table

    def forget(self, name: str) -> None:
        """See `KnownTables`."""
        self._tables.pop(name.lower(), None)

    def all(self) -> tuple[str, ...]:
        """Every name, in order."""
        return tuple(sorted(self._tables))


#: By ``create table`` of `lakeformat.sql`, until ``drop table`` or the process ends.
GIVEN: Final = Names()


class Host(Protocol):
    """Who computes and writes rows."""

    def default_path(self, name: str) -> str:
        """Where a table lies whose place nobody says.

        Raises:
            InvalidInputError: there is no such place.
        """
        ...

    def select(self, query: str) -> tuple[Any, pa.Schema]:
        """The rows of a query as the host has them, and their columns."""
        ...

    def overwrite(self, table: KnownTable, rows: Any) -> WriteResult:
        """Put rows in place of those of a table."""
        ...


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the table goes, and what stands there; ``taken``: under this very name."""

    path: str
    table: Table | None
    taken: bool

    @property
    def commits(self) -> bool:
        """Whether something has been written there: what failed after making the table may be said again."""
        return self.table is not None and self.table.snapshot().instant_time is not None


def create_table(said: CreateTable, known: KnownTables, host: Host) -> pa.Table | WriteResult:
    """Make a table, with the rows of a query if there is one, and give it its name.

    A table that stands at the location is given the name; its columns and settings must be those that are said.

    Raises:
        InvalidInputError: the name is taken, or no columns or place are said.
        InvalidOptionError, SchemaMismatchError: what is said contradicts the table that stands there, or itself.
    """
    name, place = said.target.name, _place(said, known, host)
    if place.taken and said.if_not_exists:
        return _told(name, place.path, "is there already")
    if place.taken and not said.or_replace:
        raise InvalidInputError(
            f"table {name} is there already, at {place.path}; write create table if not exists, or create or replace"
        )
    if said.query is not None and place.commits and not said.or_replace:
        raise InvalidInputError(f"rows are in {place.path} already; write create or replace table, or insert into")
    rows, columns = (None, said.columns) if said.query is None else host.select(said.query)
    if place.table is None:
        if columns is None:
            raise TableNotFoundError(f"no table is at {place.path} to take the columns from; write create table (...)")
        settings: dict[str, Any] = {**_defaults(said), **said.options}
        create(place.path, columns, **settings)
    else:
        open_table(place.path, **said.options)
        _check_same(said.columns, place)
    made = KnownTable(place.path, said.options)
    result: pa.Table | WriteResult = _told(name, place.path, "named" if place.table else "created")
    if rows is not None:
        result = host.overwrite(made, rows)
    elif said.or_replace and place.commits and place.table is not None:
        result = place.table.overwrite(place.table.schema.empty_table())
    if said.target.path is None:
        known.put(name, made)
    return result


def _defaults(said: CreateTable) -> dict[str, str]:
    """What Hudi's SQL says of a new table where the statement does not (``HoodieCatalogTable``)."""
    named = {} if said.target.path is not None else {"hoodie.table.name": said.target.name}
    return {"hoodie.datasource.write.hive_style_partitioning": "true", **named}


def _place(said: CreateTable, known: KnownTables, host: Host) -> _Place:
    target = said.target
    if target.path is not None:
        if said.location not in {None, target.path}:
            raise InvalidInputError(f"location {said.location!r} is not {target.path!r}; give one of them")
        there = _standing(target.path)
        return _Place(target.path, there, there is not None)
    if not re.fullmatch(r"\w+", target.name):
        raise InvalidInputError(f"{target.name!r}: names have no database here; use letters, digits and _ alone")
    named = known.get(target.name)
    there = _standing(named.path) if named is not None else None
    if named is not None and there is not None:
        if said.or_replace and said.location not in {None, named.path}:
            raise InvalidInputError(f"{target.name} is the table at {named.path}; drop table {target.name} first")
        return _Place(named.path, there, taken=True)
    path = said.location or (named.path if named is not None else host.default_path(target.name))
    return _Place(path, _standing(path), taken=False)


def _standing(path: str) -> Table | None:
    return open_table(path) if exists(path) else None


def _check_same(columns: pa.Schema | None, place: _Place) -> None:
    """Columns of a table that stands are not changed by creating it."""
    assert place.table is not None  # noqa: S101
    if columns is None:
        return
    wanted, there = read_schema(incoming_schema(columns)), place.table.schema
    known, asked = set(there.names), set(wanted.names)
    differ = [
        *(f.name for f in wanted if f.name not in known or there.field(f.name).type != f.type),
        *(name for name in there.names if name not in asked),
    ]
    if differ:
        raise SchemaMismatchError(
            f"the table at {place.path} has other columns, e.g. {differ[0]!r}; leave the columns out to name it as it "
            "is, add some by alter table ... add columns, or choose another location"
        )


def drop_table(said: DropTable, known: KnownTables) -> pa.Table:
    """Take a table's name back. No file is deleted.

    Raises:
        InvalidInputError: it is named by its path.
        TableNotFoundError: nobody has given the name.
    """
    target = said.target
    if target.path is not None:
        raise InvalidInputError(
            f"drop table of a path is not supported: no file is deleted by SQL; truncate table "
            f"lakehouse.`{target.path}` empties it, and the folder goes by the storage's own tools"
        )
    named = known.get(target.name)
    if named is None:
        if said.if_exists:
            return _told(target.name, None, "not known").append_column("files", pa.nulls(1, pa.string()))
        raise TableNotFoundError(f"no table is known as {target.name!r}; drop table if exists passes that over")
    known.forget(target.name)
    return _told(target.name, named.path, "forgotten").append_column("files", pa.array(["kept"]))


def _told(name: str, path: str | None, what: str) -> pa.Table:
    told: Mapping[str, Any] = {"table": [name], "location": pa.array([path], pa.string()), "result": [what]}
    return pa.table(told)
