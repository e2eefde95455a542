"""The shuffled write on the driver: each step is planned here from counts, and tasks carry it out.

Rows never reach the driver. Memory: the table's listing, one line per touched file group and per stage file, and one
sample of rows for the file sizes.

`publish_appended` commits log files that tasks have appended themselves; the driver sees only the files' names.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.index.bucket import BucketIndex
from lakeformat.index.port import TagCounts
from lakeformat.index.stored_keys import find_deleting_slices, logs_with_keys
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId, FileSlice
from lakeformat.model.operation import Operation
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.commit import OpenCommit
from lakeformat.transaction.hooks import Hooks
from lakeformat.transaction.result import WriteResult
from lakeformat.transaction.written_file import WrittenFile, stage_folder
from lakeformat.write.handles.base_file_handles import HandleSettings
from lakeformat.write.handles.bucket_tasks import BucketPlaces, BucketSettings, check_places, may_append_in_tasks
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.stage import StagedTask, read_staged_batches, rows_by_partition
from lakeformat.write.session import AFTER_TASKS, WriteSession
from lakeformat.write.tagging.key_checks import make_bucket_check, make_new_file_check
from lakeformat.write.tagging.steps import check_new_partitions
from lakeformat.write.tagging.tag_units import TagFile
from lakeformat.write.workload.buckets import FileSizing, encoded_bytes, file_sizing, measure_row_bytes
from lakeformat.write.workload.profile import count_false_positives, make_append_rules, workload_profile
from lakeformat.write.workload.shuffle_plan import (
    RoutePlan,
    TagResult,
    TagUnit,
    assign_to_tasks,
    plan_routes,
    plan_units,
)

__all__ = ["TASK_BYTES", "RouteTasks", "ShuffledSession", "TaskRunner", "find_bucket_places", "publish_appended"]

_LOG: Final = logging.getLogger("lakeformat.write")
_SAMPLE_ROWS: Final = 16_384
#: Bytes of base files and of rows for them that one task merges; the size of a Spark scan task.
TASK_BYTES: Final = 128 << 20
#: Bytes of the file slices that one task tags; its reads are the slices' footers and keys.
_TAG_TASK_BYTES: Final = 512 << 20
#: Bytes of the file slices of one partition that are searched together. A larger partition is searched in several
#: tasks.
_UNIT_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class RouteTasks:
    """The plan by which tasks turn staged rows into files.

    Attributes:
        stage_tasks: all stage files, by number.
        tag_files: for each stage file the hits of the tag step.
        plan: all buckets and routes.
        tasks: for each bucket the task that writes it.
        buckets: settings of the tasks that write buckets.
    """

    stage_tasks: tuple[StagedTask, ...]
    tag_files: tuple[tuple[TagFile, ...], ...]
    plan: RoutePlan
    tasks: tuple[int, ...]
    buckets: BucketSettings


class TaskRunner(Protocol):
    """A runner of tasks. A task may run several times, even at the same time; the result of one run counts."""

    @property
    def least_tasks(self) -> int:
        """Return the least number of tasks to make, if there is enough work."""

    def tag(self, units: Sequence[TagUnit], tasks: Sequence[int], staged: Sequence[StagedTask]) -> list[TagResult]:
        """Run `tag_unit` for each unit. ``tasks`` gives the task of each unit."""

    def write(self, work: RouteTasks) -> list[WrittenFile]:
        """Run `route_rows` for each stage file, shuffle the rows by bucket, and run `write_buckets` in each task."""


class ShuffledSession:
    """A runner of steps 3 to 8 for staged rows, with tasks."""

    def __init__(
        self,
        context: TableContext,
        job: WriteJob,
        runner: TaskRunner,
        *,
        hooks: Hooks | None = None,
        unit_bytes: int = _UNIT_BYTES,
    ) -> None:
        self._unit_bytes = unit_bytes
        self.context, self.job, self.runner = context, job, runner
        self.storage, self.store = context.storage, context.store
        self.session = WriteSession(context, job, hooks)

    def run(self, staged: Sequence[StagedTask], input_rows: int, known: frozenset[str]) -> WriteResult:
        """Run steps 3 to 8. After a conflict, try again with the same stage files, if the options allow.

        Args:
            input_rows: number of input rows.
            known: commits completed when the user's write began; only overwrites use it.

        Raises:
            WriteConflictError: if the write still conflicts after the number of tries that the options allow. The stage
                files are deleted.
        """
        transaction, is_first = self.session.transaction, True

        def attempt() -> WriteResult:
            nonlocal is_first
            known_commits, is_first = known if is_first else self.store.load().commit_times, False
            return self._run(staged, input_rows, known_commits)

        with transaction.delete_stage_on_failure():
            return transaction.retry(attempt)

    def _run(self, staged: Sequence[StagedTask], input_rows: int, known: frozenset[str]) -> WriteResult:
        snapshot = self.context.snapshot()
        if (skipped := self.session.transaction.skip_known_batch(snapshot)) is not None:
            self.session.transaction.delete_stage()
            return skipped
        if not self.job.operation.is_overwrite:
            known = snapshot.timeline.commit_times
        self.session.transaction.report.rows["incoming"] = input_rows
        with self.session.transaction.run_unlocked(known) as commit:
            return self.publish(commit, (), staged, snapshot)

    def publish(
        self, commit: OpenCommit, written: Sequence[WrittenFile], staged: Sequence[StagedTask], snapshot: Snapshot
    ) -> WriteResult:
        """Run steps 4 to 8 for staged rows: write them to files, and publish these with the files that exist already.

        Args:
            written: files that tasks have written already.
            snapshot: the table that the rows are tagged against.
        """
        job, session = self.job, self.session
        schema = job.final_schema(snapshot)
        staged = [task for task in staged if task.path]
        units, results, plan = self._plan(staged, snapshot, schema)
        check_new_partitions(self.storage, snapshot, plan.buckets, written)
        touched = [*rows_by_partition(staged), *(file.stat.partition_path for file in written)]
        profile = workload_profile(job.operation, plan.buckets, [file.stat for file in written])
        commit = session.transaction.move_to_inflight(
            commit, profile, snapshot, session.transaction.list_overwritten(touched, snapshot)
        )
        handles = replace(HandleSettings.of(job, commit.time, schema), folder=f"{stage_folder(job.write_id)}/files")
        written = [*written]
        with session.transaction.report.step("write") as counted:
            if plan.buckets:
                first = AFTER_TASKS if written else 0
                buckets = BucketSettings(plan.buckets, job.prepare, job.needs_combining, handles, first)
                tasks = assign_to_tasks(_weights(plan), task_weight=TASK_BYTES, at_least=self.runner.least_tasks)
                tags = _tag_files_by_stage(len(staged), units, results)
                written += self.runner.write(RouteTasks(tuple(staged), tags, plan, tuple(tasks), buckets))
                counted["tasks"] = len(set(tasks))
            counted.update(buckets=len(plan.buckets), **count_false_positives(job, written))
        touched += [file.stat.partition_path for file in written]
        check = make_new_file_check(self.storage, written) if job.operation is Operation.UPSERT else None
        with session.transaction.hold_lock():
            if (skipped := session.transaction.skip_known_batch(self.context.snapshot())) is not None:
                session.transaction.undo(commit)
                session.transaction.delete_stage()
                return skipped
            return session.publish_written(commit, schema, written, snapshot, touched, check)

    def _plan(
        self, staged: Sequence[StagedTask], snapshot: Snapshot, schema: pa.Schema
    ) -> tuple[Sequence[TagUnit], Sequence[TagResult], RoutePlan]:
        job, report = self.job, self.session.transaction.report
        incoming = rows_by_partition(staged)
        slices: Mapping[str, Sequence[FileSlice]] = snapshot.slices if job.uses_existing_groups else {}
        append_rules = make_append_rules(job, snapshot, self.store.read_compaction_groups(snapshot.timeline))
        sizing = self._sizing(staged, schema)
        closed = frozenset(self.store.read_clustering_groups(snapshot.timeline))
        with report.step("tag") as counted:
            units = plan_units(
                incoming,
                slices,
                looks_up_keys=job.operation.needs_tagging,
                sizing=sizing,
                closed_groups=closed,
                unit_bytes=self._unit_bytes,
                append_rules=append_rules,
                logs_of=partial(logs_with_keys, snapshot),
            )
            weights = [sum(piece.size_bytes for piece in unit.slices) for unit in units]
            tasks = assign_to_tasks(weights, task_weight=_TAG_TASK_BYTES, at_least=self.runner.least_tasks)
            results = self.runner.tag(units, tasks, staged) if units else []
            counted.update(TagCounts.total(result.counts for result in results))
            counted["units"] = len(units)
        with report.step("profile") as counted:
            deleting = partial(find_deleting_slices, self.storage, snapshot)
            plan = plan_routes(incoming, units, results, slices, sizing, closed, job.write_id, append_rules, deleting)
            if sizing is not None:
                counted["row_bytes"] = round(sizing.row_bytes, 1)
        return units, results, plan

    def _sizing(self, staged: Sequence[StagedTask], schema: pa.Schema) -> FileSizing | None:
        job = self.job
        if job.operation is Operation.DELETE:
            return None
        settings = job.files(schema)
        for task in staged[:1]:
            batch = next(read_staged_batches(self.storage, task, task.runs[0].partition_path))
            sample = pa.Table.from_batches([batch.slice(0, _SAMPLE_ROWS)])
            row_bytes = measure_row_bytes(sample, np.arange(sample.num_rows), settings)
            return file_sizing(job.options, row_bytes, encoded_bytes(sample.slice(0, 0), settings))
        return None


def _weights(plan: RoutePlan) -> list[int]:
    """Return the estimated bytes that each bucket's task reads or writes. A row counts as one kilobyte, since the base
    file's size dominates the cost of a merge.
    """
    return [
        (bucket.base.size_bytes if bucket.base else 0) + (bucket.updates + bucket.inserts) * 1024
        for bucket in plan.buckets
    ]


def _tag_files_by_stage(
    stages: int, units: Sequence[TagUnit], results: Sequence[TagResult]
) -> tuple[tuple[TagFile, ...], ...]:
    tags: list[list[TagFile]] = [[] for _ in range(stages)]
    for unit, result in zip(units, results, strict=True):
        batches: dict[int, list[int]] = {}
        for at, stage in enumerate(result.stages):
            batches.setdefault(stage, []).append(at)
        for stage, numbers in batches.items():
            tags[stage].append(TagFile(result.path, unit.partition_path, tuple(numbers)))
    return tuple(map(tuple, tags))


def find_bucket_places(storage: Storage, job: WriteJob, snapshot: Snapshot) -> BucketPlaces | None:
    """Return the places where tasks append rows without the driver; None if tasks may not append.

    Raises:
        InvalidOptionError, UnsupportedTableError, CorruptTableError: if the table's files do not match the bucket
            index.
    """
    append_rules = make_append_rules(job, snapshot, TimelineStore(storage).read_compaction_groups(snapshot.timeline))
    if not may_append_in_tasks(job, snapshot, append_rules):
        return None
    return BucketPlaces.of(snapshot, append_rules, BucketIndex(job.index_settings).rule(storage, snapshot))


def publish_appended(
    session: WriteSession,
    commit: OpenCommit,
    schema: pa.Schema,
    places: BucketPlaces,
    written: Sequence[WrittenFile],
    input_rows: int,
) -> WriteResult:
    """Move the tasks' files into their partitions and publish them (steps 5 and 7).

    Call this under the lock. If it fails, the caller rolls back the commit.

    Args:
        schema: the columns that the tasks wrote.
        places: the places that the tasks were given.
        input_rows: number of input rows.

    Raises:
        WriteConflictError: if another writer interfered. A retry is safe.
    """
    job, snapshot = session.job, session.context.snapshot()
    session.transaction.report.rows["incoming"] = input_rows
    if not session.context.store.layout.has_completion_times:
        append_rules = make_append_rules(job, snapshot, session.context.store.read_compaction_groups(snapshot.timeline))
        check_places(written, places, BucketPlaces.of(snapshot, append_rules, places.rule))
    opened = [file for file in written if file.stat.prev_commit == commit.time]
    check_new_partitions(session.storage, snapshot, (), opened)
    commit = session.transaction.move_to_inflight(commit, _profile(job, written, commit.time), snapshot)
    groups = {FileGroupId(file.stat.partition_path, file.stat.file_id) for file in opened}
    return session.publish_written(commit, schema, written, snapshot, (), make_bucket_check(groups))


def _profile(job: WriteJob, written: Sequence[WrittenFile], instant_time: str) -> CommitMetadata:
    stats: dict[str, list[WriteStat]] = {}
    for stat in (file.stat for file in written):
        is_new = stat.prev_commit == instant_time
        entry = WriteStat(
            "" if is_new else stat.file_id,
            "",
            stat.partition_path,
            None if is_new else stat.prev_commit,
            0,
            num_updates=stat.num_updates,
            num_inserts=stat.num_inserts,
        )
        stats.setdefault(stat.partition_path, []).append(entry)
    return CommitMetadata(job.operation.name, {path: tuple(entries) for path, entries in stats.items()})
