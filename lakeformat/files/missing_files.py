"""The error for a data file that a snapshot names but that is missing: cleaned, rolled back, or lost."""

from __future__ import annotations

from lakeformat.errors import CorruptTableError, LakeformatError
from lakeformat.model.files import BaseFileName, FileGroupId, LogFileName, join_path, match_data_file
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["CleanedFileError", "missing_file_error"]


class CleanedFileError(CorruptTableError):
    """A file was deleted while it was read, because newer commits have replaced it, or an undo has taken it back.

    A write that gets this error may run again from the newest commit.
    """


def missing_file_error(storage: Storage, path: str) -> CorruptTableError:
    """Make the error for a missing file of a snapshot. Load the timeline again to find the reason."""
    location = f"{storage.location}/{path}"
    try:
        store = TimelineStore(storage)
        timeline = store.load()
        if _is_undone(store, timeline, path):
            return CleanedFileError(f"{location} was taken back by a rollback or restore while it was read; read again")
        if _is_replaced(store, timeline, path):
            return CleanedFileError(
                f"{location} was cleaned while it was read, since newer commits have replaced it; read again, or keep "
                "more history (hoodie.cleaner.commits.retained)"
            )
    except (LakeformatError, OSError):
        pass  # The timeline cannot be read, so the reason is not known.
    return CorruptTableError(
        f"{location} is missing; restore it from a copy, and run lakeformat check to see what else is"
    )


def _slice_time(timeline: Timeline, name: BaseFileName | LogFileName) -> str:
    """Return the time that decides which file slice the file belongs to.

    If the timeline stores completion times, a log file belongs to a slice by its completion time. In all other cases, a
    file belongs to a slice by its instant time.
    """
    if isinstance(name, LogFileName) and timeline.layout.has_completion_times:
        return timeline.completion_time(name.instant_time) or name.instant_time
    return name.instant_time


def _is_undone(store: TimelineStore, timeline: Timeline, path: str) -> bool:
    """Tell whether the file's commit was undone: it is gone, or an empty commit is in its place."""
    name = _parse_name(path)
    is_old_log = isinstance(name, LogFileName) and not timeline.layout.has_completion_times
    if name is None or not timeline.commits or is_old_log:
        return False
    commit = next((instant for instant in timeline.commits if instant.time == name.instant_time), None)
    if commit is not None:
        return not store.read_commit(commit).stats
    return not timeline.is_committed(name.instant_time)


def _is_replaced(store: TimelineStore, timeline: Timeline, path: str) -> bool:
    """Tell whether a newer base file of the file group has been committed, or the file group has been replaced."""
    name, folder = _parse_name(path), path.rpartition("/")[0]
    if name is None:
        return False
    since, group = _slice_time(timeline, name), FileGroupId(folder, name.file_id)
    for entry in store.storage.list(folder):
        other = BaseFileName.match(entry.name)
        is_newer = other is not None and other.file_id == group.file_id and other.instant_time > since
        if other is not None and is_newer and timeline.is_committed(other.instant_time):
            return True
    for instant in timeline.commits:
        metadata = store.read_commit(instant)
        if group.file_id in metadata.replaced.get(folder, ()):
            return True
        newer_base_files = (
            stat for stat in metadata.stats.get(folder, ()) if stat.file_id == group.file_id and stat.is_base
        )
        if instant.time > since and any(stat.path != join_path(folder, str(name)) for stat in newer_base_files):
            return True
    return False


def _parse_name(path: str) -> BaseFileName | LogFileName | None:
    file_name = path.rpartition("/")[2]
    return match_data_file(file_name)
