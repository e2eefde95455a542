"""Reads through the data source whose ordinary filters may skip files.

Spark 4.1 to 4.3 keep one plan of files for all scans of a relation: that of the last scan that pushed filters. A scan
that pushes nothing reads by it, too. A guarded frame stands under a filter that is always true, that Spark pushes
and that no optimizer rule can drop, since it asks a column that nobody else can name: so every scan of it pushes, and
each plan holds the rows of all scans before it (`lakeformat.spark.pushed`).

A scan can still fail to push, where the session's setting is switched off once plans of a frame were made, or a
session with another setting shares a global view: tasks see the setting, and then read the whole table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import ByteType, StructField, StructType

from lakeformat.spark.register import PUSHDOWN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["guarded_frame", "guarded_schema", "is_guarded", "is_pushing", "unguarded_schema", "unmarked", "with_guard"]

#: The option that marks such a relation; not for users: only under the filter is it right.
_OPTION: Final = "lakeformat.guarded"
#: The relation's last column: 0 in every row.
_COLUMN: Final = "_lakeformat_guard"


def guarded_frame(spark: SparkSession, location: str, options: Mapping[str, str]) -> DataFrame:
    """``load(location)`` with these read options (``as.of.instant``, ``columns``, ``where`` …).

    Its ordinary filters leave files out where the session pushes filters (``register(spark, pushdown=True)``, Spark
    4.1 or later); it gives the same rows everywhere. A plan covers everything that was asked of the frame, or of a
    view on it, before: the more different filters, the less each skips, so what is asked often deserves a frame of
    its own.
    """
    frame = spark.read.format("lakehouse").options(**options).option(_OPTION, "true").load(location)
    return frame.where(f"{_COLUMN} is not null").drop(_COLUMN)


def is_guarded(options: Mapping[str, str]) -> bool:
    """Whether `guarded_frame` made the relation that has these options."""
    return any(key.lower() == _OPTION for key in options)


def unmarked(options: Mapping[str, str]) -> dict[str, str]:
    """The options without the mark."""
    return {key: value for key, value in options.items() if key.lower() != _OPTION}


def guarded_schema(schema: StructType) -> StructType:
    """The columns that Spark is told of."""
    return StructType([*schema.fields, StructField(_COLUMN, ByteType())])


def unguarded_schema(schema: StructType) -> StructType:
    """Inverse of `guarded_schema`."""
    return StructType([field for field in schema.fields if field.name != _COLUMN])


def with_guard(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the guard's column."""
    return batch.append_column(_COLUMN, pa.array(np.zeros(batch.num_rows, np.int8)))


def is_pushing() -> bool:
    """Whether the query that runs this task belongs to a session that pushes filters; False if that cannot be told."""
    task = TaskContext.get()
    return task is not None and (task.getLocalProperty(PUSHDOWN) or "").lower() == "true"
