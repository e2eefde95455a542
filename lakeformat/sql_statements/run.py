"""``lakeformat.sql(text, ...)``: the same statements without Spark; duckdb computes queries and values.

Memory: the columns of tables that a query names, where it has no condition on one table alone, and its answer.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakeformat.errors import InvalidInputError, InvalidOptionError, SchemaMismatchError, TableNotFoundError
from lakeformat.model.instant import AsOf
from lakeformat.model.record import RECORD_KEY
from lakeformat.sql_statements.calls import called_table, run_call
from lakeformat.sql_statements.care import run_on
from lakeformat.sql_statements.changes import changed_rows, clauses_of, joined_rows
from lakeformat.sql_statements.define import create_table, drop_table
from lakeformat.sql_statements.definitions import CreateTable, DropTable
from lakeformat.sql_statements.known import GIVEN, KnownTable
from lakeformat.sql_statements.parse import (
    Call,
    Delete,
    Insert,
    MergeInto,
    Query,
    TableName,
    Update,
    When,
    first_word,
    path_tables,
    shortened,
)
from lakeformat.sql_statements.past import PastTable, as_of, past_tables
from lakeformat.sql_statements.understand import AnyStatement, understand
from lakeformat.sql_statements.upkeep import ShowTables
from lakeformat.statements import merge_rows
from lakeformat.table import Table, open_table
from lakeformat.transaction.result import WriteResult

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

__all__ = ["sql"]

_ROW_NUMBER: Final = "row_number() over ()"
#: First words of what duckdb computes; "" is a parenthesis.
_QUERIES: Final = frozenset({"select", "with", "values", "from", "table", ""})


def sql(text: str, **tables: Any) -> pa.Table | WriteResult:
    """Run one statement of Spark SQL on tables and on any Arrow data; needs ``lakeformat[sql]`` and duckdb.

    Examples:
        >>> lakeformat.sql("select carrier, count(*) n from flights group by carrier", flights=table).num_rows
        4
        >>> lakeformat.sql("delete from flights where month = 3", flights=table).rows.deleted
        100

    Args:
        text: ``select``, ``merge into``, ``update``, ``delete from``, ``insert into`` or ``overwrite``, ``call``, or
            one that makes, describes or keeps a table: ``create table``, ``describe``, ``optimize`` ...
        tables: name -> a `lakeformat.Table`, the path of one, or rows as `lakeformat.Table.upsert` takes them. Tables
            may also be named by path in the text: ``lakehouse.`/data/flights```, or by the name that ``create table``
            gave them in this process.

    Returns:
        the rows of a query or a call; of a write its result.

    Raises:
        InvalidInputError: what cannot be read or computed; a clause that is not taken.
        TableNotFoundError: a table that nobody has named.
        WriteConflictError: another writer was in the way; a retry is safe.
    """
    runner = _Runner(tables)
    return runner.run(understand(text.strip().rstrip(";"), lambda name: True))


@dataclass(frozen=True, slots=True)
class _Past:
    """A table as it was; None is now."""

    table: Table
    as_of: AsOf | None


class _Runner:
    """Carries statements out on the tables at hand."""

    def __init__(self, tables: Mapping[str, Any]) -> None:
        self.tables = {name.lower(): rows for name, rows in tables.items()}

    def run(self, statement: AnyStatement) -> pa.Table | WriteResult:
        """One statement."""
        match statement:
            case Query():
                if (word := first_word(statement.text)) not in _QUERIES:
                    cure = "; write create table ... using lakehouse" * (word == "create")
                    raise InvalidInputError(f"{shortened(statement.text)} is not taken without Spark{cure}")
                return self.query(statement.text)
            case Call():
                said = called_table(statement)
                is_path = said.lower() not in self.tables and GIVEN.get(said) is None
                return run_call(statement, self.table(TableName(said, said if is_path else None)))
            case Insert():
                return self.insert(statement)
            case Delete():
                return self.delete(statement)
            case Update():
                when = When("matched", statement.where, "update", statement.values)
                return self.changed(statement.target, (when,))
            case MergeInto():
                return self.merge(statement)
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
        """Nowhere: plain Python has no warehouse.

        Raises:
            InvalidInputError: always.
        """
        raise InvalidInputError(
            f"create table {name} has no place; add location '/its/path', or give {name}='/its/path'"
        )

    def selected(self, query: str) -> tuple[pa.Table, pa.Schema]:
        """The rows of a query."""
        rows = self.query(query)
        return rows, rows.schema

    def overwritten(self, table: KnownTable, rows: pa.Table) -> WriteResult:
        """Put rows in place of those of a table."""
        return open_table(table.path, **table.options).overwrite(rows)

    def table(self, named: TableName) -> Table:
        """A table of ours.

        Raises:
            TableNotFoundError: nobody has named it.
            InvalidInputError: what is named so is no table of ours.
        """
        if named.path is not None:
            return open_table(named.path)
        known = self.tables.get(named.name.lower())
        if known is None and (given := GIVEN.get(named.name)) is not None:
            return open_table(given.path, **given.options)
        if known is None:
            raise TableNotFoundError(
                f"no table is known as {named.name!r}; give {named.name}=table, or write lakehouse.`/its/path`"
            )
        if isinstance(known, str | os.PathLike):
            return open_table(known)
        if not isinstance(known, Table):
            raise InvalidInputError(f"{named.name!r} is rows and no table; they can be read, not changed")
        return known

    def query(self, text: str, **more: Any) -> pa.Table:
        """The rows that duckdb computes."""
        now, past = past_tables(text, lambda name: name.lower() not in more and self._is_table(name))
        plain, paths = path_tables(now)
        sources: dict[str, Any] = {name: GIVEN.get(name) for name in GIVEN.all()}
        sources |= {**self.tables, **{name: KnownTable(path) for name, path in paths.items()}, **more}
        for name, each in past.items():
            table = self.table(each.target)
            if isinstance(each, PastTable):
                sources[name] = _Past(table, as_of(table.engine.store, each.kind, each.said))
            elif each.images:
                sources[name] = table.changes(each.since, each.until, images=True).to_arrow()
            else:
                sources[name] = table.changes(each.since, each.until).to_arrow()
        return _computed(plain, sources)

    def insert(self, said: Insert) -> WriteResult:
        """Rows by position, or by the names given."""
        table = self.table(said.target)
        columns = table.schema
        fixed = {name.lower() for name in said.partition}
        wanted = said.columns or tuple(name for name in columns.names if name.lower() not in fixed)
        rows = self.query(said.query)
        if rows.num_columns != len(wanted):
            raise SchemaMismatchError(
                f"the insert gives {rows.num_columns} columns for {len(wanted)} ({', '.join(wanted)}); give as many"
            )
        rows = rows.rename_columns(list(wanted))
        for name, value in said.partition.items():
            value_of = self.query(f"select {value} as v")["v"][0]
            rows = rows.append_column(name, pa.array([value_of.as_py()] * rows.num_rows))
        rows = _fitted(rows, columns)
        if not said.overwrite:
            return table.insert(rows)
        return table.insert_overwrite(rows) if table.config.partition_fields else table.overwrite(rows)

    def delete(self, said: Delete) -> WriteResult:
        """By the table's own statistics where it understands the condition, else duckdb finds the rows."""
        table = self.table(said.target)
        try:
            return table.delete(where="true" if said.where is None else said.where)
        except InvalidInputError:
            return self.changed(said.target, (When("matched", said.where, "delete"),))

    def changed(self, target: TableName, whens: tuple[When, ...]) -> WriteResult:
        """A merge without a source."""
        table = self.table(target)
        seen = table.engine.writable()
        columns = table.schema
        clauses = clauses_of(table.config, columns.names, whens, None)
        numbers = None if table.config.record_fields else _ROW_NUMBER
        text = changed_rows(columns.names, whens, target, "lakeformat_stored", None, row_number=numbers)
        rows = self.query(text, lakeformat_stored=_stored(table, seen.instant_time))
        return self._merged(table, rows, columns, clauses, seen)

    def merge(self, said: MergeInto) -> WriteResult:
        """The rows that change are merged by key, as one commit."""
        table = self.table(said.target)
        seen = table.engine.writable()
        columns = table.schema
        clauses = clauses_of(table.config, columns.names, said.whens, said)
        source = self.query(f"select * from {said.source}")  # noqa: S608
        joined = joined_rows(said, "lakeformat_source", "lakeformat_stored")
        numbers = None if table.config.record_fields else _ROW_NUMBER
        given = (said.source_name, source.column_names)
        text = changed_rows(columns.names, said.whens, said.target, joined, given, row_number=numbers)
        rows = self.query(text, lakeformat_source=source, lakeformat_stored=_stored(table, seen.instant_time))
        return self._merged(table, rows, columns, clauses, seen)

    def _merged(self, table: Table, rows: pa.Table, columns: pa.Schema, clauses: Any, seen: Any) -> WriteResult:
        return merge_rows(table.engine, table.options, _fitted(rows, columns).to_reader(), clauses, seen)


def _stored(table: Table, instant_time: str | None) -> pa.Table:
    key = [] if table.config.record_fields else [RECORD_KEY]
    if instant_time:
        return table.to_arrow([*table.schema.names, *key], as_of=instant_time)
    return pa.schema([*table.schema, *(pa.field(name, pa.string()) for name in key)]).empty_table()


def _fitted(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """With the table's types; a value that does not fit is refused."""
    known = {field.name.lower(): field for field in columns}
    arrays, names = [], []
    for name, array in zip(rows.column_names, rows.columns, strict=True):
        field = known.get(name.lower())
        names.append(name if field is None else field.name)
        if field is not None:
            array = _cast(array, field)  # noqa: PLW2901
        arrays.append(array)
    return pa.table(arrays, names=names)


def _cast(array: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return array.cast(field.type)
    except pa.ArrowException as error:
        raise SchemaMismatchError(f"column {field.name!r} does not fit {field.type}: {error}; cast it") from None


def _computed(text: str, sources: Mapping[str, Any]) -> pa.Table:
    try:
        import duckdb
        import sqlglot
    except ImportError as error:
        raise InvalidOptionError(f"SQL needs duckdb and sqlglot; run: pip install {error.name}") from None
    try:
        tree = sqlglot.parse_one(text, read="spark")
        wanted = {str(node.name).lower() for node in tree.find_all(sqlglot.exp.Identifier)}
        has_star = any(not isinstance(node.parent, sqlglot.exp.Count) for node in tree.find_all(sqlglot.exp.Star))
        with duckdb.connect() as connection:
            for node in tree.find_all(sqlglot.exp.Values):
                _name_columns(node)
            for node in tree.find_all(sqlglot.exp.Table):
                _register(connection, str(node.name), sources, None if has_star else wanted)
            return connection.sql(tree.sql("duckdb")).to_arrow_table()
    except (sqlglot.errors.SqlglotError, duckdb.Error) as error:
        said = " ".join(str(error).split("LINE ")[0].split())
        raise InvalidInputError(f"the query cannot be computed: {said}") from None


def _name_columns(values: Any) -> None:
    """Columns of ``from values ...`` are col1, col2 ... in Spark."""
    from sqlglot import exp

    alias = values.args.get("alias")
    if isinstance(values.parent, exp.From | exp.Join) and not (alias is not None and alias.columns):
        width = len(values.expressions[0].expressions or [None])
        name = alias.this if alias is not None else exp.to_identifier("lakeformat_values")
        columns = [exp.to_identifier(f"col{at}") for at in range(1, width + 1)]
        values.set("alias", exp.TableAlias(this=name, columns=columns))


def _register(connection: DuckDBPyConnection, name: str, sources: Mapping[str, Any], wanted: set[str] | None) -> None:
    """Make the rows known to duckdb; of a table the columns that the query names."""
    from lakeformat.write.rows.arrow_input import arrow_reader

    rows = next((rows for known, rows in sources.items() if known.lower() == name.lower()), None)
    if rows is None:
        return  # A name of the query's own; of others duckdb tells.
    if isinstance(rows, str | os.PathLike):
        rows = open_table(rows)
    if isinstance(rows, KnownTable):
        rows = open_table(rows.path, **rows.options)
    if isinstance(rows, Table):
        rows = _Past(rows, None)
    if isinstance(rows, _Past):
        scan = rows.table.scan(as_of=rows.as_of)
        columns = [n for n in scan.schema.names if wanted is None or n.lower() in wanted] or scan.schema.names[:1]
        connection.register(name, rows.table.to_arrow(columns, as_of=rows.as_of))
    else:
        connection.register(name, rows if isinstance(rows, pa.Table) else arrow_reader(rows).read_all())
