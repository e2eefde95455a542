"""``df.write.format("lakehouse")….save(path)`` of a registered process, which plans and publishes the write itself.

Spark's tasks run the `write` of the same writers as the data source's. The merge then runs in this process or in tasks,
as `lakeformat.spark.writes.merge_place` decides. So the write needs no lookup of the data source, and works in any
thread; errors are those of lakeformat, without Spark's exception around them.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakeformat.arrow.conform import conform
from lakeformat.config.hudi_support import BY_NAME
from lakeformat.config.stream_options import BATCH_ID
from lakeformat.errors import CommitStateUnknownError, InvalidOptionError, UnsupportedTableError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.public import spark_public
from lakeformat.services.bad_rows import put_aside
from lakeformat.spark.host import QUERY_ID, plain_errors
from lakeformat.spark.jobs import Batches, context_of, describe_jobs, has_executors, task_errors
from lakeformat.spark.metastore import with_metastore_option
from lakeformat.spark.register import use_this_python
from lakeformat.spark.services import executors_of
from lakeformat.spark.settings import Use, check_settings, given_settings, is_dynamic
from lakeformat.spark.types import arrow_schema
from lakeformat.spark.verbs import FORMAT, Call, options_in, original_verb
from lakeformat.spark.writes.merge_place import choose_merge_place
from lakeformat.spark.writes.shuffle import SparkShuffle
from lakeformat.spark.writes.writer import DirectSparkWriter, SkippedWriter, StagedWriter, TableWriter, plan_writer
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order.claims import HeartbeatThread
from lakeformat.write.rows.arrow_pool import reuse_memory
from lakeformat.write.rows.stage import StagedTask
from lakeformat.write.shuffled_session import ShuffledSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SaveCall", "last_result", "refuse_catalog", "save", "save_call_of", "save_frame"]

_LOG: Final = logging.getLogger("lakeformat.spark")
_PARTITIONS: Final = "hoodie.datasource.write.partitionpath.field"
#: Spark's names of the save modes, in lower case, and ours.
_MODES: Final = {
    "append": "append",
    "overwrite": "overwrite",
    "ignore": "ignore",
    "error": "errorifexists",
    "errorifexists": "errorifexists",
    "default": "errorifexists",
}
_SORTED: Final = (
    "rows are sorted by bulk_insert (hoodie.bulkinsert.user.defined.partitioner.sort.columns) or by clustering "
    "(hoodie.clustering.plan.strategy.sort.columns)"
)
#: What to do instead of each verb of a writer that names a layout.
_INSTEAD: Final = {
    "bucketBy": "buckets are an index: set hoodie.index.type=BUCKET and hoodie.bucket.index.num.buckets",
    "sortBy": _SORTED,
    "clusterBy": _SORTED,
}


@dataclass(frozen=True)
class SaveCall:
    """What was said to a ``DataFrameWriter`` before and at ``save``.

    Attributes:
        path: the path given to ``save``; None if it is an option.
        options: the options as Spark would pass them to the data source.
        mode: Spark's save mode, by one of its names.
        partition_by: the columns of ``partitionBy``.
        layout_verbs: the verbs among ``bucketBy``, ``sortBy`` and ``clusterBy`` that were called.
    """

    frame: DataFrame
    path: str | None
    options: Mapping[str, str]
    mode: str
    partition_by: tuple[str, ...] = ()
    layout_verbs: tuple[str, ...] = ()


def save_call_of(writer: Any, path: str | os.PathLike[str] | None) -> SaveCall:
    """Read what was said to a ``DataFrameWriter`` of classic Spark or Spark Connect.

    Raises:
        AttributeError: this PySpark's writer has other members. Then it must be left to Spark.
    """
    where = None if path is None else os.fspath(path)
    if hasattr(writer, "_jwrite"):
        said = writer._jwrite
        verbs = {
            "bucketBy": said.bucketColumnNames(),
            "sortBy": said.sortColumnNames(),
            "clusterBy": said.clusteringColumns(),
        }
        options = options_in(writer._df.sparkSession, said.extraOptions().originalMap())
        by = _names_in(said.partitioningColumns())
        called = tuple(verb for verb, columns in verbs.items() if _names_in(columns))
        return SaveCall(writer._df, where, options, said.curmode().toString().lower(), by, called)
    from pyspark.sql.connect.dataframe import DataFrame

    said = writer._write
    lists = {"bucketBy": said.bucket_cols, "sortBy": said.sort_cols, "clusterBy": said.clustering_cols}
    options = {key: value for key, value in said.options.items() if value is not None}
    called = tuple(verb for verb, columns in lists.items() if columns)
    mode = (said.mode or "errorifexists").lower()
    frame: Any = DataFrame(writer._df, writer._spark)
    return SaveCall(frame, where, options, mode, tuple(said.partitioning_cols), called)


def _names_in(option: Any) -> tuple[str, ...]:
    """Return the texts in a Scala ``Option[Seq[String]]``."""
    names, items = [], option.get().iterator() if option.isDefined() else None
    while items is not None and items.hasNext():
        names.append(items.next())
    return tuple(names)


def save(call: Call) -> None:
    """Carry out ``save`` of a writer for this format. `lakeformat.spark.verbs` calls it in a registered process."""
    try:
        said = save_call_of(call.target, call.path)
    except (AttributeError, TypeError) as error:  # A release of PySpark whose writer has other members.
        _LOG.info("save() is left to Spark: %s", str(error).partition("\n")[0])
        call.original()
        return
    save_frame(said)


def refuse_catalog(call: Call) -> None:
    """Refuse ``saveAsTable`` of a writer for this format, before Spark writes rows or makes an entry in its catalog.

    Raises:
        UnsupportedTableError: always.
    """
    with plain_errors():
        raise UnsupportedTableError(
            f"saveAsTable({call.path!r}) is not for format('lakehouse'): Spark's catalog passes no path to it, so the "
            f"table could not be read; write .save(path), and name it by lakeformat.spark.view(spark, {call.path!r}, "
            "path)"
        )


def save_frame(call: SaveCall) -> WriteResult | None:
    """Carry out a save. Return its result, None if Spark's own ``save`` had to do it.

    Raises:
        LakeformatError: as in the methods of `lakeformat.Table`.
    """
    with plain_errors():
        options, mode = _options_of(call), _MODES.get(call.mode)
        if mode is None:
            raise InvalidOptionError(f"unknown save mode {call.mode!r}; use append, overwrite, ignore or errorifexists")
        spark = call.frame.sparkSession
        use_this_python(spark)
        options = with_metastore_option(spark, options)
        if reason := _must_be_plain(mode):
            _LOG.info("save() is left to Spark's data source: %s", reason)
            writer = call.frame.write.format(FORMAT).options(**options).mode(mode)
            with task_errors():
                original_verb(writer, "save")()
            _remember(spark, None)
            return None
        given = given_settings(spark)
        check_settings(given, Use.WRITE)
        planned, snapshot = plan_writer(options, call.frame.schema, mode, dynamic=is_dynamic(given))
        if isinstance(planned, SkippedWriter):
            result = planned.result
            if _is_batch_of_stream(spark, options):
                with task_errors():
                    call.frame.write.format("noop").mode("overwrite").save()
        else:
            result = _run(call.frame, planned, snapshot)
        _remember(spark, result)
        return result


def _is_batch_of_stream(spark: SparkSession, options: Mapping[str, str]) -> bool:
    """Tell whether the rows may be a batch of a streaming query.

    Such rows must be computed even if nothing is written: that stores the state of the query's aggregates, without
    which the next batch fails. Over Spark Connect each save with a batch's number counts.
    """
    context = context_of(spark)
    if context is None:
        return BATCH_ID in {key.lower() for key in options}
    return context.getLocalProperty(QUERY_ID) is not None


def _must_be_plain(mode: str) -> str:
    """Tell why this process cannot run the save: return the reason, ``""`` if it can."""
    from pyspark.sql.pandas.utils import require_minimum_pandas_version

    try:
        require_minimum_pandas_version()
    except ImportError as error:
        if mode in {"append", "overwrite"}:
            return str(error).partition("\n")[0]
        raise InvalidOptionError(
            f'mode {mode} needs pandas in the driver\'s Python; install it, or write .mode("append")'
        ) from None
    return ""


def _options_of(call: SaveCall) -> dict[str, str]:
    """Return the options for the writer, with the path and with the columns of ``partitionBy``.

    Raises:
        InvalidOptionError: a verb that names a layout was called, or two ways to say the same contradict each other.
    """
    for verb in call.layout_verbs:
        raise InvalidOptionError(f"{verb}() is not for format('lakehouse'): {_INSTEAD[verb]}; leave {verb}() out")
    options = {key: value for key, value in call.options.items() if key.lower() != "path"}
    given = [value for key, value in call.options.items() if key.lower() == "path"]
    if call.path is not None and given and given != [call.path]:
        raise InvalidOptionError(f"save({call.path!r}) and the option path={given[0]!r} differ; leave the option out")
    if path := call.path or next(iter(given), None):
        options["path"] = path
    if not call.partition_by:
        return options
    names = {_PARTITIONS, *BY_NAME[_PARTITIONS].aliases}
    parts = tuple(_column_of(call.frame, name) for name in call.partition_by)
    for key, value in options.items():
        if key.lower() in names:
            fields = tuple(part.partition(":")[0].strip() for part in value.split(","))
            if fields != parts:
                raise InvalidOptionError(
                    f"partitionBy({', '.join(parts)}) and {key}={value} contradict each other; leave out one"
                )
            return options
    return {**options, _PARTITIONS: ",".join(parts)}


def _column_of(frame: DataFrame, name: str) -> str:
    """Return the frame's column of this name. Spark compares the names of ``partitionBy`` without case."""
    columns = frame.columns
    same = [column for column in columns if column.lower() == name.lower()]
    return name if name in columns or len(same) != 1 else same[0]


def _run(frame: DataFrame, writer: TableWriter, snapshot: Snapshot) -> WriteResult:
    """Run the tasks of the writer, then merge and publish. If anything fails, the table stays as before."""
    context, spark = writer.context, frame.sparkSession
    try:
        with ExitStack() as life:
            if isinstance(writer, DirectSparkWriter):  # Its instant has begun: keep it alive until tasks take over.
                life.enter_context(HeartbeatThread(context.storage, writer.open_commit.time))
            messages = _run_tasks(frame, writer)
        with task_errors():
            result, by_executors = _merge(spark, writer, messages, snapshot)
    except CommitStateUnknownError:  # The commit may be visible, so nothing may be undone.
        raise
    except BaseException:
        writer.abort([])
        raise
    return writer.end(result, executors_of(spark) if by_executors else None)


def _run_tasks(frame: DataFrame, writer: TableWriter) -> list[Any]:
    schema = arrow_schema(frame.schema)

    def run(batches: Batches) -> Batches:
        with plain_errors():
            message = writer.write(conform(batch, schema) for batch in batches)
            yield pa.record_batch({"message": pa.array([pickle.dumps(message)], pa.binary())})

    location = writer.context.storage.location
    what = f"lakeformat {writer.job.operation.value} {location}: prepare and write rows"
    with describe_jobs(frame, what), task_errors():
        answers = frame.mapInArrow(run, "message binary").collect()
    return [pickle.loads(row[0]) for row in answers]  # noqa: S301  Our own tasks have pickled them, as Spark's writers do.


def _merge(
    spark: SparkSession, writer: TableWriter, messages: list[Any], snapshot: Snapshot
) -> tuple[WriteResult, bool]:
    """Merge the rows and publish. Return the result, and whether table services run on executors, too."""
    staged: list[StagedTask] = []
    if isinstance(writer, StagedWriter):
        staged = writer.staged(messages)
    elif isinstance(writer, DirectSparkWriter):
        staged = writer.written(messages)[1]
    place = choose_merge_place(spark, writer.job, staged, snapshot)
    if staged:
        _LOG.info("%s: %s", writer.context.storage.location, place)
    services = place.option != "driver" and (place.is_executors or has_executors(spark))
    if place.is_executors and isinstance(writer, StagedWriter):
        session = ShuffledSession(writer.context, writer.job, SparkShuffle(spark, writer.context, writer.job))
        put_aside(session.session, lambda: writer.bad_rows(messages))
        return session.run(staged, sum(task.rows for task in staged), writer.known), services
    if place.is_executors and staged and isinstance(writer, DirectSparkWriter):
        return _publish_by_executors(spark, writer, messages), services
    return writer.finish(messages), services


def _publish_by_executors(spark: SparkSession, writer: DirectSparkWriter, messages: list[Any]) -> WriteResult:
    """Let tasks write the rows that are too few for a file of one task, or sort all rows. Then publish."""
    context, job, commit = writer.context, writer.job, writer.open_commit
    shuffle = SparkShuffle(spark, context, job)
    session = ShuffledSession(context, job, shuffle)
    put_aside(session.session, lambda: writer.bad_rows(messages))
    transaction = session.session.transaction
    written, staged, arrived = writer.written(messages)
    with reuse_memory(), transaction.resume(commit):
        if job.layout is not None and job.layout.across_tasks:
            with transaction.report.step("sort") as counted:
                written, staged = shuffle.write_runs(staged, commit, writer.schema, job.layout), []
                counted["files"] = len(written)
        transaction.report.rows["incoming"] = arrived
        return session.publish(commit, written, staged, context.snapshot())


#: The results of the last saves, by session; the session that saved last is the last one.
_RESULTS: Final[OrderedDict[str, WriteResult | None]] = OrderedDict()
_MOST_RESULTS: Final = 64
_LOCK: Final = Lock()


def _remember(spark: SparkSession, result: WriteResult | None) -> None:
    with _LOCK:
        key = _session_key(spark)
        _RESULTS.pop(key, None)
        _RESULTS[key] = result
        while len(_RESULTS) > _MOST_RESULTS:
            _RESULTS.popitem(last=False)


@spark_public
def last_result(spark: SparkSession) -> WriteResult | None:
    """Return the result of the last ``save`` of this session in this process, or of its last `lakeformat.spark.write`.

    Examples:
        >>> lakeformat.spark.register(spark)
        >>> changes.write.format("lakehouse").mode("append").save(path)
        >>> lakeformat.spark.last_result(spark).rows.updated
        20

    A ``save`` counts if it is ``df.write.format("lakehouse")….save(path)`` after `register`. Return None if the session
    has not saved, or if Spark's own ``save`` had to carry the last one out.
    If several threads save at once, it is the result of the save that ended last.

    Args:
        spark: the session, of classic Spark or Spark Connect. Each session made by ``newSession()`` has its own result.
    """
    with _LOCK:
        return _RESULTS.get(_session_key(spark))


def _session_key(spark: SparkSession) -> str:
    if context_of(spark) is None:
        key: Any = getattr(spark, "session_id", "")
        return str(key)
    return str(spark._jsparkSession.sessionUUID())
