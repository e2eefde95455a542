"""The move of a timeline's files to another layout. Pure.

Layout 1 stores no completion times. Hudi's upgrade uses the files' modification times, which a copy of the table has
lost; log files of older slices then move to newer ones. Therefore completion times are chosen that are also earlier
than the next instant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

from lakeformat.model.instant import Action, Instant, State, next_instant_time
from lakeformat.timeline.layout import TimelineLayout

__all__ = ["Move", "completion_times", "moves"]


@dataclass(frozen=True, slots=True)
class Move:
    """One file of the timeline, as an instant of the old layout and of the new one."""

    old: Instant
    new: Instant


def moves(
    instants: Iterable[Instant],
    to: TimelineLayout,
    *,
    clusterings: Collection[str] = (),
    completed_at: Mapping[str, str] | None = None,
) -> tuple[Move, ...]:
    """Return the files in the order in which they must be written: requested and inflight files before completed ones.

    Args:
        instants: one instant per file.
        clusterings: times of the replacecommits that were planned as clusterings.
        completed_at: see `completion_times`; used only if the new layout stores completion times.
    """
    found = [Move(one, _to_layout(one, to, clusterings, completed_at or {})) for one in instants]
    return tuple(sorted(found, key=lambda move: (move.old.time, move.old.state, move.old.action.value)))


def _to_layout(one: Instant, to: TimelineLayout, clusterings: Collection[str], ends: Mapping[str, str]) -> Instant:
    if one.state is State.COMPLETED:
        return replace(one, completion_time=ends[one.time] if to.tells_completion else None)
    is_clustering = one.action is Action.CLUSTERING or (one.action is Action.REPLACE_COMMIT and one.time in clusterings)
    return replace(one, action=to.clustering) if is_clustering else one


def completion_times(stamps: Mapping[str, str]) -> dict[str, str]:
    """Return instant time -> completion time: after the instant, and before the next one began.

    Args:
        stamps: instant time of each completed instant -> modification time of its file, in the same form.
    """
    times = sorted(stamps)
    ends: dict[str, str] = {}
    for time, following in zip(times, [*times, None][1:], strict=True):
        first = next_instant_time(0, time, timezone.utc)
        end = max(first, stamps[time])
        if following is not None:
            end = min(end, max(first, _before(following)))
        ends[time] = end
    return ends


def _before(time: str) -> str:
    """Return the time one millisecond earlier."""
    moment = datetime.strptime(time[:14], "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc)
    moment += timedelta(milliseconds=int(time[14:] or 0) - 1)
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"
