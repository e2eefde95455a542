"""The stage folder of a write, and the description of a file that a write has finished but not yet committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakeformat.files.column_stats import FileStats
from lakeformat.model.commit import WriteStat
from lakeformat.storage.port import own_path

__all__ = ["WrittenFile", "count_copies", "stage_folder"]


def stage_folder(write_id: str) -> str:
    """Return the path of the folder for one write's staged rows and unpublished base files."""
    return own_path("stage", write_id)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished base file.

    Attributes:
        staged_path: current path of the file: in its partition, or in the stage folder if a task wrote it there.
        facts: column statistics of the file, for the file index; None if not known.
        unmatched_lookups: number of rows that were looked up in the group's previous base file and not found there.
        decoded_bytes: size of its rows in memory, in bytes; 0 if not known.
        copied_rows: rows of the row groups that were copied byte for byte from the older file.
        copied_bytes: bytes of these row groups, and of single column chunks that were copied.
    """

    staged_path: str
    stat: WriteStat
    facts: FileStats | None = None
    unmatched_lookups: int = 0
    decoded_bytes: int = 0
    copied_rows: int = 0
    copied_bytes: int = 0


def count_copies(files: Iterable[WrittenFile]) -> Mapping[str, int]:
    """Count copied and encoded rows and bytes, for the write's report. Return no counts if nothing was copied."""
    listed = [*files]
    rows, size = sum(file.copied_rows for file in listed), sum(file.copied_bytes for file in listed)
    if not size:
        return {}
    all_rows, all_bytes = (sum(getattr(file.stat, name) for file in listed) for name in ("num_writes", "size_bytes"))
    return {
        "copied_rows": rows,
        "copied_bytes": size,
        "encoded_rows": all_rows - rows,
        "encoded_bytes": all_bytes - size,
    }
