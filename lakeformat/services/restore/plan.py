"""What going back undoes, and what must be there for it. Pure: facts are gathered by `run`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakeformat.errors import InstantNotAvailableError, InvalidInputError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import BaseFileName, FileGroupId
from lakeformat.model.instant import WRITE_ACTIONS, Action, Instant, State
from lakeformat.table_state.file_groups import Listing
from lakeformat.timeline.timeline import Timeline

__all__ = ["after", "check_not_saved", "last_commit", "missing_before", "target_of"]


def target_of(timeline: Timeline, asked: str, location: str, *, doing: str) -> Instant:
    """The completed commit of an instant time.

    Raises:
        InstantNotAvailableError: there is none on the active timeline.
    """
    for commit in timeline.commits:
        if commit.time == asked:
            return commit
    pending = timeline.find(asked)
    first = timeline.commits[0].time if timeline.commits else None
    if pending is not None:
        why = "has not completed"
    elif first is not None and asked < first:
        why = f"is older than {first}, the oldest commit that is not archived (hoodie.keep.min.commits)"
    else:
        why = "is no commit; history() lists them"
    raise InstantNotAvailableError(f"{location}: cannot {doing}: instant {asked} {why}")


def after(timeline: Timeline, target: Instant, plans: Iterable[str] = ()) -> tuple[Instant, ...]:
    """What a restore undoes, in its order: pending clustering first, then the newest first.

    Completed writes count by when they completed (in timeline layout 1 that is their time), pending ones by when they
    began (Hudi: ``RestorePlanActionExecutor``).

    Args:
        plans: times of pending clustering plans.
    """
    clustering = frozenset(plans)
    found = [
        instant
        for instant in timeline.instants
        if instant.action in WRITE_ACTIONS
        and (
            instant.completed_at > target.completed_at
            if instant.state is State.COMPLETED
            else instant.time > target.time
        )
    ]

    def order(instant: Instant) -> tuple[bool, bool, str, str]:
        is_done = instant.state is State.COMPLETED
        return instant.time in clustering, not is_done, instant.completed_at, instant.time

    return tuple(sorted(found, key=order, reverse=True))


def last_commit(timeline: Timeline) -> Instant | None:
    """The commit that completed last; None in an empty table."""
    return max(timeline.commits, key=lambda i: (i.completed_at, i.time), default=None)


def check_not_saved(timeline: Timeline, undone: Iterable[Instant], location: str) -> None:
    """Refuse to undo a commit that a savepoint holds. Raises `InvalidInputError`."""
    saved = {i.time for i in timeline.of_action(Action.SAVEPOINT)}
    for instant in undone:
        if instant.time in saved:
            raise InvalidInputError(
                f"{location}: commit {instant.time} is held by a savepoint and cannot be undone; call "
                f"delete_savepoint('{instant.time}') first"
            )


def missing_before(undone: Sequence[tuple[Instant, CommitMetadata]], listing: Listing, location: str) -> str | None:
    """Why the state before some commits cannot be had any more; None if all of it is there.

    What was there before a commit is what it wrote anew or replaced: each such version must still be among the files,
    whatever has been cleaned or archived since. Groups that no commit has touched are as they were.
    """
    times = {instant.time for instant, _ in undone}
    bases = {(file.group, file.name.instant_time) for file in listing.bases}
    groups = {file.group for file in (*listing.bases, *listing.logs) if file.name.instant_time not in times}
    for instant, metadata in undone:
        for stat in metadata.all_stats():
            group = FileGroupId(stat.partition_path, stat.file_id)
            name = stat.path.rpartition("/")[2]
            before = stat.prev_commit
            if before is None or before in times or BaseFileName.match(name) is None:
                continue
            if (group, before) not in bases and not _is_log_only(group, listing, times):
                return (
                    f"{location}: file group {stat.file_id} of {stat.partition_path!r} has no version of {before} any "
                    f"more, which commit {instant.time} wrote anew: it has been cleaned away"
                )
        for partition, ids in metadata.replaced.items():
            for file_id in ids:
                if FileGroupId(partition, file_id) not in groups and not _made_by(undone, partition, file_id):
                    return (
                        f"{location}: file group {file_id} of {partition!r}, which commit {instant.time} replaced, has "
                        "been cleaned away"
                    )
    return None


def _is_log_only(group: FileGroupId, listing: Listing, times: set[str]) -> bool:
    """Whether the group is one that had log files alone: there is no base file of it that stays."""
    stays = any(file.group == group and file.name.instant_time not in times for file in listing.bases)
    return not stays and any(file.group == group and file.name.instant_time not in times for file in listing.logs)


def _made_by(undone: Sequence[tuple[Instant, CommitMetadata]], partition: str, file_id: str) -> bool:
    return any(
        stat.file_id == file_id and stat.prev_commit is None
        for _, metadata in undone
        for stat in metadata.stats.get(partition, ())
    )
