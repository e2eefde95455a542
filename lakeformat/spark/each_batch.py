"""Batches of a stream by ``foreachBatch``: for what Spark does not ask of a sink, update mode before all."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from lakeformat.config.stream_options import BATCH_APP, BATCH_ID
from lakeformat.errors import InvalidInputError
from lakeformat.spark.jobs import context_of
from lakeformat.spark.sessions import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["each_batch"]

_QUERY_ID: Final = "sql.streaming.queryId"


def each_batch(
    path: str | os.PathLike[str], *, app: str | None = None, **options: Any
) -> Callable[[DataFrame, int], None]:
    """A function for ``foreachBatch`` that writes each batch once, in every output mode.

    Examples:
        >>> save = lakeformat.spark.each_batch("/data/counts", recordkey="carrier")
        >>> stream = counts.writeStream.outputMode("update").foreachBatch(save)
        >>> query = stream.option("checkpointLocation", "/data/checkpoint").trigger(availableNow=True).start()
        >>> query.awaitTermination()

    Args:
        path: folder or URL of the table.
        app: by which name the table knows the stream; by default the query's id, which its checkpoint keeps. Over Spark
            Connect nobody tells it: there a name must be given, another one for each checkpoint.
        options: as of `lakeformat.spark.write`.

    Raises:
        InvalidInputError: from the function: there is no name.
    """

    def save(batch: DataFrame, batch_id: int) -> None:
        context = context_of(batch.sparkSession)
        name = app or (context.getLocalProperty(_QUERY_ID) if context is not None else None)
        if not name:
            raise InvalidInputError("Spark does not tell which query this is; give each_batch(app=…) a name for it")
        told: dict[str, Any] = {**options, BATCH_APP: name, BATCH_ID: batch_id}
        write(batch, path, **told)

    return save
