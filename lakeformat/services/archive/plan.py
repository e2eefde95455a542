"""The choice of instants to archive. Pure (Hudi: ``TimelineArchiverV1.getCommitInstantsToArchive``).

Commits are archived oldest first. Apart from the limits, these commits stay:

- The newest commit before the oldest pending write, and all later commits. Readers count a file as committed if its
  instant is older than the oldest commit on the timeline. Without that commit, readers would see the rows of the
  pending write. The same holds for a write that has only reserved its instant time.
- A commit that replaced file groups while files of these groups exist, and all later commits. Without that commit,
  readers would see the replaced rows again.

A void commit leaves the timeline together with the commits before and after it, for the same reason: readers skip the
files of archived commits if an older void commit is the oldest instant on the timeline. It is not written to the
archive.

Hudi counts commits and cleans separately, so that its defaults keep 30 commits and 30 cleans. Every instant costs
readers and writers the same, so lakeformat counts them together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lakeformat.config.resolve import Options
from lakeformat.config.retention_options import BEYOND_SAVEPOINT, BLOCKED_BY_CLEAN, MAX_COMMITS, MIN_COMMITS
from lakeformat.errors import InvalidInputError, InvalidOptionError
from lakeformat.model.instant import Action, Instant, State
from lakeformat.services.clean.plan import Policy, Retention
from lakeformat.timeline.timeline import Timeline

__all__ = ["ArchiveLimits", "archive_limits", "choose_instants", "extend_for_cleaning"]


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """Limits of the timeline's length.

    Attributes:
        least: minimum number of commits that stay.
        most: maximum number of commits, cleans and rollbacks together; commits are archived only if there are more.
        beyond_savepoint: whether to archive commits that are newer than the oldest savepoint; commits with a savepoint
            always stay.
        before: archive only commits before this instant time.
    """

    least: int
    most: int
    beyond_savepoint: bool = False
    before: str = "~"


def archive_limits(
    options: Options, requested: tuple[int | None, int | None] = (None, None), cleaned_to: str = ""
) -> ArchiveLimits:
    """Return the limits that the caller requested; those not requested come from the options.

    Args:
        requested: the requested ``least`` and ``most`` of `ArchiveLimits`; None for the option's value.
        cleaned_to: instant time of the oldest commit that the last clean kept readable; "" if there was no clean.

    Raises:
        InvalidInputError, InvalidOptionError: ``most`` is not greater than ``least``, or ``least`` is below 1.
    """
    least = options[MIN_COMMITS] if requested[0] is None else requested[0]
    most = options[MAX_COMMITS] if requested[1] is None else requested[1]
    if requested[1] is None and (requested[0] is not None or not options.is_set(MAX_COMMITS)):
        most = max(most, least + 1) if requested[0] is None else least + 1
    if requested == (None, None) and not options.is_set(MIN_COMMITS):
        least = min(least, most - 1)
    if most <= least or least < 1:
        message = f"{MAX_COMMITS}={most} is not more than {MIN_COMMITS}={least}; give a greater one"
        raise InvalidOptionError(message) if requested == (None, None) else InvalidInputError(message)
    before = cleaned_to if options[BLOCKED_BY_CLEAN] else "~"
    return ArchiveLimits(least, most, options[BEYOND_SAVEPOINT], before)


def extend_for_cleaning(
    limits: ArchiveLimits, timeline: Timeline, retention: Retention, earliest: Instant | None
) -> ArchiveLimits:
    """Return limits under which the commits that cleaning keeps readable, and the commit before them, stay.

    Args:
        earliest: the oldest commit that cleaning keeps readable; None if cleaning makes no commit unreadable. If None,
            the limits change only if ``retention`` is a number of commits.
    """
    readable = retention.count + 1 if retention.policy is Policy.COMMITS else 0
    if earliest is not None:
        readable = max(readable, 2 + sum(commit.time > earliest.time for commit in timeline.commits))
    more = max(0, readable - limits.least)
    return replace(limits, least=limits.least + more, most=limits.most + more)


def choose_instants(
    timeline: Timeline,
    limits: ArchiveLimits,
    *,
    claimed: frozenset[str] = frozenset(),
    trigger_start: str = "~",
    has_replaced_files: Callable[[Instant], bool],
    most: int,
) -> tuple[Instant, ...]:
    """Return the completed instants to archive now, and the void commits that leave with them, oldest first.

    Args:
        claimed: times of instants that are not on the timeline although files of them may still appear: of lakeformat's
            writes that have reserved an instant time, and of undone writes.
        trigger_start: instants from this time on stay, because they decide when a compaction is due.
        has_replaced_files: returns whether files of the groups that a replacecommit replaced still exist.
        most: maximum number of commits to return; also the maximum number of cleans and rollbacks together.
    """
    commits = timeline.commits
    chosen: list[Instant] = []
    if _count_archivable(timeline) > limits.most:
        stop = min(_find_first_kept(timeline, limits, claimed), trigger_start, limits.before)
        saved = {instant.time for instant in timeline.of_action(Action.SAVEPOINT)}
        for commit in commits[: max(0, len(commits) - limits.least)]:
            if commit.time >= stop or len(chosen) == most:
                break
            if commit.action is Action.REPLACE_COMMIT and has_replaced_files(commit):
                break
            if commit.time not in saved:
                chosen.append(commit)
    gone = {commit.time for commit in chosen}
    first = min((commit.time for commit in commits if commit.time not in gone), default="")
    others = _choose_cleans_and_rollbacks(timeline, limits, first if chosen else "")[:most]
    last = chosen[-1].time if chosen else ""
    return tuple(sorted((*chosen, *others, *(void for void in timeline.voids if void.time < last))))


def _count_archivable(timeline: Timeline) -> int:
    """Count the completed instants that can be archived."""
    return len(timeline.commits) + sum(
        instant.state is State.COMPLETED and instant.action in {Action.CLEAN, Action.ROLLBACK}
        for instant in timeline.instants
    )


def _find_first_kept(timeline: Timeline, limits: ArchiveLimits, claimed: frozenset[str]) -> str:
    """Return the time of the oldest instant that must stay; "~" if all may be archived, "" if none may be."""
    saved = {instant.time for instant in timeline.of_action(Action.SAVEPOINT)}
    stop = min(saved, default="~")
    if limits.beyond_savepoint:
        # For readers the timeline starts at its oldest commit without a savepoint, so at least one such commit stays.
        stop = max((commit.time for commit in timeline.commits if commit.time not in saved), default="")
    pending = min([*claimed, *(instant.time for instant in timeline.pending_writes)], default=None)
    if pending is not None:
        # A commit before the pending instant stays, so that the pending instant does not count as committed. One with a
        # savepoint is not enough: for readers the timeline does not start at it.
        before = (commit.time for commit in timeline.commits if commit.time < pending and commit.time not in saved)
        stop = min(stop, max(before, default=""))
    return stop


def _choose_cleans_and_rollbacks(timeline: Timeline, limits: ArchiveLimits, first: str) -> list[Instant]:
    """Return the cleans and rollbacks to archive.

    Only instants before the oldest pending instant are archived:

    - All cleans except the last, if the timeline is too long. Hudi also keeps the cleans after the oldest commit that
      stays, but no reader needs them.
    - If commits are archived, the rollbacks that are older than the oldest commit that stays.
    - If there are more than ``limits.most`` rollbacks, the oldest ones, until ``limits.least`` rollbacks remain.

    Args:
        first: time of the oldest commit that stays; "" if no commit is archived.
    """
    pending = min((instant.time for instant in timeline.pending), default="~")
    done = [instant for instant in timeline.instants if instant.state is State.COMPLETED and instant.time < pending]
    cleans = [instant for instant in done if instant.action is Action.CLEAN][:-1]
    rollbacks = [instant for instant in done if instant.action is Action.ROLLBACK]
    chosen = cleans if _count_archivable(timeline) > limits.most else []
    many = rollbacks[: len(rollbacks) - limits.least] if len(rollbacks) > limits.most else []
    return sorted({*chosen, *many, *(instant for instant in rollbacks if instant.time < first)})
