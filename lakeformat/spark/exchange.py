"""The exchanged way under Spark: each step is one job of ``mapInArrow`` tasks that answers with small rows.

Only the DataFrame API is used, so that classic Spark and Spark Connect run the same. What tasks need travels in
their functions; what they answer is JSON. Spark takes the answer of one attempt per task, so files of failed,
slow or lost attempts are never named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext

from lakeformat import errors
from lakeformat.codec.conform import conform
from lakeformat.file_index.facts import FileStats
from lakeformat.index.port import TagCounts
from lakeformat.index.tagging import TagSettings
from lakeformat.model.commit import WriteStat
from lakeformat.spark.host import plain_errors
from lakeformat.spark.types import arrow_schema, spark_schema
from lakeformat.spark.writer import DirectSparkWriter, StagedWriter
from lakeformat.write.bucket_tasks import BUCKET, TASK, route_rows, routed_schema, write_buckets
from lakeformat.write.buckets import Bucket
from lakeformat.write.claims import Pulse
from lakeformat.write.commit import OpenCommit
from lakeformat.write.exchanged import RouteTasks
from lakeformat.write.handles import HandleSettings
from lakeformat.write.job import WriteJob
from lakeformat.write.layout import Layout
from lakeformat.write.memory import reused_memory
from lakeformat.write.rewrite import rewritten
from lakeformat.write.route import TagResult, TagUnit, bundle, shuffle_values
from lakeformat.write.session import Engine
from lakeformat.write.sorted_runs import lay_down
from lakeformat.write.stage import Run, StagedTask, Written, stage_folder
from lakeformat.write.tag_units import tag_unit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkExchange", "task_errors"]

Batches = Iterator[pa.RecordBatch]

#: Bytes of base files that one task rewrites.
_TASK_BYTES: Final = 64 << 20
_ANSWER: Final = "answer string"
#: Rows that a task merges from sorted runs, about.
_SORTED_ROWS: Final = 1_000_000
_OURS: Final = re.compile(r"^lakeformat\.errors\.(\w+): (.+)$", re.MULTILINE)


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


class SparkExchange:
    """Runs the steps of one write as Spark jobs."""

    def __init__(self, spark: SparkSession, engine: Engine, job: WriteJob) -> None:
        self._spark, self._engine, self._job = spark, engine, job

    @property
    def width(self) -> int:
        """Tasks to make at least: the cores here, which on a cluster is few."""
        cores: int = pa.cpu_count()
        return cores

    def stage(self, rows: DataFrame) -> list[StagedTask]:
        """Prepare the input, one stage file a task. The input is evaluated here, once."""
        writer = StagedWriter(self._engine, self._job, frozenset())

        def stage(batches: Batches) -> Any:
            message = writer.write(batches)
            return [{"task": message.task, **asdict(message.staged)}]

        found = sorted(self._input(rows, stage), key=lambda answer: answer["task"])
        return [_staged(answer) for answer in found]

    def write_direct(
        self, rows: DataFrame, commit: OpenCommit, schema: pa.Schema
    ) -> tuple[list[Written], list[StagedTask], int]:
        """Base files made without an exchange.

        Returns:
            the files; staged rows: what was too little for a file, or all as sorted runs if a layout is to go across
            tasks; and how many rows came.
        """
        writer = DirectSparkWriter(self._engine, self._job, commit, schema)

        def write(batches: Batches) -> Any:
            message = writer.write(batches)
            staged = None if message.staged is None else asdict(message.staged)
            files = [asdict(file) for file in message.written]
            return [{"task": message.task, "rows": message.rows, "files": files, "staged": staged}]

        found = sorted(self._input(rows, write), key=lambda answer: answer["task"])
        files = [_written(file) for answer in found for file in answer["files"]]
        staged = [_staged(answer["staged"]) for answer in found if answer["staged"] is not None]
        return files, staged, sum(answer["rows"] for answer in found)

    def lay_down(
        self, runs: Sequence[StagedTask], commit: OpenCommit, schema: pa.Schema, layout: Layout
    ) -> list[Written]:
        """Merge sorted runs into base files, a partition's (or its part's, by file number) in one task.

        Memory of a task: a block per run, and a row group.
        """
        weights: dict[tuple[str, int], int] = {}
        for one in (one for task in runs for one in task.runs):
            group = one.partition_path, one.number
            weights[group] = weights.get(group, 0) + one.rows
        tasks = bundle(list(weights.values()), task_weight=_SORTED_ROWS, at_least=self.width)
        groups = [{group for group, own in zip(weights, tasks, strict=True) if own == task} for task in {*tasks}]
        writer = DirectSparkWriter(self._engine, self._job, commit, schema)
        folder = f"{stage_folder(self._job.write_id)}/sorted"

        def run(batches: Batches) -> Batches:
            with plain_errors(), reused_memory(), ThreadPoolExecutor(1) as pool:
                for task in _numbers(batches):
                    mine = [
                        replace(t, runs=tuple(r for r in t.runs if (r.partition_path, r.number) in groups[task]))
                        for t in runs
                    ]
                    attempt = _attempt()
                    files = writer.writer(writer.settings(f"{folder}/{attempt}", task, f"{task}-{attempt}"), pool)
                    try:
                        lay_down(files, mine, layout)
                        written, _ = files.finish()
                    except BaseException:
                        files.abandon()
                        raise
                    yield from _answers(asdict(file) for file in written)

        return [_written(answer) for answer in _collected(self._numbered(len(groups), run, _ANSWER))]

    def _input(self, rows: DataFrame, step: Callable[[Batches], Any]) -> list[dict[str, Any]]:
        schema = arrow_schema(rows.schema)

        def run(batches: Batches) -> Batches:
            with plain_errors():
                yield from _answers(step(conform(batch, schema) for batch in batches))

        return _collected(rows.mapInArrow(run, _ANSWER))

    def tag(self, units: Sequence[TagUnit], tasks: Sequence[int], staged: Sequence[StagedTask]) -> list[TagResult]:
        """See `Exchange`."""
        groups = _groups(tasks)
        storage, index = self._engine.storage, self._job.index_settings
        # A process that keeps keys in memory is no task; what it would find key columns tell as well.
        kind = "SIMPLE" if index.kind == "INMEMORY" else index.kind
        settings = TagSettings(kind, index.use_ranges, index.use_tree)
        folder = f"{stage_folder(self._job.write_id)}/tags"

        def run(batches: Batches) -> Batches:
            with plain_errors(), reused_memory(), ThreadPoolExecutor(2) as pool:
                for task in _numbers(batches):
                    for at in groups[task]:
                        path = f"{folder}/{at}-{_attempt()}.arrow"
                        result = tag_unit(storage, units[at], staged, settings, path, pool)
                        yield from _answers([{"unit": at, **asdict(result)}])

        found = {answer.pop("unit"): answer for answer in _collected(self._numbered(len(groups), run, _ANSWER))}
        return [_tag_result(found[at]) for at in range(len(units))]

    def write(self, work: RouteTasks) -> list[Written]:
        """See `Exchange`."""
        storage, settings = self._engine.storage, work.buckets
        count = max(work.tasks) + 1
        values = shuffle_values(count)
        task_values = [values[task] for task in work.tasks]
        schema = spark_schema(routed_schema(settings.prepare))
        arrow = arrow_schema(schema)
        staged, tags, routes = work.staged, work.tags, work.plan.routes

        def route(batches: Batches) -> Batches:
            with plain_errors(), reused_memory():
                for at in _numbers(batches):
                    for batch in route_rows(storage, at, staged[at], tags[at], routes, task_values, settings.prepare):
                        yield conform(batch, arrow)

        def write(batches: Batches) -> Batches:
            with plain_errors(), reused_memory():
                conformed = (conform(batch, arrow) for batch in batches)
                for file in write_buckets(storage, conformed, settings, _attempt()):
                    yield from _answers([asdict(file)])

        routed = self._numbered(len(staged), route, schema)
        sorted_ = routed.repartition(count, TASK).sortWithinPartitions(BUCKET)
        return [_written(answer) for answer in _collected(sorted_.mapInArrow(write, _ANSWER))]

    def rewrite(self, buckets: Sequence[Bucket], handles: HandleSettings) -> list[Written]:
        """The next versions of base files that take no rows, several files a task (`lakeformat.write.rewrite`)."""
        if not buckets:
            return []
        weights = [bucket.base.size_bytes if bucket.base else 0 for bucket in buckets]
        groups = _groups(bundle(weights, task_weight=_TASK_BYTES, at_least=self.width))
        storage = self._engine.storage
        settings = replace(handles, folder=f"{stage_folder(self._job.write_id)}/files")

        def write(batches: Batches) -> Batches:
            with plain_errors(), reused_memory():
                for task in _numbers(batches):
                    for at in groups[task]:
                        named = replace(settings, write_token=f"{at}-{_attempt()}")
                        for file in rewritten(storage, buckets[at], at, named):
                            yield from _answers([asdict(file)])

        with Pulse(storage, handles.instant_time):
            return [_written(answer) for answer in _collected(self._numbered(len(groups), write, _ANSWER))]

    def _numbered(self, count: int, step: Callable[[Batches], Batches], schema: Any) -> DataFrame:
        """One task for each number below ``count``."""
        return self._spark.range(0, count, 1, count).mapInArrow(step, schema)


def _collected(frame: DataFrame) -> list[dict[str, Any]]:
    with task_errors():
        return [json.loads(row[0]) for row in frame.collect()]


def _answers(answers: Iterable[dict[str, Any]]) -> Batches:
    for answer in answers:
        yield pa.record_batch({"answer": pa.array([json.dumps(answer)], pa.string())})


def _numbers(batches: Batches) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _attempt() -> str:
    """Stage and task attempt: never used twice."""
    context = TaskContext.get()
    return f"{context.stageId()}-{context.taskAttemptId()}" if context else "0-0"


def _groups(tasks: Sequence[int]) -> list[list[int]]:
    groups: list[list[int]] = [[] for _ in range(max(tasks, default=-1) + 1)]
    for at, task in enumerate(tasks):
        groups[task].append(at)
    return groups


def _staged(answer: dict[str, Any]) -> StagedTask:
    return StagedTask(answer["path"], tuple(Run(**run) for run in answer["runs"]), answer["rows"])


def _written(answer: dict[str, Any]) -> Written:
    facts = answer["facts"]
    return Written(answer["staged_path"], WriteStat(**answer["stat"]), FileStats.of_dict(facts) if facts else None)


def _tag_result(answer: dict[str, Any]) -> TagResult:
    hits = {int(at): rows for at, rows in answer["hits"].items()}
    sample, sample_hits, stages = (tuple(answer[name]) for name in ("sample", "sample_hits", "stages"))
    counts = TagCounts(**answer["counts"])
    return TagResult(answer["path"], stages, hits, answer["located"], sample, sample_hits, counts)
