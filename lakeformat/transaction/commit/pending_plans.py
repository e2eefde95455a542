"""Pending clustering and compaction plans: the checks that keep writes and other plans away from their file groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from lakeformat.codec.timeline_files.service_plans import decode_compaction_plan, decode_requested_replace
from lakeformat.errors import WriteConflictError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import Action, Instant
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.commit.completed_file import check_barrier
from lakeformat.transaction.order.claims import advise_on_plan
from lakeformat.transaction.order.conflict import PendingActionError, check_conflicts, check_plans
from lakeformat.transaction.order.decisions import Decision, DecisionState, Kind

__all__ = ["check_no_plans", "check_pending_clusterings", "list_closed_partitions", "make_plan_check"]


def check_pending_clusterings(
    store: TimelineStore, timeline: Timeline, touched: frozenset[FileGroupId], *, ours: str | None = None
) -> None:
    """Check that no pending clustering is going to rewrite these file groups. Call it before expensive work.

    Args:
        ours: instant time of this writer's own clustering, which is not checked.

    Raises:
        WriteConflictError: a pending clustering is going to rewrite one of them; the message says what to do.
    """
    planned = {group: time for group, time in store.read_clustering_groups(timeline).items() if time != ours}
    check_plans(touched, planned, partial(advise_on_plan, store))


def list_closed_partitions(store: TimelineStore, snapshot: Snapshot) -> Mapping[str, str]:
    """Return the partitions that cannot be replaced because a pending clustering rewrites their files.

    The result maps partition path to the error message.
    """
    planned = {group.partition_path for group in store.read_clustering_groups(snapshot.timeline)}
    closed: dict[str, str] = {}
    for path in sorted(planned):
        live = frozenset(piece.group for piece in snapshot.slices.get(path, ()))
        try:
            check_pending_clusterings(store, snapshot.timeline, live)
        except WriteConflictError as error:
            closed[path] = str(error)
    return closed


def make_plan_check(
    store: TimelineStore, instant: Instant, plan: bytes, known: frozenset[str], decisions: int
) -> Callable[[DecisionState, Timeline], Decision]:
    """Return the check that decides a clustering or compaction plan, which creates its requested file.

    The check raises `WriteConflictError` if, since the plan was made, another writer has changed or planned one of its
    file groups, or has undone a commit.

    Args:
        known: times of the commits that the plan starts from.
        decisions: number of decisions that others had made when the plan was made.
    """
    path, location = store.path(instant), store.storage.location
    if instant.action is Action.COMPACTION:
        groups = frozenset(operation.group for operation in decode_compaction_plan(plan, name=path).operations)
    else:
        requested = decode_requested_replace(plan, name=path)
        groups = frozenset(requested.file_groups if requested is not None else ())

    def check(state: DecisionState, timeline: Timeline) -> Decision:
        check_barrier(location, instant.time, decisions, state)
        others = [(i.time, store.read_commit(i)) for i in timeline.completed_since(known)]
        check_conflicts(instant.time, groups, others, None)
        planned = {**store.read_clustering_groups(timeline), **store.read_compaction_groups(timeline)}
        check_plans(groups, planned, partial(advise_on_plan, store))
        return Decision(kind=Kind.PLAN, instant_time=instant.time, path=path, data=plan)

    return check


def check_no_plans(store: TimelineStore, timeline: Timeline) -> None:
    """Refuse to alter columns while a clustering or compaction is planned: its files would have the old names.

    Raises:
        WriteConflictError: nothing was published.
    """
    planned = {*store.read_clustering_groups(timeline).values(), *store.read_compaction_groups(timeline).values()}
    if planned:
        raise PendingActionError(
            f"{store.storage.location}: columns cannot be altered while the table service {min(planned)} is planned; "
            "run it, or remove its plan"
        )
