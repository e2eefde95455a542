"""A table as the source of a stream: ``spark.readStream.format("lakehouse").load(path)``.

One process beside the driver asks a reader for offsets and partitions. Tasks read what partitions name, and plan
nothing. An offset is ``{"instant": …}``, a position of `lakeformat.read.stream`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lakeformat.arrow.conform import reader_schema
from lakeformat.config.read_options import CHANGE_DATA, END_COLUMNS, FORMAT, FULL_SCAN, QUERY_TYPE
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidOptionError, SchemaMismatchError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.predicate import Always, And, Predicate, ZonedCondition
from lakeformat.read.incremental import incremental_snapshot
from lakeformat.read.plan import Split
from lakeformat.read.query import ReadQuery, readable_schema, wants_images
from lakeformat.read.run.batches import read_split
from lakeformat.read.run.session import plan_read
from lakeformat.read.stream import BatchLimits, StreamPositions, check_stream_options
from lakeformat.spark.host import plain_errors, requested_context, task_zone
from lakeformat.spark.pushdown import Relation
from lakeformat.spark.reads.reader import (
    ImagePartition,
    check_image_options,
    check_image_schema,
    image_partitions,
    read_images,
    zoned_query,
)
from lakeformat.spark.types import arrow_schema, requested_schema, spark_schema
from lakeformat.write.rows.arrow_pool import reuse_memory
from lakeformat.write.rows.schema import evolve

if TYPE_CHECKING:

    class SupportsTriggerAvailableNow: ...

else:
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # Spark 4.0 and 4.1.

        class SupportsTriggerAvailableNow: ...


__all__ = ["LakehouseStreamReader", "StreamPartition", "make_stream_reader"]

_LOG: Final = logging.getLogger("lakeformat.spark")
_TASKS: Final = max(2, pa.cpu_count())
_INSTANT: Final = "instant"

Offset = Mapping[str, Any]


class StreamPartition(InputPartition):
    """The portion of a batch that one task reads, and the predicate of its rows."""

    def __init__(self, split: Split, rows: Predicate) -> None:
        super().__init__(split)
        self.split, self.rows = split, rows


class LakehouseStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The offsets, batches and rows of one stream.

    Spark 4.0 and 4.1 call `latestOffset` without the previous offset and without the trigger. There the reader uses the
    end of the batch that it planned last as the previous offset. The limits then apply to every trigger, so a run of
    ``availableNow`` is one batch.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        parsed: Options,
        query: ReadQuery,
        table: pa.Schema,
        *,
        zoned: ZonedCondition | None = None,
        images: bool = False,
    ) -> None:
        """Make a reader for one run of a query.

        Args:
            query: the wanted columns and rows of every batch.
            table: the table's columns as the stream knows them.
            zoned: as in `LakehouseReader`.
            images: whether the stream reads change data. If so, ``query`` and ``table`` are not used.
        """
        self._options, self._parsed, self._query, self._table = dict(options), parsed, query, table
        self._images, self._zoned = images, zoned
        self._limits = BatchLimits.of(parsed)
        self._context: TableContext | None = None
        self._first: str | None = None  # The offset of the stream's start, once it is known.
        self._reached: str | None = None  # The end of the last batch that was planned.
        self._target: str | None = None  # The last offset of a run of availableNow.

    def _open_context(self) -> TableContext:
        if self._context is None:
            self._context = requested_context(self._options, reads=True)[0]
        return self._context

    @property
    def _positions(self) -> StreamPositions:
        return StreamPositions(self._open_context(), self._parsed)

    # --- offsets --------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name.
        """Return the offset at which a stream without a checkpoint begins.

        Spark stores the offset with the first batch. If the stream begins at the newest commit, the offset has a mark
        that makes it differ from the next offset. Therefore Spark runs a first batch at once, although it is empty.
        Otherwise a stream that stops before its first batch would later skip the commits made in between.
        """
        with plain_errors():
            if self._first is None:
                self._first = self._positions.first()
            return {_INSTANT: self._first, **({"begins": "now"} if self._positions.begins_now else {})}

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the offset at which the next batch ends; that of ``start`` if there are no new commits."""
        with plain_errors():
            begin = str(start[_INSTANT]) if start else self._reached or self.initialOffset()[_INSTANT]
            limits = BatchLimits() if type(limit).__name__ == "ReadAllAvailable" else self._limits
            return {_INSTANT: self._positions.next(begin, limits, self._target)}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return the limit that Spark passes to `latestOffset`.

        For a trigger that reads everything (``Once``) Spark passes ``ReadAllAvailable`` in its place. The number of
        files in the limit is not used; `BatchLimits` has the limits.
        """
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        return ReadMaxFiles(self._limits.files or 1) if self._limits.is_limited else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Set the end of the run: the commit that is the newest now."""
        with plain_errors():
            self._target = self._positions.newest()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the newest commit that can be read, for the query's progress."""
        with plain_errors():
            return {_INSTANT: self._positions.newest()}

    # --- batches --------------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the splits of a batch: the rows that commits after ``start``, up to and including ``end``, wrote."""
        begin, last = str(start[_INSTANT]), str(end[_INSTANT])
        self._reached = last
        if begin == last:
            return []
        with plain_errors():
            context = self._open_context()
            if self._images:
                return image_partitions(context, self._parsed, begin, last)
            snapshot = incremental_snapshot(context, self._parsed, since=begin, until=last)
            snapshot = self._with_stream_columns(snapshot)
            query = self._query.restrict_to_range(snapshot)
            split_bytes = self._parsed["lakeformat.read.split.bytes"]
            plan = plan_read(context.storage, snapshot, query, split_bytes=split_bytes, at_least=_TASKS)
            return [StreamPartition(split, query.predicate) for split in plan.splits]

    def _with_stream_columns(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the stream's columns. All columns that the stream reads must fit them.

        Raises:
            SchemaMismatchError: a column that the stream reads was added, or has another type now.
        """
        if snapshot.schema is None or snapshot.schema.equals(self._table):
            return snapshot
        known, stored = reader_schema(self._table), reader_schema(snapshot.schema)
        if self._parsed.is_set("columns"):
            wanted = set(self._query.file_columns())
            known, stored = (pa.schema([field for field in of if field.name in wanted]) for of in (known, stored))
        if not _fits(known, stored):
            names = set(known.names)
            news = [field.name for field in stored if field.name not in names or field != known.field(field.name)]
            raise SchemaMismatchError(
                f"the columns of {self._open_context().storage.location} have changed while a stream reads it "
                f"({', '.join(news)}); start the query again: it continues from its checkpoint with the new columns"
            )
        return replace(snapshot, schema=self._table)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one portion, in a task."""
        if isinstance(partition, ImagePartition):
            yield from read_images(self._open_context().storage, partition)
            return
        assert isinstance(partition, StreamPartition)  # noqa: S101  Spark returns what `partitions` made.
        with plain_errors(), reuse_memory():
            exact = () if self._zoned is None else (self._zoned.bind_zone(task_zone()),)
            query = replace(self._query, predicate=And((partition.rows, *exact)))
            yield from read_split(self._open_context().storage, partition.split, query, self._table)

    def commit(self, end: Offset) -> None:
        """Do nothing: the reader keeps nothing for finished batches."""

    def stop(self) -> None:
        """Do nothing: the reader holds no resources."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for tasks, which open the table themselves."""
        return {**self.__dict__, "_context": None}


def _fits(known: pa.Schema, stored: pa.Schema) -> bool:
    """Tell whether rows with the ``stored`` columns can be read with the ``known`` columns and types."""
    try:
        return bool(evolve(known, stored, fill_missing=True).equals(known))
    except SchemaMismatchError:
        return False


def make_stream_reader(
    options: Mapping[str, str], schema: StructType, relation: Relation | None
) -> LakehouseStreamReader:
    """Return a reader whose rows have exactly ``schema``: the table's own or the user's.

    Args:
        relation: the table as it was when Spark requested the columns; None for the newest commit.
    """
    with plain_errors():
        context, parsed = requested_context(options, reads=True)
        check_stream_options(parsed)
        if wants_images(parsed):
            check_image_options(parsed)
            check_image_schema(schema)
            nothing = ReadQuery(pa.schema([]), Always(True))
            return LakehouseStreamReader(options, parsed, nothing, pa.schema([]), images=True)
        if parsed[FORMAT] == CHANGE_DATA:
            raise InvalidOptionError(
                f"{FORMAT}=cdc is a format of incremental queries; set {QUERY_TYPE}=incremental, too"
            )
        # If a clean has deleted files of the range while the stream was down, the rows in them were rewritten later. A
        # later batch has these rows, so the missing files are not an error.
        whatever_is_there = {} if parsed.is_set(FULL_SCAN) else {FULL_SCAN: True}
        parsed = parsed.with_values(**{QUERY_TYPE: "snapshot", END_COLUMNS: True}, **whatever_is_there)
        snapshot = (
            context.snapshot(relation.as_of, hidden_times=relation.hidden_times) if relation else context.snapshot()
        )
        location = context.storage.location
        table = snapshot.columns(location)
        query, zoned = zoned_query(snapshot, location, parsed)
        if schema == spark_schema(query.schema):
            query = replace(query, schema=arrow_schema(schema))
        else:
            query = replace(query, schema=requested_schema(schema, readable_schema(table, meta_columns=True)))
        return LakehouseStreamReader(options, parsed, query, table, zoned=zoned)
