"""The choice of instants that a restore or rollback undoes. Pure: `run` gathers the facts."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from lakeformat.errors import InstantNotAvailableError, InvalidInputError
from lakeformat.model.files import BaseFile, FileGroupId, match_data_file
from lakeformat.model.instant import WRITE_ACTIONS, Action, Instant, State
from lakeformat.timeline.timeline import Timeline

__all__ = ["check_not_saved", "find_cleaned_base", "find_last_commit", "find_target", "list_instants_after"]


def find_target(timeline: Timeline, instant_time: str, location: str, *, activity: str) -> Instant:
    """Return the completed commit with an instant time.

    Raises:
        InstantNotAvailableError: no such commit is on the active timeline.
    """
    for commit in timeline.commits:
        if commit.time == instant_time:
            return commit
    pending = timeline.find(instant_time)
    first = timeline.commits[0].time if timeline.commits else None
    if pending is not None:
        why = "has not completed"
    elif first is not None and instant_time < first:
        why = f"is older than {first}, the oldest commit that is not archived (hoodie.keep.min.commits)"
    else:
        why = "is not a commit; history() lists them"
    raise InstantNotAvailableError(f"{location}: cannot {activity}: instant {instant_time} {why}")


def list_instants_after(timeline: Timeline, target: Instant, plans: Iterable[str] = ()) -> tuple[Instant, ...]:
    """Return the instants after ``target``, in the order in which a restore undoes them.

    These are pending clusterings, then other pending writes, then completed writes; within each, the newest first.
    Completed writes are ordered by completion time (in timeline layout 1, by instant time), pending ones by instant
    time (Hudi: ``RestorePlanActionExecutor``).

    Args:
        plans: instant times of pending clusterings.
    """
    clustering = frozenset(plans)
    undone = [
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

    return tuple(sorted(undone, key=order, reverse=True))


def find_last_commit(timeline: Timeline) -> Instant | None:
    """Return the commit that completed last; None if the timeline has no completed commit."""
    return max(timeline.commits, key=lambda i: (i.completed_at, i.time), default=None)


def find_cleaned_base(
    deleted: Iterable[tuple[str, str]],
    bases: Iterable[BaseFile],
    undone: Collection[str],
    replaced: Collection[FileGroupId],
) -> str | None:
    """Return a file group whose newest version before some writes was cleaned after them; None if there is none.

    Args:
        deleted: partition path and bare name of the files that cleans have deleted since the first of the writes.
        bases: the base files that exist.
        undone: instant times of the writes.
        replaced: file groups that the commits before have replaced, so that their files are not needed.
    """
    first = min(undone)
    newest: dict[FileGroupId, str] = {}
    for base in bases:
        if base.name.instant_time < first:
            newest[base.group] = max(newest.get(base.group, ""), base.name.instant_time)
    for path, name in deleted:
        file = match_data_file(name)
        if file is None or (group := FileGroupId(path, file.file_id)) in replaced:
            continue
        if newest.get(group, "") < file.instant_time < first:
            return f"{file.file_id} of {path!r}"
    return None


def check_not_saved(timeline: Timeline, undone: Iterable[Instant], location: str) -> None:
    """Check that no savepoint keeps one of the commits to undo.

    Raises:
        InvalidInputError: a savepoint keeps one of the commits.
    """
    saved = {i.time for i in timeline.of_action(Action.SAVEPOINT)}
    for instant in undone:
        if instant.time in saved:
            raise InvalidInputError(
                f"{location}: commit {instant.time} is held by a savepoint and cannot be undone; call "
                f"delete_savepoint('{instant.time}') first"
            )
