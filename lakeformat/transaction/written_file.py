"""The stage folder of a write, and the description of a file that a write has finished but not yet committed."""

from __future__ import annotations

from dataclasses import dataclass

from lakeformat.files.column_stats import FileStats
from lakeformat.model.commit import WriteStat
from lakeformat.storage.port import own_path

__all__ = ["WrittenFile", "stage_folder"]


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
    """

    staged_path: str
    stat: WriteStat
    facts: FileStats | None = None
    unmatched_lookups: int = 0
    decoded_bytes: int = 0
