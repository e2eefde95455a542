"""The steps of a write on executors. Each step is one Spark job, whose tasks return small rows of JSON.

The steps use only ``mapInArrow`` and other functions of the DataFrame API, so they run over Spark Connect too. The data
that a task works on is pickled with its function. The returned rows name the files that the task wrote. If Spark runs
several attempts of a task, it returns the rows of only one. The driver uses only files that these rows name, so files
of other attempts do not enter the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakeformat.arrow.conform import conform
from lakeformat.file_system_view.context import TableContext
from lakeformat.index.port import TagCounts
from lakeformat.index.tagging import TagSettings
from lakeformat.spark.host import plain_errors
from lakeformat.spark.jobs import (
    ANSWER,
    Batches,
    answer_rows,
    attempt_id,
    collect_answers,
    cores,
    numbered_tasks,
    parse_written_file,
    task_numbers,
)
from lakeformat.spark.types import arrow_schema, spark_schema
from lakeformat.spark.writes.writer import DirectSparkWriter, StagedWriter
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.order.written_file import WrittenFile, stage_folder
from lakeformat.write.handles.base_file_handles import HandleSettings
from lakeformat.write.handles.bucket_tasks import BUCKET, read_buckets, route_rows, routed_schema, write_buckets
from lakeformat.write.handles.direct import write_runs
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.arrow_pool import reuse_memory
from lakeformat.write.rows.bad_rows import StagedBadRows
from lakeformat.write.rows.bulk_insert_order import Layout
from lakeformat.write.rows.stage import TASK, Run, StagedTask, rows_by_partition
from lakeformat.write.shuffled_session import TASK_BYTES, RouteTasks
from lakeformat.write.statements.rewrite import rewrite_bucket
from lakeformat.write.tagging.resolve_tasks import (
    ResolvedPartition,
    ResolvedTask,
    ResolveTasks,
    keyed_schema,
    resolve_rows,
    route_by_key,
)
from lakeformat.write.tagging.tag_units import tag_unit
from lakeformat.write.workload.buckets import Bucket
from lakeformat.write.workload.shuffle_plan import (
    TagResult,
    TagUnit,
    assign_to_tasks,
    find_shuffle_values,
    may_skip_shuffle,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkShuffle"]

#: Target number of rows that one task merges from sorted runs.
_SORTED_ROWS: Final = 1_000_000


class SparkShuffle:
    """The runner of one write's steps as Spark jobs; see `lakeformat.write.shuffled_session.TaskRunner`.

    Attributes:
        bad_rows: the bad rows of the tasks that have read the input, ordered by the number of the task.
    """

    def __init__(self, spark: SparkSession, context: TableContext, job: WriteJob) -> None:
        self._spark, self._context, self._job = spark, context, job
        self.bad_rows: list[StagedBadRows] = []

    @property
    def least_tasks(self) -> int:
        """Return the number of cores: the minimum number of tasks of a step, if there is enough work for them."""
        return cores(self._spark)

    def stage(self, rows: DataFrame) -> list[StagedTask]:
        """Evaluate the input DataFrame, once. Each task prepares its rows and writes them to one stage file.

        Return the description of each stage file, ordered by the number of the task.
        """
        writer = StagedWriter(self._context, self._job, frozenset())

        def stage(batches: Batches) -> Any:
            message = writer.write(batches)
            return [{"task": message.task, "bad_rows": _describe(message.bad_rows), **asdict(message.staged)}]

        answers = sorted(self._input(rows, stage, "stage"), key=lambda answer: answer["task"])
        self.bad_rows = [StagedBadRows(**answer["bad_rows"]) for answer in answers if answer["bad_rows"]]
        return [_staged(answer) for answer in answers]

    def write_direct(
        self, rows: DataFrame, commit: OpenCommit, schema: pa.Schema, closed: Mapping[str, str]
    ) -> tuple[list[WrittenFile], list[StagedTask], int]:
        """Write base files without a shuffle: each task writes files of its own rows.

        Args:
            schema: the columns of the files.
            closed: the partitions that must get no rows: a mapping of partition path to the reason.

        Returns:
            the written files, the stage files, and the number of input rows. If the write's layout arranges the rows
            of all tasks together, all rows are in stage files, as sorted runs, and no base file is written. Otherwise
            only the rows of a task that are too few to fill a file are in stage files.
        """
        writer = DirectSparkWriter(self._context, self._job, commit, schema, closed)

        def write(batches: Batches) -> Any:
            message = writer.write(batches)
            staged = None if message.staged is None else asdict(message.staged)
            files = [asdict(file) for file in message.written]
            bad = _describe(message.bad_rows)
            return [{"task": message.task, "rows": message.rows, "files": files, "staged": staged, "bad_rows": bad}]

        answers = sorted(self._input(rows, write, "encode"), key=lambda answer: answer["task"])
        self.bad_rows = [StagedBadRows(**answer["bad_rows"]) for answer in answers if answer["bad_rows"]]
        files = [parse_written_file(file) for answer in answers for file in answer["files"]]
        staged = [_staged(answer["staged"]) for answer in answers if answer["staged"] is not None]
        return files, staged, sum(answer["rows"] for answer in answers)

    def write_runs(
        self, runs: Sequence[StagedTask], commit: OpenCommit, schema: pa.Schema, layout: Layout
    ) -> list[WrittenFile]:
        """Merge sorted runs into base files. All runs of the same partition and file number are merged in one task.

        Memory of a task: a block of rows of each run, and a row group.

        Args:
            runs: the stage files that contain the runs.
            schema: the columns of the files.
            layout: the order of the rows in the files.
        """
        weights: dict[tuple[str, int], int] = {}
        for task_run in (task_runs for task in runs for task_runs in task.runs):
            group = task_run.partition_path, task_run.number
            weights[group] = weights.get(group, 0) + task_run.rows
        tasks = assign_to_tasks(list(weights.values()), task_weight=_SORTED_ROWS, at_least=self.least_tasks)
        groups = [{group for group, own in zip(weights, tasks, strict=True) if own == task} for task in {*tasks}]
        writer = DirectSparkWriter(self._context, self._job, commit, schema, {})
        folder = f"{stage_folder(self._job.write_id)}/sorted"

        def run(batches: Batches) -> Batches:
            with plain_errors(), reuse_memory(), ThreadPoolExecutor(1) as pool:
                for task in task_numbers(batches):
                    mine = [
                        replace(t, runs=tuple(r for r in t.runs if (r.partition_path, r.number) in groups[task]))
                        for t in runs
                    ]
                    own = attempt_id()
                    files = writer.writer(writer.settings(f"{folder}/{own}", task, f"{task}-{own}"), pool)
                    try:
                        write_runs(files, mine, layout)
                        written, _ = files.finish()
                    except BaseException:
                        files.abandon()
                        raise
                    yield from answer_rows(asdict(file) for file in written)

        frame = numbered_tasks(self._spark, len(groups), run, ANSWER)
        return [parse_written_file(answer) for answer in self._collected(frame, "sort")]

    def _collected(self, frame: DataFrame, step: str) -> list[dict[str, Any]]:
        return collect_answers(frame, self._context.storage, f"{self._job.operation.value}: {step}")

    def _input(self, rows: DataFrame, prepare: Callable[[Batches], Any], step: str) -> list[dict[str, Any]]:
        schema = arrow_schema(rows.schema)

        def run(batches: Batches) -> Batches:
            with plain_errors():
                yield from answer_rows(prepare(conform(batch, schema) for batch in batches))

        return self._collected(rows.mapInArrow(run, ANSWER), step)

    def tag(self, units: Sequence[TagUnit], tasks: Sequence[int], staged: Sequence[StagedTask]) -> list[TagResult]:
        """Look up the keys of the staged rows in the table's files, in one Spark job.

        Args:
            units: the work: each unit has some file slices of one partition, in which staged keys are looked up.
            tasks: for each unit the number of the task that does it.
            staged: the stage files of the rows.

        Returns:
            the result of each unit.
        """
        groups = _groups(tasks)
        storage, index = self._context.storage, self._job.index_settings
        settings = TagSettings(index.file_search, index.use_ranges, index.use_tree, shape=self._job.shape)
        folder = f"{stage_folder(self._job.write_id)}/tags"

        def run(batches: Batches) -> Batches:
            with plain_errors(), reuse_memory(), ThreadPoolExecutor(2) as pool:
                for task in task_numbers(batches):
                    for number in groups[task]:
                        path = f"{folder}/{number}-{attempt_id()}.arrow"
                        result = tag_unit(storage, units[number], staged, settings, path, pool)
                        yield from answer_rows([{"unit": number, **asdict(result)}])

        frame = numbered_tasks(self._spark, len(groups), run, ANSWER)
        answers = {answer.pop("unit"): answer for answer in self._collected(frame, "tag")}
        return [_tag_result(answers[number]) for number in range(len(units))]

    def resolve(self, work: ResolveTasks) -> list[ResolvedTask]:
        """Shuffle the staged rows by key, and let each task assign its keys' rows to partitions."""
        storage, settings = self._context.storage, work.settings
        prepare, values = settings.job.prepare, find_shuffle_values(work.tasks)
        staged, tags = work.stage_tasks, work.tag_files
        schema = spark_schema(keyed_schema(prepare))
        arrow = arrow_schema(schema)
        folder = f"{stage_folder(self._job.write_id)}/resolved"

        def route(batches: Batches) -> Batches:
            with plain_errors(), reuse_memory():
                for number in task_numbers(batches):
                    for batch in route_by_key(storage, number, staged[number], tags[number], values, settings):
                        yield conform(batch, arrow)

        def resolve(batches: Batches) -> Batches:
            with plain_errors(), reuse_memory():
                done = resolve_rows(storage, batches, settings, f"{folder}/{attempt_id()}")
                yield from answer_rows([asdict(done)] if done is not None else [])

        routed = numbered_tasks(self._spark, len(staged), route, schema).repartition(work.tasks, TASK)
        answers = self._collected(routed.mapInArrow(resolve, ANSWER), "assign to partitions")
        # The order of the stage files decides that of their rows, which must not depend on the order of the answers.
        return sorted(map(_resolved, answers), key=lambda task: task.staged.path)

    def write(self, work: RouteTasks) -> list[WrittenFile]:
        """Let each task write the files of its file groups. It gets the rows by a shuffle, or reads them itself."""
        if self._may_skip_shuffle(work):
            return self._write_without_shuffle(work)
        storage, settings = self._context.storage, work.buckets
        count = max(work.tasks) + 1
        values = find_shuffle_values(count)
        task_values = [values[task] for task in work.tasks]
        schema = spark_schema(routed_schema(settings.prepare))
        arrow = arrow_schema(schema)
        staged, tags, routes = work.stage_tasks, work.tag_files, work.plan.routes

        def route(batches: Batches) -> Batches:
            with plain_errors(), reuse_memory():
                for number in task_numbers(batches):
                    for batch in route_rows(
                        storage, number, staged[number], tags[number], routes, task_values, settings.prepare
                    ):
                        yield conform(batch, arrow)

        def write(batches: Batches) -> Batches:
            with plain_errors(), reuse_memory():
                conformed = (conform(batch, arrow) for batch in batches)
                for file in write_buckets(storage, conformed, settings, attempt_id()):
                    yield from answer_rows([asdict(file)])

        routed = numbered_tasks(self._spark, len(staged), route, schema)
        sorted_ = routed.repartition(count, TASK).sortWithinPartitions(BUCKET)
        return [parse_written_file(answer) for answer in self._collected(sorted_.mapInArrow(write, ANSWER), "write")]

    def _may_skip_shuffle(self, work: RouteTasks) -> bool:
        staged = work.stage_tasks
        rows, size = sum(task.rows for task in staged), sum(task.size_bytes for task in staged)
        most_rows = self._job.options.write.buffer_bytes * rows // max(size, 1)
        counts = [rows_by_partition([task]) for task in staged]
        return may_skip_shuffle(counts, work.buckets.buckets, work.tasks, most_rows=most_rows)

    def _write_without_shuffle(self, work: RouteTasks) -> list[WrittenFile]:
        groups = _groups(work.tasks)
        storage, settings, routes = self._context.storage, work.buckets, work.plan.routes
        staged, tags = work.stage_tasks, work.tag_files

        def write(batches: Batches) -> Batches:
            with plain_errors(), reuse_memory():
                for task in task_numbers(batches):
                    rows = read_buckets(storage, groups[task], staged, tags, routes, settings)
                    for file in write_buckets(storage, rows, settings, attempt_id()):
                        yield from answer_rows([asdict(file)])

        frame = numbered_tasks(self._spark, len(groups), write, ANSWER)
        return [parse_written_file(answer) for answer in self._collected(frame, "write")]

    def rewrite(self, buckets: Sequence[Bucket], handles: HandleSettings) -> list[WrittenFile]:
        """Apply an update or delete by condition to file groups: write a log file or a new base file for each.

        Args:
            buckets: the file groups. A task handles several of them.
            handles: settings of the write handles.
        """
        if not buckets:
            return []
        weights = [bucket.weight for bucket in buckets]
        groups = _groups(assign_to_tasks(weights, task_weight=TASK_BYTES, at_least=self.least_tasks))
        storage = self._context.storage
        settings = replace(handles, folder=f"{stage_folder(self._job.write_id)}/files")

        def write(batches: Batches) -> Batches:
            with plain_errors(), reuse_memory():
                for task in task_numbers(batches):
                    for number in groups[task]:
                        named = replace(settings, write_token=f"{number}-{attempt_id()}")
                        for file in rewrite_bucket(storage, buckets[number], number, named):
                            yield from answer_rows([asdict(file)])

        frame = numbered_tasks(self._spark, len(groups), write, ANSWER)
        return [parse_written_file(answer) for answer in self._collected(frame, "write")]


def _groups(tasks: Sequence[int]) -> list[list[int]]:
    groups: list[list[int]] = [[] for _ in range(max(tasks, default=-1) + 1)]
    for number, task in enumerate(tasks):
        groups[task].append(number)
    return groups


def _describe(bad_rows: StagedBadRows | None) -> dict[str, Any] | None:
    """Return what the driver must know of the bad rows of a task, which are in a file; None if there are none."""
    return {"path": bad_rows.path, "counts": dict(bad_rows.counts)} if bad_rows is not None and bad_rows.rows else None


def _staged(answer: dict[str, Any]) -> StagedTask:
    runs = tuple(Run(**run) for run in answer["runs"])
    return StagedTask(answer["path"], runs, answer["rows"], answer["size_bytes"])


def _resolved(answer: dict[str, Any]) -> ResolvedTask:
    partitions = tuple(
        ResolvedPartition(
            part["partition_path"],
            part["located"],
            {int(number): rows for number, rows in part["hits"].items()},
            tuple(part["sample"]),
            {int(bucket): rows for bucket, rows in part["buckets"].items()},
        )
        for part in answer.pop("partitions")
    )
    return ResolvedTask(staged=_staged(answer.pop("staged")), partitions=partitions, **answer)


def _tag_result(answer: dict[str, Any]) -> TagResult:
    hits = {int(number): rows for number, rows in answer["hits"].items()}
    sample, sample_hits, stages = (tuple(answer[name]) for name in ("sample", "sample_hits", "stages"))
    counts = TagCounts(**answer["counts"])
    buckets = {int(bucket): rows for bucket, rows in answer["buckets"].items()}
    deleted = {int(number): rows for number, rows in answer["deleted"].items()}
    facts = answer["path"], stages, hits, answer["located"], sample, sample_hits, counts, buckets
    return TagResult(*facts, answer["example"], deleted)
