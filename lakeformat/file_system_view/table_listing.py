"""The files of a table as the metadata table lists them, or the reason why its folders must be listed.

The names are parsed and compared as columns. So the time of a listing hardly depends on the number of files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.errors import LakeformatError
from lakeformat.file_system_view.live_files import FILE_COLUMNS
from lakeformat.metadata_table.metadata_table import MetadataTable, open_metadata_table
from lakeformat.metadata_table.names import MetadataPartition
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import Action
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Storage
from lakeformat.timeline.timeline import Timeline

__all__ = [
    "FILE_INDEX",
    "FOLDERS",
    "METADATA_TABLE",
    "NOT_USED",
    "FileSource",
    "MetadataListing",
    "group_text",
    "list_metadata_table",
    "names_metadata_table",
    "open_agreeing",
    "visible_table",
]

#: Actions that delete files of commits before the commits disappear from the timeline.
_UNDOING: Final = frozenset({Action.ROLLBACK, Action.RESTORE})


@dataclass(frozen=True, slots=True)
class FileSource:
    """Where the names and sizes of a snapshot's files come from.

    Attributes:
        name: ``file index``, ``metadata table`` or ``folders``.
        reason: why the folders were listed although the table has a metadata table; else empty.
        is_damage: whether the reason is a defect of the metadata table.
    """

    name: str
    reason: str = ""
    is_damage: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})" if self.reason else self.name


FILE_INDEX: Final = FileSource("file index")
METADATA_TABLE: Final = FileSource("metadata table")
FOLDERS: Final = FileSource("folders")
#: The source of a table that has a metadata table, if the caller forbids its use.
NOT_USED: Final = FileSource(FOLDERS.name, "the metadata table is switched off, or the read hides commits")


def names_metadata_table(config: TableConfig) -> bool:
    """Tell whether the table's properties say that its metadata table lists the files."""
    return MetadataPartition.FILES.value in config.metadata_partitions


@dataclass(frozen=True, slots=True)
class MetadataListing:
    """The files that the metadata table lists.

    Attributes:
        table: the metadata table.
        files: the columns ``partition_path``, ``file_name`` and ``size_bytes``, in no order.
    """

    table: MetadataTable
    files: pa.Table


def list_metadata_table(
    storage: Storage, config: TableConfig, timeline: Timeline, *, is_past: bool
) -> tuple[MetadataListing | None, FileSource]:
    """Return the files that the metadata table lists. If the folders must be listed, return None and the reason.

    Args:
        timeline: all active instants, none of them hidden. Load them before this call: a file of a commit that
            completes meanwhile is then not visible.
        is_past: whether an earlier state is read, whose files may be cleaned away.
    """
    if not names_metadata_table(config):
        return None, FOLDERS
    try:
        table = open_agreeing(storage, config, timeline, is_past=is_past)
        return (
            (None, table) if isinstance(table, FileSource) else (MetadataListing(table, table.files()), METADATA_TABLE)
        )
    except (LakeformatError, OSError) as error:
        return None, _damaged(str(error))


def open_agreeing(
    storage: Storage, config: TableConfig, timeline: Timeline, *, is_past: bool = False
) -> MetadataTable | FileSource:
    """Open the metadata table if its timeline agrees with that of the table. If not, return the reason.

    Args:
        config: properties that name the metadata table.
        timeline, is_past: as for `list_metadata_table`.

    Raises:
        LakeformatError, OSError: the metadata table cannot be read.
    """
    pending = {instant.action for instant in timeline.pending}
    if pending & _UNDOING or (is_past and Action.CLEAN in pending):
        return FileSource(FOLDERS.name, "files are being deleted, so the metadata table is not used")
    table = open_metadata_table(storage, config, timeline)
    if table is None:
        return FOLDERS
    lacking, unknown = table.instants.find_lacking(timeline), table.instants.find_unknown(timeline)
    if lacking is not None:
        return _damaged(f"it lacks instant {lacking} of the table")
    if unknown is not None:
        return _damaged(f"it has instant {unknown}, which the table does not have")
    return table


def _damaged(reason: str) -> FileSource:
    return FileSource(FOLDERS.name, f"the metadata table cannot be used: {reason}", is_damage=True)


#: Pattern of `lakeformat.model.files.BaseFileName`, with the parts that are needed here.
_BASE_NAME: Final = r"^(?P<file_id>[^_/]+)_\d+-\d+-\d+_(?P<time>\d{14}|\d{17})\.parquet$"


def visible_table(
    listed: pa.Table,
    timeline: Timeline,
    replaced: frozenset[FileGroupId],
    file_names: Callable[[str], Mapping[FileGroupId, str]],
) -> tuple[pa.Table, pa.Array]:
    """Return the files that `lakeformat.file_system_view.file_groups.visible_files` chooses, as columns.

    Args:
        listed: `MetadataListing.files`.
        timeline, replaced, file_names: as for `visible_files`.

    Returns:
        a table with `FILE_COLUMNS`, sorted by partition path and file id, and for each row its `group_text`.
    """
    folders, names = (listed[name].combine_chunks() for name in ("partition_path", "file_name"))
    parts = pc.extract_regex(names, _BASE_NAME)
    ids, times = parts.field("file_id"), parts.field("time")
    last = timeline.newest_time or ""
    is_visible = [t for t in pc.unique(times).drop_null().to_pylist() if t <= last and timeline.is_committed(t)]
    flags = pc.and_(parts.is_valid(), pc.is_in(times, pa.array(is_visible, pa.string())))
    active = [time for time in is_visible if time in timeline.commit_times]
    named = [f"{group.partition_path}\0{name}" for time in active for group, name in file_names(time).items()]
    is_named = pc.is_in(_join(folders, names), pa.array(named, pa.string()))
    flags = pc.and_(flags, pc.or_(is_named, pc.invert(pc.is_in(times, pa.array(active, pa.string())))))
    groups = _join(folders, ids)
    if replaced:
        flags = pc.and_(flags, pc.invert(pc.is_in(groups, pa.array(map(group_text, replaced), pa.string()))))
    rows = np.flatnonzero(np.asarray(flags.fill_null(False)))
    rows = rows[np.asarray(pc.sort_indices(_join(groups, times).take(pa.array(rows))))]
    in_order = groups.take(pa.array(rows))
    is_newest = np.ones(len(rows), np.bool_)
    if len(rows):
        is_newest[:-1] = np.asarray(pc.not_equal(in_order[:-1], in_order[1:]))
    chosen = pa.array(rows[is_newest])
    columns = [column.take(chosen) for column in (folders, names, times, listed["size_bytes"].combine_chunks())]
    counts = [pa.nulls(len(chosen), FILE_COLUMNS.field(name).type) for name in ("rows", "row_groups")]
    return pa.Table.from_arrays([*columns, *counts], schema=FILE_COLUMNS), groups.take(chosen)


def group_text(group: FileGroupId) -> str:
    """Return a text for a file group; texts have the order of the groups."""
    return f"{group.partition_path}\0{group.file_id}"


def _join(first: pa.Array, second: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(first, second, "\0")
