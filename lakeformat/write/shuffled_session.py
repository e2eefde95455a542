"""The driver's side of a shuffled Spark write: the driver plans each step from numbers of rows, and tasks run it.

No rows reach the driver, except a sample that it measures to choose the file sizes, and sampled record keys. Memory:
the table's listing, one record per touched file group and per stage file, and the samples.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from lakeformat.errors import SchemaMismatchError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.index.factory import make_hash_index
from lakeformat.index.port import TableBuckets, TagCounts
from lakeformat.index.record_index import decides_partition, open_for_auto, open_record_index, warn_not_used
from lakeformat.index.stored_filters import open_stored_filters
from lakeformat.index.stored_keys import find_deleting_slices, logs_with_keys
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.model.files import FileGroupId, FileSlice
from lakeformat.model.instant import State
from lakeformat.model.operation import Operation
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.commit.hooks import Hooks
from lakeformat.transaction.commit.publish import BatchWrittenError
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order.conflict import OverlapError
from lakeformat.transaction.order.outcome import NewKeyCheck
from lakeformat.transaction.order.written_file import WrittenFile, count_copies, stage_folder
from lakeformat.write.handles.base_file_handles import HandleSettings
from lakeformat.write.handles.bucket_tasks import BucketSettings
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.stage import StagedTask, read_staged_batches, rows_by_partition
from lakeformat.write.session import AFTER_TASKS, WriteSession
from lakeformat.write.statements.merge_into import MergePlan, known_commits, repeated_keys_error
from lakeformat.write.tagging.global_index import RoutingSettings
from lakeformat.write.tagging.key_checks import (
    join_checks,
    list_appended_groups,
    make_append_check,
    make_bucket_check,
    make_new_file_check,
)
from lakeformat.write.tagging.resolve_tasks import ResolvedTask, ResolveSettings, ResolveTasks
from lakeformat.write.tagging.steps import check_new_partitions
from lakeformat.write.tagging.tag_units import TagFile
from lakeformat.write.tagging.tagged_stage import (
    TaggedStage,
    join_resolved,
    list_found_slices,
    list_hashed_slices,
    tag_files_by_stage,
)
from lakeformat.write.tagging.tagger import stored_keys_error
from lakeformat.write.workload.buckets import (
    FileSizing,
    encoded_bytes,
    file_sizing,
    make_bucket_id,
    max_encoded_bytes,
    measure_row_bytes,
)
from lakeformat.write.workload.global_units import plan_global_units, plan_index_units
from lakeformat.write.workload.profile import count_false_positives, make_append_rules, workload_profile
from lakeformat.write.workload.shuffle_plan import (
    KeyUse,
    RoutePlan,
    TagResult,
    TagUnit,
    assign_to_tasks,
    plan_routes,
    plan_units,
)

__all__ = ["TASK_BYTES", "RouteTasks", "ShuffledSession", "TaskRunner"]

_LOG: Final = logging.getLogger("lakeformat.write")
_SAMPLE_ROWS: Final = 16_384
#: Target size of one write task, equal to that of a Spark scan task: bytes of base files plus 1 KB per row to write.
TASK_BYTES: Final = 128 << 20
#: Target size of one task that looks up keys: bytes of the file slices that it searches. The target is large, because
#: the task reads only the footers and keys of the files.
_TAG_TASK_BYTES: Final = 512 << 20
#: Target size of one task that assigns the rows of a global index to partitions: bytes of its staged rows.
_RESOLVE_TASK_BYTES: Final = 64 << 20
#: Number of new keys to sample for each file that they could fill.
_SAMPLES_PER_FILE: Final = 64
#: Maximum bytes of the file slices in one `TagUnit`, which is one key lookup. A larger partition gets several units.
_UNIT_BYTES: Final = 1 << 30


@dataclass(frozen=True)
class RouteTasks:
    """The plan from which tasks write staged rows to files.

    Attributes:
        stage_tasks: all stage files; the position of a stage file is its number.
        tag_files: for each stage file, the files in which the key lookup has recorded the file slices of its rows.
        plan: all buckets, and the rules by which rows are assigned to them.
        tasks: for each bucket, the number of the task that writes it.
        buckets: settings of the tasks that write buckets.
    """

    stage_tasks: tuple[StagedTask, ...]
    tag_files: tuple[tuple[TagFile, ...], ...]
    plan: RoutePlan
    tasks: tuple[int, ...]
    buckets: BucketSettings


class TaskRunner(Protocol):
    """The interface by which the driver runs tasks.

    A task may run several times, even at the same time; the result of only one run is used.
    """

    @property
    def least_tasks(self) -> int:
        """Return the minimum number of tasks to create, if there is enough work for them."""

    def tag(self, units: Sequence[TagUnit], tasks: Sequence[int], staged: Sequence[StagedTask]) -> list[TagResult]:
        """Run `tag_unit` for each unit, in the task whose number ``tasks`` has for it. Return a result per unit."""

    def resolve(self, work: ResolveTasks) -> list[ResolvedTask]:
        """Run `route_by_key` for each stage file, shuffle the rows by key, and run `resolve_rows` in each task.

        Return the results of the tasks that got rows.
        """

    def write(self, work: RouteTasks) -> list[WrittenFile]:
        """Run `route_rows` for each stage file, shuffle the rows by bucket, and run `write_buckets` in each task."""


class ShuffledSession:
    """The execution of a shuffled write of staged rows. Tasks look up the keys and write the files.

    Args:
        merge: the plan of a merge by clauses, whose source the rows are; None for other writes.
        merge_source: the snapshot from which these rows were computed; None if the user supplied them.
    """

    def __init__(
        self,
        context: TableContext,
        job: WriteJob,
        runner: TaskRunner,
        *,
        hooks: Hooks | None = None,
        merge: MergePlan | None = None,
        merge_source: Snapshot | None = None,
        unit_bytes: int = _UNIT_BYTES,
    ) -> None:
        self._unit_bytes, self._merge, self._merge_source = unit_bytes, merge, merge_source
        self.context, self.job, self.runner = context, job, runner
        self.storage, self.store = context.storage, context.store
        self.session = WriteSession(context, job, hooks)

    def run(self, staged: Sequence[StagedTask], input_rows: int, known: frozenset[str] = frozenset()) -> WriteResult:
        """Write staged rows and publish them. After a conflict, retry with the same stage files if the options allow.

        Args:
            input_rows: number of input rows.
            known: instants of the commits completed when the user's write began; only overwrites use them.

        Raises:
            InvalidInputError: if the source of a merge has a key twice, or a clause gives values that its column cannot
                hold.
            WriteConflictError: if the write still conflicts after the number of tries that the options allow. The stage
                files are deleted.
        """
        transaction, is_first = self.session.transaction, True

        def attempt() -> WriteResult:
            nonlocal is_first
            was_first, is_first = is_first, False
            return self._attempt(staged, input_rows, known if was_first and self.job.operation.is_overwrite else None)

        with transaction.staging():
            # If the rows of a merge were computed from a snapshot, a retry would start from the same rows.
            return transaction.retry(attempt) if self._merge_source is None else attempt()

    def _attempt(
        self, staged: Sequence[StagedTask], input_rows: int, known_times: frozenset[str] | None
    ) -> WriteResult:
        """Write staged rows and publish them.

        Args:
            known_times: instants of the commits that the write starts from; None for those of the newest snapshot, or
                of the snapshot from which the rows of a merge were computed.
        """
        transaction, snapshot = self.session.transaction, self.context.snapshot()
        if (skipped := transaction.skip_known_batch(snapshot)) is not None:
            return skipped
        if self._merge is not None:
            known_times = known_commits(self.storage, self._merge, snapshot, self._merge_source)
        elif known_times is None:
            known_times = snapshot.timeline.commit_times
        transaction.report.rows["incoming"] = input_rows
        with transaction.run_unlocked(known_times, snapshot.timeline) as commit:
            return self._publish(commit, (), staged, snapshot, self.job.at(snapshot))

    def publish(
        self, commit: OpenCommit, written: Sequence[WrittenFile], staged: Sequence[StagedTask], snapshot: Snapshot
    ) -> WriteResult:
        """Write staged rows that are too few for a file of a task, and publish them together with ``written``.

        If another writer changes the files to which the staged rows are added, they go into new files.

        Args:
            written: files that tasks have already written.
            snapshot: the state of the table when the write began.
        """
        try:
            return self._publish_direct(commit, written, staged, snapshot)
        except BatchWrittenError as error:
            return self.session.transaction.skip_published_batch(commit, snapshot, error)

    def _publish_direct(
        self, commit: OpenCommit, written: Sequence[WrittenFile], staged: Sequence[StagedTask], snapshot: Snapshot
    ) -> WriteResult:
        job = self.job
        if job.operation.is_overwrite:
            return self._publish(commit, written, staged, snapshot, job)
        newest = self.context.snapshot()
        commit = replace(commit, known=newest.timeline.commit_times)
        try:
            return self._publish(commit, written, staged, newest, job)
        except OverlapError as error:
            if not job.uses_existing_groups:
                raise
            _LOG.warning("%s; the rows go into new files", error)
        written = [replace(file, staged_path=file.stat.path) for file in written]  # They are in their places.
        newest = self.context.snapshot()
        commit = replace(commit, known=newest.timeline.commit_times, instant=commit.instant.at(State.INFLIGHT))
        options = job.options.with_values(**{"hoodie.parquet.small.file.limit": 0})
        return self._publish(commit, written, staged, newest, replace(job, options=options))

    def _publish(
        self,
        commit: OpenCommit,
        written: Sequence[WrittenFile],
        staged: Sequence[StagedTask],
        snapshot: Snapshot,
        job: WriteJob,
    ) -> WriteResult:
        """Look up the staged rows, write them to files, and publish these together with ``written``.

        Args:
            snapshot: the state of the table in which the rows' keys are looked up.
        """
        session, merge = self.session, self._merge
        schema = job.final_schema(snapshot) if merge is None else merge.schema
        staged = [task for task in staged if task.path]
        tagged, plan = self._plan(staged, snapshot, schema, job)
        check_new_partitions(self.storage, snapshot, plan.buckets, written)
        touched = [*rows_by_partition(tagged.stage_tasks), *(file.stat.partition_path for file in written)]
        if commit.instant.state is State.REQUESTED:
            profile = workload_profile(job.operation, plan.buckets, [file.stat for file in written])
            overwritten = session.transaction.list_overwritten(touched, snapshot)
            is_certain = merge is None or merge.changes_every_match
            commit = session.transaction.move_to_inflight(commit, profile, snapshot, overwritten, is_certain=is_certain)
        handles = replace(HandleSettings.of(job, commit.time, schema), folder=f"{stage_folder(job.write_id)}/files")
        handles = handles if merge is None else merge.set_merger(handles)
        added: list[WrittenFile] = []
        with session.transaction.report.step("write") as counted:
            if plan.buckets:
                first = AFTER_TASKS if written else 0
                combines = job.needs_combining and not tagged.is_resolved
                refuses = job.dup_policy == "fail" and not tagged.is_resolved
                buckets = BucketSettings(plan.buckets, tagged.prepare, combines, handles, first, refuses)
                weights = [bucket.weight for bucket in plan.buckets]
                tasks = assign_to_tasks(weights, task_weight=TASK_BYTES, at_least=self.runner.least_tasks)
                stages = tuple(tagged.stage_tasks)
                added = self.runner.write(RouteTasks(stages, tagged.tag_files, plan, tuple(tasks), buckets))
                counted["tasks"] = len(set(tasks))
            counted.update(buckets=len(plan.buckets), **count_false_positives(job, added), **count_copies(added))
        if merge is not None:
            good = session.transaction.report.rows["incoming"] - session.count_bad_rows()
            merge.check_changed(good, [file.stat for file in added])
        touched += [file.stat.partition_path for file in added]
        appended = list_appended_groups(job, plan.buckets)
        check = join_checks(self._make_checks(job, plan, added, appended, commit.time))
        try:
            return session.publish_written(commit, schema, [*written, *added], snapshot, touched, check, appended)
        except OverlapError:
            for stat in (file.stat for file in added):
                for path in (stat.path, *(path for path, _ in stat.cdc_stats)):
                    self.storage.delete(path)
            raise

    def _make_checks(
        self,
        job: WriteJob,
        plan: RoutePlan,
        added: Sequence[WrittenFile],
        appended: frozenset[FileGroupId],
        instant_time: str,
    ) -> list[NewKeyCheck]:
        checks = [make_append_check(appended, job, instant_time)] if appended else []
        if job.index_settings.has_buckets:
            opened = (FileGroupId(b.partition_path, b.file_id) for b in plan.buckets if b.opened_at is None)
            checks.append(make_bucket_check(opened, job))
        elif job.needs_tagging and job.operation is not Operation.DELETE:
            checks.append(make_new_file_check(self.storage, added, job))
        return checks

    def _plan(
        self, staged: Sequence[StagedTask], snapshot: Snapshot, schema: pa.Schema, job: WriteJob
    ) -> tuple[TaggedStage, RoutePlan]:
        report = self.session.transaction.report
        slices: Mapping[str, Sequence[FileSlice]] = snapshot.slices if job.fills_files_in_tasks else {}
        compacting = self.store.read_compaction_groups(snapshot.timeline)
        append_rules = make_append_rules(job, snapshot, compacting, reads_stored=self._merge is not None)
        sizing = self._sizing(staged, schema, job)
        closed = frozenset(self.store.read_clustering_groups(snapshot.timeline))
        has_buckets = job.index_settings.has_buckets
        deleting = partial(find_deleting_slices, self.storage, snapshot)
        keys = KeyUse(
            looks_up=job.needs_tagging,
            hashing=make_hash_index(job.index_settings).hash(self.storage, snapshot) if has_buckets else None,
            drops_stored=job.dup_policy != "none",
            drops_new=job.operation is Operation.DELETE,
        )
        with report.step("tag") as counted:
            # A merge by clauses looks up no keys in a bucket index: the hash says where a stored row would be.
            meets = job.prepare.is_global or self._merge is not None
            units: Sequence[TagUnit] = ()
            if job.prepare.is_global:
                units = self._plan_global_units(job, snapshot, staged)
            elif not (meets and has_buckets):
                units = plan_units(
                    rows_by_partition(staged),
                    slices,
                    keys=keys,
                    sizing=None if meets else sizing,
                    closed_groups=closed,
                    unit_bytes=self._unit_bytes,
                    append_rules=append_rules,
                    logs_of=partial(logs_with_keys, snapshot),
                    deleting_of=deleting,
                    index=self._open_record_index(staged, snapshot, job),
                    decides=decides_partition(snapshot),
                )
            results = self._tag(units, staged, snapshot, job, counted)
            tags = tag_files_by_stage(len(staged), units, results)
            tagged = TaggedStage(staged, tags, units, results, job.prepare)
            if meets:
                tagged = self._resolve(tagged, snapshot, schema, job, sizing, keys.hashing, counted)
                keys = KeyUse(looks_up=True, hashing=keys.hashing)  # The duplicate policy has been applied.
        with report.step("profile") as counted:
            plan = plan_routes(
                rows_by_partition(tagged.stage_tasks),
                tagged.units,
                tagged.results,
                slices,
                sizing,
                closed,
                job.write_id,
                append_rules,
                keys,
                partial(make_bucket_id, job),
                deleting,
            )
            if sizing is not None:
                counted["row_bytes"] = round(sizing.row_bytes, 1)
        return tagged, plan

    def _open_record_index(
        self, staged: Sequence[StagedTask], snapshot: Snapshot, job: WriteJob
    ) -> MetadataTable | None:
        """Open the metadata table if the keys are looked up in it; None if files are searched."""
        if not job.needs_tagging:
            return None
        return open_for_auto(self.storage, snapshot, job.index_settings, rows_by_partition(staged))

    def _tag(
        self,
        units: Sequence[TagUnit],
        staged: Sequence[StagedTask],
        snapshot: Snapshot,
        job: WriteJob,
        counted: dict[str, Any],
    ) -> Sequence[TagResult]:
        if job.needs_tagging and (asked := open_stored_filters(self.storage, snapshot, job.index_settings)):
            units = [replace(unit, filters=asked) for unit in units]
        weights = [sum(piece.size_bytes for piece in unit.slices) for unit in units]
        tasks = assign_to_tasks(weights, task_weight=_TAG_TASK_BYTES, at_least=self.runner.least_tasks)
        results = self.runner.tag(units, tasks, staged) if units else []
        counted.update(TagCounts.total(result.counts for result in results))
        counted["units"] = len(units)
        if job.dup_policy != "none":
            counted["dropped"] = sum(result.located for result in results)
        if job.dup_policy == "fail":
            _refuse_stored_keys(units, results)
        return results

    def _plan_global_units(
        self, job: WriteJob, snapshot: Snapshot, staged: Sequence[StagedTask]
    ) -> tuple[TagUnit, ...]:
        settings = job.index_settings
        if settings.type.trusts_record_index and job.needs_tagging and snapshot.live.count:
            index = open_record_index(self.storage, snapshot, settings)
            if not isinstance(index, str):
                return plan_index_units(
                    [*snapshot.each_slice()],
                    [task.rows for task in staged],
                    index,
                    exact=settings.exact or self._merge is not None,
                    logs_of=partial(logs_with_keys, snapshot),
                    deleting_of=partial(find_deleting_slices, self.storage, snapshot),
                )
            warn_not_used(self.storage, index)
        return plan_global_units(
            [*snapshot.each_slice()] if job.needs_tagging else [],
            unit_bytes=self._unit_bytes,
            logs_of=partial(logs_with_keys, snapshot),
            deleting_of=partial(find_deleting_slices, self.storage, snapshot),
        )

    def _resolve(
        self,
        tagged: TaggedStage,
        snapshot: Snapshot,
        schema: pa.Schema,
        job: WriteJob,
        sizing: FileSizing | None,
        hashing: TableBuckets | None,
        counted: dict[str, Any],
    ) -> TaggedStage:
        """Let tasks bring the rows of each key together, and assign them to partitions."""
        pieces = list_found_slices(tagged, snapshot) if hashing is None else list_hashed_slices(tagged, snapshot)
        settings = ResolveSettings(
            job,
            RoutingSettings.of(job, schema, may_move=self._merge is None),
            pieces,
            snapshot.columns(self.storage.location) if pieces else pa.schema([]),
            0 if sizing is None else max(1, sizing.rows_of_new_file // _SAMPLES_PER_FILE),
            None if self._merge is None else self._merge.filter_inserts,
            hashing,
        )
        staged = tuple(tagged.stage_tasks)
        rows, size = sum(task.rows for task in staged), sum(task.size_bytes for task in staged)
        tasks = max(min(self.runner.least_tasks, rows), -(-size // _RESOLVE_TASK_BYTES))
        resolved = self.runner.resolve(ResolveTasks(staged, tagged.tag_files, tasks, settings)) if rows else []
        if repeated := sum(task.repeated for task in resolved):
            example = next(task.example for task in resolved if task.repeated)
            raise repeated_keys_error(repeated, example, self.context, self._merge_source)
        counted["moved"] = sum(task.moved for task in resolved)
        is_widened = any(task.is_widened for task in resolved)
        return join_resolved(resolved, settings.widened if is_widened else job.prepare)

    def _sizing(self, staged: Sequence[StagedTask], schema: pa.Schema, job: WriteJob) -> FileSizing | None:
        if job.operation is Operation.DELETE or job.index_settings.has_buckets:
            return None
        if self._merge is not None and not self._merge.unmatched:
            return None
        settings = job.files(schema)
        for task in staged[:1]:
            batch = next(read_staged_batches(self.storage, task, task.runs[0].partition_path))
            sample = pa.Table.from_batches([batch.slice(0, _SAMPLE_ROWS)])
            try:
                row_bytes = measure_row_bytes(sample, np.arange(sample.num_rows), settings)
            except SchemaMismatchError:  # Values of a merge's source need not fit the table, so they cannot be encoded.
                row_bytes = max_encoded_bytes(sample, 1, len(schema)) / 2
            return file_sizing(job.options, row_bytes, encoded_bytes(sample.slice(0, 0), settings))
        return None


def _refuse_stored_keys(units: Sequence[TagUnit], results: Sequence[TagResult]) -> None:
    """Raise `DuplicateKeyError` if a unit has found a key of the input in the table."""
    for unit, result in zip(units, results, strict=True):
        if result.located:
            raise stored_keys_error(sum(each.located for each in results), result.example, unit.partition_path)
