"""The rule for which commits stay readable. Pure (Hudi: ``CleanerUtils.getEarliestCommitToRetain``)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from lakeformat.config.life_options import CLEAN_POLICY, COMMITS_RETAINED, HOURS_RETAINED, VERSIONS_RETAINED
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError
from lakeformat.model.instant import COMMIT_ACTIONS, Action, Instant, format_instant_time
from lakeformat.timeline.timeline import Timeline

__all__ = ["Policy", "Retention", "earliest_kept", "retention_of"]

_HOUR_MS: Final = 3_600_000
#: A pending action of these may complete after later commits. Slices of pending compactions are kept one by one.
_AWAITED: Final = COMMIT_ACTIONS | {Action.CLUSTERING}


class Policy(str, enum.Enum):
    """Cleaning policy (Hudi: ``HoodieCleaningPolicy``)."""

    COMMITS = "KEEP_LATEST_COMMITS"
    HOURS = "KEEP_LATEST_BY_HOURS"
    VERSIONS = "KEEP_LATEST_FILE_VERSIONS"


_COUNTED: Final = {
    Policy.COMMITS: COMMITS_RETAINED,
    Policy.HOURS: HOURS_RETAINED,
    Policy.VERSIONS: VERSIONS_RETAINED,
}


@dataclass(frozen=True, slots=True)
class Retention:
    """How much is kept.

    Attributes:
        count: number of commits, of hours, or of versions of each file group.
    """

    policy: Policy
    count: int


def retention_of(
    options: Options, commits: int | None = None, hours: int | None = None, versions: int | None = None
) -> Retention:
    """Return the retention of the argument given, else of the options.

    Raises:
        InvalidInputError: more than one argument is given, or a count is below 1.
    """
    arguments = {Policy.COMMITS: commits, Policy.HOURS: hours, Policy.VERSIONS: versions}
    given = {policy: count for policy, count in arguments.items() if count is not None}
    if len(given) > 1:
        raise InvalidInputError("a clean keeps commits, hours or versions; give one of them")
    for policy, count in given.items():
        if count < 1:
            raise InvalidInputError(f"a clean keeps at least 1, not {count}; give a number from 1 up")
        return Retention(policy, count)
    policy = Policy(options[CLEAN_POLICY])
    return Retention(policy, options[_COUNTED[policy]])


def earliest_kept(timeline: Timeline, retention: Retention, now_ms: int, zone: tzinfo | None) -> Instant | None:
    """Return the oldest commit that stays readable. Return None by versions, and if no commit becomes unreadable.

    Never returns a commit after the oldest pending write: the commit that this write started from stays readable.

    Args:
        zone: time zone of the timeline.
    """
    if retention.policy is Policy.VERSIONS:
        return None
    commits = timeline.commits
    if retention.policy is Policy.COMMITS:
        earliest = commits[-retention.count] if len(commits) > retention.count else None
    else:
        since = format_instant_time(now_ms - retention.count * _HOUR_MS, zone)
        earliest = next((commit for commit in commits if commit.time >= since), None)
    pending = next((instant.time for instant in timeline.pending if instant.action in _AWAITED), None)
    if earliest is None or pending is None or earliest.time <= pending:
        return earliest
    return max((commit for commit in commits if commit.time < pending), default=None)
