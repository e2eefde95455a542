"""The batch readers of the data source: a process of the driver plans a read, and tasks read its splits.

`LakehouseReader` reads rows. If ``hoodie.datasource.query.type=incremental`` and
``hoodie.datasource.query.incremental.format=cdc`` are set, `ImageReader` reads change data instead: one row for each
change, with Hudi's columns op, ts_ms, before and after. The last two are the images of a change: the row before and
after it, as JSON text. `lakeformat.read.cdc.images` computes them from the slices of a file group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructType

from lakeformat.config.read_options import BEGIN, INCREMENTAL, QUERY_TYPE
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidOptionError, SchemaMismatchError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.instant import Moment
from lakeformat.predicate import Always, And, Predicate, ZonedCondition, bind_lenient, zoned_condition
from lakeformat.read.cdc.images import image_columns, read_changes
from lakeformat.read.cdc.json import to_json_text
from lakeformat.read.cdc.plan import ChangePlan, GroupChange, plan_changes
from lakeformat.read.incremental import parse_range_bounds
from lakeformat.read.plan import Split
from lakeformat.read.query import ReadQuery, make_query, readable_schema, wants_images
from lakeformat.read.run.batches import read_split
from lakeformat.read.run.session import plan_read
from lakeformat.read.run.verify import VerifiedSplit, plan_verified, read_verified_split
from lakeformat.spark.host import plain_errors, requested_context, task_zone
from lakeformat.spark.pushdown import (
    EVERYTHING,
    Relation,
    confirm_plan,
    guarded_schema,
    is_guarded,
    is_pushing,
    keeps_plans_by_scan,
    open_snapshot,
    record_filter,
    unguarded_schema,
    with_guard,
    without_mark,
)
from lakeformat.spark.reads.to_predicate import to_predicate
from lakeformat.spark.types import arrow_schema, requested_schema, spark_schema
from lakeformat.storage.port import Storage
from lakeformat.timeline.timeline import NOW
from lakeformat.write.rows.arrow_pool import reuse_memory

__all__ = [
    "IMAGE_SCHEMA",
    "ImagePartition",
    "ImageReader",
    "LakehouseReader",
    "SplitPartition",
    "check_image_options",
    "check_image_schema",
    "image_partitions",
    "make_image_reader",
    "make_reader",
    "read_columns_schema",
    "read_images",
    "zoned_query",
]

#: The columns of change data.
IMAGE_SCHEMA: Final = StructType()
for _name in ("op", "ts_ms", "before", "after"):
    IMAGE_SCHEMA.add(_name, StringType())
_ARROW: Final = pa.schema([(field.name, pa.string()) for field in IMAGE_SCHEMA])


class ImagePartition(InputPartition):
    """The part of the change data that one task reads.

    Attributes:
        changes: the changes of file groups. If a commit may have moved keys between file groups, their changes are in
            one tuple and are read together; see `ChangePlan.pack`.
        table: the table's columns.
        columns: the columns that the images ``before`` and ``after`` have.
    """

    def __init__(self, changes: Sequence[tuple[GroupChange, ...]], table: pa.Schema, columns: pa.Schema) -> None:
        super().__init__(None)
        self.changes, self.table, self.columns = tuple(changes), table, columns


def image_partitions(
    context: TableContext,
    options: Options,
    since: Moment | None,
    until: Moment | None,
    relation: Relation | None = None,
) -> list[InputPartition]:
    """Plan a read of change data. Return one partition for each task.

    Args:
        since, until: bounds of the range of commits, as in `lakeformat.Table.changes`.
        relation: the state of the table to read; None for the newest.
    """
    check_image_options(options)
    config = context.store.config()
    state = NOW if relation is None else relation.state
    plan: ChangePlan = plan_changes(context, options, config, parse_range_bounds(since, until, config), state)
    columns = image_columns(plan, options.read.columns)
    portions = plan.pack(options.read.split_bytes)
    return [ImagePartition(portion, plan.table, columns) for portion in portions]


def check_image_options(options: Options) -> None:
    """Raise `InvalidOptionError` if the options have a condition, which a read of change data would ignore."""
    if options.read.where:
        raise InvalidOptionError("where selects rows, and change data has images of them; filter the frame instead")


def read_images(storage: Storage, partition: ImagePartition) -> Iterator[pa.RecordBatch]:
    """Read one partition of change data. Yield batches with the columns of `IMAGE_SCHEMA`."""
    with plain_errors(), reuse_memory():
        for item in partition.changes:
            for batch in read_changes(storage, item, partition.table, partition.columns):
                texts = [to_json_text(batch.column(name)) for name in ("before", "after")]
                yield pa.record_batch([batch.column("op"), batch.column("ts_ms"), *texts], schema=_ARROW)


class ImageReader(DataSourceReader):
    """The batch reader of change data."""

    def __init__(self, context: TableContext, options: Options, relation: Relation | None) -> None:
        self._storage, self._options, self._relation = context.storage, options, relation
        self._context: TableContext | None = context

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the read. Return at least one partition, because Spark needs one."""
        if self._context is None:
            return []
        with plain_errors():
            options = self._options
            partitions = image_partitions(self._context, options, options.read.begin, options.read.end, self._relation)
            return partitions or [ImagePartition((), pa.schema([]), pa.schema([]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition in a task, and yield its changes."""
        assert isinstance(partition, ImagePartition)  # noqa: S101  `partitions` makes only these.
        return read_images(self._storage, partition)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle for tasks, without the table: a task's partition names its files."""
        return {**self.__dict__, "_context": None}


def make_image_reader(options: Mapping[str, str], schema: StructType, relation: Relation | None) -> ImageReader:
    """Return a reader of change data. Raise `SchemaMismatchError` if ``schema`` is not that of change data."""
    with plain_errors():
        context, parsed = requested_context(options, reads=True)
        check_image_schema(schema)
        return ImageReader(context, parsed, relation)


def check_image_schema(schema: StructType) -> None:
    """Raise `SchemaMismatchError` if the schema is not that of change data."""
    if schema != IMAGE_SCHEMA:
        raise SchemaMismatchError("change data has the columns op, ts_ms, before and after; leave out the schema")


_LOG: Final = logging.getLogger("lakeformat.spark")
#: Minimum number of tasks into which a read is divided, if the files can be divided into so many parts.
_TASKS: Final = max(2, pa.cpu_count())


class SplitPartition(InputPartition):
    """The part of a read that one task does.

    Attributes:
        split: the files to read; None if there is nothing to read.
        of_pushed: whether the plan covers only rows that pushed filters select, and not all rows of the read.
        pushed: the predicate that the plan covers, if it differs from the one in the pickled reader; else None.
        first: whether this is the first partition of the plan. Its task reads the whole table if the plan cannot be
            used.
    """

    def __init__(
        self,
        split: Split | VerifiedSplit | None,
        *,
        of_pushed: bool = False,
        pushed: Predicate | None = None,
        first: bool = False,
    ) -> None:
        super().__init__(split)
        self.split, self.of_pushed, self.pushed, self.first = split, of_pushed, pushed, first


class _Pushdown:
    """A callable object that replaces the method ``pushFilters`` of a reader.

    An ordinary override is not possible: if the pushdown setting is off, which is the default, Spark 4.1 and later
    raise an error for a reader that overrides ``pushFilters``. Spark compares ``reader.pushFilters.__func__`` with the
    function of its own base class. This object has that function as its ``__func__``, so Spark sees no override. If the
    setting is on, Spark calls the object.
    """

    def __init__(self, reader: LakehouseReader) -> None:
        self._reader = reader

    @property
    def __func__(self) -> Any:
        return getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: Iterable[Any]) -> Iterator[Any]:
        """Pass the filters to the reader, which skips files by them. Return all, so that Spark filters the rows too."""
        pushed = list(filters)
        self._reader.add_filter(to_predicate(pushed))
        return iter(pushed)


class LakehouseReader(DataSourceReader):
    """A reader of the rows of one snapshot. Spark pushes filters before it calls `partitions`, which plans the read."""

    def __init__(
        self,
        storage: Storage,
        snapshot: Snapshot,
        query: ReadQuery,
        options: Options,
        relation: Relation | None = None,
        *,
        zoned: ZonedCondition | None = None,
        guarded: bool = False,
        again: Callable[[], LakehouseReader] | None = None,
    ) -> None:
        """Create a reader for one scan.

        Args:
            storage: the table's storage.
            snapshot: the snapshot to read.
            query: the wanted columns and rows.
            options: the parsed options of the read.
            relation: the snapshot and the filter log that all scans of a DataFrame or view share; None if the
                options alone select the snapshot.
            zoned: the read's condition if its result depends on the session's time zone, which only tasks know; else
                None. The query then has a wider condition: it is true for every row that ``zoned`` selects in any zone.
            guarded: whether the relation has the guard's column; see `guarded_frame`.
            again: a function that creates the same reader with its snapshot. The reader in a task has no snapshot, so
                the task calls this function to read the whole table.
        """
        self._storage, self._query = storage, query
        self._split_bytes = options.read.split_bytes
        self._verify = options.read.verify
        self._snapshot: Snapshot | None = snapshot
        self._few = False  # If True, there are few tasks, so each decodes columns in parallel.
        self._table = snapshot.columns(storage.location)
        self._log = relation.pushed if relation is not None else None
        self._guarded, self._again, self._zoned = guarded, again, zoned
        self._asked = EVERYTHING

    @property
    def pushFilters(self) -> Any:  # noqa: N802  Spark's name.
        """Return the object that Spark calls with the filters it pushes; see `_Pushdown` for why it is not a method."""
        return _Pushdown(self)

    def add_filter(self, pushed: Predicate) -> None:
        """Skip files by Spark's filters. Filters that cannot be bound to the table's columns are ignored.

        If this Spark keeps a plan for each scan, the filters narrow the query. Otherwise they are added to the
        relation's filter log; see `lakeformat.spark.pushdown`. Without such a log they are ignored.
        """
        bound = bind_lenient(pushed, readable_schema(self._table, meta_columns=True))
        if keeps_plans_by_scan():
            self._query = replace(self._query, predicate=And((self._query.predicate, bound)))
        elif self._log is not None:
            self._asked = record_filter(self._log, bound)

    def partitions(self) -> list[InputPartition]:
        """Plan the read. Return one partition for each split; all splits have about the same size."""
        if self._snapshot is None:
            return []
        asked = self._asked
        with plain_errors():
            while self._log is not None and asked.predicate is not None:
                splits = self._plan(self._snapshot, self._narrow_query(asked.predicate))
                now = confirm_plan(self._log, asked, len(splits))
                if now.count == asked.count:
                    # Tasks get this reader with the predicate from before planning. If the plan was made again for a
                    # wider predicate, each partition brings this predicate to its task.
                    news = None if asked is self._asked else asked.predicate
                    return [
                        SplitPartition(split, of_pushed=True, pushed=news, first=not number)
                        for number, split in enumerate(splits)
                    ]
                asked = now
            return [SplitPartition(split) for split in self._plan(self._snapshot, self._query)]

    def _plan(self, snapshot: Snapshot, query: ReadQuery) -> Sequence[Split | VerifiedSplit | None]:
        """Plan the splits of the query. If there is nothing to read, return ``[None]``: Spark needs a partition."""
        storage, limit = self._storage, self._split_bytes
        splits: Sequence[Split | VerifiedSplit]
        if self._verify:
            splits = plan_verified(storage, snapshot, query, split_bytes=limit, at_least=_TASKS)
        else:
            splits = plan_read(storage, snapshot, query, split_bytes=limit, at_least=_TASKS).splits
        self._few = len(splits) < _TASKS
        return splits or [None]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one split in a task, and yield its rows as Arrow batches."""
        assert isinstance(partition, SplitPartition)  # noqa: S101  `partitions` makes only these.
        batches = self._read(partition)
        return map(with_guard, batches) if self._guarded else batches

    def _read(self, partition: SplitPartition) -> Iterator[pa.RecordBatch]:
        if not partition.of_pushed:
            yield from self._read_split(partition.split, self._query)
        elif is_pushing():
            yield from self._read_split(partition.split, self._narrow_query(partition.pushed or self._asked.predicate))
        else:
            yield from self._read_whole_table(partition)

    def _narrow_query(self, pushed: Predicate | None) -> ReadQuery:
        return replace(self._query, predicate=And((self._query.predicate, pushed or Always(True))))

    def _read_whole_table(self, partition: SplitPartition) -> Iterator[pa.RecordBatch]:
        """Read the whole table in the first task; other tasks read nothing.

        It is called if this scan pushed no filter and Spark gave it the plan of other scans, which may lack rows.
        """
        if partition.first and self._again is not None:
            _LOG.warning(
                "%s: a query without pushed filters got a plan for pushed filters; one task reads the whole table",
                self._storage.location,
            )
            whole = self._again()
            for part in whole.partitions():
                yield from whole._read_split(part.value, self._query)

    def _read_split(self, split: Split | VerifiedSplit | None, query: ReadQuery) -> Iterator[pa.RecordBatch]:
        if split is None:
            return
        with plain_errors(), reuse_memory():
            if self._zoned is not None:
                exact = self._zoned.bind_zone(task_zone())
                query = replace(query, predicate=And((query.predicate, exact)))
            if isinstance(split, VerifiedSplit):
                yield from read_verified_split(self._storage, split, query, self._table)
            else:
                yield from read_split(self._storage, split, query, self._table, threads=self._few)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to pickle for tasks, without the snapshot: the splits name the files."""
        return {**self.__dict__, "_snapshot": None}


def read_columns_schema(options: Mapping[str, str], relation: Relation | None = None) -> StructType:
    """Return the columns of a read for which the user gives no schema.

    A batch read by an incremental query must have a start. If the start is missing, Spark requests the columns of a
    stream, and the table's newest columns are returned.
    """
    with plain_errors():
        context, resolved = requested_context(without_mark(options), reads=True)
        if wants_images(resolved):
            return IMAGE_SCHEMA
        if resolved[QUERY_TYPE] == INCREMENTAL and resolved[BEGIN] is None:
            snapshot = context.snapshot(relation.state if relation else NOW)
        else:
            context, snapshot, resolved = open_snapshot(options, relation)
        schema = spark_schema(make_query(snapshot, context.storage.location, resolved).schema)
        return guarded_schema(schema) if is_guarded(options) else schema


def zoned_query(snapshot: Snapshot, location: str, options: Options) -> tuple[ReadQuery, ZonedCondition | None]:
    """Return the query of these options, and the condition that tasks must apply in the session's time zone, or None.

    The process that plans does not know the session's time zone. If the result of the user's condition depends on the
    zone, the query gets a wider condition: it is true for every row that the user's condition selects in any zone.
    Tasks know the zone and apply the user's condition. If the result does not depend on the zone, the query gets the
    user's condition, and None is returned.
    """
    query, where = make_query(snapshot, location, options), options.read.where
    if options.read.time_zone is not None or where is None or not where.strip():
        return query, None
    zoned = zoned_condition(where, readable_schema(snapshot.columns(location), meta_columns=True))
    if zoned is None:
        return query, None
    wide = make_query(snapshot, location, options.with_values(where=None))
    return replace(wide, predicate=And((wide.predicate, zoned.wide))), zoned


def make_reader(options: Mapping[str, str], schema: StructType, relation: Relation | None = None) -> DataSourceReader:
    """Return the reader of a batch query, for rows or for change data, as the options request.

    Args:
        schema: the columns that the reader must return: those of `read_columns_schema`, or the user's.
    """
    with plain_errors():
        if wants_images(requested_context(without_mark(options), reads=True)[1]):
            return make_image_reader(options, schema, relation)
    if not is_guarded(options):
        _name_faster_read()
    return _row_reader(options, schema, relation)


@cache
def _name_faster_read() -> None:
    """Log once in this process how the same rows are read faster."""
    _LOG.info(
        'format("lakehouse") is read by the Python data source, for which Spark converts all columns; after '
        "lakeformat.spark.register(spark), load is Spark's own scan and several times faster"
    )


def _row_reader(options: Mapping[str, str], schema: StructType, relation: Relation | None) -> LakehouseReader:
    with plain_errors():
        context, snapshot, resolved = open_snapshot(options, relation)
        columns = snapshot.columns(context.storage.location)
        query, zoned = zoned_query(snapshot, context.storage.location, resolved)
        guarded = is_guarded(options)
        asked = unguarded_schema(schema) if guarded else schema
        if asked == spark_schema(query.schema):
            query = replace(query, schema=arrow_schema(asked))
        else:
            query = replace(query, schema=requested_schema(asked, readable_schema(columns, meta_columns=True)))
        again = partial(_row_reader, dict(options), schema, relation)
        return LakehouseReader(
            context.storage, snapshot, query, resolved, relation, zoned=zoned, guarded=guarded, again=again
        )
