"""The write path with its effects, step by step: tag, profile, buckets, handles, publish.

Plain Python and Spark's ``commit()`` both end here. The lock is held from the first look at the timeline to the
completed file; a writer that dies is rolled back by the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from lakeformat.errors import CommitStateUnknownError, LakeformatError, WriteConflictError
from lakeformat.files.base_file import ROW_GROUP_ROWS
from lakeformat.keys.partition_paths import matching_partitions
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import FileGroupId
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.timeline.report import Report, progress
from lakeformat.transaction.batch_ids import batch_of, last_batches
from lakeformat.transaction.callbacks import CommitMessage, notify
from lakeformat.transaction.claims import PROCESS
from lakeformat.transaction.commit import CommitProtocol, NewKeyCheck, OpenCommit
from lakeformat.transaction.heartbeat import alive
from lakeformat.transaction.hooks import Hooks, hooks_of
from lakeformat.transaction.markers import announce, prepare_partition
from lakeformat.transaction.result import WriteResult
from lakeformat.transaction.rollback import recover
from lakeformat.transaction.written import Written, stage_folder
from lakeformat.write.buckets import Bucket
from lakeformat.write.handles import HandleSettings, create, merge
from lakeformat.write.job import Operation, WriteJob
from lakeformat.write.late_check import late_check
from lakeformat.write.profile import BucketPlan, check_opened, false_positives, plan_buckets, workload_profile
from lakeformat.write.publish import Publication
from lakeformat.write.repack import choose_small, read_back

__all__ = ["AFTER_TASKS", "WriteSession"]

_LOG: Final = logging.getLogger("lakeformat.write")
#: Number of the first bucket beside base files that tasks have written: names and sequence numbers must differ.
AFTER_TASKS: Final = 1 << 20


class WriteSession:
    """Runs one `WriteJob`."""

    def __init__(self, engine: Engine, job: WriteJob, hooks: Hooks | None = None) -> None:
        self.engine, self.job = engine, job
        self.hooks = hooks if hooks is not None else hooks_of(job.options)
        self._message: CommitMessage | None = None
        self.storage, self.store = engine.storage, engine.store
        self.protocol = CommitProtocol(engine.store, engine.clock)
        self.report = Report(engine.clock, job.operation.value)
        self._threads = max(1, pa.cpu_count())

    @contextmanager
    def locked(self, *, keeping: str | None = None) -> Iterator[None]:
        """Hold the table's lock, with what dead writers left cleared away; afterwards tell of what was published.

        Args:
            keeping: see `recover`.
        """
        wait = self.job.options["hoodie.write.lock.wait_time_ms"] / 1000
        with self.storage.lock(wait):
            recover(self.store, self.job.config, self.engine.clock, keeping=keeping)
            yield
        message, self._message = self._message, None
        if message is not None:
            notify(self.hooks.callbacks, message)

    def run_staged(
        self, rows: Mapping[str, pa.Table], arrived: int, known: frozenset[str] | None = None
    ) -> WriteResult:
        """Merge prepared rows into the table and publish.

        Args:
            rows: partition path -> prepared rows; taken from memory or from mapped stage files.
            arrived: rows of the input before anything was combined, for the report.
            known: commits completed when the user's write began; only overwrites look at it.

        Raises:
            WriteConflictError: after as many tries as the options allow.
        """
        once = True

        def attempt() -> WriteResult:
            nonlocal once
            seen, once = known if once else None, False  # A second try starts from what is there then.
            return self._staged(rows, arrived, seen)

        return self.retried(attempt)

    def run_delete_partitions(self, of_rows: frozenset[str], arrived: int) -> WriteResult:
        """Hide all file groups of some partitions: a commit that writes no data (Hudi: ``DELETE_PARTITION``).

        Args:
            of_rows: partition paths of the input's rows; what the options name goes before.
            arrived: rows of the input, for the report.

        Raises:
            InvalidInputError: a path is none, or none of them is there.
            WriteConflictError: after as many tries as the options allow.
        """
        return self.retried(lambda: self._delete_partitions(of_rows, arrived))

    def retried(self, attempt: Callable[[], WriteResult]) -> WriteResult:
        """Run under the lock, and again after a conflict, as often as the options allow.

        Raises:
            WriteConflictError: the last try's.
        """
        tries = 1 + self.job.options["hoodie.write.num.retries.on.conflict.failures"]
        while True:
            tries -= 1
            try:
                with self.locked():
                    return attempt()
            except WriteConflictError as error:
                if not tries:
                    raise
                _LOG.warning("%s; trying again, %d tries left", error, tries)
                self.report = Report(self.engine.clock, self.job.operation.value)

    def _delete_partitions(self, of_rows: frozenset[str], arrived: int) -> WriteResult:
        snapshot = self.engine.snapshot()
        if (skipped := self.skipped(snapshot)) is not None:
            return skipped
        schema = self.job.final_schema(snapshot)
        with self.report.step("match") as counted:
            named = self.job.named_partitions
            found, unmatched = matching_partitions(
                named or sorted(of_rows), snapshot.by_partition, wildcards=bool(named)
            )
            counted.update(partitions=len(found), unmatched=list(unmatched))
        if unmatched:
            _LOG.warning("no partition matches %s", ", ".join(unmatched))
        commit = self.begin(snapshot.timeline.commit_times)
        with self.running(commit):
            self.report.rows["incoming"] = arrived
            commit = self.inflight(commit, workload_profile(self.job.operation, (), ()), snapshot, found)
            self.finish(commit, schema, (), snapshot, found, None)
        self.protocol.tidy(commit)
        return self.result(commit)

    def skipped(self, snapshot: Snapshot) -> WriteResult | None:
        """The answer to a batch that is in the table already, None for all else. Call it under the lock."""
        batch = batch_of(self.job.options)
        last = last_batches(self.store, snapshot.timeline).get(batch.app) if batch else None
        if batch is None or last is None or batch.id > last:
            return None
        why = f"batch {batch.id} of {batch.app!r} is in the table already, its last one is {last}"
        result = WriteResult(snapshot.instant_time or "", self.job.operation.value, self.report.as_dict(), why)
        _LOG.info("%s", result)
        return result

    def begin(self, known: frozenset[str], *, lives_by: str = PROCESS) -> OpenCommit:
        """Take the instant, of a write that starts from these commits. Call it under the lock.

        Of a claim that lives by its process, `alive` must begin before the lock goes.
        """
        return self.protocol.begin(
            self.job.config, self.job.operation.action, known, token=self.job.write_id, lives_by=lives_by
        )

    def _staged(self, rows: Mapping[str, pa.Table], arrived: int, known: frozenset[str] | None) -> WriteResult:
        snapshot = self.engine.snapshot()
        if (skipped := self.skipped(snapshot)) is not None:
            return skipped
        schema = self.job.final_schema(snapshot)
        if known is None or not self.job.operation.overwrites:
            known = snapshot.timeline.commit_times
        commit = self.begin(known)
        with self.running(commit):
            self.report.rows["incoming"] = arrived
            plan = plan_buckets(self.storage, self.job, rows, snapshot, schema, self.report)
            overwritten = self.overwritten(plan.rows, snapshot)
            profile = workload_profile(self.job.operation, plan.buckets, ())
            commit = self.inflight(commit, profile, snapshot, overwritten)
            handles = self.job.handles(commit.time, schema)
            with self.report.step("write") as counted:
                written = self.handle(plan, handles)
                counted.update(buckets=len(plan.buckets), **false_positives(self.job, written))
            check = late_check(self.storage, self.job, plan)
            self.finish(commit, schema, written, snapshot, overwritten, check)
        self.protocol.tidy(commit)
        return self.result(commit)

    @contextmanager
    def running(self, commit: OpenCommit) -> Iterator[None]:
        """Show life while the block runs, under the lock, and roll back whatever it leaves if it raises.

        An unknown outcome stays as it is.
        """
        with alive(self.storage, commit.time):
            try:
                yield
            except CommitStateUnknownError:
                raise
            except BaseException:
                with suppress(LakeformatError, OSError):  # The next writer will do it.
                    self.protocol.undo(self.job.config, commit)
                raise

    def inflight(
        self,
        commit: OpenCommit,
        profile: CommitMetadata,
        snapshot: Snapshot,
        overwritten: Iterable[str] | None = None,
        *,
        is_certain: bool = True,
    ) -> OpenCommit:
        """The second step, when it is known which file groups the write touches, and before they are rewritten.

        Args:
            overwritten: partitions whose file groups are replaced.
            is_certain: False if the write may turn out to change nothing in the file groups of the profile.

        Raises:
            WriteConflictError: a pending clustering has one of them.
        """
        touched = {FileGroupId(one.partition_path, one.file_id) for one in profile.all_stats() if one.file_id}
        replaced = {file.group for path in overwritten or () for file in snapshot.by_partition.get(path, ())}
        self.protocol.check_plans(snapshot.timeline, frozenset(replaced | touched if is_certain else replaced))
        return self.protocol.inflight(commit, profile)

    # --- handles --------------------------------------------------------------------------------------

    def handle(self, plan: BucketPlan, handles: HandleSettings, first_task: int = 0) -> list[Written]:
        """Make every bucket a base file, as many at once as there are cores."""
        for partition in {bucket.partition_path for bucket in plan.buckets}:
            prepare_partition(self.storage, partition, handles.instant_time)

        handles = replace(handles, idle_cores=len(plan.buckets) < self._threads)

        def one(at: int) -> Written | None:
            bucket, task = plan.buckets[at], first_task + at
            path = handles.written_to(bucket, handles.file_name(bucket, task))
            announce(self.storage, handles.instant_time, path, merge=bucket.base is not None)
            rows = plan.rows[bucket.partition_path]
            if bucket.base is None:
                return create(self.storage, bucket, rows, task, handles)
            return merge(self.storage, bucket, bucket.base, rows, task, handles)

        # Large buckets first, so that no thread is left with one at the end.
        order = sorted(range(len(plan.buckets)), key=lambda at: -_weight(plan.buckets[at]))
        with ThreadPoolExecutor(self._threads) as pool:
            done = progress(pool.map(one, order), len(order), self.job.operation.value)
            return [written for written in done if written is not None]

    def place(self, commit: OpenCommit, written: Iterable[Written]) -> list[Written]:
        """Move tasks' finished base files into their partitions, each announced first."""
        placed: list[Written] = []
        known: set[str] = set()
        for file in written:
            if file.stat.partition_path not in known:
                prepare_partition(self.storage, file.stat.partition_path, commit.time)
                known.add(file.stat.partition_path)
            announce(self.storage, commit.time, file.stat.path, merge=file.stat.prev_commit is not None)
            self.storage.move(file.staged_path, file.stat.path)
            placed.append(replace(file, staged_path=file.stat.path))
        return placed

    def run_direct(
        self,
        commit: OpenCommit,
        written: Sequence[Written],
        tails: Mapping[str, pa.Table],
        arrived: int,
        seen: Snapshot | None = None,
    ) -> WriteResult:
        """Publish base files that are written already, and pack the rows that were too few for one.

        Call it under the lock; the caller undoes on failure. The stage folder goes in any case.

        Args:
            seen: the table as it was when the lock was taken, if the lock has been held since.
        """
        try:
            snapshot = seen or self.engine.snapshot()
            if (skipped := self.skipped(snapshot)) is not None:
                self.protocol.undo(self.job.config, commit)
                self.forget_stage()
                return skipped
            self._run_direct(commit, written, tails, arrived, snapshot)
        except BaseException:
            self.forget_stage()
            raise
        self.protocol.tidy(commit)
        return self.result(commit)

    def _run_direct(
        self,
        commit: OpenCommit,
        written: Sequence[Written],
        tails: Mapping[str, pa.Table],
        arrived: int,
        snapshot: Snapshot,
    ) -> None:
        schema = self.job.final_schema(snapshot)
        self.report.rows["incoming"] = arrived
        if self.job.joins:
            written, tails = self._repacked(written, tails, snapshot)
        plan = plan_buckets(self.storage, self.job, tails, snapshot, schema, self.report)
        check_opened(self.storage, snapshot, plan.buckets, written)
        partitions = {*plan.rows, *(file.stat.partition_path for file in written)}
        profile = workload_profile(self.job.operation, plan.buckets, [file.stat for file in written])
        commit = self.inflight(commit, profile, snapshot, self.overwritten(partitions, snapshot))
        with self.report.step("write") as counted:
            placed = self.handle(plan, self.job.handles(commit.time, schema), AFTER_TASKS)
            placed += self.place(commit, written)
            counted.update(placed=len(written), buckets=len(plan.buckets))
        partitions = {file.stat.partition_path for file in placed}
        self.finish(commit, schema, placed, snapshot, self.overwritten(partitions, snapshot), None)

    def publish_written(
        self,
        commit: OpenCommit,
        schema: pa.Schema,
        written: Sequence[Written],
        snapshot: Snapshot,
        overwritten: Iterable[str],
        check_new_keys: NewKeyCheck | None,
    ) -> WriteResult:
        """Move finished files into their partitions and publish. Call it under the lock; the caller undoes.

        Args:
            overwritten: partitions with rows of ours, for an overwrite of partitions.
        """
        with self.report.step("place") as counted:
            written = self.place(commit, written)
            counted["files"] = len(written)
        hidden = self.overwritten(overwritten, snapshot)
        self.finish(commit, schema, written, snapshot, hidden, check_new_keys)
        self.protocol.tidy(commit)
        return self.result(commit)

    def _repacked(
        self, written: Sequence[Written], tails: Mapping[str, pa.Table], snapshot: Snapshot
    ) -> tuple[Sequence[Written], Mapping[str, pa.Table]]:
        options = self.job.options
        with self.report.step("repack") as counted:
            chosen = choose_small(
                written,
                tails,
                snapshot,
                small_bytes=options["hoodie.parquet.small.file.limit"],
                at_most_bytes=options["lakeformat.write.buffer.bytes"],
            )
            counted.update(files=len(chosen), bytes=sum(file.stat.size_bytes for file in chosen))
            tails = read_back(self.storage, chosen, tails, self.job.prepare.prepared_schema)
        return [file for file in written if file not in chosen], tails

    # --- publish --------------------------------------------------------------------------------------

    def overwritten(self, partitions: Iterable[str], snapshot: Snapshot) -> frozenset[str] | None:
        """Partitions whose contents the write replaces, if it has rows for these; None if it replaces none."""
        match self.job.operation:
            case Operation.INSERT_OVERWRITE_TABLE:
                return frozenset({*snapshot.by_partition, *partitions})
            case Operation.INSERT_OVERWRITE:
                return frozenset(partitions)
            case _:
                return None

    def finish(
        self,
        commit: OpenCommit,
        schema: pa.Schema,
        written: Sequence[Written],
        snapshot: Snapshot,
        overwritten: frozenset[str] | None,
        check_new_keys: NewKeyCheck | None,
        **carried: Any,
    ) -> None:
        """Validate and publish with everything the commit carries; ``carried`` as of `Publication.finish`."""
        publication = Publication(self.engine, self.job, self.hooks, self.report, self.protocol)
        self._message = publication.finish(commit, schema, written, snapshot, overwritten, check_new_keys, **carried)

    def result(self, commit: OpenCommit) -> WriteResult:
        """What the caller gets once the commit is visible; also logged."""
        result = WriteResult(commit.time, self.job.operation.value, self.report.as_dict())
        _LOG.info("%s", result)
        return result

    def forget_stage(self) -> None:
        """Remove the write's stage folder; what fails here goes with a later write."""
        with suppress(LakeformatError, OSError):
            self.storage.delete_folder(stage_folder(self.job.write_id))


def _weight(bucket: Bucket) -> int:
    return (bucket.base.size_bytes if bucket.base else 0) + len(bucket.rows) * ROW_GROUP_ROWS // 1024
