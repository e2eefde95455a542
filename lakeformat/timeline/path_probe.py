"""Recognition of a path that is not a table: another table format, plain Parquet, or a part of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakeformat.errors import CorruptTableError, InvalidOptionError
from lakeformat.model.files import PARTITION_MARKER
from lakeformat.model.instant import COMMIT_ACTIONS, State
from lakeformat.model.table_config import LOST_PROPERTIES, PROPERTIES_PATH
from lakeformat.storage.port import HOODIE, FileInfo, Storage
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2

__all__ = ["check_free", "check_no_commits", "describe_path"]

_DELTA: Final = "_delta_log"
_ICEBERG: Final = "metadata"
_READ_IT: Final = "read it with its own library and write the rows to a table of its own path"
_ADOPT: Final = "lakeformat.adopt(path, record_key=...) or the command lakeformat convert makes a table of it"


def check_free(storage: Storage) -> None:
    """Raise an error if a folder for a new table contains files that readers would treat as the table's.

    Only the folder and at most one of its subfolders are listed.

    Raises:
        InvalidOptionError: The folder contains a Delta table, an Iceberg table or plain Parquet files.
    """
    if (other := _describe_format(*_list_folders(storage))) is not None:
        raise InvalidOptionError(f"cannot make a table at {storage.location}: {other}; or choose another path")


def check_no_commits(storage: Storage) -> None:
    """Raise an error if the path has commits but no ``hoodie.properties``: a new table would get their rows.

    Raises:
        CorruptTableError: the file is lost.
    """
    if storage.info(PROPERTIES_PATH) is not None:
        return
    listed = ((layout, storage.list(layout.folder)) for layout in (LAYOUT_2, LAYOUT_1))
    instants = (layout.parse(entry.name) for layout, entries in listed for entry in entries if not entry.is_folder)
    commits = {i.time for i in instants if i and i.state is State.COMPLETED and i.action in COMMIT_ACTIONS}
    if commits:
        there = f"{len(commits):,} commit{'s' * (len(commits) != 1)}"
        raise CorruptTableError(
            f"{storage.location} has {there}, but no {PROPERTIES_PATH}: the file is lost; {LOST_PROPERTIES}"
        )


def describe_path(storage: Storage) -> str | None:
    """Return a text for an error message: what a path without a table contains, and what the user can do.

    Return None if nothing is recognized. Only the folder and at most one of its subfolders are listed.
    """
    location = storage.location.rstrip("/")
    if location.endswith((f"/{HOODIE}", ".parquet")) or f"/{HOODIE}/" in location:
        inside = location.partition(f"/{HOODIE}")[0]
        return "this is a file of Parquet; give the folder of a table" if inside == location else f"open {inside}"
    top, below = _list_folders(storage)
    if PARTITION_MARKER in top:
        return "this is the folder of a partition; give the folder above it that holds .hoodie"
    return _describe_format(top, below)


def _list_folders(storage: Storage) -> tuple[Mapping[str, FileInfo], Mapping[str, FileInfo]]:
    """Return the entries by name of the folder and of one subfolder: Iceberg's ``metadata``, else the first by name.

    If the folder has ``.hoodie`` or ``_delta_log``, no subfolder is listed.
    """
    top = {entry.name: entry for entry in storage.list("")}
    if HOODIE in top or _DELTA in top:
        return top, {}
    folders = [name for name, entry in top.items() if entry.is_folder and not name.startswith((".", "_"))]
    chosen = _ICEBERG if _ICEBERG in folders else min(folders, default=None)
    return top, {} if chosen is None else {entry.name: entry for entry in storage.list(chosen)}


def _describe_format(top: Mapping[str, FileInfo], below: Mapping[str, FileInfo]) -> str | None:
    if HOODIE in top:
        return None
    if _DELTA in top:
        return f"this is a Delta table; {_READ_IT}"
    if _ICEBERG in top and any(name.endswith(".metadata.json") for name in below):
        return f"this is an Iceberg table; {_READ_IT}"
    if any(name.endswith(".parquet") for name in (*top, *below)):
        return f"this is a folder of plain Parquet; {_ADOPT}"
    return None
