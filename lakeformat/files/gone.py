"""Say why a data file is gone that a snapshot names: cleaned, taken back, or lost."""

from __future__ import annotations

from lakeformat.errors import CorruptTableError, LakeformatError
from lakeformat.model.files import BaseFileName, FileGroupId, LogFileName, join_path
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["gone"]


def gone(storage: Storage, path: str) -> CorruptTableError:
    """Make the error for a file that a snapshot names and that is not there, by the timeline as it is now."""
    where = f"{storage.location}/{path}"
    try:
        store = TimelineStore(storage)
        timeline = store.load()
        if _is_undone(timeline, path):
            return CorruptTableError(f"{where} was taken back by a rollback or restore while it was read; read again")
        if _is_replaced(store, timeline, path):
            return CorruptTableError(
                f"{where} was cleaned while it was read, since newer commits have replaced it; read again, or keep "
                "more history (hoodie.cleaner.commits.retained)"
            )
    except (LakeformatError, OSError):
        pass  # Then nothing is known but that it is gone.
    return CorruptTableError(
        f"{where} is missing; restore it from a copy, and run lakeformat check to see what else is"
    )


def _written_at(timeline: Timeline, name: BaseFileName | LogFileName) -> str:
    """From when on a base file ends the slice that a file is of."""
    if isinstance(name, LogFileName) and timeline.layout.tells_completion:
        return timeline.completion_time(name.instant_time) or name.instant_time
    return name.instant_time


def _is_undone(timeline: Timeline, path: str) -> bool:
    name = _name(path)
    if name is None or not timeline.commits or (isinstance(name, LogFileName) and not timeline.layout.tells_completion):
        return False
    return not timeline.is_committed(name.instant_time)


def _is_replaced(store: TimelineStore, timeline: Timeline, path: str) -> bool:
    """Whether a newer base file of the file group has been committed, or the group has been replaced."""
    name, folder = _name(path), path.rpartition("/")[0]
    if name is None:
        return False
    since, group = _written_at(timeline, name), FileGroupId(folder, name.file_id)
    for entry in store.storage.list(folder):
        other = BaseFileName.match(entry.name)
        is_newer = other is not None and other.file_id == group.file_id and other.instant_time > since
        if other is not None and is_newer and timeline.is_committed(other.instant_time):
            return True
    for instant in timeline.commits:
        said = store.commit(instant)
        if group.file_id in said.replaced.get(folder, ()):
            return True
        newer = (stat for stat in said.stats.get(folder, ()) if stat.file_id == group.file_id and stat.is_base)
        if instant.time > since and any(stat.path != join_path(folder, str(name)) for stat in newer):
            return True
    return False


def _name(path: str) -> BaseFileName | LogFileName | None:
    bare = path.rpartition("/")[2]
    return BaseFileName.match(bare) or LogFileName.match(bare)
