"""Buckets: which rows go into which file group (Hudi: ``UpsertPartitioner``)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import mmh3
import numpy as np
import numpy.typing as npt

from lakeformat.files.open_slice import SliceMerging
from lakeformat.index.bucket import bucket_file_id, bucket_of
from lakeformat.model.files import BaseFile, FileGroupId, FileSlice, LogFile

__all__ = [
    "Bucket",
    "BucketLoad",
    "FileSizing",
    "InsertShare",
    "LogPlace",
    "SmallFile",
    "assign",
    "assign_to_buckets",
    "changed",
    "derive_file_id",
    "split_evenly",
    "spread_inserts",
]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A file group that may take inserts. ``at``: its position among the partition's files."""

    at: int
    file_id: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileSizing:
    """How large files should get.

    Attributes:
        row_bytes: of one more row, as measured.
        max_file_bytes: the limit.
        small_file_bytes: files below are topped up.
        empty_bytes: of a file without rows: footer and schema.
        rows_per_new_file: a fixed number of rows for new files, by the user's wish.
    """

    row_bytes: float
    max_file_bytes: int
    small_file_bytes: int
    empty_bytes: int = 0
    rows_per_new_file: int | None = None

    def room(self, size_bytes: int) -> int:
        """How many more rows fit into a file of this size."""
        return max(0, int((self.max_file_bytes - size_bytes) / self.row_bytes))

    @property
    def rows_of_new_file(self) -> int:
        """How many rows a new file takes; a row larger than a whole file still needs a home."""
        return self.rows_per_new_file or max(1, self.room(self.empty_bytes))


@dataclass(frozen=True, slots=True)
class InsertShare:
    """Some inserts for one file: a small one, or a new one (``small`` is None)."""

    small: SmallFile | None
    rows: int


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a bucket's rows are appended: the next log file of a file slice, or the first of a new one.

    Attributes:
        named_after: the instant in its name; None for that of the commit.
        version: the number in its name.
        opened_at: the instant that opened the slice; None if the commit does.
        piece: the slice; None if the commit opens it.
        merging: how the slice's files become rows; None where nobody looks at them.
        deleting: those of the slice's log files that may delete rows.
        is_closing: a pending compaction is going to write the slice's base file.
    """

    named_after: str | None = None
    version: int = 1
    opened_at: str | None = None
    piece: FileSlice | None = None
    merging: SliceMerging | None = None
    deleting: tuple[LogFile, ...] = ()
    is_closing: bool = False

    @property
    def base_name(self) -> str:
        """Bare name of the slice's base file; "" if it has none."""
        return str(self.piece.base.name) if self.piece is not None and self.piece.base is not None else ""

    @property
    def log_names(self) -> tuple[str, ...]:
        """Bare names of the slice's log files so far."""
        return tuple(str(log.name) for log in self.piece.logs) if self.piece is not None else ()


class BucketLoad(Protocol):
    """What the workload profile tells of a bucket, however its rows are held; counts in rows."""

    @property
    def partition_path(self) -> str:
        """Partition of the file group."""

    @property
    def file_id(self) -> str:
        """The file group."""

    @property
    def changes(self) -> str | None:
        """The instant that opened the slice which the rows go into; None for a new file group."""

    @property
    def updates(self) -> int:
        """Rows that may be in the base file."""

    @property
    def inserts(self) -> int:
        """Rows that no file holds."""


@dataclass(frozen=True)
class Bucket:
    """Work for one file group.

    Attributes:
        base: the base file of the slice they belong to; None where it has none, and for a new file group.
        rows: positions of its rows among the partition's; the first ``lookups`` may be in the base file.
        leaving: the first so many move to another partition: here they are deletes.
        onto: where the rows are appended; None writes a base file.
        base_rows: of each of the first ``lookups`` rows the number of the row in the base file, -1 where it is not
            known; None where none is.
    """

    partition_path: str
    file_id: str
    base: BaseFile | None
    rows: Ints
    lookups: int
    leaving: int = 0
    onto: LogPlace | None = None
    base_rows: Ints | None = None

    @property
    def changes(self) -> str | None:
        """The instant that opened the slice which the rows go into; None for a new file group."""
        return changed(self.base, self.onto)

    @property
    def file_name(self) -> str:
        """What the rows there are said to stand in."""
        return str(self.base.name) if self.base is not None else self.file_id

    @property
    def updates(self) -> int:
        """Rows that may be in the base file."""
        return self.lookups

    @property
    def inserts(self) -> int:
        """Rows that no file holds."""
        return len(self.rows) - self.lookups


def changed(base: BaseFile | None, onto: LogPlace | None) -> str | None:
    """The instant that opened the slice which a bucket goes into; None if it opens one."""
    if onto is not None:
        return onto.opened_at
    return base.name.instant_time if base is not None else None


def spread_inserts(rows: int, small_files: Sequence[SmallFile], sizing: FileSizing) -> tuple[InsertShare, ...]:
    """Top up small files, smallest first, then open new file groups for the rest."""
    shares: list[InsertShare] = []
    for small in sorted(small_files, key=lambda file: (file.size_bytes, file.file_id)):
        taken = min(rows, sizing.room(small.size_bytes))
        if taken:
            shares.append(InsertShare(small, taken))
            rows -= taken
    return (*shares, *(InsertShare(None, n) for n in split_evenly(rows, sizing.rows_of_new_file)))


def split_evenly(rows: int, most: int) -> list[int]:
    """Parts of nearly equal size, none above ``most``."""
    parts = -(-rows // most)
    return [rows // parts + (part < rows % parts) for part in range(parts)]


def assign(
    partition_path: str,
    files: Sequence[FileSlice],
    located: tuple[Ints, Ints],
    new: Ints,
    sizing: FileSizing,
    next_file_id: Callable[[], str],
    *,
    closed: frozenset[FileGroupId] = frozenset(),
    leaving: npt.NDArray[np.bool_] | None = None,
    base_rows: Ints | None = None,
) -> tuple[Bucket, ...]:
    """Update buckets for files that hold keys, with inserts topped up; insert buckets for the rest.

    Args:
        located: (row, file) pairs from tagging.
        new: rows without a file, in key order: each file gets a run, so that ranges stay narrow.
        closed: file groups that take no inserts.
        leaving: for each pair whether the row moves to another partition; None for no.
        base_rows: for each pair the number of the row in the base file; see `Tagged`.
    """
    rows, owners = located
    if leaving is None:
        order = np.argsort(owners, kind="stable")
        left = np.zeros(len(files), np.int64)
    else:
        order = np.lexsort((~leaving, owners))
        left = np.bincount(owners[leaving], minlength=len(files))
    bounds = np.searchsorted(owners[order], np.arange(len(files) + 1))
    updates = {at: rows[order[bounds[at] : bounds[at + 1]]] for at in range(len(files)) if bounds[at] < bounds[at + 1]}
    small = [
        SmallFile(at, piece.group.file_id, piece.size_bytes)
        for at, piece in enumerate(files)
        if piece.size_bytes < sizing.small_file_bytes and piece.group not in closed
    ]
    inserts: dict[int, Ints] = {}
    created: list[Bucket] = []
    start = 0
    for share in spread_inserts(len(new), small, sizing):
        part = new[start : start + share.rows]
        start += share.rows
        if share.small is None:
            created.append(Bucket(partition_path, next_file_id(), None, part, 0))
        else:
            inserts[share.small.at] = part
    none = np.empty(0, np.int64)
    merged = (
        Bucket(
            partition_path,
            files[at].group.file_id,
            files[at].base,
            np.concatenate([updates.get(at, none), inserts.get(at, none)]),
            len(updates.get(at, none)),
            int(left[at]),
            base_rows=None if base_rows is None else base_rows[order[bounds[at] : bounds[at + 1]]],
        )
        for at in sorted({*updates, *inserts})
    )
    return (*merged, *created)


def assign_to_buckets(
    partition_path: str,
    files: Sequence[FileSlice],
    located: tuple[Ints, Ints],
    new: Ints,
    new_buckets: Ints,
    next_file_id: Callable[[], str],
) -> tuple[Bucket, ...]:
    """The same where the index says which bucket a row belongs to (Hudi: ``SparkBucketIndexPartitioner``).

    Args:
        files: the live ones, at most one a bucket.
        located, new: as for `assign`; how large a file gets has no part in it.
        new_buckets: the bucket of each new row.
    """
    file_at = {bucket_of(piece.group.file_id): at for at, piece in enumerate(files)}
    rows, owners = located
    lookups = _grouped(rows, owners)
    inserts = _grouped(new, new_buckets)
    none = np.empty(0, np.int64)
    merged = []
    for bucket, at in sorted(file_at.items(), key=lambda item: item[1]):
        found, added = lookups.get(at, none), inserts.pop(bucket, none) if bucket is not None else none
        if len(found) or len(added):
            piece = files[at]
            taken = np.concatenate([found, added])
            merged.append(Bucket(partition_path, piece.group.file_id, piece.base, taken, len(found)))
    created = [
        Bucket(partition_path, bucket_file_id(bucket, next_file_id()), None, added, 0)
        for bucket, added in inserts.items()
    ]
    return (*merged, *created)


def _grouped(rows: Ints, owners: Ints) -> dict[int, Ints]:
    """Owner -> its rows, in order."""
    order = np.argsort(owners, kind="stable")
    known, starts = np.unique(owners[order], return_index=True)
    return dict(zip(known.tolist(), np.split(rows[order], starts[1:]), strict=True)) if len(rows) else {}


#: Bits that make the first digit of an id one of a, b, e and f.
_LETTER_FIRST: Final = 0xA << 124


def derive_file_id(write_id: str, task: int, index: int) -> str:
    """The same id for the same work: a task that runs again names its files as before.

    It begins with a letter: eight digits would make a bucket's file of it (`lakeformat.index.bucket.bucket_of`).

    >>> derive_file_id("w", 0, 1) == derive_file_id("w", 0, 1)
    True
    """
    digest = mmh3.hash128(f"{write_id}/{task}/{index}".encode(), signed=False)
    return f"{uuid.UUID(int=digest | _LETTER_FIRST)}-0"
