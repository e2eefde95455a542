"""The files of a table as the metadata table lists them, or the reason why its folders must be listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lakeformat.errors import LakeformatError
from lakeformat.file_system_view.file_groups import Listing, make_listing
from lakeformat.metadata_table.metadata_table import open_metadata_table
from lakeformat.metadata_table.names import MetadataPartition
from lakeformat.model.instant import Action
from lakeformat.model.table_config import METADATA_PARTITIONS, TableConfig
from lakeformat.storage.port import Storage
from lakeformat.timeline.timeline import Timeline

__all__ = [
    "FILE_INDEX",
    "FOLDERS",
    "METADATA_TABLE",
    "NOT_USED",
    "FileSource",
    "list_metadata_table",
    "names_metadata_table",
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
    names = (name.strip() for name in config.get(METADATA_PARTITIONS).split(","))
    return MetadataPartition.FILES.value in names


def list_metadata_table(
    storage: Storage, config: TableConfig, timeline: Timeline, *, is_past: bool
) -> tuple[Listing | None, FileSource]:
    """List the files that the metadata table names. Return None and the reason if the folders must be listed.

    Args:
        timeline: all active instants, none of them hidden. Load them before this call: a file of a commit that
            completes meanwhile is then not visible.
        is_past: whether an earlier state is read, whose files may be cleaned away.
    """
    if not names_metadata_table(config):
        return None, FOLDERS
    pending = {instant.action for instant in timeline.pending}
    if pending & _UNDOING or (is_past and Action.CLEAN in pending):
        return None, FileSource(FOLDERS.name, "files are being deleted, so the metadata table is not used")
    try:
        table = open_metadata_table(storage, config, timeline)
        assert table is not None  # noqa: S101  `names_metadata_table` is true.
        lacking, unknown = table.instants.find_lacking(timeline), table.instants.find_unknown(timeline)
        if lacking is not None:
            return None, _damaged(f"it lacks instant {lacking} of the table")
        if unknown is not None:
            return None, _damaged(f"it has instant {unknown}, which the table does not have")
        files = table.files()
    except (LakeformatError, OSError) as error:
        return None, _damaged(str(error))
    columns = (files[name].to_pylist() for name in ("partition_path", "file_name", "size_bytes"))
    return make_listing(zip(*columns, strict=True)), METADATA_TABLE


def _damaged(reason: str) -> FileSource:
    return FileSource(FOLDERS.name, f"the metadata table cannot be used: {reason}", is_damage=True)
