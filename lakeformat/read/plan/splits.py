"""Step 5: portions of about equal bytes, by row groups where files are large."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from lakeformat.files.open_slice import SliceMerging
from lakeformat.files.stored_shape import StoredShape
from lakeformat.model.files import BaseFileName, FileSlice

__all__ = ["FilePart", "Part", "SlicePart", "Split", "pack"]


@dataclass(frozen=True, slots=True)
class FilePart:
    """Row groups of one base file; None means all. ``size_bytes`` is compressed.

    Attributes:
        nan_free: float columns of the filter, by path, that hold no NaN in the file: its footer does not tell.
        shape: how the file's columns become the table's; None where they are.
    """

    path: str
    size_bytes: int
    row_groups: tuple[int, ...] | None = None
    nan_free: tuple[str, ...] = ()
    shape: StoredShape | None = None

    @property
    def silent(self) -> frozenset[str]:
        """Columns of which the file's statistics say nothing."""
        return frozenset() if self.shape is None else self.shape.silent(self.instant_time)

    @property
    def instant_time(self) -> str:
        """Of the commit that wrote the file."""
        return BaseFileName.parse(self.path.rpartition("/")[2]).instant_time


@dataclass(frozen=True, slots=True)
class SlicePart:
    """A file slice that has log files, whole: its rows are known when all of them are merged. Picklable.

    Attributes:
        merging: how, and which blocks count.
    """

    slice: FileSlice
    merging: SliceMerging

    @property
    def path(self) -> str:
        """Of the base file, else of the first log file."""
        return (self.slice.base or self.slice.logs[0]).path

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return self.slice.size_bytes

    @property
    def log_bytes(self) -> int:
        """Of its log files, which are read before its first row."""
        return sum(log.size_bytes for log in self.slice.logs)


Part: TypeAlias = FilePart | SlicePart


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads. Picklable."""

    parts: tuple[Part, ...]

    @property
    def size_bytes(self) -> int:
        """Compressed bytes."""
        return sum(part.size_bytes for part in self.parts)


def pack(parts: Iterable[Part], split_bytes: int, at_least: int = 1) -> tuple[Split, ...]:
    """Put parts, in order, into splits of up to ``split_bytes``.

    Args:
        at_least: make the splits small enough to get about this many.
    """
    listed = list(parts)
    total = sum(part.size_bytes for part in listed)
    limit = max(1, min(split_bytes, -(-total // max(1, at_least))))
    splits: list[Split] = []
    current: list[Part] = []
    size = 0
    for part in listed:
        # Closing where the split is nearest its limit keeps the sizes even.
        if current and size + part.size_bytes / 2 > limit:
            splits.append(Split(tuple(current)))
            current, size = [], 0
        current.append(part)
        size += part.size_bytes
    if current:
        splits.append(Split(_joined(current)))
    return tuple(Split(_joined(split.parts)) for split in splits)


def _joined(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Neighbouring parts of one file as one."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, FilePart) and isinstance(last, FilePart) and last.path == part.path and part.row_groups:
            groups = (*(last.row_groups or ()), *part.row_groups)
            joined[-1] = replace(part, size_bytes=last.size_bytes + part.size_bytes, row_groups=groups)
        else:
            joined.append(part)
    return tuple(joined)
