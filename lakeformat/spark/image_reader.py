"""Change data under Spark, in Hudi's shape: op, ts_ms, before and after, the images as JSON.

``spark.read.format("lakehouse")`` with ``hoodie.datasource.query.type=incremental`` and
``hoodie.datasource.query.incremental.format=cdc``. A task joins the slices of some file groups; see
`lakeformat.read.images`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructType

from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidOptionError, SchemaMismatchError
from lakeformat.model.instant import AsOf
from lakeformat.read.change_plan import ChangePlan, GroupChange, plan_changes
from lakeformat.read.images import image_columns, read_changes
from lakeformat.read.incremental import bounds_of
from lakeformat.read.json_text import json_text
from lakeformat.spark.host import asked_engine, plain_errors
from lakeformat.spark.relation import Relation
from lakeformat.storage.port import Storage
from lakeformat.table_state.engine import Engine
from lakeformat.write.rows.arrow_pool import reused_memory

__all__ = [
    "IMAGE_SCHEMA",
    "ImagePartition",
    "ImageReader",
    "check_image_options",
    "check_images_wanted",
    "image_partitions",
    "make_image_reader",
    "read_images",
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
