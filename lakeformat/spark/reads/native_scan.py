"""Reads by Spark's own Parquet scan. lakeformat chooses the files of a snapshot, and Spark reads them.

Spark's scan is vectorised, reads only the needed columns, and counts rows from footers. Spark gets a list of files, the
table's columns as the schema, and the partition values of each folder, so that its filters can skip folders. Hudi
allows some changes of a column's type that Spark's reader does not support. Files from before such a change, and file
slices with log files, are read by Spark tasks that run lakeformat's own reader.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.types import DataType, DoubleType, FloatType, StructField, StructType

from lakeformat.arrow.conform import conform
from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.arrow.logical_types import is_variant, is_vector
from lakeformat.codec.avro.schema import from_avro, without_meta
from lakeformat.file_system_view.live_files import file_objects
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.footers import read_metadata
from lakeformat.model.files import BaseFile
from lakeformat.predicate import Always, Predicate, column_path, mask
from lakeformat.read.plan import FilePart, Part, SlicePart, Split, pack_splits
from lakeformat.read.query import ReadQuery, readable_schema
from lakeformat.read.run.batches import read_split
from lakeformat.read.run.file_statistics import (
    NO_FOLDERS,
    FileStatistics,
    FolderValues,
    file_statistics,
    find_folder_values,
    may_be_zero,
)
from lakeformat.read.run.session import UNCUT, plan_read
from lakeformat.spark.host import plain_errors
from lakeformat.spark.jobs import Batches, cores, describe_jobs, numbered_tasks, task_errors, task_numbers
from lakeformat.spark.reads.file_index import FilePruner
from lakeformat.spark.reads.hadoop_access import HadoopAccess
from lakeformat.spark.reads.jvm import SparkJvm
from lakeformat.spark.reads.parquet_scan import BOTH_ZEROS, parquet_scan
from lakeformat.spark.reads.predicate_to_column import column_of, condition_of, quoted, split_condition
from lakeformat.spark.reads.replaced_rows_scan import choose_slices, scan_without_replaced
from lakeformat.spark.types import spark_schema
from lakeformat.spark.verbs import original_verb
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["NativePlan", "check_skipping", "native_scan", "plan_native"]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: The setting with which Parquet's reader filters single rows, and not only row groups.
_RECORD_FILTER: Final = "spark.sql.parquet.recordLevelFilter.enabled"
#: Pairs (type in the file, type in the table) that Spark's reader converts, also in nested columns.
_WIDENED: Final = frozenset({
    (pa.int32(), pa.int64()), (pa.int32(), pa.float64()), (pa.float32(), pa.float64()),
})  # fmt: skip
_FLOATS: Final = (FloatType, DoubleType)


@dataclass(frozen=True)
class NativePlan:
    """The files of a query, divided into those that Spark's own scan reads and those that lakeformat reads in tasks.

    Attributes:
        snapshot: the snapshot to read.
        query: the wanted columns and rows.
        kept: the base files to read that have no log files: a mapping of path to the part of the file to read.
        slices: the file slices with log files that lakeformat merges as a whole.
        scanned: the file slices with log files whose base file Spark scans without the rows that log files replace.
            lakeformat merges only these rows.
        files: the base files in ``kept``.
        foreign: paths of those ``files`` that Spark cannot read with the table's types, so that lakeformat reads them.
        statistics: the row counts of ``files`` and the bounds of their columns, from the file index.
    """

    snapshot: Snapshot
    query: ReadQuery
    kept: Mapping[str, FilePart]
    slices: tuple[SlicePart, ...]
    scanned: tuple[SlicePart, ...]
    files: tuple[BaseFile, ...]
    foreign: frozenset[str]
    statistics: FileStatistics

    @property
    def rows(self) -> int | None:
        """Return the number of rows that the query returns; None if the file index does not determine it."""
        merges = self.slices or self.scanned
        return self.statistics.rows if self.query.predicate == Always(True) and not merges else None


def plan_native(store: TimelineStore, snapshot: Snapshot, query: ReadQuery, *, indexed: bool) -> NativePlan:
    """Plan which files of a snapshot Spark's own scan reads for a query, and which files tasks of lakeformat read.

    Memory: for each file an object, and the bounds of some columns.

    Args:
        indexed: whether Spark's planner can ask lakeformat which files each query must read. Only then can it scan base
            files that have log files.
    """
    storage, table = store.storage, snapshot.columns(store.storage.location)
    plan = plan_read(storage, snapshot, query, split_bytes=UNCUT)
    parts = [part for split in plan.splits for part in split.parts]
    kept = {part.path: part for part in parts if isinstance(part, FilePart)}
    slices = [part for part in parts if isinstance(part, SlicePart)]
    scanned, merged = choose_slices(slices, table.names) if indexed else ([], slices)
    full = readable_schema(table, meta_columns=True)
    fields = [full.field(name) for name in query.file_columns()]
    asked = {path: of for field in fields for path, of in _floating_leaves(field)}
    asked |= {field.name: field.type for field in fields if field.name in snapshot.config.partition_fields}
    statistics = file_statistics(snapshot, kept, asked, query.predicate if query.skipping else None)
    files = file_objects(statistics.files)
    shaped = frozenset(path for path, part in kept.items() if part.shape is not None)
    bases = [part.slice.base for part in scanned if part.slice.base is not None]
    unreadable = _unreadable_for_spark(store, snapshot, [*files, *bases], table)
    merged += [part for part in scanned if part.path in unreadable]
    scanned = [part for part in scanned if part.path not in unreadable]
    foreign = shaped | unreadable.intersection(kept)
    return NativePlan(snapshot, query, kept, tuple(merged), tuple(scanned), files, foreign, statistics)


def native_scan(
    spark: SparkSession,
    storage: Storage,
    access: HadoopAccess,
    plan: NativePlan,
    *,
    split_bytes: int,
    jvm: SparkJvm | None,
) -> DataFrame:
    """Return a DataFrame of the query's rows. It reads the planned files, even after later commits.

    Memory: the names of the files, in this process and in Spark's driver.

    Args:
        access: how Spark's own scan opens the files.
        split_bytes: target bytes of the files that one task of lakeformat reads.
        jvm: the session's JVM, whose planner asks which files each query must read; None if it cannot ask.
    """
    query, snapshot = plan.query, plan.snapshot
    table = snapshot.columns(storage.location)
    full = readable_schema(table, meta_columns=True)
    file_schema = pa.schema([full.field(name) for name in query.file_columns()])
    schema = spark_schema(file_schema)
    folders = find_folder_values(storage, plan.statistics, [*snapshot.config.partition_fields], full)
    index = None if jvm is None else (jvm, FilePruner(storage, snapshot, query))
    parts: list[DataFrame] = []
    without_nan = frozenset() if _filters_records(spark) else plan.statistics.without_nan
    options = BOTH_ZEROS if any(may_be_zero(plan.statistics, path) for path in without_nan) else {}
    for files, values in _by_folders([file for file in plan.files if file.path not in plan.foreign], folders):
        parts.append(parquet_scan(spark, storage.location, access, files, schema, values, options, index))
    parts = [_hide_nans(part, schema, without_nan) for part in parts]
    theirs: list[Part] = [plan.kept[file.path] for file in plan.files if file.path in plan.foreign]
    theirs += plan.slices
    unreplaced = None
    if plan.scanned and index is not None:
        unreplaced = scan_without_replaced(spark, storage, access, plan.scanned, schema, full, index)
    if unreplaced is not None:
        # The file index has no bounds of single base files with log files, so each float may be NaN.
        parts.append(_hide_nans(unreplaced, schema, frozenset()))
    theirs += [replace(part, replacing_only=unreplaced is not None) for part in plan.scanned]
    if theirs:
        splits = pack_splits(theirs, split_bytes, cores(spark))
        parts.append(_read_in_tasks(spark, storage, splits, replace(query, schema=file_schema), table))
    frame = reduce(lambda above, below: above.union(below), parts or [spark.createDataFrame([], schema)])
    frame = _select_rows(frame, query.predicate, file_schema)
    # If the columns do not change, this step is left out, because each column costs calls into the JVM.
    if query.schema.names != file_schema.names:
        frame = frame.select(*(column_of(column_path([name])) for name in query.schema.names))
    return frame if plan.rows is None else _with_known_count(frame, plan.rows)


def _select_rows(frame: DataFrame, predicate: Predicate, schema: pa.Schema) -> DataFrame:
    """Return the rows of a frame that a condition selects. Spark tests what it can, tasks of lakeformat the rest."""
    by_spark, by_us = split_condition(predicate)
    if by_spark != Always(True):
        frame = frame.where(condition_of(by_spark))
    if by_us == Always(True):
        return frame

    def select(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.filter(mask(by_us, conform(batch, schema)))

    return frame.mapInArrow(select, frame.schema)


def _hide_nans(frame: DataFrame, schema: StructType, without_nan: Collection[str]) -> DataFrame:
    """Wrap all columns whose values may be NaN; see `_hide_nan`."""
    guards = {field.name: guard for field in schema if (guard := _hide_nan(field, without_nan)) is not None}
    return frame.withColumns(guards) if guards else frame


def _filters_records(spark: SparkSession) -> bool:
    """Tell whether the session lets Parquet's reader filter single rows, and not only row groups.

    If so, Spark must not push filters on floats into the scan. The reader would drop rows: for it -0.0 and 0.0 are
    different values, but Spark's conditions treat them as equal.
    """
    return str(spark.conf.get(_RECORD_FILTER, "false")).lower() == "true"


def _with_known_count(frame: DataFrame, rows: int) -> DataFrame:
    """Replace the frame's ``count()`` by one that returns the known number ``rows`` without a Spark job.

    If the frame is cached, ``count()`` runs as usual, because users call it to fill the cache. Frames derived from this
    frame count as usual.
    """
    by_spark = frame.count
    frame.count = lambda: by_spark() if frame.is_cached else rows
    return frame


def _by_folders(files: Sequence[BaseFile], folders: FolderValues) -> Iterator[tuple[Sequence[BaseFile], FolderValues]]:
    """Divide the files into those in folders with known partition values, and all others.

    Yield each group that has files, with the partition values for its scan: ``folders`` for the first group,
    `NO_FOLDERS` for the second.

    Args:
        folders: the folders with known partition values.
    """
    own_files = [file for file in files if file.partition_path in folders.rows]
    others = [file for file in files if file.partition_path not in folders.rows]
    if own_files:
        yield own_files, folders
    if others:
        yield others, NO_FOLDERS


def _floating_leaves(field: pa.Field) -> Iterator[tuple[str, pa.DataType]]:
    """Yield path and type of the floats in a column: the column itself, or the floating fields of its structs."""
    below: list[tuple[tuple[str, ...], pa.DataType]] = [((field.name,), field.type)]
    while below:
        path, of = below.pop()
        if kind_of(of) is Kind.STRUCT:
            below += [((*path, inner.name), inner.type) for inner in of]
        elif kind_of(of) is Kind.FLOAT:
            yield column_path(path), of


def _hide_nan(field: StructField, without_nan: Collection[str]) -> Column | None:
    """Wrap a column whose values may be NaN in an expression with the same values; return None for other columns.

    Spark does not push filters on an expression into the scan, so such filters skip no row group. Skipping would lose
    rows: Parquet's bounds ignore NaN, but Spark orders NaN above all numbers, so ``x > 100`` selects NaN. Bloom filters
    of other writers, which distinguish -0.0 from 0.0, would lose rows too. They are used only for pushed filters.

    Args:
        without_nan: paths of floats that have no NaN in any file, and need no wrapping.
    """
    if type(field.dataType) in _FLOATS:
        has_no_nan = column_path([field.name]) in without_nan
        return None if has_no_nan else _unpushed([field.name], field.dataType)
    guarded: Column | None = None
    for path, of in _floats(field.dataType, ()):
        if column_path([field.name, *path]) in without_nan:
            continue
        column = column_of(column_path([field.name])) if guarded is None else guarded
        guarded = column.withField(column_path(path), _unpushed([field.name, *path], of))
    return guarded


def _unpushed(path: Sequence[str], of: DataType) -> Column:
    return functions.expr(f"nanvl({quoted(column_path(path))}, cast('NaN' as {of.simpleString()}))")


def _floats(of: DataType, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], DataType]]:
    """Yield path and type of the floating fields of a struct, nested structs included.

    Lists and maps are left out, because Spark never skips row groups by their elements.

    Args:
        above: path of the struct.
    """
    for field in of if isinstance(of, StructType) else ():
        if type(field.dataType) in _FLOATS:
            yield (*above, field.name), field.dataType
        yield from _floats(field.dataType, (*above, field.name))


def check_skipping(
    spark: SparkSession, location: str, snapshot: Snapshot, where: str | None, options: Mapping[str, str]
) -> None:
    """Check that skipping by column statistics loses no rows.

    Tasks read the files and row groups that would be skipped, and look for rows that satisfy the condition.

    Args:
        snapshot: the snapshot to read.
        where: the condition. Without a condition nothing is skipped, so nothing is tested.
        options: the option for the condition's time zone, and the options of the file system.

    Raises:
        SkippingError: skipping would lose rows; the message names the files.
    """
    if where and snapshot.instant_time:
        reader = spark.read.format("lakehouse").options(
            **{"as.of.instant": snapshot.instant_time}, where=where, **options
        )
        rows = original_verb(reader.option("lakeformat.read.verify", "true"), "load")(location)
        with describe_jobs(rows, f"lakeformat read {location}: verify skipping"), task_errors():
            rows.count()


def _read_in_tasks(
    spark: SparkSession, storage: Storage, splits: Sequence[Split], query: ReadQuery, table: pa.Schema
) -> DataFrame:
    """Return a DataFrame of the rows of these splits. Each split is read in one task, by lakeformat's own reader."""

    def read(batches: Batches) -> Batches:
        with plain_errors():
            for number in task_numbers(batches):
                yield from read_split(storage, splits[number], query, table)

    return numbered_tasks(spark, len(splits), read, spark_schema(query.schema))


def _unreadable_for_spark(
    store: TimelineStore, snapshot: Snapshot, files: Sequence[BaseFile], table: pa.Schema
) -> frozenset[str]:
    """Return the paths of the files that have a column whose type Spark's reader does not convert to the table's type.

    The schema of a file is read from the metadata of its commit. If the timeline does not have this commit or its
    schema, the schema is read from the file's footer.
    """
    instants = {instant.time: instant for instant in snapshot.timeline.commits}
    by_time: dict[str, list[BaseFile]] = {}
    for file in files:
        by_time.setdefault(file.name.instant_time, []).append(file)
    foreign: list[str] = []
    unknown: list[BaseFile] = []
    for time, written in by_time.items():
        text = store.read_commit(instants[time]).files_schema_text if time in instants else None
        if not text:
            unknown += written
        elif not _widens(without_meta(from_avro(text, name=time)), table):
            foreign += [file.path for file in written]
    with ThreadPoolExecutor(max(2, pa.cpu_count())) as pool:
        footers = pool.map(lambda file: read_metadata(store.storage, file).schema.to_arrow_schema(), unknown)
        foreign += [file.path for file, stored in zip(unknown, footers, strict=True) if not _widens(stored, table)]
    return frozenset(foreign)


def _widens(stored: pa.Schema | pa.StructType, requested: pa.Schema | pa.StructType) -> bool:
    """Tell whether, for each column in both schemas, Spark can convert the stored type to the wanted type.

    A column that only one schema has needs no conversion: it is null in the rows, or it is not read.
    """
    have = {field.name: field.type for field in stored}
    return all(_widens_type(have[field.name], field.type) for field in requested if field.name in have)


def _widens_type(stored: pa.DataType, requested: pa.DataType) -> bool:
    if is_vector(requested) or is_variant(requested):  # Files store bytes, which Spark does not convert.
        return False
    if stored.equals(requested) or (stored, requested) in _WIDENED:
        return True
    if kind_of(stored) is kind_of(requested) is Kind.DECIMAL:
        return bool(stored.scale == requested.scale and stored.precision <= requested.precision)
    if kind_of(stored) is kind_of(requested) is Kind.TIMESTAMP:
        return (stored.tz is None) == (requested.tz is None)
    if kind_of(stored) is kind_of(requested) is Kind.STRUCT:
        # The structs must share a field: otherwise Spark would read the whole struct as null.
        return _widens(stored, requested) and not {f.name for f in stored}.isdisjoint(f.name for f in requested)
    if kind_of(stored) is kind_of(requested) is Kind.LIST:
        return _widens_type(stored.value_type, requested.value_type)
    if kind_of(stored) is kind_of(requested) is Kind.MAP:
        return _widens_type(stored.key_type, requested.key_type) and _widens_type(stored.item_type, requested.item_type)
    return False
