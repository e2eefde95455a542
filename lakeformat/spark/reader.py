"""Reading under Spark: plan on the driver, read splits in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from lakeformat.config.resolve import Options
from lakeformat.predicate import And, Predicate, bind_lenient
from lakeformat.read.batches import read_split
from lakeformat.read.query import ReadQuery, asked_snapshot, readable_schema, resolve_query
from lakeformat.read.session import plan_read
from lakeformat.read.splits import Split
from lakeformat.read.verify import VerifiedSplit, plan_verified, read_verified_split
from lakeformat.spark.filters import to_predicate
from lakeformat.spark.host import open_engine, plain_errors
from lakeformat.spark.types import arrow_schema, requested_schema, spark_schema
from lakeformat.storage import Storage
from lakeformat.timeline.snapshot import Snapshot
from lakeformat.write.memory import reused_memory

__all__ = ["LakehouseReader", "SplitPartition", "make_reader", "table_schema"]

#: Cut small tables into about this many tasks.
_TASKS: Final = max(2, pa.cpu_count())


class SplitPartition(InputPartition):
    """One task's portion; None where the table has nothing to read."""

    def __init__(self, split: Split | VerifiedSplit | None) -> None:
        super().__init__(split)
        self.split = split


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

    def __init__(self, storage: Storage, snapshot: Snapshot, query: ReadQuery, options: Options) -> None:
        self._storage, self._query = storage, query
        self._split_bytes: int = options["lakeformat.read.split.bytes"]
        self._verify: bool = options["lakeformat.read.verify"]
        self._snapshot: Snapshot | None = snapshot
        self._few = False  # Fewer splits than cores: then each task decodes columns side by side.
        self._table = snapshot.columns(storage.location)

    @property
    def pushFilters(self) -> Any:  # noqa: N802  Spark's name.
        """See `_Pushdown`."""
        return _Pushdown(self)

    def add_filter(self, pushed: Predicate) -> None:
        """Narrow the query by Spark's filters, as far as they can be bound."""
        bound = bind_lenient(pushed, readable_schema(self._table, meta_columns=True))
        self._query = replace(self._query, predicate=And((self._query.predicate, bound)))

    def partitions(self) -> list[InputPartition]:
        """Splits of even size."""
        if self._snapshot is None:
            return []
        storage, snapshot, query, limit = self._storage, self._snapshot, self._query, self._split_bytes
        splits: Sequence[Split | VerifiedSplit]
        with plain_errors():
            if self._verify:
                splits = plan_verified(storage, snapshot, query, split_bytes=limit, at_least=_TASKS)
            else:
                splits = plan_read(storage, snapshot, query, split_bytes=limit, at_least=_TASKS).splits
        self._few = len(splits) < _TASKS
        return [SplitPartition(split) for split in splits] or [SplitPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One split's rows as Arrow batches."""
        split = partition.value
        if split is None:
            return
        with plain_errors(), reused_memory():
            if isinstance(split, VerifiedSplit):
                yield from read_verified_split(self._storage, split, self._query, self._table)
            else:
                yield from read_split(self._storage, split, self._query, self._table, threads=self._few)

    def __getstate__(self) -> dict[str, Any]:
        """Tasks need no file list: the splits name what they read."""
        return {**self.__dict__, "_snapshot": None}


def _open(options: Mapping[str, str]) -> tuple[Storage, Snapshot, ReadQuery, Options]:
    engine, resolved = open_engine(options, reads=True)
    snapshot = asked_snapshot(engine, resolved)
    query = resolve_query(snapshot.columns(engine.storage.location), resolved)
    return engine.storage, snapshot, query, resolved


def table_schema(options: Mapping[str, str]) -> StructType:
    """The columns a read returns."""
    with plain_errors():
        return spark_schema(_open(options)[2].schema)


def make_reader(options: Mapping[str, str], schema: StructType) -> LakehouseReader:
    """A reader that returns exactly ``schema``: the table's own or one the user gave."""
    with plain_errors():
        storage, snapshot, query, resolved = _open(options)
        full = readable_schema(snapshot.columns(storage.location), meta_columns=True)
        if schema == spark_schema(query.schema):
            query = replace(query, schema=arrow_schema(schema))
        else:
            query = replace(query, schema=requested_schema(schema, full))
        return LakehouseReader(storage, snapshot, query, resolved)
