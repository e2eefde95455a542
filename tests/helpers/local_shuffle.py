"""The shuffled write without Spark: its tasks run one after the other in this process."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

import lakeformat
from lakeformat.file_system_view.file_index.load import load_snapshot
from lakeformat.index.tagging import TagSettings
from lakeformat.model.operation import Operation
from lakeformat.transaction.order.written_file import stage_folder
from lakeformat.write.handles.bucket_tasks import BUCKET, read_buckets, route_rows, write_buckets
from lakeformat.write.intake import plan_job
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.stage import ARRIVAL, TASK, StagedTask, StageWriter
from lakeformat.write.session import WrittenFile
from lakeformat.write.shuffled_session import RouteTasks, ShuffledSession
from lakeformat.write.statements.clauses import Clause
from lakeformat.write.statements.merge_into import plan_merge
from lakeformat.write.tagging.resolve_tasks import (
    ResolvedTask,
    ResolveTasks,
    keyed_schema,
    resolve_rows,
    route_by_key,
)
from lakeformat.write.tagging.tag_units import tag_unit
from lakeformat.write.workload.shuffle_plan import TagResult, TagUnit

__all__ = ["InterruptedRunner", "LocalTaskRunner", "merge_shuffled", "write_shuffled"]


class LocalTaskRunner:
    """An exchange that runs every task in this process."""

    least_tasks = 2

    def __init__(self, table: lakeformat.Table, job: WriteJob) -> None:
        self.storage, self.job, self.attempts = table.context.storage, job, itertools.count()

    def stage(self, tasks: Sequence[pa.Table]) -> list[StagedTask]:
        """Write one stage file for each of the tables."""
        found = []
        for number, rows in enumerate(tasks):
            path = f"{stage_folder(self.job.write_id)}/{number}-0.arrow"
            with StageWriter(
                self.storage, path, self.job.prepare, combined=self.job.needs_combining, buffer_bytes=1
            ) as stage:
                for batch in rows.to_batches():
                    stage.append(batch)
                found.append(stage.finish())
        return found

    def tag(self, units: Sequence[TagUnit], tasks: Sequence[int], staged: Sequence[StagedTask]) -> list[TagResult]:
        assert len(tasks) == len(units)
        with ThreadPoolExecutor(1) as pool:
            paths = (f"{stage_folder(self.job.write_id)}/tags/{at}-{next(self.attempts)}.arrow" for at in tasks)
            settings = TagSettings(self.job.index_settings.file_search)
            pairs = zip(units, paths, strict=True)
            return [tag_unit(self.storage, unit, staged, settings, path, pool) for unit, path in pairs]

    def resolve(self, work: ResolveTasks) -> list[ResolvedTask]:
        moved, prepare = [], work.settings.job.prepare
        for number, task in enumerate(work.stage_tasks):
            arguments = (number, task, work.tag_files[number], range(work.tasks), work.settings)
            moved += list(route_by_key(self.storage, *arguments))
        rows = pa.Table.from_batches(moved, keyed_schema(prepare))
        found = []
        for task in range(work.tasks):
            mine = rows.filter(pa.compute.equal(rows.column(TASK), task)).to_batches(7)
            path = f"{stage_folder(self.job.write_id)}/resolved/{next(self.attempts)}"
            found.append(resolve_rows(self.storage, reversed(mine), work.settings, path))
        return [each for each in found if each is not None]

    def write(self, work: RouteTasks) -> list[WrittenFile]:
        moved = []
        for number, task in enumerate(work.stage_tasks):
            arguments = (number, task, work.tag_files[number], work.plan.routes, work.tasks, work.buckets.prepare)
            moved += list(route_rows(self.storage, *arguments))
        written: list[WrittenFile] = []
        if moved:
            rows = pa.Table.from_batches(moved)
            for task in set(rows.column(TASK).to_pylist()):
                mine = rows.filter(pa.compute.equal(rows.column(TASK), task)).sort_by(BUCKET)
                read, moved_rows = self._read(work, task), in_order(mine)
                assert read.schema == moved_rows.schema
                assert str(read.to_pylist()) == str(moved_rows.to_pylist())  # As text, NaN equals NaN.
                written += write_buckets(self.storage, mine.to_batches(7), work.buckets, f"0-{next(self.attempts)}")
        return written

    def _read(self, work: RouteTasks, task: int) -> pa.Table:
        """Return the rows that a task reads itself if there is no shuffle."""
        numbers = [at for at, each in enumerate(work.tasks) if each == task]
        arguments = (numbers, work.stage_tasks, work.tag_files, work.plan.routes, work.buckets)
        return in_order(pa.Table.from_batches(read_buckets(self.storage, *arguments)))


class InterruptedRunner(LocalTaskRunner):
    """An exchange in which another writer commits while the tasks write.

    Args:
        theirs: inputs of the other writer; one is upserted after each run of the tasks.
    """

    def __init__(self, table: lakeformat.Table, job: WriteJob, theirs: list[pa.Table]) -> None:
        super().__init__(table, job)
        self.table, self.theirs = table, theirs

    def write(self, work: RouteTasks) -> list[WrittenFile]:
        written = super().write(work)
        if self.theirs:
            self.table.upsert(self.theirs.pop())
        return written


def in_order(rows: pa.Table) -> pa.Table:
    """Return routed rows in order of bucket and arrival, without the task."""
    return rows.drop_columns([TASK]).sort_by([(BUCKET, "ascending"), (ARRIVAL, "ascending")]).combine_chunks()


def write_shuffled(
    table: lakeformat.Table, tasks: Sequence[pa.Table], operation: Operation, unit_bytes: int = 1
) -> lakeformat.WriteResult:
    """Run one shuffled write whose rows are in several tasks; by default there is a tag unit for each base file."""
    context, combine = table.context, operation is Operation.INSERT_OVERWRITE_TABLE
    values: dict[str, Any] = {"hoodie.datasource.write.operation": operation.value}
    if combine:
        values["hoodie.combine.before.insert"] = True
    snapshot = load_snapshot(context.store)
    options = table.options.with_values(**values)
    job = plan_job(context.store, snapshot, options, tasks[0].schema, context.ids)
    runner = LocalTaskRunner(table, job)
    session = ShuffledSession(context, job, runner, unit_bytes=unit_bytes)
    known = frozenset(instant.time for instant in snapshot.timeline.commits)
    return session.run(runner.stage(tasks), sum(task.num_rows for task in tasks), known)


def merge_shuffled(
    table: lakeformat.Table, tasks: Sequence[pa.Table], clauses: Sequence[Clause], unit_bytes: int = 1
) -> lakeformat.WriteResult:
    """Run one merge by clauses whose source rows are in several tasks."""
    context, snapshot = table.context, load_snapshot(table.context.store)
    job, plan = plan_merge(context.store, snapshot, table.options, tasks[0].schema, clauses, context.ids)
    runner = LocalTaskRunner(table, job)
    session = ShuffledSession(context, job, runner, merge=plan, unit_bytes=unit_bytes)
    return session.run(runner.stage(tasks), sum(task.num_rows for task in tasks))
