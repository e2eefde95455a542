"""Scans of base files by Spark's own Parquet reader, without the rows that log files replace or delete.

Each file of such a scan has a hidden constant number, a partition column of the file index, and Spark numbers the rows
of a file in ``_metadata.row_index``. A scalar subquery of the frame has a bit for each row, and the filter of the scan
looks it up. This is faster than an anti-join by row number, which looks up a hash table. `replaced_bits` finds the bits
in this process if the log files are few and small; else tasks of lakeformat find them when a query runs.

The merged rows of the replaced rows come from other tasks: see `lakeformat.files.replaced_rows`.

Memory: one bit for each row of these base files, up to the last replaced row, in Spark's driver and in each executor.
`choose_slices` limits the files so that this stays near 128 MB.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.types import StructType

from lakeformat.files.replaced_rows import find_replaced_rows
from lakeformat.predicate import column_path
from lakeformat.read.plan import SlicePart
from lakeformat.spark.host import plain_errors
from lakeformat.spark.jobs import Batches, bundle_work, numbered_tasks, task_numbers
from lakeformat.spark.reads.file_index import FilePruner
from lakeformat.spark.reads.hadoop_access import HadoopAccess
from lakeformat.spark.reads.jvm import SparkJvm
from lakeformat.spark.reads.parquet_scan import numbered_scan
from lakeformat.spark.reads.predicate_to_column import column_of
from lakeformat.spark.reads.replaced_bits import find_bits, pack_bits
from lakeformat.storage.port import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["choose_slices", "scan_without_replaced"]

_LOG: Final = logging.getLogger("lakeformat.spark")
#: Name of the hidden column with the number of a row's file.
_NUMBER: Final = "__lakeformat_file"
#: Names, in lower case, that a table's columns must not have, because Spark would read the table's column instead.
_TAKEN: Final = frozenset({_NUMBER, "_metadata"})
#: Maximum total size of the base files. A row takes some 16 bytes or more, so they have about 2^30 rows or fewer.
_MOST_BASE_BYTES: Final = 16 << 30
#: Target bytes of the log files that one task reads to find replaced rows.
_TASK_BYTES: Final = 64 << 20
_BITS: Final = 64
_WORDS: Final = pa.list_(pa.int64())


def choose_slices(slices: Sequence[SlicePart], table: Collection[str]) -> tuple[list[SlicePart], list[SlicePart]]:
    """Divide slices with log files into those whose base file Spark may scan, and those that lakeformat must merge.

    Spark may scan a base file that stores the table's columns as they are, if the log files are not larger than it:
    otherwise most of its rows are replaced. The query must merge log files, and must not select rows by the commits of
    a range.

    Args:
        table: names of the columns of the table.
    """
    if not _TAKEN.isdisjoint(name.lower() for name in table):
        return [], [*slices]
    scanned, merged, size = list[SlicePart](), list[SlicePart](), 0
    for part in slices:
        base, merging = part.slice.base, part.merging
        plain = merging.shape is None and merging.selected_commits is None and merging.merges
        if base is not None and plain and part.log_bytes <= base.size_bytes <= _MOST_BASE_BYTES - size:
            size += base.size_bytes
            scanned.append(part)
        else:
            merged.append(part)
    return scanned, merged


def scan_without_replaced(
    spark: SparkSession,
    storage: Storage,
    access: HadoopAccess,
    slices: Sequence[SlicePart],
    schema: StructType,
    table: pa.Schema,
    index: tuple[SparkJvm, FilePruner],
) -> DataFrame | None:
    """Return a DataFrame of the rows of the slices' base files that no log file replaces.

    Return None if this Spark does not take our file index.

    Args:
        access: how Spark opens the base files.
        slices: slices that `choose_slices` chose.
        schema: the columns to read.
        table: all columns as readers see them, meta columns included.
        index: chooses the files for each query of the frame.
    """
    files = [part.slice.base for part in slices if part.slice.base is not None]
    try:
        frame = numbered_scan(spark, storage.location, access, files, schema, _NUMBER, *index)
    except Exception as error:  # E.g. a later Spark without these classes.
        _LOG.info("%s: tasks merge all rows, because Spark takes no file index: %s", storage.location, error)
        return None
    bits, row = _replaced_bits(spark, storage, slices, table), functions.col("_metadata.row_index")
    words = functions.get(bits, functions.col(_NUMBER))
    word = functions.get(words, functions.shiftright(row, 6).cast("int"))
    bit = functions.bit_get(word, row.bitwiseAND(functions.lit(_BITS - 1)).cast("int"))
    kept = frame.where(functions.coalesce(bit.cast("int"), functions.lit(0)) == functions.lit(0))
    return kept.select(*(column_of(column_path([name])) for name in schema.names))


def _replaced_bits(spark: SparkSession, storage: Storage, slices: Sequence[SlicePart], table: pa.Schema) -> Column:
    """Return a scalar subquery: an array that has for each slice the bits of its replaced rows, in words of 64 bits."""
    words_of = find_bits(storage, slices, table)
    here = [number for number, words in enumerate(words_of) if words is not None]
    if len(here) == len(slices):
        bits = pa.array([[words for words in words_of if words is not None]], pa.list_(_WORDS))
        return _subquery(spark.createDataFrame(pa.table({"bits": bits})))
    theirs = [number for number, words in enumerate(words_of) if words is None]
    tasks = bundle_work(spark, [slices[number].log_bytes for number in theirs], task_bytes=_TASK_BYTES)

    def find(batches: Batches) -> Batches:
        with plain_errors():
            for task in task_numbers(batches):
                for number in (theirs[place] for place in tasks[task]):
                    part = slices[number]
                    words = pack_bits(find_replaced_rows(storage, part.slice, part.merging, table))
                    columns = [pa.array([number], pa.int32()), pa.array([words], _WORDS)]
                    yield pa.record_batch(columns, ["file", "words"])

    answers = numbered_tasks(spark, len(tasks), find, "file int, words array<bigint>")
    if here:
        numbers, words = pa.array(here, pa.int32()), pa.array([words_of[number] for number in here], _WORDS)
        answers = answers.union(spark.createDataFrame(pa.table({"file": numbers, "words": words}), answers.schema))
    listed = functions.sort_array(functions.collect_list(functions.struct("file", "words")))
    return _subquery(answers.agg(functions.transform(listed, lambda pair: pair["words"]).alias("bits")))


def _subquery(frame: Any) -> Column:
    column: Column = frame.scalar()
    return column
