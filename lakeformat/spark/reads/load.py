"""``spark.read.format("lakehouse").load(path)`` after ``register(spark)``: the frame of `lakeformat.spark.read`.

Spark's own Parquet scan reads the rows, and its planner asks lakeformat for the files. Rows and columns are those of
the data source, with the five meta columns first. The data source still reads change data (``cdc``), and schemas whose
types differ from the table's, and tables in a storage that Spark's own scan cannot open. Over Spark Connect it also
reads a table that only the server can open.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import DataType, StructType

from lakeformat.errors import TableNotFoundError
from lakeformat.read.query import load_requested_snapshot, make_query, readable_schema, wants_images
from lakeformat.spark.host import in_session_zone, requested_context
from lakeformat.spark.jobs import task_errors
from lakeformat.spark.reads.frames import read_snapshot
from lakeformat.spark.reads.hadoop_access import find_access
from lakeformat.spark.register import use_this_python
from lakeformat.spark.settings import find_obstacle
from lakeformat.spark.types import requested_schema, spark_schema
from lakeformat.spark.verbs import options_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakeformat.spark.verbs import Call

__all__ = ["load_frame"]

_LOG: Final = logging.getLogger("lakeformat.spark")
_PATH: Final = "path"


def load_frame(call: Call) -> DataFrame:
    """Carry out a call of ``load`` for ``format("lakehouse")``.

    Raises:
        LakeformatError: as `lakeformat.spark.read`.
    """
    reader = call.target
    is_classic = hasattr(reader, "_jreader")
    options = options_in(reader._spark, reader._jreader.extraOptions()) if is_classic else dict(reader._options)
    if call.path is not None and any(name.lower() == _PATH for name in options):
        return call.original()  # Spark's own error names its setting for paths that are given twice.
    paths = [call.path] if isinstance(call.path, str) else call.path
    if isinstance(paths, list) and all(isinstance(path, str) for path in paths):
        options |= {_PATH: paths[0]} if len(paths) == 1 else {"paths": json.dumps(paths)}
    elif paths is not None:
        return call.original()  # Spark's own error for other values.
    requested = _classic_schema(reader) if is_classic else _client_schema(reader)
    spark = reader._spark if is_classic else reader._client
    try:
        frame = _read(spark, options, requested)
    except (TableNotFoundError, OSError):
        if is_classic:
            raise
        frame = None  # The server may reach storage that this process does not.
    if frame is not None:
        return frame
    with task_errors():
        return call.original()


def _read(spark: Any, options: Mapping[str, str], requested: StructType | None) -> DataFrame | None:
    """Return the frame; None if only the data source can read this.

    Args:
        requested: the columns that the user named by ``schema(…)``; None for those that the options name.
    """
    use_this_python(spark)
    context, resolved = requested_context(options, reads=True)
    if wants_images(resolved):
        return None
    access = find_obstacle(spark) or find_access(spark, context.storage)
    if isinstance(access, str):
        location = context.storage.location
        _LOG.info("%s is read by the data source, not by Spark's own scan: %s", location, access)
        return None
    resolved = in_session_zone(spark, resolved)
    snapshot = load_requested_snapshot(context, resolved)
    if requested is None:
        return read_snapshot(spark, context, access, resolved, snapshot)
    full = readable_schema(snapshot.columns(context.storage.location), meta_columns=True)
    requested_schema(requested, full)
    types: dict[str, DataType] = {field.name: field.dataType for field in spark_schema(full)}
    if any(types[field.name] != field.dataType for field in requested):
        return None
    query = make_query(snapshot, context.storage.location, resolved, columns=requested.names)
    return read_snapshot(spark, context, access, resolved, snapshot, query)


def _classic_schema(reader: Any) -> StructType | None:
    given = reader._jreader.userSpecifiedSchema()
    return StructType.fromJson(json.loads(given.get().json())) if given.isDefined() else None


def _client_schema(reader: Any) -> StructType | None:
    """Return the schema that a reader of Spark Connect was given, as JSON or as DDL text."""
    text = reader._schema
    if not text:
        return None
    try:
        return StructType.fromJson(json.loads(text))
    except ValueError:
        empty = reader._client.createDataFrame([], text)
        return StructType.fromJson(json.loads(empty.schema.json()))
