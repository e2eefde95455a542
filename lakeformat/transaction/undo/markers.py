"""Markers: they name each data file before it exists, so that a rollback finds it.

On local storage each marker is an empty file (Hudi: ``DirectWriteMarkers``). On remote storage each file costs a
request, so all markers of a step are the lines of one file (Hudi: ``TimelineServerBasedWriteMarkers``). A folder must
not hold markers of both kinds.

The module also creates the partition metadata file, which marks a folder as a partition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final

from lakeformat.codec import properties
from lakeformat.model.files import PARTITION_MARKER, LogFileName, join_path
from lakeformat.storage.port import HOODIE, Storage, is_remote
from lakeformat.timeline.timeline_layout import TimelineLayout

__all__ = ["MarkerKind", "list_marked", "marker_kind", "prepare_partition", "put_markers", "remove_markers"]

#: The name of a file with many markers, one per line, and of the file that says that there are such files.
_LINES: Final = "MARKERS"
_LINES_TYPE: Final = "MARKERS.type"


def _marker_folder(instant_time: str) -> str:
    return f"{HOODIE}/.temp/{instant_time}"


class MarkerKind(str, Enum):
    """How a data file is written (Hudi: ``IOType``): as a new file, as a new version of a file, or by appending."""

    CREATE = "CREATE"
    MERGE = "MERGE"
    APPEND = "APPEND"


_KINDS: Final = frozenset(kind.value for kind in MarkerKind)


def marker_kind(path: str, layout: TimelineLayout, *, merges: bool) -> MarkerKind:
    """Return the kind of a data file's marker. After a marker of a wrong kind, every later write of Hudi fails.

    Args:
        path: path of the data file.
        merges: whether a base file replaces an earlier base file of its file group.
    """
    log = LogFileName.match(path.rpartition("/")[2])
    if log is not None and not log.is_cdc:
        return MarkerKind.CREATE if layout.has_completion_times else MarkerKind.APPEND
    return MarkerKind.MERGE if merges and log is None else MarkerKind.CREATE


def put_markers(storage: Storage, instant_time: str, kinds: Mapping[str, MarkerKind], number: int) -> Sequence[str]:
    """Create the markers of data files before the files are written. Return the paths of the created files.

    Args:
        kinds: maps the path of each data file, relative to the table, to the kind of its marker.
        number: number of this call among those for the instant.
    """
    folder = _marker_folder(instant_time)
    names = [f"{path}.marker.{kind.value}" for path, kind in kinds.items()]
    if not is_remote(storage):
        paths = [f"{folder}/{name}" for name in names]
        for path in paths:
            storage.touch(path)
        return paths
    if not names:
        return ()
    # Without the type file Hudi would take the other file for a marker.
    storage.replace(f"{folder}/{_LINES_TYPE}", b"TIMELINE_SERVER_BASED")
    storage.replace(f"{folder}/{_LINES}{number}", "".join(f"{name}\n" for name in names).encode())
    return (f"{folder}/{_LINES}{number}", f"{folder}/{_LINES_TYPE}")


def list_marked(storage: Storage, instant_time: str) -> Iterator[tuple[str, MarkerKind]]:
    """Yield the path of each data file that an instant may have written, relative to the table, and its marker's kind.

    A file of the path may not exist: its marker comes first.
    """
    folder = _marker_folder(instant_time)
    for name in _list_names(storage, folder, len(folder) + 1):
        path, _, kind = name.rpartition(".marker.")
        if path and kind in _KINDS:
            yield path, MarkerKind(kind)


def _list_names(storage: Storage, folder: str, skipped: int) -> Iterator[str]:
    """Yield the names of the markers in a folder, without the first ``skipped`` characters of their paths."""
    for entry in storage.list(folder):
        if entry.is_folder:
            yield from _list_names(storage, entry.path, skipped)
        elif re.fullmatch(rf"{_LINES}\d+", entry.name):
            yield from storage.read(entry.path).decode("utf-8", "replace").splitlines()
        else:
            yield entry.path[skipped:]


def remove_markers(storage: Storage, instant_time: str) -> None:
    """Remove an instant's markers. Call it after the commit or rollback."""
    storage.delete_folder(_marker_folder(instant_time))


def prepare_partition(storage: Storage, partition_path: str, instant_time: str) -> None:
    """Create the partition metadata file in a folder if it is missing. Readers ignore folders without that file."""
    path = join_path(partition_path, PARTITION_MARKER)
    if storage.info(path) is not None:
        return
    depth = len(partition_path.split("/")) if partition_path else 0
    content = properties.encode(
        {"commitTime": instant_time, "partitionDepth": str(depth)}, comments=["partition metadata"]
    )
    try:
        storage.create(path, content)
    except FileExistsError:
        return
