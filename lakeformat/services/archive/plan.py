"""Which instants leave the timeline: pure (Hudi: ``TimelineArchiverV1.getCommitInstantsToArchive``).

A file whose instant is older than the oldest active write counts as committed. So nothing is archived past a pending
write, or past one that is about to begin: the newest completed commit before it stays. Commits go oldest first; one
that replaced file groups stays as long as files of these are there, for without it their rows would come back.

Hudi counts commits and cleans apart, so that with its defaults 30 commits and 30 cleans stand on the timeline. Each
instant costs every reader and writer the same, so here they count together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lakeformat.config.life_options import BEYOND_SAVEPOINT, BLOCKED_BY_CLEAN, MAX_COMMITS, MIN_COMMITS
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError, InvalidOptionError
from lakeformat.model.instant import Action, Instant, State
from lakeformat.services.clean.retention import Policy, Retention
from lakeformat.timeline.timeline import Timeline

__all__ = ["ArchiveLimits", "archive_limits", "beyond_cleaning", "leaving"]


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """How long the timeline may be.

    Attributes:
        least: commits that stay.
        most: with more commits, cleans and rollbacks than these some go.
        beyond_savepoint: whether commits after a savepoint may go before it.
        before: only commits before this instant time go.
    """

    least: int
    most: int
    beyond_savepoint: bool = False
    before: str = "~"


def archive_limits(
    options: Options, asked: tuple[int | None, int | None] = (None, None), cleaned_to: str = ""
) -> ArchiveLimits:
    """The limits that arguments, else options give.

    Args:
        asked: fewest and most commits.
        cleaned_to: the oldest commit that the last clean has kept whole.

    Raises:
        InvalidInputError, InvalidOptionError: the most is not more than the fewest.
    """
    least = options[MIN_COMMITS] if asked[0] is None else asked[0]
    most = options[MAX_COMMITS] if asked[1] is None else asked[1]
    if asked[1] is None and (asked[0] is not None or not options.given(MAX_COMMITS)):
        most = max(most, least + 1) if asked[0] is None else least + 1
    if asked == (None, None) and not options.given(MIN_COMMITS):
        least = min(least, most - 1)
    if most <= least or least < 1:
        told = f"{MAX_COMMITS}={most} is not more than {MIN_COMMITS}={least}; give a greater one"
        raise InvalidOptionError(told) if asked == (None, None) else InvalidInputError(told)
    before = cleaned_to if options[BLOCKED_BY_CLEAN] else "~"
    return ArchiveLimits(least, most, options[BEYOND_SAVEPOINT], before)


def beyond_cleaning(
    limits: ArchiveLimits, timeline: Timeline, retention: Retention, earliest: Instant | None
) -> ArchiveLimits:
    """The same, leaving no fewer commits than cleaning keeps readable, and the one before.

    Source: Hudi's ``ArchivalUtils.getMinAndMaxInstantsToKeep``.

    Args:
        earliest: the oldest commit that cleaning keeps whole.
    """
    readable = retention.count + 1 if retention.policy is Policy.COMMITS else 0
    if earliest is not None:
        readable = max(readable, 2 + sum(commit.time > earliest.time for commit in timeline.commits))
    more = max(0, readable - limits.least)
    return replace(limits, least=limits.least + more, most=limits.most + more)


def leaving(
    timeline: Timeline,
    limits: ArchiveLimits,
    *,
    begun: frozenset[str] = frozenset(),
    counted_from: str = "~",
    hides_files: Callable[[Instant], bool],
    at_once: int,
) -> tuple[Instant, ...]:
    """Completed instants that go now, oldest first.

    Args:
        begun: times of writes of ours that are about to stand on the timeline.
        counted_from: what the trigger of compaction still has to count stays, from this instant time on.
        hides_files: whether files are left of the groups that a replacecommit replaced.
        at_once: commits, at most.
    """
    commits = timeline.commits
    going: list[Instant] = []
    if _done(timeline) > limits.most:
        stop = min(_stop(timeline, limits, begun), counted_from, limits.before)
        saved = {instant.time for instant in timeline.of_action(Action.SAVEPOINT)}
        for commit in commits[: max(0, len(commits) - limits.least)]:
            if commit.time >= stop or len(going) == at_once:
                break
            if commit.action is Action.REPLACE_COMMIT and hides_files(commit):
                break
            if commit.time not in saved:
                going.append(commit)
    gone = {commit.time for commit in going}
    first = min((commit.time for commit in commits if commit.time not in gone), default="")
    return tuple(sorted((*going, *_beside(timeline, limits, first if going else "")[:at_once])))


def _done(timeline: Timeline) -> int:
    """Completed instants that archiving may take."""
    return len(timeline.commits) + sum(
        each.state is State.COMPLETED and each.action in {Action.CLEAN, Action.ROLLBACK} for each in timeline.instants
    )


def _stop(timeline: Timeline, limits: ArchiveLimits, begun: frozenset[str]) -> str:
    """The first instant that stays."""
    saved = {instant.time for instant in timeline.of_action(Action.SAVEPOINT)}
    stop = min(saved, default="~")
    if limits.beyond_savepoint:  # By the oldest commit without a savepoint readers tell what has been archived.
        stop = max((commit.time for commit in timeline.commits if commit.time not in saved), default="")
    pending = min([*begun, *(instant.time for instant in timeline.pending_writes)], default=None)
    if pending is not None:  # The commit before stays, so that what is pending does not count as committed.
        stop = min(stop, max((commit.time for commit in timeline.commits if commit.time < pending), default=""))
    return stop


def _beside(timeline: Timeline, limits: ArchiveLimits, first: str) -> list[Instant]:
    """All cleans but the last, and rollbacks older than the commits that stay; of very many the oldest in any case.

    Nobody asks for older cleans; Hudi keeps those that are younger than the oldest commit.

    Args:
        first: the oldest commit that stays; "" if none goes.
    """
    pending = min((instant.time for instant in timeline.pending), default="~")
    done = [each for each in timeline.instants if each.state is State.COMPLETED and each.time < pending]
    cleans = [each for each in done if each.action is Action.CLEAN][:-1]
    rollbacks = [each for each in done if each.action is Action.ROLLBACK]
    going = [] if not first and _done(timeline) <= limits.most else cleans
    many = rollbacks[: len(rollbacks) - limits.least] if len(rollbacks) > limits.most else []
    return sorted({*going, *many, *(each for each in rollbacks if each.time < first)})
