"""Spark's own Parquet scan over the files that a read has left: vectorised, columns pruned, counts from footers.

Spark is given files, not folders, the table's columns as the schema, and what is known of the folders' values, so that
its own filters leave folders out. Files whose types it cannot widen (from before a change of schema that Hudi allows
and Spark's reader does not) are read by tasks of ours instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.types import DataType, DoubleType, FloatType, StructField, StructType

from lakeformat.codec.avro_schema import from_avro, without_meta
from lakeformat.files.footers import read_metadata
from lakeformat.model.files import BaseFile
from lakeformat.predicate import Always, column_path
from lakeformat.read.batches import read_split
from lakeformat.read.query import ReadQuery, readable_schema
from lakeformat.read.session import plan_read
from lakeformat.read.splits import FilePart, Part, SlicePart, Split, pack
from lakeformat.read.told import NO_FOLDERS, FolderValues, Told, folder_values, may_be_zero, told_of
from lakeformat.spark.conditions import column_of, condition_of, quoted
from lakeformat.spark.host import plain_errors
from lakeformat.spark.jobs import Batches, cores, described, numbered, numbers, task_errors
from lakeformat.spark.scan import BOTH_ZEROS, parquet_scan
from lakeformat.spark.types import spark_schema
from lakeformat.storage.port import Storage
from lakeformat.table_state.live import file_objects
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.timeline.store import TimelineStore

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["NativePlan", "check_skipping", "native_scan", "plan_native"]

_RECORD_FILTER: Final = "spark.sql.parquet.recordLevelFilter.enabled"
_UNCUT: Final = 1 << 62
#: Spark's reader widens these, nested ones too.
_WIDENED: Final = frozenset({
    (pa.int32(), pa.int64()), (pa.int32(), pa.float64()), (pa.float32(), pa.float64()),
})  # fmt: skip
_FLOATS: Final = (FloatType, DoubleType)


@dataclass(frozen=True)
class NativePlan:
    """What Spark's own scan of a query will read.

    Attributes:
        kept: by path, what is read of each file without log files.
        slices: what is read of those with log files, which tasks of ours merge.
        files: those that are kept.
        foreign: paths of the files among them that Spark cannot read, or not as the table has them.
        told: what the file index knows of the files kept.
    """

    snapshot: Snapshot
    query: ReadQuery
    kept: Mapping[str, FilePart]
    slices: tuple[SlicePart, ...]
    files: tuple[BaseFile, ...]
    foreign: frozenset[str]
    told: Told

    @property
    def rows(self) -> int | None:
        """The number of rows that the query answers with, where the file index knows it."""
        return self.told.rows if self.query.predicate == Always(True) and not self.slices else None


def plan_native(store: TimelineStore, snapshot: Snapshot, query: ReadQuery) -> NativePlan:
    """Plan as for any read. Memory: an object and some bounds for each file kept."""
    storage, table = store.storage, snapshot.columns(store.storage.location)
    plan = plan_read(storage, snapshot, query, split_bytes=_UNCUT)
    parts = [part for split in plan.splits for part in split.parts]
    kept = {part.path: part for part in parts if isinstance(part, FilePart)}
    slices = tuple(part for part in parts if isinstance(part, SlicePart))
    full = readable_schema(table, meta_columns=True)
    fields = [full.field(name) for name in query.file_columns()]
    asked = {path: of for field in fields for path, of in _leaves_asked(field)}
    asked |= {field.name: field.type for field in fields if field.name in snapshot.config.partition_fields}
    told = told_of(snapshot, kept, asked, query.predicate if query.skipping else None)
    files = file_objects(told.files)
    shaped = frozenset(path for path, part in kept.items() if part.shape is not None)
    foreign = shaped | _not_for_spark(store, snapshot, files, table)
    return NativePlan(snapshot, query, kept, slices, files, foreign, told)


def native_scan(spark: SparkSession, storage: Storage, plan: NativePlan, *, split_bytes: int) -> DataFrame:
    """The query's rows as Spark reads them itself, of the files planned whenever it does.

    Memory: the names of the files kept, here and in Spark.

    Args:
        split_bytes: of the files that a task of ours reads.
    """
    query, snapshot = plan.query, plan.snapshot
    table = snapshot.columns(storage.location)
    full = readable_schema(table, meta_columns=True)
    wanted = pa.schema([full.field(name) for name in query.file_columns()])
    schema = spark_schema(wanted)
    folders = folder_values(storage, plan.told, [*snapshot.config.partition_fields], full)
    parts: list[DataFrame] = []
    without_nan = frozenset() if _filters_records(spark) else plan.told.without_nan
    options = BOTH_ZEROS if any(may_be_zero(plan.told, path) for path in without_nan) else {}
    for files, known in _by_folders([file for file in plan.files if file.path not in plan.foreign], folders):
        parts.append(parquet_scan(spark, storage.location, files, schema, known, options))
    theirs: list[Part] = [plan.kept[file.path] for file in plan.files if file.path in plan.foreign]
    theirs += plan.slices
    if theirs:
        splits = pack(theirs, split_bytes, cores(spark))
        parts.append(_read_by_us(spark, storage, splits, replace(query, schema=wanted), table))
    frame = reduce(lambda above, below: above.union(below), parts or [spark.createDataFrame([], schema)])
    guards = {field.name: guard for field in schema if (guard := _guarded(field, without_nan)) is not None}
    if guards:
        frame = frame.withColumns(guards)
    if query.predicate != Always(True):
        frame = frame.where(condition_of(query.predicate))
    if query.schema.names != wanted.names:  # Each column named costs a few calls into the JVM.
        frame = frame.select(*(column_of(column_path([name])) for name in query.schema.names))
    return frame if plan.rows is None else _counted(frame, plan.rows)


def _filters_records(spark: SparkSession) -> bool:
    """Whether Parquet's own reader picks rows: it tells the zeros apart, so it must be given no float column."""
    return str(spark.conf.get(_RECORD_FILTER, "false")).lower() == "true"


def _counted(frame: DataFrame, rows: int) -> DataFrame:
    """The frame, whose own ``count()`` needs no job, but to fill a cache; frames made of it count as ever."""
    by_spark = frame.count
    frame.count = lambda: by_spark() if frame.is_cached else rows
    return frame


def _by_folders(files: Sequence[BaseFile], folders: FolderValues) -> Iterator[tuple[Sequence[BaseFile], FolderValues]]:
    """The files of folders whose values are known, and the others."""
    known = [file for file in files if file.partition_path in folders.rows]
    others = [file for file in files if file.partition_path not in folders.rows]
    if known:
        yield known, folders
    if others:
        yield others, NO_FOLDERS


def _leaves_asked(field: pa.Field) -> Iterator[tuple[str, pa.DataType]]:
    """Floating columns, and those in structs: whether they have NaN is asked."""
    below: list[tuple[tuple[str, ...], pa.DataType]] = [((field.name,), field.type)]
    while below:
        path, of = below.pop()
        if pa.types.is_struct(of):
            below += [((*path, inner.name), inner.type) for inner in of]
        elif pa.types.is_floating(of):
            yield column_path(path), of


def _guarded(field: StructField, without_nan: Collection[str]) -> Column | None:
    """Hide a column that may hold NaN from Spark's skipping; return None if it cannot hold NaN.

    Statistics of Parquet leave NaN out. Spark, to which NaN is greater than everything, skips by them all the same:
    ``x > 100`` would lose NaN. A filter on an expression is not pushed into the scan, so nothing that other writers
    left in their files, such as key filters that tell -0.0 from 0.0, can lose rows of such a column either.
    """
    if type(field.dataType) in _FLOATS:
        known = column_path([field.name]) in without_nan
        return None if known else _not_pushed([field.name], field.dataType)
    guarded: Column | None = None
    for path, of in _floats(field.dataType, ()):
        if column_path([field.name, *path]) in without_nan:
            continue
        column = column_of(column_path([field.name])) if guarded is None else guarded
        guarded = column.withField(column_path(path), _not_pushed([field.name, *path], of))
    return guarded


def _not_pushed(path: Sequence[str], of: DataType) -> Column:
    return functions.expr(f"nanvl({quoted(column_path(path))}, cast('NaN' as {of.simpleString()}))")


def _floats(of: DataType, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], DataType]]:
    """Paths of the floating fields of a struct; lists and maps are not skipped by."""
    for field in of if isinstance(of, StructType) else ():
        if type(field.dataType) in _FLOATS:
            yield (*above, field.name), field.dataType
        yield from _floats(field.dataType, (*above, field.name))


def check_skipping(
    spark: SparkSession, location: str, snapshot: Snapshot, where: str | None, options: Mapping[str, str]
) -> None:
    """Have the table read through the data source, whose tasks compare a read with skipping and one without.

    Args:
        options: the zone of the condition, and those of the file system.

    Raises:
        SkippingError: skipping would lose rows; names the files.
    """
    if where and snapshot.instant_time:
        frame = spark.read.format("lakehouse").options(
            **{"as.of.instant": snapshot.instant_time}, where=where, **options
        )
        rows = frame.option("lakeformat.read.verify", "true").load(location)
        with described(rows, f"lakeformat read {location}: verify skipping"), task_errors():
            rows.count()


def _read_by_us(
    spark: SparkSession, storage: Storage, splits: Sequence[Split], query: ReadQuery, table: pa.Schema
) -> DataFrame:
    """Exactly these splits, one task each: no later plan has to find their files again."""

    def read(batches: Batches) -> Batches:
        with plain_errors():
            for at in numbers(batches):
                yield from read_split(storage, splits[at], query, table)

    return numbered(spark, len(splits), read, spark_schema(query.schema))


def _not_for_spark(
    store: TimelineStore, snapshot: Snapshot, files: Sequence[BaseFile], table: pa.Schema
) -> frozenset[str]:
    """Paths of the files that hold a column in a type Spark's reader does not widen to the table's.

    A file has the schema of its commit. Footers are opened only where the timeline has no commit with another.
    """
    instants = {instant.time: instant for instant in snapshot.timeline.commits}
    by_time: dict[str, list[BaseFile]] = {}
    for file in files:
        by_time.setdefault(file.name.instant_time, []).append(file)
    foreign: list[str] = []
    unknown: list[BaseFile] = []
    for time, written in by_time.items():
        text = store.commit(instants[time]).files_schema_text if time in instants else None
        if not text:
            unknown += written
        elif not _widens(without_meta(from_avro(text, name=time)), table):
            foreign += [file.path for file in written]
    with ThreadPoolExecutor(max(2, pa.cpu_count())) as pool:
        footers = pool.map(lambda file: read_metadata(store.storage, file).schema.to_arrow_schema(), unknown)
        foreign += [file.path for file, stored in zip(unknown, footers, strict=True) if not _widens(stored, table)]
    return frozenset(foreign)


def _widens(stored: pa.Schema | pa.StructType, wanted: pa.Schema | pa.StructType) -> bool:
    """Whether Spark reads every column that both have; what one of them lacks is null or left out."""
    have = {field.name: field.type for field in stored}
    return all(_widens_type(have[field.name], field.type) for field in wanted if field.name in have)


def _widens_type(stored: pa.DataType, wanted: pa.DataType) -> bool:
    if stored.equals(wanted) or (stored, wanted) in _WIDENED:
        return True
    if pa.types.is_decimal(stored) and pa.types.is_decimal(wanted):
        return bool(stored.scale == wanted.scale and stored.precision <= wanted.precision)
    if pa.types.is_timestamp(stored) and pa.types.is_timestamp(wanted):
        return (stored.tz is None) == (wanted.tz is None)
    if pa.types.is_struct(stored) and pa.types.is_struct(wanted):
        # A struct of which Spark finds no field is null as a whole.
        return _widens(stored, wanted) and not {f.name for f in stored}.isdisjoint(f.name for f in wanted)
    if pa.types.is_list(stored) and pa.types.is_list(wanted):
        return _widens_type(stored.value_type, wanted.value_type)
    if pa.types.is_map(stored) and pa.types.is_map(wanted):
        return _widens_type(stored.key_type, wanted.key_type) and _widens_type(stored.item_type, wanted.item_type)
    return False
