"""The search for files that a clean deleted after the timeline was loaded and before the files were listed.

The files of commits on the timeline are known, so a missing one is noticed. Files of archived commits are known from
the listing alone: if one is missing, its rows are missing, or older rows appear in their place. Only a clean deletes
such files, and its plan names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lakeformat.errors import CorruptTableError
from lakeformat.model.files import BaseFileName, FileGroupId, FileSlice, LogFileName, join_path, match_data_file
from lakeformat.model.instant import Action, Instant, State
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["find_overtaking"]


def find_overtaking(
    store: TimelineStore, timeline: Timeline, until: str | None, slices: Mapping[str, Sequence[FileSlice]]
) -> str | None:
    """Return the path of a file of an archived commit that the listing lacks because a clean deleted it.

    Return None if there is none. Return the path of a clean if it is not known what later cleans have deleted, because
    they are archived, too.

    Args:
        timeline: the timeline that was loaded before the listing, with all instants.
        until: the time of the snapshot's newest commit; None if it has none.
        slices: the file slices of the snapshot by partition path, made from the listing.

    Raises:
        FileNotFoundError: a clean was archived during the call.
    """
    if timeline.archive == "" or until is None:
        return None
    now = store.peek()
    before, after = ({clean.time: clean for clean in loaded.of_action(Action.CLEAN)} for loaded in (timeline, now))
    last = max((time for time, clean in before.items() if clean.state is State.COMPLETED), default="")
    if last and last not in after:
        return store.path(before[last])
    # What a clean deletes that was pending then was not part of the newest state then.
    later = [clean for time, clean in after.items() if time not in before]
    if not later:
        return None
    if not last and not timeline.commit_times <= now.commit_times:
        return store.path(later[0])
    commits = (commit for commit in timeline.commits if commit.time <= until)
    replaced = {group for commit in commits for group in store.read_commit(commit).replaced_groups}
    for clean in later:
        for path, group, name in _planned_files(store, clean):
            is_archived = timeline.oldest_write is not None and name.instant_time < timeline.oldest_write
            if is_archived and group not in replaced and _is_lacking(path, name, group, slices):
                return path
    return None


def _planned_files(
    store: TimelineStore, clean: Instant
) -> Iterator[tuple[str, FileGroupId, BaseFileName | LogFileName]]:
    try:
        plan = store.read_clean_plan(clean)
    except CorruptTableError:
        return  # A clean without a readable plan deletes nothing.
    for folder, names in plan.files.items():
        for text in names:
            name = match_data_file(text)
            if name is not None and not (isinstance(name, LogFileName) and name.is_cdc):
                yield join_path(folder, text), FileGroupId(folder, name.file_id), name


def _is_lacking(
    path: str, name: BaseFileName | LogFileName, group: FileGroupId, slices: Mapping[str, Sequence[FileSlice]]
) -> bool:
    """Tell whether the snapshot would have the file if it had been listed: it has no slice as new as the file."""
    live = next((piece for piece in slices.get(group.partition_path, ()) if piece.group == group), None)
    if live is None:
        return True
    if isinstance(name, BaseFileName):
        return live.base_instant < name.instant_time
    return live.base_instant <= name.instant_time and all(log.path != path for log in live.logs)
