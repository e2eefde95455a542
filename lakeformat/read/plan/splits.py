"""Step 5: cut the chosen files into splits of about equal bytes, large files by row groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from lakeformat.files.open_slice import SliceMergeRules
from lakeformat.files.stored_shape import StoredShape
from lakeformat.model.files import BaseFileName, FileSlice

__all__ = ["FilePart", "Part", "SlicePart", "Split", "pack_splits"]


@dataclass(frozen=True, slots=True)
class FilePart:
    """Row groups of one base file.

    Attributes:
        size_bytes: compressed bytes of the row groups.
        row_groups: numbers of the row groups; None means all.
        nan_free: paths of float columns of the filter that hold no NaN in the file, which its footer does not show.
        shape: how the file's columns become the table's; None if they are the same.
    """

    path: str
    size_bytes: int
    row_groups: tuple[int, ...] | None = None
    nan_free: tuple[str, ...] = ()
    shape: StoredShape | None = None

    @property
    def columns_without_statistics(self) -> frozenset[str]:
        """Return the columns for which the file's statistics are not valid."""
        return frozenset() if self.shape is None else self.shape.columns_without_statistics(self.instant_time)

    @property
    def instant_time(self) -> str:
        """Return the instant time of the commit that wrote the file."""
        return BaseFileName.parse(self.path.rpartition("/")[2]).instant_time


@dataclass(frozen=True, slots=True)
class SlicePart:
    """A whole file slice with log files: its rows are known only when all files are merged. Picklable.

    Attributes:
        merging: how the files are merged, and which blocks count.
    """

    slice: FileSlice
    merging: SliceMergeRules

    @property
    def path(self) -> str:
        """Return the path of the base file, else of the first log file."""
        return (self.slice.base or self.slice.logs[0]).path

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all files."""
        return self.slice.size_bytes

    @property
    def log_bytes(self) -> int:
        """Return the bytes of the log files, which are read before the first row."""
        return sum(log.size_bytes for log in self.slice.logs)


Part: TypeAlias = FilePart | SlicePart


@dataclass(frozen=True, slots=True)
class Split:
    """The parts that one task reads. Picklable."""

    parts: tuple[Part, ...]

    @property
    def size_bytes(self) -> int:
        """Return the compressed bytes of all parts."""
        return sum(part.size_bytes for part in self.parts)


def pack_splits(parts: Iterable[Part], split_bytes: int, at_least: int = 1) -> tuple[Split, ...]:
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
        # A split ends where its size is nearest to the limit, which keeps the sizes even.
        if current and size + part.size_bytes / 2 > limit:
            splits.append(Split(tuple(current)))
            current, size = [], 0
        current.append(part)
        size += part.size_bytes
    if current:
        splits.append(Split(_join_parts(current)))
    return tuple(Split(_join_parts(split.parts)) for split in splits)


def _join_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Join neighbouring parts of one file."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, FilePart) and isinstance(last, FilePart) and last.path == part.path and part.row_groups:
            groups = (*(last.row_groups or ()), *part.row_groups)
            joined[-1] = replace(part, size_bytes=last.size_bytes + part.size_bytes, row_groups=groups)
        else:
            joined.append(part)
    return tuple(joined)
