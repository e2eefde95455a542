"""Spark's own Parquet scan over the files that a read has left: vectorised, columns pruned, counts from footers.

Spark is given files, not folders, and the table's columns as the schema, so it neither lists partitions nor takes
columns from folder names. Files whose types it cannot widen (from before a change of schema that Hudi allows and
Spark's reader does not) are read by tasks of ours instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.types import DataType, DoubleType, FloatType, StructField, StructType

from lakeformat.codec.avro_schema import from_avro, without_meta
from lakeformat.index.footers import read_metadata
from lakeformat.model.files import BaseFile
from lakeformat.predicate import Always, column_path
from lakeformat.read.batches import read_split
from lakeformat.read.query import ReadQuery, readable_schema
from lakeformat.read.session import plan_read
from lakeformat.read.splits import Split, pack
from lakeformat.spark.conditions import column_of, condition_of, quoted
from lakeformat.spark.host import plain_errors
from lakeformat.spark.jobs import Batches, cores, numbered, numbers, task_errors
from lakeformat.spark.types import spark_schema
from lakeformat.storage.port import Storage
from lakeformat.timeline.snapshot import Snapshot
from lakeformat.timeline.store import TimelineStore

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["check_skipping", "native_scan"]

_UNCUT: Final = 1 << 62
#: Spark's reader widens these, nested ones too.
_WIDENED: Final = frozenset({
    (pa.int32(), pa.int64()), (pa.int32(), pa.float64()), (pa.float32(), pa.float64()),
})  # fmt: skip
_FLOATS: Final = (FloatType, DoubleType)
_OPTIONS: Final = {
    "recursiveFileLookup": "true",  # No columns from folder names.
    "mergeSchema": "false",
    "__globPaths__": "false",  # Brackets and stars in folder names are themselves.
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "ignoreMissingFiles": "false",  # Whatever the session says: rows are never left out in silence.
    "ignoreCorruptFiles": "false",
}


def native_scan(
    spark: SparkSession, store: TimelineStore, snapshot: Snapshot, query: ReadQuery, *, split_bytes: int
) -> DataFrame:
    """The query's rows as Spark reads them itself; planning is that of any read, and happens now.

    Memory: the names of the files kept, here and in Spark, which looks each of them up before it reads.

    Args:
        split_bytes: of the files that a task of ours reads.
    """
    storage, table = store.storage, snapshot.columns(store.storage.location)
    plan = plan_read(storage, snapshot, query, split_bytes=_UNCUT)
    kept = {part.path: part for split in plan.splits for part in split.parts}
    files = [file for file in snapshot.files if file.path in kept]
    foreign = _not_for_spark(store, snapshot, files, table)
    full = readable_schema(table, meta_columns=True)
    wanted = pa.schema([full.field(name) for name in query.file_columns()])
    schema = spark_schema(wanted)
    paths = [_uri(storage.location, file.path) for file in files if file.path not in foreign]
    if paths:
        frame = spark.read.schema(schema).options(**_OPTIONS).parquet(*paths)
    else:
        frame = spark.createDataFrame([], schema)
    if foreign:
        splits = pack([kept[file.path] for file in files if file.path in foreign], split_bytes, cores(spark))
        frame = frame.union(_read_by_us(spark, storage, splits, replace(query, schema=wanted), table))
    guards = {field.name: guard for field in schema if (guard := _guarded(field)) is not None}
    if guards:
        frame = frame.withColumns(guards)
    if query.predicate != Always(True):
        frame = frame.where(condition_of(query.predicate))
    if query.schema.names == wanted.names:
        return frame  # Each column named costs a few calls into the JVM.
    return frame.select(*(column_of(column_path([name])) for name in query.schema.names))


def _guarded(field: StructField) -> Column | None:
    """The column itself, but out of reach of Spark's skipping; None if it cannot hold NaN.

    Statistics of Parquet leave NaN out, and Spark, to which NaN is greater than everything, skips by them all the
    same: ``x > 100`` would lose it. A filter on an expression is not pushed into the scan.
    """
    if type(field.dataType) in _FLOATS:
        return _not_pushed([field.name], field.dataType)
    guarded: Column | None = None
    for path, of in _floats(field.dataType, ()):
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


def check_skipping(spark: SparkSession, location: str, snapshot: Snapshot, where: str | None) -> None:
    """Have the table read through the data source, whose tasks compare a read with skipping and one without.

    Raises:
        SkippingError: skipping would lose rows; names the files.
    """
    if where and snapshot.instant_time:
        frame = spark.read.format("lakehouse").options(**{"as.of.instant": snapshot.instant_time}, where=where)
        with task_errors():
            frame.option("lakeformat.read.verify", "true").load(location).count()


def _uri(location: str, path: str) -> str:
    """For Hadoop's ``Path``, which takes everything behind the scheme as it stands."""
    return f"file:{location}/{path}" if location.startswith("/") else f"{location}/{path}"


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
