"""The stage folder of a write, and the files that it has finished before it commits."""

from __future__ import annotations

from dataclasses import dataclass

from lakeformat.files.column_stats import FileStats
from lakeformat.model.commit import WriteStat
from lakeformat.storage.port import own_path

__all__ = ["WrittenFile", "stage_folder"]


def stage_folder(write_id: str) -> str:
    """Return the folder in which one write keeps its staged rows and unpublished base files."""
    return own_path("stage", write_id)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A finished base file.

    Attributes:
        staged_path: where the file is stored: in its partition, or in the stage folder if a task wrote it.
        facts: statistics for the file index; None if not known.
        unmatched_lookups: number of rows that were looked up in the previous version and not found there.
        decoded_bytes: bytes of its rows in memory; 0 if the writer of the file does not give them.
    """

    staged_path: str
    stat: WriteStat
    facts: FileStats | None = None
    unmatched_lookups: int = 0
    decoded_bytes: int = 0
