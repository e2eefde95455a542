"""A table as the source of a stream: ``spark.readStream.format("lakehouse").load(path)``.

Spark runs one Python process beside the driver, in which a reader plans offsets and partitions. Tasks read the splits
of the partitions. An offset is ``{"instant": …}``; `lakeformat.read.stream` defines the values.
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
from lakeformat.timeline.timeline import NOW
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
    """The part of a batch that one task reads: a split, and the predicate that its rows must satisfy."""

    def __init__(self, split: Split, rows: Predicate) -> None:
        super().__init__(split)
        self.split, self.rows = split, rows


class LakehouseStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one streaming query: it plans offsets and batches, and reads the rows in tasks.

    Spark 4.0 and 4.1 call `latestOffset` without the previous offset and the limit of the trigger. In these releases
    the end of the batch that was planned last serves as the previous offset, and the limits of a batch apply to every
    trigger. Spark runs only one batch for ``availableNow``. If limits are set, later commits wait for the next run.
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
        """Create a reader for one run of a streaming query.

        Args:
            options: the options as Spark passed them; tasks open the table with them.
            parsed: the parsed options.
            query: the wanted columns and rows of every batch.
            table: the table's columns at the start of the run.
            zoned: the condition that tasks apply in the session's time zone, as in `LakehouseReader`; None if there is
                none.
            images: whether the stream reads change data. If so, ``query`` and ``table`` are not used.
        """
        self._options, self._parsed, self._query, self._table = dict(options), parsed, query, table
        self._images, self._zoned = images, zoned
        self._limits = BatchLimits.of(parsed)
        self._context: TableContext | None = None
        self._first: str | None = None  # The offset at which the stream starts; None until Spark requests it.
        self._reached: str | None = None  # The offset at which the last planned batch ends.
        self._target: str | None = None  # Where a run of availableNow ends; None for other triggers.

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

        Spark stores the offset in the checkpoint with the first batch. If the stream begins at the newest commit, the
        offset has an extra entry, so that it differs from the next offset even if there is no new commit. Therefore
        Spark runs an empty first batch at once and stores the offset. Otherwise a stream that is stopped before its
        first batch would begin at a later commit after a restart, and skip the commits in between.
        """
        with plain_errors():
            if self._first is None:
                self._first = self._positions.first()
            return {_INSTANT: self._first, **({"begins": "now"} if self._positions.begins_now else {})}

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the offset at which the next batch ends. If there are no new commits, return that of ``start``.

        Args:
            start: the end of the previous batch; None if Spark does not pass it.
            limit: Spark's limit for the batch; ``ReadAllAvailable`` switches the limits of the options off.
        """
        with plain_errors():
            begin = str(start[_INSTANT]) if start else self._reached or self.initialOffset()[_INSTANT]
            limits = BatchLimits() if type(limit).__name__ == "ReadAllAvailable" else self._limits
            return {_INSTANT: self._positions.next(begin, limits, self._target)}

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return the limit that Spark passes to `latestOffset`, except for a trigger that reads everything (``Once``).

        For such a trigger Spark passes ``ReadAllAvailable``. `latestOffset` only tests whether it gets this limit. It
        ignores the number in any other limit: the maximum size of a batch comes from the options, see `BatchLimits`.
        """
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        return ReadMaxFiles(self._limits.files or 1) if self._limits.is_limited else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """End this run of ``availableNow`` at the commit that is the newest now."""
        with plain_errors():
            self._target = self._positions.newest()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the offset of the newest commit, which Spark shows in the query's progress."""
        with plain_errors():
            return {_INSTANT: self._positions.newest()}

    # --- batches --------------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Plan a batch: the rows written by commits after ``start``, up to and including ``end``."""
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
        """Return the snapshot with the columns that the table had when the stream started.

        Raises:
            SchemaMismatchError: since then a column was added or its type was changed, and the stream reads the column.
        """
        if snapshot.schema is None or snapshot.schema.equals(self._table):
            return snapshot
        planned, stored = reader_schema(self._table), reader_schema(snapshot.schema)
        if self._parsed.is_set("columns"):
            names_read = set(self._query.file_columns())
            planned, stored = (
                pa.schema([field for field in of if field.name in names_read]) for of in (planned, stored)
            )
        if not _fits(planned, stored):
            names = set(planned.names)
            news = [field.name for field in stored if field.name not in names or field != planned.field(field.name)]
            raise SchemaMismatchError(
                f"the columns of {self._open_context().storage.location} have changed while a stream reads it "
                f"({', '.join(news)}); start the query again: it continues from its checkpoint with the new columns"
            )
        return replace(snapshot, schema=self._table)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition in a task, and yield its rows."""
        if isinstance(partition, ImagePartition):
            yield from read_images(self._open_context().storage, partition)
            return
        assert isinstance(partition, StreamPartition)  # noqa: S101  `partitions` makes only these.
        with plain_errors(), reuse_memory():
            exact = () if self._zoned is None else (self._zoned.bind_zone(task_zone()),)
            query = replace(self._query, predicate=And((partition.rows, *exact)))
            yield from read_split(self._open_context().storage, partition.split, query, self._table)

    def commit(self, end: Offset) -> None:
        """Do nothing: the reader keeps no data of finished batches that it could delete."""

    def stop(self) -> None:
        """Do nothing: the reader has no open files or threads that it could close."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle for tasks, without the opened table: tasks open it themselves."""
        return {**self.__dict__, "_context": None}


def _fits(planned: pa.Schema, stored: pa.Schema) -> bool:
    """Tell whether rows of files with the schema ``stored`` can be converted to the schema ``planned``."""
    try:
        return bool(evolve(planned, stored, fill_missing=True).equals(planned))
    except SchemaMismatchError:
        return False


def make_stream_reader(
    options: Mapping[str, str], schema: StructType, relation: Relation | None
) -> LakehouseStreamReader:
    """Return the reader of a streaming query, for rows or for change data, as the options request.

    Args:
        schema: the columns that the reader must return: the table's own or the user's.
        relation: the state of the table when Spark requested its columns; None for the newest commit.
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
        # While the stream was stopped, a clean may have deleted files that a batch must read. Later commits have
        # rewritten the rows of these files, and a later batch reads these commits. So missing files raise no error,
        # unless the user sets the option `FULL_SCAN` to false.
        whatever_is_there = {} if parsed.is_set(FULL_SCAN) else {FULL_SCAN: True}
        parsed = parsed.with_values(**{QUERY_TYPE: "snapshot", END_COLUMNS: True}, **whatever_is_there)
        snapshot = context.snapshot(relation.state if relation else NOW)
        location = context.storage.location
        table = snapshot.columns(location)
        query, zoned = zoned_query(snapshot, location, parsed)
        if schema == spark_schema(query.schema):
            query = replace(query, schema=arrow_schema(schema))
        else:
            query = replace(query, schema=requested_schema(schema, readable_schema(table, meta_columns=True)))
        return LakehouseStreamReader(options, parsed, query, table, zoned=zoned)
