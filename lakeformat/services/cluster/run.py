"""Scheduling, running and cancelling clusterings (Hudi: ``SparkExecuteClusteringCommitActionExecutor``).

The lock is held to plan and to publish, not while files are rewritten. Other writers may commit meanwhile, but not to
the file groups of the plan. `ClusterSession.cluster` plans and runs at once; if it fails, it removes its plan. A plan
that was scheduled separately stays on the timeline if its run fails, so that it can be run again. Such a plan is
removed only by `ClusterSession.cancel`, or by a run that finds that files of the plan have changed, because then the
plan can never be run.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from typing import Final, TypeAlias

import pyarrow as pa

from lakeformat.codec.json_text import parse_json
from lakeformat.codec.timeline_files.service_plans import encode_clustering
from lakeformat.config.clustering_options import (
    LAYOUT_STRATEGY,
    PLAN_CLASS,
    SORT_BUFFER,
    SORT_COLUMNS,
    TARGET_FILE_BYTES,
    UNLIMITED_BYTES,
)
from lakeformat.config.resolve import Options
from lakeformat.errors import (
    CorruptTableError,
    InvalidInputError,
    InvalidOptionError,
    UnsupportedTableError,
    WriteConflictError,
)
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.hashing_rings import load_rings, uses_consistent_hashing
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.base_file import FileSettings
from lakeformat.index.bucket import has_bucket_files
from lakeformat.layout import CurveStrategy
from lakeformat.model.instant import REPLACE_ACTIONS, Action, Instant
from lakeformat.model.operation import Operation
from lakeformat.model.service_plans import ClusteringPlan
from lakeformat.services.cluster.local_rewriter import Group, load_groups, rewrite_in_process
from lakeformat.services.cluster.plan import ClusterLimits, PartitionChoice, plan_clustering
from lakeformat.services.cluster.resize import Resizing, check_rings, load_resizing, new_groups_of
from lakeformat.services.cluster.resize_plan import ResizeLimits, is_resizing, plan_resizing
from lakeformat.services.cluster.settings import (
    Ordering,
    RewriteSettings,
    ordering_of_options,
    ordering_of_plan,
    plan_params,
    target_of_plan,
)
from lakeformat.services.plan_sources import name_clustered_sources
from lakeformat.services.scheduled_service import (
    ScheduledService,
    find_newest_schema_text,
    list_planned_groups,
    not_pending_error,
)
from lakeformat.storage.port import Storage, own_path
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.commit.hooks import Hooks
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.claims import keep_alive
from lakeformat.transaction.order.outcome import Outcome
from lakeformat.transaction.order.written_file import WrittenFile, count_copies, stage_folder
from lakeformat.transaction.undo.rollback import roll_back
from lakeformat.write.plan.job import index_settings, rewrite_job
from lakeformat.write.session import WriteSession
from lakeformat.write.workload.buckets import derive_file_id

__all__ = [
    "ClusterRequest",
    "ClusterSession",
    "Rewriter",
    "find_clustering_params",
    "find_stale_reason",
    "index_binds_rows",
    "list_pending_clusterings",
    "make_cluster_request",
    "may_be_clustering",
    "write_clustering_note",
]

_NOTE: Final = own_path("clustered")
#: Maximum number of archived clusterings whose parameters are recorded in lakeformat's folder.
_MOST_NOTED: Final = 200


def list_pending_clusterings(store: TimelineStore, timeline: Timeline) -> dict[str, tuple[Instant, ClusteringPlan]]:
    """Return a mapping of instant time to instant and plan, for every pending clustering, oldest first."""
    plans = {}
    for instant in timeline.pending:
        if instant.action in REPLACE_ACTIONS:
            requested = store.read_requested_replace(instant)
            if requested is not None and requested.plan is not None:
                plans[instant.time] = instant, requested.plan
    return plans


def find_stale_reason(plan: ClusteringPlan, snapshot: Snapshot, store: TimelineStore) -> str | None:
    """Return why a plan can no longer be run; None if its slices are unchanged in the table.

    A log file that no commit names is not a change: it comes from a rollback, or from a writer that died or still runs.
    Under consistent hashing, Hudi writes rows of a bucket that is to be resized also to its new buckets, where they
    count once the plan was run (Hudi: ``SparkConsistentBucketDuplicateUpdateStrategy``). Such a write does not count.
    """
    live = {piece.group: piece for piece in snapshot.each_slice()}
    new_groups = new_groups_of(plan, "to run") if is_resizing(plan) else {}
    later: set[str] = set()
    for source in (planned for group in plan.groups for planned in group.slices):
        piece = live.get(source.group)
        path_of = {str(log.name): log.path for log in piece.logs} if piece else {}
        if piece is None or (str(piece.base.name) if piece.base else "") != source.name:
            return f"was planned for {source.name or source.file_id}, which is not the table's any more"
        missing = next((name for name in source.log_names if name not in path_of), None)
        if missing is not None:
            return f"was planned for {missing}, which is not the table's any more"
        later.update(path for name, path in path_of.items() if name not in source.log_names)
    commits = (store.read_commit(instant) for instant in snapshot.timeline.commits) if later else ()
    for commit in commits:
        groups = {stat.group for stat in commit.all_stats()}
        written = next(
            (
                stat.path
                for stat in commit.all_stats()
                if stat.path in later and groups.isdisjoint(new_groups.get(stat.group, ()))
            ),
            None,
        )
        if written is not None:
            return f"was planned before {written} was written to its file groups"
    return None


def find_clustering_params(store: TimelineStore, timeline: Timeline, instant_time: str) -> Mapping[str, str] | None:
    """Return the parameters of the clustering with this instant time; None if there is none or they are unknown."""
    instant = timeline.find(instant_time)
    if instant is None:
        return _read_note(store.storage).get(instant_time)
    if instant.action not in REPLACE_ACTIONS:
        return None
    requested = store.read_requested_replace(instant)
    return requested.plan.params if requested is not None and requested.plan is not None else None


def write_clustering_note(store: TimelineStore, timeline: Timeline, instants: Iterable[Instant]) -> None:
    """Record the parameters of the clusterings among ``instants`` in a file, because their plans will be archived.

    The file is in lakeformat's folder and keeps the newest `_MOST_NOTED` clusterings. From it, later plans see which
    data files were written by a clustering with the same parameters, and do not rewrite these. If it is lost, data
    files may be rewritten once more.
    """
    params_of = {
        instant.time: dict(params)
        for instant in instants
        if instant.action in REPLACE_ACTIONS
        and (params := find_clustering_params(store, timeline, instant.time)) is not None
    }
    if params_of:
        noted = {**_read_note(store.storage), **params_of}
        newest = dict(sorted(noted.items())[-_MOST_NOTED:])
        store.storage.replace(_NOTE, json.dumps(newest).encode())


def _read_note(storage: Storage) -> dict[str, dict[str, str]]:
    try:
        note = parse_json(storage.read(_NOTE))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    return {time: params for time, params in note.items() if isinstance(params, dict)} if type(note) is dict else {}


def may_be_clustering(store: TimelineStore, instant: Instant) -> bool:
    """Tell whether a pending instant is a clustering, or may be one because its plan cannot be read."""
    if instant.action not in REPLACE_ACTIONS:
        return False
    try:
        requested = store.read_requested_replace(instant)
    except CorruptTableError:
        return True
    return requested is not None and requested.plan is not None


_LOG: Final = logging.getLogger("lakeformat.services")
_INDEX: Final = "hoodie.index.type"
_ROW_GROUP: Final = "lakeformat.parquet.row.group.rows"
#: Maximum number of rows in a row group of sorted files, unless `lakeformat.parquet.row.group.rows` is set.
_ORDERED_GROUP_ROWS: Final = 16_384

#: Function that rewrites groups, in this or other processes. It returns the new files in the staging folder.
Rewriter: TypeAlias = Callable[[TableContext, Sequence[Group], RewriteSettings], Sequence[WrittenFile]]


@dataclass(frozen=True, slots=True)
class ClusterRequest:
    """What a caller wants clustered: the partitions, the files, and the order of their rows."""

    ordering: Ordering
    choice: PartitionChoice
    limits: ClusterLimits


def make_cluster_request(
    options: Options,
    by: Sequence[str] | str | None = None,
    curve: str | None = None,
    partitions: Sequence[str] | str | None = None,
    target_file_bytes: int | None = None,
) -> ClusterRequest:
    """Return the request for the arguments of `lakeformat.Table.cluster`; the options replace missing arguments.

    Raises:
        InvalidInputError: the curve does not exist or has no columns, no partition is named, or the size is below 1.
    """
    columns = (by,) if isinstance(by, str) else by
    several = columns is not None and len(columns) > 1
    ordering = ordering_of_options(options, columns, curve, chosen=CurveStrategy.HILBERT if several else None)
    if curve is not None and not ordering.columns:
        raise InvalidInputError(f"curve={curve!r} needs columns to sort by; give by=..., or set {SORT_COLUMNS}")
    choice = PartitionChoice.of_options(options)
    if partitions is not None:
        if not partitions:
            raise InvalidInputError("no partition is named; give partition paths, or leave partitions out for all")
        choice = PartitionChoice(named=(partitions,) if isinstance(partitions, str) else tuple(partitions))
    limits = ClusterLimits.of_options(options, everything=bool(columns), sorts=bool(ordering.columns))
    if target_file_bytes is not None:
        if target_file_bytes < 1:
            raise InvalidInputError(f"target_file_bytes={target_file_bytes} is not a size; give bytes from 1 up")
        limits = replace(limits, target_file_bytes=target_file_bytes)
    return ClusterRequest(ordering, choice, limits)


def index_binds_rows(storage: Storage, options: Options, snapshot: Snapshot) -> bool:
    """Tell whether the table has a bucket index whose buckets, its file groups, never change."""
    write_options = options.write
    is_new = write_options.index.has_buckets and not write_options.is_consistent
    return (is_new or has_bucket_files(snapshot.each_slice())) and not uses_consistent_hashing(storage)


class ClusterSession:
    """Schedules, runs and cancels clusterings of one table.

    Raises from the constructor:
        UnsupportedTableError, TableNotFoundError: the table cannot be written to.
    """

    def __init__(
        self, context: TableContext, options: Options, rewriter: Rewriter | None = None, hooks: Hooks | None = None
    ) -> None:
        snapshot = context.writable_snapshot()
        self.context, self._rewriter = context, rewriter or rewrite_in_process
        # Drop the batch id of the preceding write. With it, this commit would be skipped as a repeat of that batch.
        self.options = options.with_values(**{"lakeformat.batch.app": None, "lakeformat.batch.id": None})
        job = rewrite_job(snapshot, self.options, Operation.CLUSTER, context.ids.token())
        self.session = WriteSession(context, job, hooks or Hooks())
        self.service = ScheduledService(self.session.transaction, "clustering")

    # --- planning -------------------------------------------------------------------------------------

    def plan(self, snapshot: Snapshot, request: ClusterRequest) -> ClusteringPlan | None:
        """Plan the requested clustering for the snapshot. Return None if no file group is worth rewriting.

        Raises:
            InvalidOptionError: the table's index finds rows by their file ids, which clustering changes, or the options
                name a plan strategy that does not fit the table's index.
        """
        is_consistent = uses_consistent_hashing(self.context.storage)
        self._check_index(snapshot, is_consistent=is_consistent)
        store, location = self.context.store, self.context.storage.location
        ordering = request.ordering
        ordering.check(snapshot.columns(location))
        if not ordering.columns and ordering.strategy is not CurveStrategy.LINEAR:
            strategy = f"{LAYOUT_STRATEGY}={ordering.strategy.value}"
            _LOG.warning("%s sorts nothing without columns; set %s", strategy, SORT_COLUMNS)
        if is_consistent:
            return self._plan_resizing(snapshot, request)
        return plan_clustering(
            snapshot.slices,
            list_planned_groups(store, snapshot.timeline),
            request.choice,
            request.limits,
            plan_params(ordering, request.limits.target_file_bytes),
            location,
            cache(partial(find_clustering_params, store, snapshot.timeline)),
        )

    def _plan_resizing(self, snapshot: Snapshot, request: ClusterRequest) -> ClusteringPlan | None:
        """Plan which buckets are split and merged, in a table with consistent hashing."""
        store, storage, ordering = self.context.store, self.context.storage, request.ordering
        sorts, numbers = bool(ordering.columns), count()
        params = {key: value for key, value in plan_params(ordering, 0).items() if key != TARGET_FILE_BYTES}
        return plan_resizing(
            snapshot.slices,
            load_rings(storage, snapshot, request.choice.choose(snapshot.slices)),
            list_planned_groups(store, snapshot.timeline),
            {group.partition_path for group in store.read_clustering_groups(snapshot.timeline)},
            request.choice,
            ResizeLimits.of_options(self.options, request.limits, sorts=sorts),
            params,
            storage.location,
            lambda: derive_file_id(f"{self.session.job.write_id}/bucket", 0, next(numbers)).removesuffix("-0"),
            cache(partial(find_clustering_params, store, snapshot.timeline)),
        )

    def _check_index(self, snapshot: Snapshot, *, is_consistent: bool) -> None:
        if self.options.clustering.is_consistent != is_consistent and self.options.is_set(PLAN_CLASS):
            what = "has" if is_consistent else "does not have"
            raise InvalidOptionError(
                f"{PLAN_CLASS} names a strategy that does not fit: {self.context.storage.location} {what} consistent "
                "hashing; leave the option out"
            )
        if not is_consistent and index_binds_rows(self.context.storage, self.options, snapshot):
            raise InvalidOptionError(
                f"{_INDEX}=BUCKET finds rows by the names of their files, which clustering changes; such a table "
                "cannot be clustered; cancel a planned clustering with cancel_clustering()"
            )

    def schedule(self, request: ClusterRequest) -> str | None:
        """Write a plan to the timeline for a later run. Return its instant time; None if there is nothing to do."""
        return self.service.plan_again(lambda: self._schedule(request))

    def _schedule(self, request: ClusterRequest) -> str | None:
        with self.session.transaction.hold_lock():
            snapshot = self.context.snapshot()
            plan = self.plan(snapshot, request)
            if plan is None or (is_resizing(plan) and self._is_written(snapshot)):
                return None
            commit = self.service.begin(snapshot.timeline, self._encode(plan))
            self.service.release(commit)
        _LOG.info("clustering %s scheduled: %d file groups", commit.time, len(plan.file_groups))
        return commit.time

    def _encode(self, plan: ClusteringPlan) -> bytes:
        return encode_clustering(name_clustered_sources(self.context.storage, plan))

    def _is_written(self, snapshot: Snapshot) -> bool:
        """Tell whether a write is running: it may not know of a plan, which Hudi would then run without its rows.

        Source: Hudi's ``BaseConsistentHashingBucketClusteringPlanStrategy.checkPrecondition``.
        """
        running = [instant.time for instant in snapshot.timeline.pending if instant.action is Action.DELTA_COMMIT]
        if running:
            location = self.context.storage.location
            _LOG.warning("%s: no buckets are planned to be resized while write %s is running", location, running[0])
        return bool(running)

    # --- running --------------------------------------------------------------------------------------

    def cluster(self, request: ClusterRequest) -> WriteResult:
        """Plan a clustering and run it.

        Raises:
            WriteConflictError: another writer changed the files meanwhile; the plan is removed too.
        """
        with ExitStack() as life:
            snapshot, begun = self.service.plan_again(lambda: self._begin(request, life))
            if begun is None:
                return self.session.transaction.skip(snapshot, "no file groups are worth rewriting")
            commit, plan = begun
            with self.service.undo_on_failure(commit, keeps_plan=False):
                target = UNLIMITED_BYTES if is_resizing(plan) else request.limits.target_file_bytes
                return self._execute(commit, plan, snapshot, request.ordering, target)

    def _begin(
        self, request: ClusterRequest, life: ExitStack
    ) -> tuple[Snapshot, tuple[OpenCommit, ClusteringPlan] | None]:
        """Plan a clustering and start it. Return the snapshot, and the commit and plan if there is something to do.

        Args:
            life: the block in which the run is kept alive.
        """
        transaction = self.session.transaction
        with transaction.report.step("plan") as counted, transaction.hold_lock():
            snapshot = self.context.snapshot()
            plan = self.plan(snapshot, request)
            if plan is None:
                return snapshot, None
            commit = self.service.start(
                self.service.begin(snapshot.timeline, self._encode(plan)),
                keeps_plan=False,
            )
            life.enter_context(keep_alive(self.context.storage, commit.time))
            counted.update(groups=len(plan.groups), files=len(plan.file_groups))
        return snapshot, (commit, plan)

    def run(self, instant_time: str | None = None) -> WriteResult:
        """Run a pending plan, made by this or another writer; by default the oldest that can be run.

        Raises:
            InvalidInputError: no plan of this time is pending.
            WriteConflictError: another process is running the plan; or the plan's files have changed since it was made,
                and the plan was rolled back.
            UnsupportedTableError: the plan needs an execution class that lakeformat does not implement.
        """
        with ExitStack() as life:
            with (
                self.session.transaction.report.step("plan") as counted,
                self.session.transaction.hold_lock(kept_plan=instant_time),
            ):
                snapshot = self.context.snapshot()
                claimed = self._claim_plan(snapshot, instant_time)
                if claimed is not None:
                    commit, (plan, ordering) = claimed
                    life.enter_context(keep_alive(self.context.storage, commit.time))
                    counted.update(groups=len(plan.groups), files=len(plan.file_groups))
            if claimed is None:
                return self.session.transaction.skip(snapshot, "no clustering is pending")
            with self.service.undo_on_failure(commit, keeps_plan=True):
                return self._execute(commit, plan, snapshot, ordering, target_of_plan(plan, self.options))

    def _claim_plan(
        self, snapshot: Snapshot, instant_time: str | None
    ) -> tuple[OpenCommit, tuple[ClusteringPlan, Ordering]] | None:
        """Claim and start the plan of ``instant_time``; if that is None, the oldest plan that can be run.

        Return the started commit, the plan and the order of its rows; None if no plan is pending. If no plan can be
        run, raise the error of the oldest.
        """
        pending = list_pending_clusterings(self.context.store, snapshot.timeline)

        def check(instant: Instant, plan: ClusteringPlan) -> tuple[ClusteringPlan, Ordering]:
            self._check_plan(instant, plan, snapshot)
            ordering = ordering_of_plan(plan, self.options, instant.time)
            ordering.check(snapshot.columns(self.context.storage.location))
            self._check_live(instant, plan, snapshot)
            return plan, ordering

        return self.service.claim_one(pending, instant_time, snapshot.timeline, check)

    def _check_plan(self, instant: Instant, plan: ClusteringPlan, snapshot: Snapshot) -> None:
        """Check that the plan fits the table's index.

        Raises:
            InvalidOptionError, UnsupportedTableError: it does not.
        """
        storage = self.context.storage
        is_consistent = uses_consistent_hashing(storage)
        self._check_index(snapshot, is_consistent=is_consistent)
        if is_consistent != is_resizing(plan):
            why = "would move rows out of their buckets" if is_consistent else "is for a table with consistent hashing"
            raise UnsupportedTableError(f"clustering {instant.time} of {storage.location} {why}; cancel it")
        if is_consistent:
            check_rings(storage, snapshot, plan, instant.time)

    def _check_live(self, instant: Instant, plan: ClusteringPlan, snapshot: Snapshot) -> None:
        """Check that the plan's files are still live. If not, roll the plan back and raise the error.

        Raises:
            WriteConflictError: another writer wrote to the plan's file groups although the plan was pending.
        """
        stale = find_stale_reason(plan, snapshot, self.context.store)
        if stale is not None:
            roll_back(self.context.store, self.session.job.config, self.context.clock, instant)
            raise WriteConflictError(f"clustering {instant.time} {stale}; it was rolled back: schedule another")

    def _execute(
        self, commit: OpenCommit, plan: ClusteringPlan, snapshot: Snapshot, ordering: Ordering, target_bytes: int
    ) -> WriteResult:
        session, options = self.session, self.options
        location = self.context.storage.location
        schema = snapshot.columns(location)
        resizing = self._load_resizing(commit, plan, snapshot)
        settings = RewriteSettings(
            commit.time,
            session.job.write_id,
            stage_folder(session.job.write_id),
            self._files(schema, ordering, target_bytes),
            ordering,
            options[SORT_BUFFER],
            copies_groups=options.write.copy_row_groups,
            file_ids=resizing.file_ids,
        )
        groups = resizing.groups if is_resizing(plan) else load_groups(plan, snapshot)
        with session.transaction.report.step("rewrite") as counted:
            written = self._rewriter(self.context, groups, settings)
            order = ordering.strategy.value if ordering.columns else "none"
            counted.update(order=order, files=len(written), **count_copies(written))
        with session.transaction.hold_lock():
            self.service.check_claim(commit)
            with session.transaction.report.step("place") as counted:
                placed = session.place_files(commit, written)
                counted["files"] = len(placed)
            replaced: dict[str, tuple[str, ...]] = {}
            for group in plan.file_groups:
                replaced[group.partition_path] = (*replaced.get(group.partition_path, ()), group.file_id)
            # Publish the newest table schema: another write may have changed it since the plan's snapshot.
            now = self.context.snapshot()
            text, columns = find_newest_schema_text(self.context, now), now.columns(location)
            outcome = Outcome(
                schema=columns,
                written=placed,
                snapshot=snapshot,
                replaced=replaced,
                schema_text=text,
                files_schema=schema,
                rings=resizing.rings,
            )
            session.transaction.publish(commit, outcome)
            return session.transaction.close(commit)

    def _load_resizing(self, commit: OpenCommit, plan: ClusteringPlan, snapshot: Snapshot) -> Resizing:
        if not is_resizing(plan):
            return Resizing()
        settings = index_settings(snapshot.config, self.options)
        return load_resizing(self.context.storage, snapshot, plan, commit.time, settings)

    def _files(self, schema: pa.Schema, ordering: Ordering, target_bytes: int) -> FileSettings:
        """Return the settings of the new files.

        Sorted files get small row groups, so that a filter can skip parts of a file.
        """
        files = replace(self.session.job.files(schema), max_file_bytes=target_bytes)
        if not ordering.columns or self.options.is_set(_ROW_GROUP):
            return files
        return replace(files, row_group_rows=_ORDERED_GROUP_ROWS)

    def cancel(self, instant_time: str) -> None:
        """Remove a pending clustering plan from the timeline.

        Raises:
            InvalidInputError: no plan of this time is pending.
            WriteConflictError: the plan is running.
        """
        with self.session.transaction.hold_lock(kept_plan=instant_time):
            store = self.context.store
            pending = {instant.time: instant for instant in store.load().pending if may_be_clustering(store, instant)}
            if instant_time not in pending:
                raise not_pending_error(self.service.name, instant_time, pending)
            if claims.read_claim(self.context.storage, instant_time) is not None:
                raise self.service.runs_elsewhere_error(pending[instant_time])
            roll_back(store, self.session.job.config, self.context.clock, pending[instant_time])
