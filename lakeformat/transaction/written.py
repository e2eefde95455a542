"""What a write leaves before it commits: its stage folder, and the files it has finished."""

from __future__ import annotations

from dataclasses import dataclass

from lakeformat.files.facts import FileStats
from lakeformat.model.commit import WriteStat
from lakeformat.storage.port import own_path

__all__ = ["Written", "stage_folder"]


def stage_folder(write_id: str) -> str:
    """Where one write keeps its staged rows and unpublished base files."""
    return own_path("stage", write_id)


@dataclass(frozen=True, slots=True)
class Written:
    """A finished base file.

    Attributes:
        staged_path: where it stands: in its partition, or in the stage folder if a task wrote it.
        facts: what the file index keeps of it; None if nobody knows.
        missed: rows looked for in the version before that it did not hold.
        decoded_bytes: of its rows in memory, as far as whoever wrote it says.
    """

    staged_path: str
    stat: WriteStat
    facts: FileStats | None = None
    missed: int = 0
    decoded_bytes: int = 0
