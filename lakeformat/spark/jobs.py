"""Jobs of numbered tasks that answer with small rows of JSON, by the DataFrame API alone.

What tasks need travels in their functions. Spark takes the answer of one attempt per task, so what failed, slow or lost
attempts have made is never named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark import TaskContext

from lakeformat import errors
from lakeformat.files.column_stats import FileStats
from lakeformat.model.commit import LogsMerged, WriteStat
from lakeformat.storage.port import Storage
from lakeformat.transaction.written_file import WrittenFile
from lakeformat.write.workload.shuffle_plan import bundle

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "ANSWER",
    "Batches",
    "answers",
    "attempt",
    "bundled",
    "collected",
    "context_of",
    "cores",
    "described",
    "grouped",
    "has_executors",
    "numbered",
    "numbers",
    "task_errors",
    "written",
]

Batches: TypeAlias = Iterator[pa.RecordBatch]

#: Schema of what tasks answer.
ANSWER: Final = "answer string"
#: Masters ``local`` and ``local[2]``; ``local-cluster`` has executors of its own.
_LOCAL: Final = re.compile(r"local(\[.*\])?")
#: Spark's local property behind ``setJobDescription``.
_DESCRIPTION: Final = "spark.job.description"
_OURS: Final = re.compile(r"(?:^|: )lakeformat\.(\w+Error): (.+)$", re.MULTILINE)


@contextmanager
def task_errors() -> Iterator[None]:
    """An error of ours that a task raised is raised here as what it was, not as Spark's."""
    try:
        yield
    except errors.LakeformatError:
        raise
    except Exception as error:
        found = _OURS.findall(str(error))
        if not found or found[-1][0] not in errors.__all__:
            raise
        name, text = found[-1]
        raise getattr(errors, name)(text) from None


def context_of(spark: SparkSession) -> SparkContext | None:
    """The context in this process; None over Spark Connect, where it is elsewhere."""
    from pyspark.sql import SparkSession

    return spark.sparkContext if isinstance(spark, SparkSession) else None


def cores(spark: SparkSession) -> int:
    """Tasks that the executors run at once, as far as this process is told; else its own cores."""
    here: int = pa.cpu_count()
    context = context_of(spark)
    return here if context is None else max(here, context.defaultParallelism)


def has_executors(spark: SparkSession) -> bool:
    """Whether tasks run elsewhere; else executors are threads of this process's JVM, and only add to its work."""
    context = context_of(spark)
    return context is None or not _LOCAL.fullmatch(context.master)


def bundled(spark: SparkSession, sizes: Sequence[int], *, task_bytes: int) -> list[list[int]]:
    """Numbers of pieces of work, some a task: of about so many bytes, and as many tasks as there are cores."""
    return grouped(bundle(list(sizes), task_weight=task_bytes, at_least=cores(spark)))


def grouped(tasks: Sequence[int]) -> list[list[int]]:
    """From the task of each piece to the pieces of each task."""
    groups: dict[int, list[int]] = {}
    for at, task in enumerate(tasks):
        groups.setdefault(task, []).append(at)
    return [*groups.values()]


def numbered(spark: SparkSession, count: int, step: Callable[[Batches], Batches], schema: Any) -> DataFrame:
    """One task for each number below ``count``."""
    return spark.range(0, count, 1, count).mapInArrow(step, schema)


@contextmanager
def described(frame: DataFrame, what: str) -> Iterator[None]:
    """Jobs of this thread say in Spark's UI what they are for, after the user's own words, which come back.

    Over Spark Connect a tag says it, since descriptions are the server's.
    """
    spark = frame.sparkSession
    context = context_of(spark)
    if context is not None:
        before = context.getLocalProperty(_DESCRIPTION)
        context.setLocalProperty(_DESCRIPTION, f"{before}: {what}" if before else what)
        try:
            yield
        finally:
            context.setLocalProperty(_DESCRIPTION, before)
        return
    tag = what.replace(",", ";")  # Spark's own separator.
    ours = tag not in spark.getTags()
    spark.addTag(tag)
    try:
        yield
    finally:
        if ours:
            spark.removeTag(tag)


def collected(frame: DataFrame, storage: Storage, what: str) -> list[dict[str, Any]]:
    """Run the job: the answers of one attempt per task. Errors of ours come as what they were.

    Args:
        what: verb and step, for Spark's UI; the table's place is put between them.
    """
    verb, _, step = what.partition(": ")
    with described(frame, f"lakeformat {verb} {storage.location}: {step}"), task_errors():
        return [json.loads(row[0]) for row in frame.collect()]


def answers(answers: Iterable[dict[str, Any]]) -> Batches:
    """What a task answers, as rows."""
    for answer in answers:
        yield pa.record_batch({"answer": pa.array([json.dumps(answer)], pa.string())})


def numbers(batches: Batches) -> Iterator[int]:
    """The numbers of a task."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def attempt() -> str:
    """Stage and task attempt: never used twice."""
    context = TaskContext.get()
    return f"{context.stageId()}-{context.taskAttemptId()}" if context else "0-0"


def written(answer: dict[str, Any]) -> WrittenFile:
    """A finished base file, from a task's answer."""
    facts = FileStats.of_dict(answer["facts"]) if answer["facts"] else None
    merged = answer["stat"]["merged"]
    logged = tuple((path, size) for path, size in answer["stat"]["cdc_stats"])
    stat = WriteStat(**{**answer["stat"], "merged": LogsMerged(**merged) if merged else None, "cdc_stats": logged})
    return WrittenFile(answer["staged_path"], stat, facts, missed=answer["missed"])
