"""The rule for when a compaction is due (Hudi: ``ScheduleCompactionActionExecutor.needCompact``). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Final

from lakeformat.config.compaction_options import COMPACTION_COMMITS, INLINE_SECONDS, TRIGGER
from lakeformat.config.resolve import Options
from lakeformat.model.instant import Action, State, format_instant_time
from lakeformat.timeline.timeline import Timeline

__all__ = ["Trigger", "is_due"]


@dataclass(frozen=True, slots=True)
class Trigger:
    """Options that make a compaction due.

    Attributes:
        strategy: Hudi's name of the rule.
        commits: number of deltacommits since the last compaction.
        seconds: seconds since the last compaction, or since the first deltacommit if there was none.
    """

    strategy: str
    commits: int
    seconds: int

    @classmethod
    def of_options(cls, options: Options) -> Trigger:
        """Return the trigger that the options set."""
        return cls(options[TRIGGER], options[COMPACTION_COMMITS], options[INLINE_SECONDS])


def is_due(trigger: Trigger, timeline: Timeline, now_ms: int, zone: tzinfo | None) -> bool:
    """Tell whether a compaction is due now.

    Args:
        zone: time zone of the timeline.
    """
    compacted = max((one.time for one in timeline.commits if one.action is Action.COMMIT), default=None)
    plans = (one.time for one in timeline.pending if one.action is Action.COMPACTION)
    requested = max((*plans, compacted or ""), default="")
    deltas = [one for one in timeline.of_action(Action.DELTA_COMMIT) if one.state is State.COMPLETED]
    since = compacted or min((one.time for one in deltas), default=None)
    if since is None:
        return False
    count = sum(one.completed_at > (compacted or "") for one in deltas)
    elapsed = _moment(format_instant_time(now_ms, zone)) - _moment(since)
    by_count, by_time = count >= trigger.commits, elapsed.total_seconds() >= trigger.seconds
    after_request = sum(one.completed_at > requested for one in deltas) >= trigger.commits
    return _RULES[trigger.strategy](by_count, by_time, after_request)


_RULES: Final[Mapping[str, Callable[[bool, bool, bool], bool]]] = {
    "NUM_COMMITS": lambda by_count, by_time, after_request: by_count,
    "NUM_COMMITS_AFTER_LAST_REQUEST": lambda by_count, by_time, after_request: after_request,
    "TIME_ELAPSED": lambda by_count, by_time, after_request: by_time,
    "NUM_AND_TIME": lambda by_count, by_time, after_request: by_count and by_time,
    "NUM_OR_TIME": lambda by_count, by_time, after_request: by_count or by_time,
}


def _moment(instant_time: str) -> datetime:
    return datetime.strptime(instant_time[:14], "%Y%m%d%H%M%S")
