"""Spark's own Parquet scan over the files that lakeformat's planning of a read has chosen.

The scan is vectorised, reads only the needed columns, and counts rows from footers. Spark gets a list of files, the
table's columns as the schema, and the partition values of each folder, so that Spark's own filters can leave folders
out. Hudi allows some changes of a column's type that Spark's reader does not support. Tasks of lakeformat read the
files that were written before such a change.

Spark's public calls find partition columns only in Hive-style folder names, and look up every file first. Therefore
this module makes Spark's internal relation through py4j, and passes it the partition columns and the files' sizes. The
internal classes are the same in Spark 4.0 to 4.3. If they are out of reach (Spark Connect, a later Spark), the public
call is used. Then filters leave out row groups only.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.types import DataType, DoubleType, FloatType, StructField, StructType

from lakeformat.codec.avro.schema import from_avro, without_meta
from lakeformat.file_system_view.live_files import file_objects
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.footers import read_metadata
from lakeformat.model.files import BaseFile
from lakeformat.predicate import Always, column_path
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
from lakeformat.read.run.session import plan_read
from lakeformat.spark.host import plain_errors
from lakeformat.spark.jobs import Batches, context_of, cores, describe_jobs, numbered_tasks, task_errors, task_numbers
from lakeformat.spark.reads.predicate_to_column import column_of, condition_of, quoted
from lakeformat.spark.types import spark_schema
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["BOTH_ZEROS", "NativePlan", "check_skipping", "native_scan", "parquet_scan", "plan_native"]

_LOG: Final = logging.getLogger("lakeformat.spark")
_OPTIONS: Final = {
    "recursiveFileLookup": "true",  # Folder names give no columns.
    "mergeSchema": "false",
    "__globPaths__": "false",  # Brackets and stars in folder names are plain characters.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "ignoreMissingFiles": "false",  # Rows are never left out silently, whatever the session's setting is.
    "ignoreCorruptFiles": "false",
}
#: Options for files with a float column that may be zero. Parquet's reader looks the value of a condition up in a
#: column's dictionary, which distinguishes -0.0 from 0.0. Spark does not, so ``x >= 0`` would lose row groups that hold
#: only -0.0. Row groups are still skipped by their bounds, in which both zeros are equal.
BOTH_ZEROS: Final[Mapping[str, str]] = {"parquet.filter.dictionary.enabled": "false"}
_BLOCK_BYTES: Final = 128 << 20


def parquet_scan(
    spark: SparkSession,
    location: str,
    files: Sequence[BaseFile],
    schema: StructType,
    folders: FolderValues,
    more: Mapping[str, str],
) -> DataFrame:
    """Return the files' rows as Spark reads them.

    Args:
        location: the table's folder or URL.
        files: the files to read.
        schema: the columns to read.
        folders: partition values of the folder of each file. Columns with such values are not read from the files.
        more: more options of Spark's reader and of Parquet's.
    """
    if context_of(spark) is not None:
        try:
            return _relation(spark, location, files, schema, folders, more)
        except Exception as error:  # A later Spark may have other classes.
            _LOG.info("%s: Spark looks up each file, because its relation cannot take our list: %s", location, error)
    paths = [_uri(location, file.path) for file in files]
    return spark.read.schema(schema).options(**_OPTIONS, **more).parquet(*paths)


def _uri(location: str, path: str) -> str:
    """Return the URI for Hadoop's ``Path``, which takes the text after the scheme unchanged."""
    return f"file:{location}/{path}" if location.startswith("/") else f"{location}/{path}"


def _relation(
    spark: Any,
    location: str,
    files: Sequence[BaseFile],
    schema: StructType,
    folders: FolderValues,
    more: Mapping[str, str],
) -> DataFrame:
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    jvm, session = spark._jvm, spark._jsparkSession
    sources, python, option = jvm.org.apache.spark.sql.execution.datasources, jvm.PythonUtils, jvm.scala.Option
    path_of, place_of = jvm.org.apache.hadoop.fs.Path, sources.PartitionPath
    of_folders = set(folders.values.column_names)
    known = [name for name in schema.names if name in of_folders]
    # Spark refuses this option if partition values are given. If none are given, it keeps Spark from inferring them.
    said = {key: value for key, value in _OPTIONS.items() if not (known and key == "recursiveFileLookup")}
    options = python.toScalaMap({**said, **more})
    partitions = StructType([schema[name] for name in known])
    columns, constants = (session.parseDataType(of.json()) for of in (schema, partitions))
    cache = sources.FileStatusCache.getOrCreate(session)
    paths = _cache_statuses(spark, cache, location, files)
    names = sorted({file.partition_path for file in files}) if known else []
    rows = _internal_rows(spark, folders, names, known)
    places = [path_of(_uri(location, name)) for name in names]
    spec = sources.PartitionSpec(constants, python.toSeq(list(map(place_of, rows, places))))
    index = sources.InMemoryFileIndex(
        session, python.toSeq(paths), options, option.apply(columns), cache, option.apply(spec), option.empty()
    )
    if known:
        # If Spark writes a folder's name in another way, it drops the folder's files, and rows would be lost.
        found, given_files = index.leafDirToChildrenFiles().keySet(), python.toSeq(places)
        if set(found.mkString("\n").split("\n")) != set(given_files.mkString("\n").split("\n")):
            raise ValueError("Spark writes a folder's name in another way")
    if index.allFiles().size() != len(files):
        raise ValueError("Spark's list lacks some files")
    format_ = sources.parquet.ParquetFileFormat()
    relation = sources.HadoopFsRelation(index, constants, columns, option.empty(), format_, options, session)
    return ClassicFrame(session.baseRelationToDataFrame(relation), spark)


def _cache_statuses(spark: Any, cache: Any, location: str, files: Sequence[BaseFile]) -> list[Any]:
    """Put the files' sizes into Spark's cache, and return the files' paths.

    Spark looks up a file only after the cache has dropped it.
    """
    hadoop, gateway = spark._jvm.org.apache.hadoop.fs, spark.sparkContext._gateway
    path_of, status_of = hadoop.Path, hadoop.FileStatus  # Each look-up of a name is a call into the JVM.
    paths = []
    for file in files:
        path = path_of(_uri(location, file.path))
        statuses = gateway.new_array(status_of, 1)
        statuses[0] = status_of(file.size_bytes, False, 1, _BLOCK_BYTES, _written_ms(file), path)
        cache.putLeafFiles(path, statuses)
        paths.append(path)
    return paths


def _written_ms(file: BaseFile) -> int:
    """Return the time of the commit that wrote a file, to the second, as Unix milliseconds."""
    return int(datetime.strptime(file.name.instant_time[:14], "%Y%m%d%H%M%S").timestamp()) * 1000


def _internal_rows(spark: Any, folders: FolderValues, names: Sequence[str], columns: Sequence[str]) -> Sequence[Any]:
    """Return the folders' partition values as rows of Spark's internal class."""
    if not columns:
        return []
    values = folders.values.select(columns).take([folders.rows[name] for name in names])
    frame = spark.createDataFrame(values, spark_schema(values.schema))
    return list(frame._jdf.queryExecution().executedPlan().executeCollect())


_RECORD_FILTER: Final = "spark.sql.parquet.recordLevelFilter.enabled"
_UNCUT: Final = 1 << 62
#: (stored, wanted) types that Spark's reader widens, also in nested columns.
_WIDENED: Final = frozenset({
    (pa.int32(), pa.int64()), (pa.int32(), pa.float64()), (pa.float32(), pa.float64()),
})  # fmt: skip
_FLOATS: Final = (FloatType, DoubleType)


@dataclass(frozen=True)
class NativePlan:
    """The files that Spark's own scan of a query reads.

    Attributes:
        snapshot: the table.
        query: the wanted columns and rows.
        kept: path of each base file without log files -> the part of it to read.
        slices: the parts to read of file slices with log files. Tasks of lakeformat merge them.
        files: the files in ``kept``.
        foreign: paths of the files in ``files`` that Spark cannot read with the table's types. Tasks of lakeformat read
            them.
        statistics: the statistics of the files in the file index.
    """

    snapshot: Snapshot
    query: ReadQuery
    kept: Mapping[str, FilePart]
    slices: tuple[SlicePart, ...]
    files: tuple[BaseFile, ...]
    foreign: frozenset[str]
    statistics: FileStatistics

    @property
    def rows(self) -> int | None:
        """Return the number of rows of the answer; None if the file index does not know it."""
        return self.statistics.rows if self.query.predicate == Always(True) and not self.slices else None


def plan_native(store: TimelineStore, snapshot: Snapshot, query: ReadQuery) -> NativePlan:
    """Plan a read of whole files. Memory: an object and some bounds for each file."""
    storage, table = store.storage, snapshot.columns(store.storage.location)
    plan = plan_read(storage, snapshot, query, split_bytes=_UNCUT)
    parts = [part for split in plan.splits for part in split.parts]
    kept = {part.path: part for part in parts if isinstance(part, FilePart)}
    slices = tuple(part for part in parts if isinstance(part, SlicePart))
    full = readable_schema(table, meta_columns=True)
    fields = [full.field(name) for name in query.file_columns()]
    asked = {path: of for field in fields for path, of in _floating_leaves(field)}
    asked |= {field.name: field.type for field in fields if field.name in snapshot.config.partition_fields}
    statistics = file_statistics(snapshot, kept, asked, query.predicate if query.skipping else None)
    files = file_objects(statistics.files)
    shaped = frozenset(path for path, part in kept.items() if part.shape is not None)
    foreign = shaped | _unreadable_for_spark(store, snapshot, files, table)
    return NativePlan(snapshot, query, kept, slices, files, foreign, statistics)


def native_scan(spark: SparkSession, storage: Storage, plan: NativePlan, *, split_bytes: int) -> DataFrame:
    """Return the query's rows as Spark reads them. The frame always reads the planned files, also after later commits.

    Memory: the names of the files, here and in Spark.

    Args:
        split_bytes: bytes of files that one task of lakeformat reads.
    """
    query, snapshot = plan.query, plan.snapshot
    table = snapshot.columns(storage.location)
    full = readable_schema(table, meta_columns=True)
    wanted = pa.schema([full.field(name) for name in query.file_columns()])
    schema = spark_schema(wanted)
    folders = find_folder_values(storage, plan.statistics, [*snapshot.config.partition_fields], full)
    parts: list[DataFrame] = []
    without_nan = frozenset() if _filters_records(spark) else plan.statistics.without_nan
    options = BOTH_ZEROS if any(may_be_zero(plan.statistics, path) for path in without_nan) else {}
    for files, known in _by_folders([file for file in plan.files if file.path not in plan.foreign], folders):
        parts.append(parquet_scan(spark, storage.location, files, schema, known, options))
    theirs: list[Part] = [plan.kept[file.path] for file in plan.files if file.path in plan.foreign]
    theirs += plan.slices
    if theirs:
        splits = pack_splits(theirs, split_bytes, cores(spark))
        parts.append(_read_in_tasks(spark, storage, splits, replace(query, schema=wanted), table))
    frame = reduce(lambda above, below: above.union(below), parts or [spark.createDataFrame([], schema)])
    guards = {field.name: guard for field in schema if (guard := _hide_nan(field, without_nan)) is not None}
    if guards:
        frame = frame.withColumns(guards)
    if query.predicate != Always(True):
        frame = frame.where(condition_of(query.predicate))
    if query.schema.names != wanted.names:  # Each column costs a few calls into the JVM.
        frame = frame.select(*(column_of(column_path([name])) for name in query.schema.names))
    return frame if plan.rows is None else _with_known_count(frame, plan.rows)


def _filters_records(spark: SparkSession) -> bool:
    """Tell whether Parquet's reader selects rows. It distinguishes -0.0 from 0.0, so no float filter may reach it."""
    return str(spark.conf.get(_RECORD_FILTER, "false")).lower() == "true"


def _with_known_count(frame: DataFrame, rows: int) -> DataFrame:
    """Return the frame with a ``count()`` that needs no job, unless it has to fill a cache.

    Frames made from it count as usual.
    """
    by_spark = frame.count
    frame.count = lambda: by_spark() if frame.is_cached else rows
    return frame


def _by_folders(files: Sequence[BaseFile], folders: FolderValues) -> Iterator[tuple[Sequence[BaseFile], FolderValues]]:
    """Yield two groups of files: those whose folder has known partition values, and those whose folder has none."""
    known = [file for file in files if file.partition_path in folders.rows]
    others = [file for file in files if file.partition_path not in folders.rows]
    if known:
        yield known, folders
    if others:
        yield others, NO_FOLDERS


def _floating_leaves(field: pa.Field) -> Iterator[tuple[str, pa.DataType]]:
    """Yield path and type of each part of a column that may hold NaN: the column or a struct's floating fields."""
    below: list[tuple[tuple[str, ...], pa.DataType]] = [((field.name,), field.type)]
    while below:
        path, of = below.pop()
        if pa.types.is_struct(of):
            below += [((*path, inner.name), inner.type) for inner in of]
        elif pa.types.is_floating(of):
            yield column_path(path), of


def _hide_nan(field: StructField, without_nan: Collection[str]) -> Column | None:
    """Return an expression of the same value as the column, for a column that may hold NaN; else None.

    Spark does not push a filter on the expression into the scan, so the filter skips no row group. Parquet's statistics
    leave NaN out, but Spark orders NaN above all values. If Spark skipped by the statistics, ``x > 100`` would lose
    NaN. Other structures in files of other writers, such as bloom filters that distinguish -0.0 from 0.0, lose no rows
    either.
    """
    if type(field.dataType) in _FLOATS:
        known = column_path([field.name]) in without_nan
        return None if known else _unpushed([field.name], field.dataType)
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
    """Yield path and type of the floating fields of a struct. Spark does not skip by fields of lists and maps."""
    for field in of if isinstance(of, StructType) else ():
        if type(field.dataType) in _FLOATS:
            yield (*above, field.name), field.dataType
        yield from _floats(field.dataType, (*above, field.name))


def check_skipping(
    spark: SparkSession, location: str, snapshot: Snapshot, where: str | None, options: Mapping[str, str]
) -> None:
    """Read the table through the data source, whose tasks compare a read with skipping and one without.

    Args:
        snapshot: the snapshot to read.
        where: the condition. Without a condition nothing is read.
        options: the option for the condition's time zone, and the options of the file system.

    Raises:
        SkippingError: skipping would lose rows; the message names the files.
    """
    if where and snapshot.instant_time:
        frame = spark.read.format("lakehouse").options(
            **{"as.of.instant": snapshot.instant_time}, where=where, **options
        )
        rows = frame.option("lakeformat.read.verify", "true").load(location)
        with describe_jobs(rows, f"lakeformat read {location}: verify skipping"), task_errors():
            rows.count()


def _read_in_tasks(
    spark: SparkSession, storage: Storage, splits: Sequence[Split], query: ReadQuery, table: pa.Schema
) -> DataFrame:
    """Return the rows of these splits. One task reads each split. Spark plans no read of its own for them."""

    def read(batches: Batches) -> Batches:
        with plain_errors():
            for at in task_numbers(batches):
                yield from read_split(storage, splits[at], query, table)

    return numbered_tasks(spark, len(splits), read, spark_schema(query.schema))


def _unreadable_for_spark(
    store: TimelineStore, snapshot: Snapshot, files: Sequence[BaseFile], table: pa.Schema
) -> frozenset[str]:
    """Return paths of the files with a column whose type Spark's reader does not widen to the table's.

    A file has the schema of its commit. A footer is opened only if the timeline has no commit with the file's schema.
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


def _widens(stored: pa.Schema | pa.StructType, wanted: pa.Schema | pa.StructType) -> bool:
    """Tell whether Spark can read the columns that both schemas have. Columns of one schema are null or left out."""
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
        # If Spark finds no field of a struct, the whole struct is null.
        return _widens(stored, wanted) and not {f.name for f in stored}.isdisjoint(f.name for f in wanted)
    if pa.types.is_list(stored) and pa.types.is_list(wanted):
        return _widens_type(stored.value_type, wanted.value_type)
    if pa.types.is_map(stored) and pa.types.is_map(wanted):
        return _widens_type(stored.key_type, wanted.key_type) and _widens_type(stored.item_type, wanted.item_type)
    return False
