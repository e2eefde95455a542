"""The port of the indexes: record keys in, file groups out (Hudi: ``HoodieIndex.tagLocation``).

A record is identified by key and partition path; under a global index by its key alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.files import FileSlice
from lakeformat.storage.port import Storage

__all__ = ["Index", "IndexSettings", "Ints", "TagCounts", "Tagged", "argsort_keys", "tag_as_new"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The index of a write and its settings, from the options.

    Attributes:
        kind: a value of ``hoodie.index.type``.
        use_ranges: Hudi's ``hoodie.bloom.index.prune.by.ranges``.
        use_tree: Hudi's ``hoodie.bloom.index.use.treebased.filter``.
        exact: whether every pair must be certain, because no later step checks it.
        finds_deleted: whether to find out which rows log files have deleted; global indexes always do.
        update_partition: whether a global index moves a row whose partition changes; else the row stays where it was.
        buckets, hash_fields: settings of the bucket index.
    """

    kind: str = "AUTO"
    use_ranges: bool = True
    use_tree: bool = True
    exact: bool = False
    finds_deleted: bool = False
    update_partition: bool = True
    buckets: int = 256
    hash_fields: tuple[str, ...] = ()

    @property
    def is_global(self) -> bool:
        """Tell whether the key alone identifies a record."""
        return self.kind.startswith("GLOBAL_")

    @property
    def has_buckets(self) -> bool:
        """Tell whether the key alone decides the file group, without a look-up."""
        return self.kind == "BUCKET"


@dataclass(slots=True)
class TagCounts:
    """Counts of each narrowing step, for the report.

    Attributes:
        keys, files: keys to find, and files to search.
        after_ranges, after_filters: (key, file) candidates left after each step.
        checked: candidates looked up in key columns.
        false_positives: candidates that passed the filters but are not in the key columns.
        files_read, bytes_read: files whose key column was read, and its compressed bytes.
        footer_bytes: bytes of the footers read.
    """

    keys: int = 0
    files: int = 0
    after_ranges: int = 0
    after_filters: int = 0
    checked: int = 0
    false_positives: int = 0
    files_read: int = 0
    bytes_read: int = 0
    footer_bytes: int = 0

    def add(self, other: TagCounts) -> None:
        """Add the counts of another partition."""
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))

    @classmethod
    def total(cls, several: Iterable[TagCounts]) -> dict[str, int]:
        """Return the sums by name, as a report shows them."""
        total = cls()
        for counts in several:
            total.add(counts)
        return asdict(total)


@dataclass(frozen=True)
class Tagged:
    """The file slices of a set of keys.

    Attributes:
        keys: positions of keys that have a file, one entry per (key, file) pair.
        files: for each entry the position of the slice in ``searched``.
        new: positions of keys that no file holds, in key order.
        searched: the slices that were searched.
        new_buckets: for each new key its bucket; None if the index has no buckets.
        is_leaving: for each entry whether the row moves to another partition, so that this file loses it; None if no
            row moves.
        is_deleted: for each entry whether log files have deleted the row that the base file still holds; None if no
            row is deleted.
        base_rows: for each entry the row number in the slice's base file, -1 if the key has several rows; None if row
            numbers are unknown.
    """

    keys: Ints
    files: Ints
    new: Ints
    counts: TagCounts = field(default_factory=TagCounts)
    searched: tuple[FileSlice, ...] = ()
    new_buckets: Ints | None = None
    is_leaving: npt.NDArray[np.bool_] | None = None
    is_deleted: npt.NDArray[np.bool_] | None = None
    base_rows: Ints | None = None

    def with_new_keys(self, wanted: npt.NDArray[np.bool_]) -> Tagged:
        """Keep only some of the new keys: ``wanted`` has a flag for each of them."""
        buckets = None if self.new_buckets is None else self.new_buckets[wanted]
        return replace(self, new=self.new[wanted], new_buckets=buckets)


class Index(Protocol):
    """An index of one table: a picklable value without state."""

    def locate(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Find distinct keys in the live files of a snapshot.

        Unless the settings are exact, a key may be paired with a file that lacks it, if this is the key's only pair and
        the file is in the key's own partition: the merge of that file detects this and inserts the row.

        Args:
            keys: partition path -> keys to find in it; under a global index the paths are ignored and every file of
                the table is searched.

        Raises:
            CorruptTableError: a file cannot be read.
            UnsupportedTableError: the table was not written with this index.
        """

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Tag all keys as new, for operations that look up no keys. Keys may repeat."""


def argsort_keys(keys: pa.ChunkedArray) -> Ints:
    """Return the positions that sort the keys."""
    order: Ints = np.asarray(pc.sort_indices(keys)).astype(np.int64)
    return order


def tag_as_new(keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
    """Tag all keys as new, for indexes without a rule for the place of new keys."""
    nothing = np.empty(0, np.int64)
    return {
        path: Tagged(nothing, nothing, argsort_keys(column), TagCounts(keys=len(column)))
        for path, column in keys.items()
    }
