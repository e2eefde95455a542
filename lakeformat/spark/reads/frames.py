"""``read(spark, path)``: a table as a DataFrame, read by Spark's own Parquet scan or by the data source."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from lakeformat.config.option import parse_names
from lakeformat.config.read_options import (
    BEGIN,
    END,
    END_COLUMNS,
    FULL_SCAN,
    HOLES,
    MERGE_TYPE,
    METADATA_TABLE,
    PATH_GLOB,
    QUERY_TYPE,
    TIME_ZONE,
)
from lakeformat.config.resolve import Options, resolve, storage_options_of
from lakeformat.config.write_options import FILE_INDEX
from lakeformat.errors import InvalidInputError
from lakeformat.file_system_view.context import TableContext, open_context
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.instant import AsOf
from lakeformat.predicate import column_path, where_type_error
from lakeformat.public import spark_public
from lakeformat.read.query import ReadQuery, make_query, readable_schema
from lakeformat.read.scan import check_limit
from lakeformat.spark.host import in_session_zone, storage_secrets
from lakeformat.spark.jobs import context_of
from lakeformat.spark.pushdown import PUSHDOWN, guarded_frame
from lakeformat.spark.reads.hadoop_access import HadoopAccess, find_access
from lakeformat.spark.reads.jvm import open_jvm
from lakeformat.spark.reads.native_scan import check_skipping, native_scan, plan_native
from lakeformat.spark.reads.predicate_to_column import column_of
from lakeformat.spark.reads.to_predicate import implied_predicate
from lakeformat.spark.register import use_this_python
from lakeformat.spark.settings import find_obstacle
from lakeformat.table import Table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["NATIVE", "ReadFacts", "Way", "choose_way", "read", "read_rows", "read_snapshot", "read_table"]

_LOG: Final = logging.getLogger("lakeformat.spark")
NATIVE: Final = "native"
SOURCE: Final = "source"
#: If filters are pushed and a read has more file slices than this, and Spark's planner cannot ask our file index, the
#: data source is used: it skips files by the minimum and maximum of their columns, while Spark's own scan opens the
#: footer of every file.
_MANY_FILES: Final = 10_000
#: If a read has more file slices than this, and Spark's planner cannot ask our file index, the data source is used even
#: if no filters are pushed, because Spark's own scan then takes minutes to plan so many files.
_MOST_FILES: Final = 100_000
#: A column in which Spark's reader of Parquet puts the number of each row, whatever the file has there.
_ROW_NUMBERS: Final = "_tmp_metadata_row_index"
#: Read options that `read` passes unchanged to ``format("lakehouse")`` if it reads the table by the data source.
_PASSED: Final = (
    BEGIN,
    END_COLUMNS,
    FILE_INDEX,
    FULL_SCAN,
    HOLES,
    MERGE_TYPE,
    METADATA_TABLE,
    PATH_GLOB,
    QUERY_TYPE,
    "hoodie.enable.data.skipping",
    "lakeformat.read.split.bytes",
    "lakeformat.read.verify",
)


@dataclass(frozen=True, slots=True)
class ReadFacts:
    """The facts by which `choose_way` chooses between Spark's own scan and the data source.

    Attributes:
        files: number of file slices to read: those that the condition of the read does not rule out.
        unreadable: number of these file slices that Spark's own scan cannot read, because they have log files, or a
            base file with types that Spark does not convert to the table's types.
        pushes: whether the session passes filters to Python data sources.
        indexed: whether Spark's planner can ask lakeformat which files each query must read.
        requested_way: the user's choice, the argument ``via``; None if there is none.
    """

    files: int
    unreadable: int = 0
    pushes: bool = False
    indexed: bool = False
    requested_way: str | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """The choice of how a table is read.

    Attributes:
        name: ``native`` for Spark's own scan, ``source`` for the data source.
        why: the reason, as text for the log.
    """

    name: str
    why: str


def choose_way(known: ReadFacts) -> Way:
    """Choose whether Spark's own scan or the data source reads a table.

    The data source takes about twice as long per row as Spark's own scan. It is chosen if the user requests it, if the
    table has very many files, or if Spark cannot read more than half of the files.

    Raises:
        InvalidInputError: the user's choice is not ``native``, ``source`` or None.
    """
    if known.requested_way is not None:
        if known.requested_way not in {NATIVE, SOURCE}:
            raise InvalidInputError(f"via={known.requested_way!r} is not a way to read; use 'native', 'source' or None")
        return Way(known.requested_way, "as requested")
    if known.files > _MOST_FILES and not known.indexed:
        return Way(SOURCE, f"over {_MOST_FILES:,} files")
    if known.pushes and known.files > _MANY_FILES and not known.indexed:
        return Way(SOURCE, f"over {_MANY_FILES:,} files, and the session's filters leave files out")
    if 2 * known.unreadable > known.files:
        return Way(SOURCE, f"of {known.files:,} files {known.unreadable:,} are not for Spark's reader")
    return Way(NATIVE, f"{known.files:,} files")


@spark_public
def read(
    spark: SparkSession,
    path: str | os.PathLike[str],
    columns: Sequence[str] | str | None = None,
    *,
    where: str | Column | None = None,
    as_of: AsOf | None = None,
    limit: int | None = None,
    meta_columns: bool | None = None,
    verify: bool | None = None,
    time_zone: str | None = None,
    via: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> DataFrame:
    """Return a DataFrame of a table as it is at the time of this call. To read later commits, call `read` again.

    Queries of the frame are as fast as on Spark's own Parquet tables: only the columns that a query needs are read, and
    filters skip folders, files and row groups. (Over Spark Connect only ``where`` skips folders and files.) ``count()``
    of the frame itself needs no Spark job if the table's file index has the number of rows.

    Args:
        spark: the session, of classic Spark or Spark Connect.
        path: folder or URL of the table, valid on the executors too.
        columns, where, as_of, limit, meta_columns, verify, time_zone, via: as in
            `lakeformat.spark.LakehouseTable.read`.
        storage_options: options for fsspec in this process and in tasks; their values never appear in messages. For
            S3, Spark's own scan gets them as settings of Hadoop's S3A, which must be among Spark's packages. Otherwise
            a table with storage options is read by the data source.
        options: Hudi's read options or the short aliases, as for ``load()``.

    Raises:
        TableNotFoundError, UnsupportedTableError, CorruptTableError: the path holds no table that can be read.
        InvalidInputError: an unknown column or value of ``via``, or a condition that cannot be evaluated exactly.
        InvalidOptionError: an option is unknown or bad.
        InstantNotAvailableError: files of the state at ``as_of`` have been deleted.
        SkippingError: with ``verify``, skipping would lose rows. The message names the files.
    """
    use_this_python(spark)
    path = os.fspath(path)
    said = {"verify": verify, "time_zone": time_zone, "meta_columns": meta_columns}
    resolved = resolve({**options, **{name: value for name, value in said.items() if value is not None}})
    context = open_context(path, resolved, **storage_options_of(path, options, storage_options))
    return read_rows(spark, context, resolved, columns, where=where, as_of=as_of, limit=limit, via=via)


def read_rows(
    spark: SparkSession,
    context: TableContext,
    options: Options,
    columns: Sequence[str] | str | None,
    *,
    where: str | Column | None,
    as_of: AsOf | None,
    limit: int | None,
    via: str | None,
) -> DataFrame:
    """Return a table as a DataFrame, as `read` does: without meta columns unless the option ``meta_columns`` is set."""
    check_limit(limit)
    if not options.is_set("meta_columns"):
        options = options.with_values(meta_columns=False)
    frame = read_table(spark, context, options, where=where, columns=columns, as_of=as_of, via=via)
    return frame if limit is None else frame.limit(limit)


def read_table(
    spark: SparkSession,
    context: TableContext,
    options: Options,
    *,
    where: str | Column | None = None,
    columns: Sequence[str] | str | None = None,
    as_of: AsOf | None = None,
    via: str | None = None,
) -> DataFrame:
    """Return a table as a DataFrame; the arguments are those of `read`.

    Unlike in `read`, the frame has the meta columns if the option ``meta_columns`` is not set.
    """
    from pyspark.sql import Column

    columns = [columns] if isinstance(columns, str) else columns

    choose_way(ReadFacts(0, requested_way=via))  # Only checks ``via``, before the table is opened.
    if not isinstance(where, str | Column | None):
        raise where_type_error(where, "Spark SQL text or a Spark column")
    options = in_session_zone(spark, options)
    access = _access(spark, context, via)
    snapshot = Table(context.storage, options).snapshot(as_of)
    if not isinstance(where, Column):
        query = make_query(snapshot, context.storage.location, options, columns=columns, where=where)
        return _frame(
            spark, context, options, snapshot, query, options.read.where if where is None else where, via, access
        )
    plain = options.with_values(where=None)
    names = make_query(snapshot, context.storage.location, plain, columns=columns).schema.names
    full = readable_schema(snapshot.columns(context.storage.location), meta_columns=True)
    skipping, asks_indexes = options.read.skipping, options.read.metadata_table
    whole = ReadQuery(full, implied_predicate(where, full), skipping, asks_indexes).restrict_to_range(snapshot)
    frame = _frame(spark, context, plain, snapshot, whole, None, via, access).where(where)
    return frame.select(*(column_of(column_path([name])) for name in names))


def read_snapshot(
    spark: SparkSession,
    context: TableContext,
    access: HadoopAccess,
    options: Options,
    snapshot: Snapshot,
    query: ReadQuery | None = None,
) -> DataFrame:
    """Return a snapshot of a table as a DataFrame.

    Args:
        access: how Spark's own scan opens the table.
        options: the options of the read, with the time zone of its condition.
        query: the columns and rows to read; by default those that the options name.
    """
    query = query or make_query(snapshot, context.storage.location, options)
    return _frame(spark, context, options, snapshot, query, options.read.where, None, access)


def _frame(
    spark: SparkSession,
    context: TableContext,
    options: Options,
    snapshot: Snapshot,
    query: ReadQuery,
    where: str | None,
    via: str | None,
    access: HadoopAccess | str,
) -> DataFrame:
    location, secrets = context.storage.location, storage_secrets(context)
    pushes = str(spark.conf.get(PUSHDOWN, "false")).lower() == "true"
    given: dict[str, Any] = {key: options[key] for key in _PASSED if options.is_set(key)}
    given |= {
        "where": where,
        TIME_ZONE: options.read.time_zone if where else None,
        **_time_options(snapshot),
        **secrets,
    }
    if _ROW_NUMBERS in {name.lower() for name in snapshot.columns(location).names}:
        access = _refuse_native(f"Spark's own scan would put row numbers into the column {_ROW_NUMBERS}", via)
    if isinstance(access, str):
        return _by_source(spark, location, query, given, Way(SOURCE, access))
    jvm = None if via == SOURCE else open_jvm(spark)
    if jvm is None and access.options and via is None:
        return _by_source(spark, location, query, given, Way(SOURCE, "Spark's planner cannot ask for files"))
    indexed = jvm is not None
    unplanned = ReadFacts(snapshot.live.count, pushes=pushes, indexed=indexed, requested_way=via)
    if via == SOURCE or (not where and unplanned.files > _MOST_FILES and not indexed):
        return _by_source(spark, location, query, given, choose_way(unplanned))
    plan = plan_native(context.store, snapshot, query, indexed=indexed)
    merged = len(plan.slices)
    files = len(plan.files) + merged + len(plan.scanned)
    way = choose_way(ReadFacts(files, len(plan.foreign) + merged, pushes, indexed, via))
    if way.name == SOURCE:
        return _by_source(spark, location, query, given, way)
    if options.read.verify:
        check_skipping(spark, location, snapshot, where, {TIME_ZONE: str(options.read.time_zone), **secrets})
    _LOG.info("%s at %s is read by Spark's own scan: %s", location, snapshot.instant_time, way.why)
    return native_scan(spark, context.storage, access, plan, split_bytes=options.read.split_bytes, jvm=jvm)


def _access(spark: SparkSession, context: TableContext, via: str | None) -> HadoopAccess | str:
    """Return how Spark's own scan opens the table; the reason if it cannot.

    If the user requests Spark's own scan, it gets what is known. Over Spark Connect the server is asked by the scan.
    """
    plain = HadoopAccess(context.storage.location)
    if obstacle := find_obstacle(spark):
        return _refuse_native(obstacle, via)
    if via == SOURCE or (context_of(spark) is None and not storage_secrets(context)):
        return plain
    access = find_access(spark, context.storage)
    return plain if isinstance(access, str) and via == NATIVE else access


def _refuse_native(why: str, via: str | None) -> str:
    """Return why Spark's own scan would give wrong rows; raise an error if the user requests it."""
    if via == NATIVE:
        raise InvalidInputError(f"via='native' cannot be had: {why}; leave via out")
    return why


def _time_options(snapshot: Snapshot) -> dict[str, str | None]:
    """Return the options for the instant or the end of the range, so that the data source reads this snapshot."""
    if snapshot.changes is None:
        return {"as.of.instant": snapshot.instant_time}
    return {END: snapshot.changes.until or None}


def _by_source(spark: SparkSession, location: str, query: ReadQuery, given: Mapping[str, Any], way: Way) -> DataFrame:
    _LOG.info("%s at %s is read by the data source: %s", location, given.get("as.of.instant", given.get(END)), way.why)
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}
    named = {key: text for key, text in texts.items() if given[key] is not None}
    columns = ",".join(query.schema.names)
    if list(parse_names(columns)) == query.schema.names:
        return guarded_frame(spark, location, {**named, "columns": columns})
    whole = guarded_frame(spark, location, {**named, "meta_columns": "true"})
    return whole.select(*(column_of(column_path([name])) for name in query.schema.names))
