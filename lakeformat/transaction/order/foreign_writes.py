"""Pending instants of other programs, which have no claim.

Their writers are alive as long as their heartbeats are recent (Hudi: ``HoodieHeartbeatClient``). Writers of lakeformat
work beside a live writer of another program: what it completes meanwhile is checked for conflicts when they publish.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from lakeformat.concurrency import poll, sleep
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import COMMIT_ACTIONS, Action, Instant, State
from lakeformat.storage.port import Clock
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.conflict import PendingActionError

__all__ = [
    "ADVICE",
    "check_foreign_writes",
    "find_running_writes",
    "is_foreign_and_alive",
    "is_left_alone",
    "wait_for_begun_writes",
]

#: The end of a conflict's message: how to let other programs write to a table at the same time.
ADVICE: Final = (
    "if another program writes to the table, set hoodie.write.concurrency.mode=optimistic_concurrency_control and the "
    "same hoodie.write.lock.provider in all jobs, because a job in single-writer mode undoes the writes of others"
)


def is_foreign_and_alive(store: TimelineStore, instant: Instant, clock: Clock) -> bool:
    """Tell whether another program made a pending instant, and its writer may be alive.

    An instant without a heartbeat counts as alive until it is `FOREIGN_GRACE_MS` old.
    """
    if claims.read_claim(store.storage, instant.time) is not None:
        return False
    return claims.has_live_heartbeat(store, instant, clock, grace_ms=claims.FOREIGN_GRACE_MS)


def is_left_alone(store: TimelineStore, timeline: Timeline, rollback: Instant, clock: Clock) -> bool:
    """Tell whether a pending rollback is another program's, which is carrying it out.

    Raises:
        WriteConflictError: the rollback takes back a completed commit, whose rows a write must not start from.
    """
    if not is_foreign_and_alive(store, rollback, clock):
        return False
    plan = store.read_rollback_plan(rollback)
    victim = timeline.find(plan.instant_time) if plan is not None else None
    if plan is None or (victim is not None and victim.state is State.COMPLETED):
        raise PendingActionError(
            f"another program's {store.path(rollback)} is pending in {store.storage.location} and may be running; wait "
            f"for it, or run again {claims.FOREIGN_GRACE_MS // 60_000} minutes after it died"
        )
    return True


#: Age at which a requested instant of another program has taken note of the commits that it is checked against.
_BEGIN_MS: Final = 5_000
_POLL_MS: Final = 200


def wait_for_begun_writes(
    store: TimelineStore, timeline: Timeline, ours: str, touched: frozenset[FileGroupId], clock: Clock
) -> bool:
    """Wait until each writer of another program with an earlier instant has begun. Return whether it has waited.

    Hudi takes note of the newest commit shortly after it has created its requested file, and before its inflight file.
    If our commit completed in between, Hudi would start from our files and see no conflict. But the files that it then
    writes have the earlier instant in their names, so ours would hide them.

    Args:
        ours: our instant time.
        touched: the file groups that our write changes or hides.
    """
    begun = [
        instant
        for instant in timeline.pending_writes
        if instant.time < ours and instant.state is State.REQUESTED and instant.action in COMMIT_ACTIONS
    ]
    if not begun or not touched:
        return False
    claimed = claims.list_claimed_times(store.storage)
    foreign = [instant for instant in begun if instant.time not in claimed]
    for instant in foreign:
        poll(partial(_has_begun, store, clock, instant), _BEGIN_MS / 1000, partial(sleep, _POLL_MS / 1000))
    return bool(foreign)


def _has_begun(store: TimelineStore, clock: Clock, requested: Instant) -> bool:
    """Tell whether a requested write is inflight, is gone, or is too old to become inflight now."""
    info = store.info(requested)
    if info is None or clock.now_ms() - info.modified_ms >= _BEGIN_MS:
        return True
    return store.info(requested.at(State.INFLIGHT)) is not None


def find_running_writes(store: TimelineStore, timeline: Timeline, ours: str) -> Sequence[Instant]:
    """Return the inflight writes of other programs whose files could hide ours, whether their writers live or not.

    In timeline layout 2 the log files of a deltacommit hide nothing, so it is not among them.

    Args:
        ours: our instant time.
    """
    harmless = {Action.COMPACTION, *([Action.DELTA_COMMIT] if store.layout.has_completion_times else [])}
    others = [
        instant
        for instant in timeline.pending_writes
        if instant.time != ours and instant.state is State.INFLIGHT and instant.action not in harmless
    ]
    claimed = claims.list_claimed_times(store.storage) if others else frozenset()
    return [instant for instant in others if instant.time not in claimed]


def check_foreign_writes(
    store: TimelineStore, running: Sequence[Instant], touched: frozenset[FileGroupId], clock: Clock
) -> None:
    """Check that no live writer of another program changes the same file groups. Call it if there is no common lock.

    Without a common lock, that writer may not see our commit, and its files would hide ours. Its inflight file names
    the file groups.

    Args:
        running: the result of `find_running_writes`.
        touched: the file groups that our write changes or hides.

    Raises:
        WriteConflictError: a writer changes one of them; the message names its instant.
    """
    for instant in running:
        if not claims.has_live_heartbeat(store, instant, clock, grace_ms=claims.FOREIGN_GRACE_MS):
            continue
        if shared := touched & _read_planned_groups(store, instant):
            raise PendingActionError(
                f"another program's {store.path(instant)} in {store.storage.location} is changing {len(shared)} file "
                f"group(s) of this write, e.g. {min(shared).file_id}; "
                f"{claims.advise_to_wait_for(store, instant, clock)}; {ADVICE}",
                file_ids={group.file_id for group in shared},
            )


def _read_planned_groups(store: TimelineStore, instant: Instant) -> frozenset[FileGroupId]:
    """Return the existing file groups in an inflight file; none if the file is empty or gone."""
    try:
        data = store.read(instant)
        stats = store.read_commit(instant).all_stats() if data else ()
    except FileNotFoundError:
        return frozenset()
    return frozenset(stat.group for stat in stats if stat.file_id)
