"""``sql(spark, text)``: SQL statements over tables that are not in Spark's catalog, named by path or by `view`.

Spark computes queries, conditions and values. `LakehouseTable` writes the rows that change, one commit per statement.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa

from lakeformat.arrow.conform import reader_schema
from lakeformat.concurrency import Attempts
from lakeformat.config.read_options import BEGIN, END, FORMAT, QUERY_TYPE
from lakeformat.errors import InvalidInputError, SchemaMismatchError, TableNotFoundError, WriteConflictError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.record import RECORD_KEY
from lakeformat.public import spark_public
from lakeformat.spark.reads.frames import read
from lakeformat.spark.settings import Use, check_settings, given_settings
from lakeformat.spark.table import LakehouseTable
from lakeformat.spark.types import arrow_schema, spark_schema
from lakeformat.sql_statements.changes import (
    CLAUSE_NUMBER,
    IN_SOURCE,
    IN_TARGET,
    MOVED,
    clause_number,
    make_clauses,
    moved_condition,
    value_of,
)
from lakeformat.sql_statements.ddl import CreateTable
from lakeformat.sql_statements.maintenance import ShowTables
from lakeformat.sql_statements.parse import (
    Delete,
    Dialect,
    Insert,
    MergeInto,
    TableName,
    Update,
    When,
    tokenize,
)
from lakeformat.sql_statements.read_changes import Change, find_plain_where, read_change
from lakeformat.sql_statements.recognize import AnyStatement, recognize
from lakeformat.sql_statements.run_ddl import KnownTable
from lakeformat.sql_statements.runner import StatementRunner
from lakeformat.sql_statements.time_travel import ChangedTable, PastTable, PathTable, replace_tables, resolve_as_of
from lakeformat.transaction.commit.hooks import with_statement
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order.conflict import repeat_after
from lakeformat.write.statements.merge_into import STORED_KEY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["sql", "view"]

#: Prefix of the session's settings that store the path of each named table. Settings work over Spark Connect too.
_VIEW: Final = "lakeformat.view."
#: Prefix of the session's settings that store the options of each named table, as JSON.
_OPTIONS: Final = "lakeformat.options.of.view."
#: Template of the Spark expression that generates record keys; the placeholder gets an id that is unique per statement.
_NEW_KEY: Final = "concat('{}_0_', cast(monotonically_increasing_id() as string))"


@spark_public
def view(spark: SparkSession, name: str, path: str, **options: Any) -> DataFrame:
    """Create a temporary view of a table. In statements of `sql` its name means the table at its newest commit.

    Args:
        spark: the session, of classic Spark or Spark Connect.
        name: name of the view; letters, digits and ``_``.
        path: folder or URL of the table.
        options: as for `lakeformat.spark.read`.

    Returns:
        the table as a DataFrame.

    Raises:
        InvalidInputError: ``name`` is empty or has other characters.
        TableNotFoundError: there is no table at the path.
    """
    if not re.fullmatch(r"\w+", name):
        raise InvalidInputError(f"{name!r} is not a name for a view; use letters, digits and _")
    frame = read(spark, path, **options)
    frame.createOrReplaceTempView(name)
    spark.conf.set(_VIEW + name.lower(), path)
    spark.conf.unset(_OPTIONS + name.lower())
    return frame


class _Views:
    """The names of tables in one session, stored in the session's settings; implements `KnownTables`."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def get(self, name: str) -> KnownTable | None:
        """Return the table that `view` or ``create table`` registered under the name; None if there is none."""
        path = self.spark.conf.get(_VIEW + name.lower(), None)
        if path is None:
            return None
        return KnownTable(str(path), json.loads(self.spark.conf.get(_OPTIONS + name.lower(), None) or "{}"))

    def put(self, name: str, table: KnownTable) -> None:
        """Register a table under a name, and create its view. Reads and writes by that name use the table's options."""
        view(self.spark, name, table.path, **table.options)
        self.spark.conf.set(_OPTIONS + name.lower(), json.dumps(dict(table.options)))

    def forget(self, name: str) -> None:
        """Remove a name and its view. The table itself is not deleted."""
        self.spark.conf.unset(_VIEW + name.lower())
        self.spark.conf.unset(_OPTIONS + name.lower())
        self.spark.catalog.dropTempView(name)


@spark_public
def sql(spark: SparkSession, text: str) -> DataFrame:
    """Run one statement. Return the rows of a query; for a write, return one row with its instant and row counts.

    Examples:
        >>> frame = view(spark, "flights", "/data/flights")
        >>> sql(spark, "update flights set distance = distance + 1 where carrier = 'UA'").collect()[0].updated
        75

    A statement names a table of lakeformat by the name of its `view`, or by path (``lakehouse.`/data/flights```).
    ``merge into``, ``update``, ``delete from``, ``insert into``, ``insert overwrite`` and ``call`` change such a table.
    ``create table ... using lakehouse`` creates one, in the session's warehouse if no location is given. ``describe``,
    ``show partitions``, ``alter table``, ``optimize``, ``vacuum``, ``restore`` and ``truncate`` accept such tables too.
    Every other statement is passed to ``spark.sql``. It reads such tables at their newest commit, or at the version
    that it names (``flights version as of 3``). Spark computes all conditions and values. A merge may join on any
    condition. If two source rows match the same row of the table, the merge raises an error.

    Args:
        spark: the session, of classic Spark or Spark Connect.
        text: the statement.

    Raises:
        InvalidInputError: a clause is not supported, or two source rows match one row.
        TableNotFoundError: a written table has no view of that name, or does not exist.
        WriteConflictError: another writer changed the same files; a retry is safe.
    """
    said = text.strip().rstrip(";")
    runner = _Runner(spark, said)
    return runner.run(recognize(said, Dialect.SPARK, lambda name: runner.known.get(name) is not None))


class _Runner(StatementRunner):
    """The runner of one SQL statement in one Spark session."""

    def __init__(self, spark: SparkSession, text: str) -> None:
        self.spark, self.known, self.text = spark, _Views(spark), text
        self._ready: set[str] = set()

    def run(self, statement: AnyStatement) -> DataFrame:
        """Run the statement.

        Raises:
            InvalidInputError: if it creates a table whose name is in Spark's catalog.
        """
        if isinstance(statement, CreateTable) and self._is_sparks(statement.target):
            name = statement.target.name
            raise InvalidInputError(f"{name!r} is in Spark's catalog already; choose another name")
        frame: DataFrame = super().run(statement)
        return frame

    def show_tables(self, statement: ShowTables) -> DataFrame:
        """Pass the statement to ``spark.sql``: the names are those of the session's views."""
        return self.spark.sql(self.text)

    def called_table(self, name: str) -> LakehouseTable:
        """Open the table that a ``call`` gives by its name or its path."""
        return self._open(self.known.get(name) or KnownTable(name))

    def answer(self, answer: pa.Table | WriteResult) -> DataFrame:
        """Return rows, or the result of a write, as a DataFrame."""
        return self._rows(answer) if isinstance(answer, pa.Table) else self._result_frame(answer)

    def change(self, change: Change) -> DataFrame:
        """Run an ``insert``, ``update``, ``delete`` or ``merge``. Return one row with the instant and row counts.

        Pass it to ``spark.sql`` if it changes a table of Spark's catalog.
        """
        if self._is_sparks(change.target):
            return self.query(self.text)
        parts = read_change(change)
        if isinstance(parts, Insert):
            return self.insert(parts)
        table = self.table(parts.target)
        match parts:
            case MergeInto():
                return self._repeat(table, lambda: self.merge(parts))
            case Update():
                whens = (When("matched", parts.where, "update", parts.values),)
                return self._repeat(table, lambda: self._merge_without_source(parts.target, whens))
            case Delete():
                where = find_plain_where(change, _columns(table, table.context.snapshot()))
                # For a merge-on-read table, the merge below appends the keys of the deleted rows to log files.
                if where is not None and not table.config.takes_logs:
                    return self._result_frame(table.delete(where=where))
                whens = (When("matched", parts.where, "delete"),)
                return self._repeat(table, lambda: self._merge_without_source(parts.target, whens))

    def _repeat(self, table: LakehouseTable, run: Callable[[], DataFrame]) -> DataFrame:
        attempts = Attempts(table.options.patience, table.context.ids.token)
        return repeat_after(WriteConflictError, run, attempts, before_repetition=self._ready.clear)

    def _is_sparks(self, target: TableName) -> bool:
        is_ours = target.path is not None or self.known.get(target.name) is not None
        return not is_ours and self.spark.catalog.tableExists(target.name)

    def _rows(self, answer: pa.Table) -> DataFrame:
        return self.spark.createDataFrame(answer.to_pylist(), spark_schema(answer.schema))

    # --- the methods of the protocol `Host`, which `create_table` calls ---------------------------------

    def default_path(self, name: str) -> str:
        """Return the path of a new table without a location: a folder in the session's warehouse, as Spark does it."""
        return f"{str(self.spark.conf.get('spark.sql.warehouse.dir')).rstrip('/')}/{name.lower()}"

    def select(self, query: str) -> tuple[DataFrame, pa.Schema]:
        """Return a query as a DataFrame that is not yet evaluated, and its schema as Arrow."""
        rows = self.query(query)
        return rows, arrow_schema(rows.schema)

    def overwrite(self, table: KnownTable, rows: DataFrame) -> WriteResult:
        """Replace all rows of a table by these rows, in one commit."""
        return self._open(table).overwrite(rows)

    def _open(self, known_table: KnownTable) -> LakehouseTable:
        """Open a table for this statement. Commits through the returned object store the statement's text."""
        table = LakehouseTable.forPath(self.spark, known_table.path, **known_table.options)
        return LakehouseTable(self.spark, table.context, with_statement(table.options, self.text))

    def table(self, named: TableName) -> LakehouseTable:
        """Open a table so that its commits store the statement's text.

        Raises:
            TableNotFoundError: if the name is unknown.
        """
        return self._table(named)[0]

    def _table(self, named: TableName) -> tuple[LakehouseTable, str]:
        known_table = KnownTable(named.path) if named.path is not None else self.known.get(named.name)
        if known_table is None:
            raise TableNotFoundError(
                f"no table is known as {named.name!r}; call lakeformat.spark.view(spark, {named.name!r}, path), or "
                "write lakehouse.`/its/path`"
            )
        return self._open(known_table), known_table.path

    def query(self, text: str) -> DataFrame:
        """Run a query. Its tables are read at their newest commit, unless the query names a version or a time."""
        return self.spark.sql(self.make_views(text))

    def make_views(self, text: str) -> str:
        """Create or refresh a view of each table that an SQL statement or expression names, so that Spark can run it.

        Return the SQL with the name of a view instead of each path and each clause such as ``version as of 3``.
        """
        plain, replaced = replace_tables(
            text, Dialect.SPARK, lambda name: self.known.get(name) is not None, lambda path: False
        )
        words = {token.value.lower() for token in tokenize(plain, Dialect.SPARK) if token.is_name}
        for name in words - self._ready:
            replacement, known_table = replaced.get(name), self.known.get(name)
            if replacement is not None:
                frame = (
                    read(self.spark, replacement.path)
                    if isinstance(replacement, PathTable)
                    else self._read_past(replacement)
                )
                frame.createOrReplaceTempView(name)
            elif known_table is not None:
                read(self.spark, known_table.path, **known_table.options).createOrReplaceTempView(name)
        self._ready |= words
        return plain

    def _read_past(self, past: PastTable | ChangedTable) -> DataFrame:
        """Return a table at the past version or time that the statement names, or its changes in a range."""
        table, path = self._table(past.target)
        if isinstance(past, PastTable):
            return read(self.spark, path, as_of=resolve_as_of(table.context.store, past.kind, past.point))
        asked = {QUERY_TYPE: "incremental", BEGIN: past.since}
        asked |= {END: past.until} if past.until is not None else {}
        asked |= {FORMAT: "cdc"} if past.images else {"meta_columns": "false"}
        return self.spark.read.format("lakehouse").options(**asked).load(path)

    def insert(self, said: Insert) -> DataFrame:
        """Run an insert. The columns of its query are, in order, those of its column list, else those of the table."""
        table = self.table(said.target)
        columns = _columns(table, table.context.writable_snapshot())
        names = said.columns or tuple(name for name in columns.names if name.lower() not in _lower(said.partition))
        rows = self.query(said.query)
        if len(rows.columns) != len(names):
            raise SchemaMismatchError(
                f"the insert gives {len(rows.columns)} columns for {len(names)} ({', '.join(names)}); give as many"
            )
        rows = rows.toDF(*names)
        for name, value in said.partition.items():
            from pyspark.sql import functions

            rows = rows.withColumn(name, functions.expr(value))
        fitted = self._cast_to_table(rows, columns)
        if not said.overwrite:
            return self._result_frame(table.insert(fitted))
        is_partitioned = bool(table.config.partition_fields)
        return self._result_frame(table.insert_overwrite(fitted) if is_partitioned else table.overwrite(fitted))

    def _merge_without_source(self, target: TableName, whens: tuple[When, ...]) -> DataFrame:
        """Run an update or a delete: Spark evaluates its condition and values on all rows of the table."""
        table, path = self._table(target)
        snapshot = table.context.writable_snapshot()
        stored = self._at(path, snapshot).alias(target.qualifier)
        return self._merge_computed_rows(table, snapshot, stored, target, whens, None)

    def merge(self, said: MergeInto) -> DataFrame:
        """Run a merge: Spark joins source and table and computes the changed rows, which are merged by key."""
        from pyspark.sql import functions

        table, path = self._table(said.target)
        snapshot = table.context.writable_snapshot()
        source = self.query(f"{said.prefix}select * from {said.source}")
        given = source.alias(said.source_name).withColumn(IN_SOURCE, functions.lit(True))
        stored = self._at(path, snapshot).alias(said.target.qualifier).withColumn(IN_TARGET, functions.lit(True))
        way = "full" if any(when.on == "not matched by source" for when in said.whens) else "left"
        joined = given.join(stored, functions.expr(self.make_views(said.on)), way)
        named = (said.source_name, source.columns)
        return self._merge_computed_rows(table, snapshot, joined, said.target, said.whens, named)

    def _merge_computed_rows(
        self,
        table: LakehouseTable,
        snapshot: Snapshot,
        joined: DataFrame,
        target: TableName,
        whens: Sequence[When],
        source: tuple[str, Sequence[str]] | None,
    ) -> DataFrame:
        """Let Spark compute the changed rows of an update, delete or merge. Merge them into the table by key.

        Each changed row has the number of the WHEN clause that applies to it, and the new values of all columns.

        Args:
            snapshot: the snapshot that ``joined`` reads.
            joined: rows of the table, joined with the source if there is one.
            whens: the clauses of the statement.
            source: the qualifier of the source's columns, and their names; None for an update or delete.
        """
        from pyspark.sql import functions

        columns, config = _columns(table, snapshot), snapshot.config
        clauses = make_clauses(config, columns.names, whens)
        kinds = self._casts(columns)
        kept = {name: f"`{target.qualifier}`.`{name}`" for name in columns.names}
        heads = {name.partition(".")[0] for name in (*config.record_fields, *config.partition_fields)}
        fixed = {name: (kept[name], kinds[name]) for name in columns.names if name in heads}
        taken = joined.withColumn(
            CLAUSE_NUMBER, functions.expr(self.make_views(clause_number(whens, has_source=source is not None)))
        )
        # An update must not change key or partition columns. If it would, the row gets the number `MOVED` instead of
        # its clause's number. No clause applies to this number, and the merge raises an error for such a row.
        moved = moved_condition(whens, fixed, source)
        marked = f"case when {moved} then {MOVED} else {CLAUSE_NUMBER} end as {CLAUSE_NUMBER}"
        inserts = [When(when.on, None, "delete") if when.action == "update" else when for when in whens]
        values = [
            f"{value_of(inserts if name in fixed else whens, name, kept[name], source, kinds[name])} as `{name}`"
            for name in columns.names
        ]
        if not config.record_fields:
            new = _NEW_KEY.format(uuid4().int)
            values.append(f"coalesce(`{target.qualifier}`.`{RECORD_KEY}`, {new}) as {STORED_KEY}")
        chosen = [functions.expr(self.make_views(statement)) for statement in (marked, *values)]
        rows = taken.where(f"{CLAUSE_NUMBER} is not null").select(*chosen)
        fitted, has_source = self._cast_to_table(rows, columns), source is not None
        return self._result_frame(table._merge_computed(fitted, clauses, snapshot, has_source=has_source))

    def _casts(self, columns: pa.Schema) -> dict[str, str]:
        """Return a mapping of column name to the SQL type to which its new values are cast; ``""`` for no cast.

        Values are cast only in ANSI mode, in which a cast of a value that does not fit raises an error. Nested types
        are never cast.
        """
        fields = spark_schema(columns).fields
        is_plain = {field.name: not hasattr(field.dataType, "fields") for field in fields}
        is_plain |= {field.name: False for field in fields if field.dataType.typeName() in {"array", "map"}}
        fails = self._casts_fail()
        return {f.name: f.dataType.simpleString() if fails and is_plain[f.name] else "" for f in fields}

    def _casts_fail(self) -> bool:
        check_settings(given_settings(self.spark), Use.SQL)
        return str(self.spark.conf.get("spark.sql.ansi.enabled", "true")).lower() == "true"

    def _at(self, path: str, snapshot: Snapshot) -> DataFrame:
        """Read a table at a snapshot. If it has no record key, include the meta columns, which have generated keys."""
        return read(self.spark, path, as_of=snapshot.instant_time, meta_columns=not snapshot.config.record_fields)

    def _cast_to_table(self, rows: DataFrame, columns: pa.Schema) -> DataFrame:
        """Cast the rows to the table's types in ANSI mode, in which a value that does not fit raises an error.

        In other modes Spark would replace such a value by null, so the rows are returned unchanged.
        """
        from pyspark.sql import functions

        if not self._casts_fail():
            return rows
        fields = {field.name.lower(): field for field in spark_schema(columns).fields}
        have = {field.name: field.dataType for field in rows.schema.fields}
        fitted = []
        for name in rows.columns:
            field = fields.get(name.lower())
            column = functions.col(f"`{name}`")
            if field is not None and have[name] != field.dataType:
                column = column.cast(field.dataType)
            fitted.append(column.alias(field.name if field is not None else name))
        return rows.select(*fitted)

    def _result_frame(self, result: WriteResult) -> DataFrame:
        rows = result.rows
        values = [(result.instant_time, result.operation, rows.inserted, rows.updated, rows.deleted)]
        names = "instant_time string, operation string, inserted long, updated long, deleted long"
        return self.spark.createDataFrame(values, names)


def _lower(names: Mapping[str, str]) -> set[str]:
    return {name.lower() for name in names}


def _columns(table: LakehouseTable, snapshot: Snapshot) -> pa.Schema:
    return reader_schema(snapshot.columns(table.context.storage.location))
