"""Reading under Spark: plan on the driver, read splits in tasks.

Change data under Spark, in Hudi's shape: op, ts_ms, before and after, the images as JSON.

``spark.read.format("lakehouse")`` with ``hoodie.datasource.query.type=incremental`` and
``hoodie.datasource.query.incremental.format=cdc``. A task joins the slices of some file groups; see
`lakeformat.read.cdc.images`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructType

from lakeformat.config.read_options import BEGIN, INCREMENTAL, QUERY_TYPE
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidOptionError, SchemaMismatchError
from lakeformat.file_system_view.context import Engine
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.instant import AsOf
from lakeformat.predicate import Always, And, Predicate, ZonedCondition, bind_lenient, zoned_condition
from lakeformat.read.cdc.images import image_columns, read_changes
from lakeformat.read.cdc.json import json_text
from lakeformat.read.cdc.plan import ChangePlan, GroupChange, plan_changes
from lakeformat.read.incremental import bounds_of
from lakeformat.read.plan.splits import Split
from lakeformat.read.query import ReadQuery, asks_for_images, question, readable_schema
from lakeformat.read.run.batches import read_split
from lakeformat.read.run.session import plan_read
from lakeformat.read.run.verify import VerifiedSplit, plan_verified, read_verified_split
from lakeformat.spark.host import asked_engine, plain_errors, task_zone
from lakeformat.spark.pushdown import (
    EVERYTHING,
    Relation,
    ask,
    guarded_schema,
    is_guarded,
    is_pushing,
    keeps_plans_by_scan,
    open_snapshot,
    settle,
    unguarded_schema,
    unmarked,
    with_guard,
)
from lakeformat.spark.reads.to_predicate import to_predicate
from lakeformat.spark.types import arrow_schema, requested_schema, spark_schema
from lakeformat.storage.port import Storage
from lakeformat.write.rows.arrow_pool import reused_memory

__all__ = [
    "IMAGE_SCHEMA",
    "ImagePartition",
    "ImageReader",
    "LakehouseReader",
    "SplitPartition",
    "check_image_options",
    "check_images_wanted",
    "image_partitions",
    "make_image_reader",
    "make_reader",
    "read_images",
    "table_schema",
    "zoned_question",
]

#: What a query of change data returns.
IMAGE_SCHEMA: Final = StructType()
for _name in ("op", "ts_ms", "before", "after"):
    IMAGE_SCHEMA.add(_name, StringType())
_ARROW: Final = pa.schema([(field.name, pa.string()) for field in IMAGE_SCHEMA])


class ImagePartition(InputPartition):
    """Some file groups' changes, with the table's columns and those of the images.

    Attributes:
        changes: in items of `ChangePlan.packed`.
    """

    def __init__(self, changes: Sequence[tuple[GroupChange, ...]], table: pa.Schema, columns: pa.Schema) -> None:
        super().__init__(None)
        self.changes, self.table, self.columns = tuple(changes), table, columns


def image_partitions(
    engine: Engine,
    options: Options,
    since: AsOf | None,
    until: AsOf | None,
    relation: Relation | None = None,
) -> list[InputPartition]:
    """The changes of a range, cut into tasks; arguments as of `lakeformat.Table.changes`."""
    check_image_options(options)
    config = engine.store.config()
    known: dict[str, Any] = {} if relation is None else {"as_of": relation.as_of, "unseen": relation.unseen}
    plan: ChangePlan = plan_changes(engine, options, config, bounds_of(since, until, config), **known)
    columns = image_columns(plan, options.read.columns)
    portions = plan.packed(options.read.split_bytes)
    return [ImagePartition(portion, plan.table, columns) for portion in portions]


def check_image_options(options: Options) -> None:
    """Refuse what would be passed over. Raises `InvalidOptionError`."""
    if options.read.where:
        raise InvalidOptionError("where selects rows, and change data has images of them; filter the frame instead")


def read_images(storage: Storage, partition: ImagePartition) -> Iterator[pa.RecordBatch]:
    """One portion's changes, in a task."""
    with plain_errors(), reused_memory():
        for item in partition.changes:
            for batch in read_changes(storage, item, partition.table, partition.columns):
                texts = [json_text(batch.column(name)) for name in ("before", "after")]
                yield pa.record_batch([batch.column("op"), batch.column("ts_ms"), *texts], schema=_ARROW)


class ImageReader(DataSourceReader):
    """A batch read of change data."""

    def __init__(self, engine: Engine, options: Options, relation: Relation | None) -> None:
        self._storage, self._options, self._relation = engine.storage, options, relation
        self._engine: Engine | None = engine

    def partitions(self) -> Sequence[InputPartition]:
        """Portions of the range."""
        if self._engine is None:
            return []
        with plain_errors():
            options = self._options
            found = image_partitions(self._engine, options, options.read.begin, options.read.end, self._relation)
            return found or [ImagePartition((), pa.schema([]), pa.schema([]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One portion's changes."""
        assert isinstance(partition, ImagePartition)  # noqa: S101  Ours.
        return read_images(self._storage, partition)

    def __getstate__(self) -> dict[str, Any]:
        """Tasks read what partitions name."""
        return {**self.__dict__, "_engine": None}


def make_image_reader(options: Mapping[str, str], schema: StructType, relation: Relation | None) -> ImageReader:
    """A reader of change data. Raises `SchemaMismatchError`: another schema was given."""
    with plain_errors():
        engine, parsed = asked_engine(options, reads=True)
        check_images_wanted(schema)
        return ImageReader(engine, parsed, relation)


def check_images_wanted(schema: StructType) -> None:
    """Refuse a schema of the user's. Raises `SchemaMismatchError`."""
    if schema != IMAGE_SCHEMA:
        raise SchemaMismatchError("change data has the columns op, ts_ms, before and after; leave out the schema")


_LOG: Final = logging.getLogger("lakeformat.spark")
#: Cut small tables into about this many tasks.
_TASKS: Final = max(2, pa.cpu_count())


class SplitPartition(InputPartition):
    """One task's portion; None where the table has nothing to read.

    Attributes:
        of_pushed: whether the plan is only of the rows that scans have pushed filters for.
        pushed: which rows that is, if it is not what the reader knew before it planned.
        first: whether this is the first of the plan's partitions.
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
    """Stands for the method ``pushFilters``.

    Spark (4.1 and later) refuses a reader that overrides ``pushFilters`` in every session whose pushdown setting
    is off, the default; it compares ``reader.pushFilters.__func__`` with its own. With the setting on it calls
    whatever it finds.
    """

    def __init__(self, reader: LakehouseReader) -> None:
        self._reader = reader

    @property
    def __func__(self) -> Any:
        return getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: Iterable[Any]) -> Iterator[Any]:
        """Take what helps; hand everything back, for Spark to apply exactly."""
        pushed = list(filters)
        self._reader.add_filter(to_predicate(pushed))
        return iter(pushed)


class LakehouseReader(DataSourceReader):
    """A snapshot read. Planned when Spark asks for partitions, after filters have come."""

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
        """A reader for one plan.

        Args:
            relation: what all its scans share.
            zoned: a condition that the query has as wide as it may be, because tasks alone know the session's zone.
            guarded: whether the relation has the column of `guarded_frame`.
            again: makes the same reader in a task, which has no snapshot.
        """
        self._storage, self._query = storage, query
        self._split_bytes = options.read.split_bytes
        self._verify = options.read.verify
        self._snapshot: Snapshot | None = snapshot
        self._few = False  # Fewer splits than cores: then each task decodes columns side by side.
        self._table = snapshot.columns(storage.location)
        self._log = relation.pushed if relation is not None else None
        self._guarded, self._again, self._zoned = guarded, again, zoned
        self._asked = EVERYTHING

    @property
    def pushFilters(self) -> Any:  # noqa: N802  Spark's name.
        """See `_Pushdown`."""
        return _Pushdown(self)

    def add_filter(self, pushed: Predicate) -> None:
        """Narrow the query by Spark's filters, as far as they can be bound and the plan is not another scan's, too."""
        bound = bind_lenient(pushed, readable_schema(self._table, meta_columns=True))
        if keeps_plans_by_scan():
            self._query = replace(self._query, predicate=And((self._query.predicate, bound)))
        elif self._log is not None:
            self._asked = ask(self._log, bound)

    def partitions(self) -> list[InputPartition]:
        """Splits of even size."""
        if self._snapshot is None:
            return []
        asked = self._asked
        with plain_errors():
            while self._log is not None and asked.predicate is not None:
                splits = self._plan(self._snapshot, self._narrowed(asked.predicate))
                now = settle(self._log, asked, len(splits))
                if now.count == asked.count:  # Spark has pickled this reader already, as it was before it planned.
                    news = None if asked is self._asked else asked.predicate
                    return [
                        SplitPartition(split, of_pushed=True, pushed=news, first=not at)
                        for at, split in enumerate(splits)
                    ]
                asked = now
            return [SplitPartition(split) for split in self._plan(self._snapshot, self._query)]

    def _plan(self, snapshot: Snapshot, query: ReadQuery) -> Sequence[Split | VerifiedSplit | None]:
        """At least one split, though it be none."""
        storage, limit = self._storage, self._split_bytes
        splits: Sequence[Split | VerifiedSplit]
        if self._verify:
            splits = plan_verified(storage, snapshot, query, split_bytes=limit, at_least=_TASKS)
        else:
            splits = plan_read(storage, snapshot, query, split_bytes=limit, at_least=_TASKS).splits
        self._few = len(splits) < _TASKS
        return splits or [None]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One split's rows as Arrow batches."""
        assert isinstance(partition, SplitPartition)  # noqa: S101  Ours.
        batches = self._read(partition)
        return map(with_guard, batches) if self._guarded else batches

    def _read(self, partition: SplitPartition) -> Iterator[pa.RecordBatch]:
        if not partition.of_pushed:
            yield from self._read_split(partition.split, self._query)
        elif is_pushing():
            yield from self._read_split(partition.split, self._narrowed(partition.pushed or self._asked.predicate))
        else:
            yield from self._everything(partition)

    def _narrowed(self, wanted: Predicate | None) -> ReadQuery:
        return replace(self._query, predicate=And((self._query.predicate, wanted or Always(True))))

    def _everything(self, partition: SplitPartition) -> Iterator[pa.RecordBatch]:
        """A scan that pushed no filter has got the plan of others: its first task reads the whole table."""
        if partition.first and self._again is not None:
            _LOG.warning("a query that pushes no filters reads a frame whose filters skip files: one task reads it all")
            whole = self._again()
            for part in whole.partitions():
                yield from whole._read_split(part.value, self._query)

    def _read_split(self, split: Split | VerifiedSplit | None, query: ReadQuery) -> Iterator[pa.RecordBatch]:
        if split is None:
            return
        with plain_errors(), reused_memory():
            if self._zoned is not None:
                exact = self._zoned.bound(task_zone())
                query = replace(query, predicate=And((query.predicate, exact)))
            if isinstance(split, VerifiedSplit):
                yield from read_verified_split(self._storage, split, query, self._table)
            else:
                yield from read_split(self._storage, split, query, self._table, threads=self._few)

    def __getstate__(self) -> dict[str, Any]:
        """Tasks need no file list: the splits name what they read."""
        return {**self.__dict__, "_snapshot": None}


def table_schema(options: Mapping[str, str], relation: Relation | None = None) -> StructType:
    """The columns a read returns. Of an incremental query without a begin those of a stream: it needs none."""
    with plain_errors():
        engine, resolved = asked_engine(unmarked(options), reads=True)
        if asks_for_images(resolved):
            return IMAGE_SCHEMA
        if resolved[QUERY_TYPE] == INCREMENTAL and resolved[BEGIN] is None:
            snapshot = engine.snapshot(relation.as_of, unseen=relation.unseen) if relation else engine.snapshot()
        else:
            engine, snapshot, resolved = open_snapshot(options, relation)
        schema = spark_schema(question(snapshot, engine.storage.location, resolved).schema)
        return guarded_schema(schema) if is_guarded(options) else schema


def zoned_question(snapshot: Snapshot, location: str, options: Options) -> tuple[ReadQuery, ZonedCondition | None]:
    """Say what the options ask of a snapshot, here where nothing tells the session's time zone.

    If the answer depends on the zone, the query is as wide as it may be, and tasks apply the condition returned.
    """
    query, where = question(snapshot, location, options), options.read.where
    if options.read.time_zone is not None or where is None or not where.strip():
        return query, None
    zoned = zoned_condition(where, readable_schema(snapshot.columns(location), meta_columns=True))
    if zoned is None:
        return query, None
    wide = question(snapshot, location, options.with_values(where=None))
    return replace(wide, predicate=And((wide.predicate, zoned.wide))), zoned


def make_reader(options: Mapping[str, str], schema: StructType, relation: Relation | None = None) -> DataSourceReader:
    """A reader that returns exactly ``schema``: the table's own, one the user gave, or that of change data."""
    with plain_errors():
        if asks_for_images(asked_engine(unmarked(options), reads=True)[1]):
            return make_image_reader(options, schema, relation)
    return _row_reader(options, schema, relation)


def _row_reader(options: Mapping[str, str], schema: StructType, relation: Relation | None) -> LakehouseReader:
    with plain_errors():
        engine, snapshot, resolved = open_snapshot(options, relation)
        columns = snapshot.columns(engine.storage.location)
        query, zoned = zoned_question(snapshot, engine.storage.location, resolved)
        guarded = is_guarded(options)
        asked = unguarded_schema(schema) if guarded else schema
        if asked == spark_schema(query.schema):
            query = replace(query, schema=arrow_schema(asked))
        else:
            query = replace(query, schema=requested_schema(asked, readable_schema(columns, meta_columns=True)))
        again = partial(_row_reader, dict(options), schema, relation)
        return LakehouseReader(
            engine.storage, snapshot, query, resolved, relation, zoned=zoned, guarded=guarded, again=again
        )
