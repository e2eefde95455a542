"""Buckets of step 5: which rows go into which file group (Hudi: ``UpsertPartitioner``)."""

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
    "derive_file_id",
    "opening_instant",
    "split_evenly",
    "spread_inserts",
]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A file group that may take inserts. ``at`` is its position among the partition's files."""

    at: int
    file_id: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileSizing:
    """The target sizes of files.

    Attributes:
        row_bytes: measured bytes of one more row.
        max_file_bytes: the size limit of a file.
        small_file_bytes: smaller files take inserts.
        empty_bytes: bytes of a file without rows: footer and schema.
        rows_per_new_file: a fixed number of rows for new files, if the user sets one.
    """

    row_bytes: float
    max_file_bytes: int
    small_file_bytes: int
    empty_bytes: int = 0
    rows_per_new_file: int | None = None

    def room(self, size_bytes: int) -> int:
        """Return how many more rows fit into a file of this size."""
        return max(0, int((self.max_file_bytes - size_bytes) / self.row_bytes))

    @property
    def rows_of_new_file(self) -> int:
        """Return how many rows a new file takes: at least one, even if a row is larger than a file may be."""
        return self.rows_per_new_file or max(1, self.room(self.empty_bytes))


@dataclass(frozen=True, slots=True)
class InsertShare:
    """Some inserts for one file: a small one, or a new one (``small`` is None)."""

    small: SmallFile | None
    rows: int


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The place where a bucket's rows are appended: the next log file of a file slice, or the first of a new slice.

    Attributes:
        named_after: the instant in the log file's name; None for the commit's instant.
        version: the version number in the log file's name.
        opened_at: the instant that opened the slice; None if this commit opens it.
        piece: the slice; None if this commit opens it.
        merging: how the slice's files are merged into rows; None if the write does not read stored rows.
        deleting: the slice's log files that may delete rows.
        is_closing: whether a pending compaction will write the slice's base file.
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
        """Return the bare name of the slice's base file; "" if it has none."""
        return str(self.piece.base.name) if self.piece is not None and self.piece.base is not None else ""

    @property
    def log_names(self) -> tuple[str, ...]:
        """Return the bare names of the slice's present log files."""
        return tuple(str(log.name) for log in self.piece.logs) if self.piece is not None else ()


class BucketLoad(Protocol):
    """The numbers of a bucket that go into the workload profile. Counts are in rows."""

    @property
    def partition_path(self) -> str:
        """Return the partition path of the file group."""

    @property
    def file_id(self) -> str:
        """Return the id of the file group."""

    @property
    def changes(self) -> str | None:
        """Return the instant that opened the slice which takes the rows; None for a new file group."""

    @property
    def updates(self) -> int:
        """Return the number of rows that may be in the base file."""

    @property
    def inserts(self) -> int:
        """Return the number of rows that no file holds."""


@dataclass(frozen=True)
class Bucket:
    """Work for one file group.

    Attributes:
        base: base file of the slice that takes the rows; None for a slice without one, and for a new file group.
        rows: positions of its rows among the partition's rows; the first ``lookups`` rows may be in the base file.
        lookups: the number of rows that may be in the base file.
        leaving: the number of rows that move to another partition; they come first, and are deletes in this bucket.
        onto: where the rows are appended; None writes a base file.
        base_rows: for each of the first ``lookups`` rows its row number in the base file, -1 if unknown; None if no
            number is known.
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
        """Return the instant that opened the slice which takes the rows; None for a new file group."""
        return opening_instant(self.base, self.onto)

    @property
    def file_name(self) -> str:
        """Return what the meta column for file names holds in stored rows of the slice: the base file's name, else the
        file id.
        """
        return str(self.base.name) if self.base is not None else self.file_id

    @property
    def updates(self) -> int:
        """Return the number of rows that may be in the base file."""
        return self.lookups

    @property
    def inserts(self) -> int:
        """Return the number of rows that no file holds."""
        return len(self.rows) - self.lookups


def opening_instant(base: BaseFile | None, onto: LogPlace | None) -> str | None:
    """Return the instant that opened the slice which a bucket goes into; None if the bucket opens the slice."""
    if onto is not None:
        return onto.opened_at
    return base.name.instant_time if base is not None else None


def spread_inserts(rows: int, small_files: Sequence[SmallFile], sizing: FileSizing) -> tuple[InsertShare, ...]:
    """Divide inserts over small files, smallest first, and over new file groups for the rows that are left."""
    shares: list[InsertShare] = []
    for small in sorted(small_files, key=lambda file: (file.size_bytes, file.file_id)):
        taken = min(rows, sizing.room(small.size_bytes))
        if taken:
            shares.append(InsertShare(small, taken))
            rows -= taken
    return (*shares, *(InsertShare(None, n) for n in split_evenly(rows, sizing.rows_of_new_file)))


def split_evenly(rows: int, most: int) -> list[int]:
    """Return parts of nearly equal size that add up to ``rows``; no part exceeds ``most``."""
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
    """Make one bucket per file that holds keys; small files also take inserts. Make buckets of new files for the other
    inserts.

    Args:
        located: (row, file) pairs from tagging.
        new: rows that no file holds, in key order. Each file gets consecutive rows, so that key ranges stay narrow.
        closed: file groups that take no inserts.
        leaving: for each pair whether the row moves to another partition; None if no row moves.
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
    insert_buckets: list[Bucket] = []
    start = 0
    for share in spread_inserts(len(new), small, sizing):
        part = new[start : start + share.rows]
        start += share.rows
        if share.small is None:
            insert_buckets.append(Bucket(partition_path, next_file_id(), None, part, 0))
        else:
            inserts[share.small.at] = part
    none = np.empty(0, np.int64)
    update_buckets = (
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
    return (*update_buckets, *insert_buckets)


def assign_to_buckets(
    partition_path: str,
    files: Sequence[FileSlice],
    located: tuple[Ints, Ints],
    new: Ints,
    new_buckets: Ints,
    next_file_id: Callable[[], str],
) -> tuple[Bucket, ...]:
    """Make the buckets of a table with a bucket index (Hudi: ``SparkBucketIndexPartitioner``). File sizes are not used.

    Args:
        files: the live slices, at most one per bucket.
        located, new: as for `assign`.
        new_buckets: the bucket number of each new row.
    """
    file_at = {bucket_of(piece.group.file_id): at for at, piece in enumerate(files)}
    rows, owners = located
    lookups = _group_by_owner(rows, owners)
    inserts = _group_by_owner(new, new_buckets)
    none = np.empty(0, np.int64)
    update_buckets = []
    for bucket, at in sorted(file_at.items(), key=lambda item: item[1]):
        found, added = lookups.get(at, none), inserts.pop(bucket, none) if bucket is not None else none
        if len(found) or len(added):
            piece = files[at]
            taken = np.concatenate([found, added])
            update_buckets.append(Bucket(partition_path, piece.group.file_id, piece.base, taken, len(found)))
    insert_buckets = [
        Bucket(partition_path, bucket_file_id(bucket, next_file_id()), None, added, 0)
        for bucket, added in inserts.items()
    ]
    return (*update_buckets, *insert_buckets)


def _group_by_owner(rows: Ints, owners: Ints) -> dict[int, Ints]:
    """Group the rows: owner -> its rows, in order."""
    order = np.argsort(owners, kind="stable")
    known, starts = np.unique(owners[order], return_index=True)
    return dict(zip(known.tolist(), np.split(rows[order], starts[1:]), strict=True)) if len(rows) else {}


#: Bits that make the first digit of an id one of a, b, e and f.
_LETTER_FIRST: Final = 0xA << 124


def derive_file_id(write_id: str, task: int, index: int) -> str:
    """Return the same file id for the same work, so that a repeated task uses the same file names.

    The id begins with a letter. If it began with eight digits, it would name a bucket's file
    (`lakeformat.index.bucket.bucket_of`).

    >>> derive_file_id("w", 0, 1) == derive_file_id("w", 0, 1)
    True
    """
    digest = mmh3.hash128(f"{write_id}/{task}/{index}".encode(), signed=False)
    return f"{uuid.UUID(int=digest | _LETTER_FIRST)}-0"
