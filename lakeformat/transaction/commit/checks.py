"""The checks that a commit must pass, directly before it becomes visible, beside what other writers have done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from lakeformat.codec.internal_schema import LATEST_SCHEMA, decode_internal_schema
from lakeformat.concurrency import run_all, run_both
from lakeformat.config.lock_options import LockSettings
from lakeformat.errors import WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.locks import excludes_writers
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import Instant
from lakeformat.storage.port import is_remote
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.commit.nested_partitions import check_nesting
from lakeformat.transaction.commit.pending_plans import check_pending_clusterings
from lakeformat.transaction.order.conflict import check_conflicts, check_opened_slices, reduce_compactions
from lakeformat.transaction.order.foreign_writes import (
    check_foreign_writes,
    find_running_writes,
    wait_for_begun_writes,
)
from lakeformat.transaction.order.outcome import Outcome

__all__ = ["CommitChecks", "Proposal", "read_other_writes"]

#: Maximum number of commits of other writers that are read at once.
_READ_THREADS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A commit that is to become visible.

    Attributes:
        metadata: its metadata, with the write stats.
        touched: file groups that the write changes or hides.
        opened: partitions in which the write makes file groups.
    """

    commit: OpenCommit
    metadata: CommitMetadata
    outcome: Outcome
    touched: frozenset[FileGroupId]
    opened: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Others:
    """What others have done since the write began.

    Attributes:
        timeline: the newest timeline.
        commits: (instant time, metadata) of their completed commits, compactions reduced to what concerns the write.
        running: running writes of other programs.
    """

    timeline: Timeline
    commits: Sequence[tuple[str, CommitMetadata]]
    running: Sequence[Instant]


class CommitChecks:
    """All checks of one commit.

    Args:
        lock: the settings of the table's lock.
    """

    def __init__(self, context: TableContext, lock: LockSettings, proposal: Proposal) -> None:
        self._context, self._lock, self._proposal = context, lock, proposal
        # Once: without a common lock it cannot be made sure anyway.
        self._looks_for_running = not lock.is_shared

    def run(self, timeline: Timeline) -> Timeline:
        """Run all checks on the newest timeline. Return it, or a newer one if the checks had to wait.

        Raises:
            WriteConflictError: the write must run again.
        """
        _check_base_files(self._context, self._proposal)
        others = self._find_others(timeline)
        for check in _CHECKS:
            check(self._context, self._proposal, others)
        for check in _CHECKS_BESIDE_COMMITS if others.commits else ():
            check(self._context, self._proposal, others)
        return others.timeline

    def _find_others(self, timeline: Timeline) -> _Others:
        store, commit, touched = self._context.store, self._proposal.commit, self._proposal.touched
        if excludes_writers(store.storage, self._lock) and wait_for_begun_writes(
            store, timeline, commit.time, touched, self._context.clock
        ):
            timeline = store.load()
        looks_for_running, self._looks_for_running = self._looks_for_running, False
        completed, running = read_other_writes(store, timeline, commit, looks_for_running=looks_for_running)
        by_name = not store.layout.has_completion_times
        commits = reduce_compactions(commit.time, self._proposal.metadata, completed, by_name=by_name)
        return _Others(timeline=timeline, commits=commits, running=running)


def read_other_writes(
    store: TimelineStore, timeline: Timeline, ours: OpenCommit, *, looks_for_running: bool
) -> tuple[list[tuple[str, CommitMetadata]], Sequence[Instant]]:
    """Read the commits that have completed since ours began, and find other programs' running writes.

    Without locks both is done at once: if another writer decides meanwhile, our turn is lost.

    Args:
        looks_for_running: whether to look for running writes.

    Returns:
        (instant time, metadata) of the commits, archived ones included; and the result of `find_running_writes`.
    """

    def read_commits() -> list[tuple[str, CommitMetadata]]:
        others = timeline.completed_since(ours.known)
        read = run_all(store.read_commit, others, threads=_READ_THREADS)
        writes = [(instant.time, metadata) for instant, metadata in zip(others, read, strict=True)]
        return writes + store.read_unseen_archived(timeline, ours.known)

    if not looks_for_running:
        return read_commits(), ()
    find = partial(find_running_writes, store, timeline, ours.time)
    return run_both(read_commits, find, at_once=is_remote(store.storage))


def _check_base_files(context: TableContext, proposal: Proposal) -> None:
    """Refuse a commit that has read a later one: files of the earlier instant would be hidden by what they contain."""
    bases = (stat.prev_commit or "" for stat in proposal.metadata.all_stats() if stat.is_base)
    newest, time = max((time for time in bases if time.isdigit()), default=""), proposal.commit.time
    if newest > time:
        raise WriteConflictError(
            f"commit {time} of {context.storage.location} has read commit {newest}, which began later and would hide "
            "it; run the write again"
        )


def _check_file_groups(_: TableContext, proposal: Proposal, others: _Others) -> None:
    """Refuse a commit if another one has changed the same file groups or partitions."""
    outcome = proposal.outcome
    touched = proposal.touched - outcome.appended
    check_conflicts(proposal.commit.time, touched, others.commits, outcome.overwritten)


def _check_clusterings(context: TableContext, proposal: Proposal, others: _Others) -> None:
    """Refuse a commit if a pending clustering is going to rewrite its file groups."""
    check_pending_clusterings(context.store, others.timeline, proposal.touched, ours=proposal.commit.time)


def _check_compactions(context: TableContext, proposal: Proposal, others: _Others) -> None:
    """Refuse a commit if a planned compaction has ended the slice that one of its log files belongs to."""
    if not context.store.layout.has_completion_times:
        planned = context.store.read_compaction_groups(others.timeline)
        check_opened_slices(proposal.metadata.all_stats(), planned)


def _check_running_writes(context: TableContext, proposal: Proposal, others: _Others) -> None:
    """Refuse a commit if another program is writing to the same file groups."""
    check_foreign_writes(context.store, others.running, proposal.touched, context.clock)


def _check_columns(_: TableContext, proposal: Proposal, others: _Others) -> None:
    """Refuse a commit if columns were altered while the write ran, or if other commits ran while it alters columns.

    The names of columns in a file are those of its instant. So no write may begin before a change and end after it.
    """
    outcome = proposal.outcome
    schemas = outcome.snapshot.schemas
    latest = schemas[-1].version if schemas else None
    for time, metadata in others.commits:
        text = metadata.extra.get(LATEST_SCHEMA, "")
        latest_now = decode_internal_schema(text.encode(), name=time) if text else None
        if outcome.altered is not None or (latest_now.version if latest_now else None) != latest:
            raise WriteConflictError(
                f"commit {time} of {outcome.snapshot.config.name} ran while columns were altered; run the write again"
            )


def _check_folders(_: TableContext, proposal: Proposal, others: _Others) -> None:
    """Refuse a commit if one of its new partition folders is inside a new one of another commit, or around it."""
    theirs = {path for _, metadata in others.commits for path in metadata.stats}
    check_nesting(proposal.opened.difference(proposal.outcome.snapshot.live.partitions()), theirs)


def _check_new_keys(_: TableContext, proposal: Proposal, others: _Others) -> None:
    """Run the write's own check of keys and buckets that are new in it."""
    if proposal.outcome.check_new_keys is not None:
        proposal.outcome.check_new_keys(others.commits)


_Check: TypeAlias = Callable[[TableContext, Proposal, _Others], None]
#: The checks of every commit, in their order.
_CHECKS: Final[tuple[_Check, ...]] = (_check_file_groups, _check_clusterings, _check_compactions, _check_running_writes)
#: The checks of a commit if others have completed since it began.
_CHECKS_BESIDE_COMMITS: Final[tuple[_Check, ...]] = (_check_columns, _check_folders, _check_new_keys)
