"""Spark jobs in which each task gets a number as its input, and returns its results as small rows of JSON.

The jobs use only the DataFrame API, so Spark Connect runs them too. The data that a task works on is pickled with its
function. The returned rows name the files that the task wrote. If Spark runs several attempts of a task, it returns the
rows of only one. The driver uses only files that these rows name, so files of other attempts do not enter the table.
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
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.workload.shuffle_plan import assign_to_tasks

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "ANSWER",
    "Batches",
    "answer_rows",
    "attempt_id",
    "bundle_work",
    "collect_answers",
    "context_of",
    "cores",
    "describe_jobs",
    "group_tasks",
    "has_executors",
    "numbered_tasks",
    "parse_written_file",
    "task_errors",
    "task_numbers",
]

Batches: TypeAlias = Iterator[pa.RecordBatch]

#: Schema of the rows that tasks return: one column of JSON text.
ANSWER: Final = "answer string"
#: Matches masters whose tasks run in this process, such as ``local`` and ``local[2]``; not ``local-cluster``.
_LOCAL: Final = re.compile(r"local(\[.*\])?")
#: The local property of Spark that ``setJobDescription`` sets.
_DESCRIPTION: Final = "spark.job.description"
#: Finds class and message of an error of lakeformat in the text of Spark's exception.
_OURS: Final = re.compile(r"(?:^|: )lakeformat\.(\w+Error): (.+)$", re.MULTILINE)


@contextmanager
def task_errors() -> Iterator[None]:
    """Replace Spark's exception about a failed task by the error of lakeformat that the task raised, if any."""
    try:
        yield
    except errors.LakeformatError:
        raise
    except Exception as error:
        matches = _OURS.findall(str(error))
        if not matches or matches[-1][0] not in errors.__all__:
            raise
        name, text = matches[-1]
        raise getattr(errors, name)(text) from None


def context_of(spark: SparkSession) -> SparkContext | None:
    """Return the Spark context of this process; None over Spark Connect, whose context is in the server."""
    from pyspark.sql import SparkSession

    return spark.sparkContext if isinstance(spark, SparkSession) else None


def cores(spark: SparkSession) -> int:
    """Return Spark's default parallelism, but at least the number of this machine's cores.

    Over Spark Connect the parallelism is unknown, so the number of this machine's cores is returned.
    """
    here: int = pa.cpu_count()
    context = context_of(spark)
    return here if context is None else max(here, context.defaultParallelism)


def has_executors(spark: SparkSession) -> bool:
    """Tell whether tasks run in other processes. Under a local master tasks are threads of this process's JVM."""
    context = context_of(spark)
    return context is None or not _LOCAL.fullmatch(context.master)


def bundle_work(spark: SparkSession, sizes: Sequence[int], *, task_bytes: int) -> list[list[int]]:
    """Group work items into tasks of about ``task_bytes`` each.

    Return at least as many tasks as Spark has cores. If there are fewer items than cores, return one task per item.

    Args:
        sizes: the size of each item in bytes.

    Returns:
        for each task the indexes of its items in ``sizes``.
    """
    return group_tasks(assign_to_tasks(list(sizes), task_weight=task_bytes, at_least=cores(spark)))


def group_tasks(tasks: Sequence[int]) -> list[list[int]]:
    """Invert an assignment of work items to tasks: return for each task the indexes of its items.

    Args:
        tasks: for each item the number of the task that works on it.
    """
    groups: dict[int, list[int]] = {}
    for position, task in enumerate(tasks):
        groups.setdefault(task, []).append(position)
    return [*groups.values()]


def numbered_tasks(spark: SparkSession, count: int, step: Callable[[Batches], Batches], schema: Any) -> DataFrame:
    """Return a DataFrame that runs ``count`` tasks. Task i calls ``step`` with one batch, whose only row is i."""
    return spark.range(0, count, 1, count).mapInArrow(step, schema)


@contextmanager
def describe_jobs(frame: DataFrame, what: str) -> Iterator[None]:
    """Show ``what`` in Spark's UI as the description of the jobs that this thread runs in the block.

    If the user has set a description, ``what`` is appended to it during the block. Over Spark Connect the jobs get a
    tag instead, because a client cannot set descriptions.
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
    tag = what.replace(",", ";")  # Spark refuses a comma in a tag, because it separates tags by commas.
    ours = tag not in spark.getTags()
    spark.addTag(tag)
    try:
        yield
    finally:
        if ours:
            spark.removeTag(tag)


def collect_answers(frame: DataFrame, storage: Storage, what: str) -> list[dict[str, Any]]:
    """Run the Spark job of ``frame``, whose tasks return rows of JSON. Return the rows as dicts.

    If a task raises an error of lakeformat, this function raises the same error.

    Args:
        what: ``<verb>: <step>`` for Spark's UI, which shows ``lakeformat <verb> <table's location>: <step>``.
    """
    verb, _, step = what.partition(": ")
    with describe_jobs(frame, f"lakeformat {verb} {storage.location}: {step}"), task_errors():
        return [json.loads(row[0]) for row in frame.collect()]


def answer_rows(answers: Iterable[dict[str, Any]]) -> Batches:
    """Convert the rows that a task returns to JSON text, and yield one batch for each row."""
    for answer in answers:
        yield pa.record_batch({"answer": pa.array([json.dumps(answer)], pa.string())})


def task_numbers(batches: Batches) -> Iterator[int]:
    """Yield the numbers in the input of a task that `numbered_tasks` made: one number, that of the task itself."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def attempt_id() -> str:
    """Return a text that identifies this task attempt. No other attempt of the session has the same text."""
    context = TaskContext.get()
    return f"{context.stageId()}-{context.taskAttemptId()}" if context else "0-0"


def parse_written_file(answer: dict[str, Any]) -> WrittenFile:
    """Return the `WrittenFile` that a task wrote, from the JSON row by which the task described it."""
    facts = FileStats.of_dict(answer["facts"]) if answer["facts"] else None
    merged = answer["stat"]["merged"]
    logged = tuple((path, size) for path, size in answer["stat"]["cdc_stats"])
    stat = WriteStat(**{**answer["stat"], "merged": LogsMerged(**merged) if merged else None, "cdc_stats": logged})
    counts = {name: answer[name] for name in ("unmatched_lookups", "copied_rows", "copied_bytes")}
    return WrittenFile(answer["staged_path"], stat, facts, **counts)
