"""The port of the indexes: keys in, places out (Hudi: ``HoodieIndex.tagLocation``).

A record is identified by key and partition; under a global index by its key alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.model.files import FileSlice
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot

__all__ = ["Index", "IndexSettings", "Ints", "TagCounts", "Tagged", "in_key_order", "untagged"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Which index, and how it works; from the options of a write.

    Attributes:
        kind: a value of ``hoodie.index.type``.
        use_ranges: Hudi's ``hoodie.bloom.index.prune.by.ranges``.
        use_tree: Hudi's ``hoodie.bloom.index.use.treebased.filter``.
        exact: no pair may be a guess: nothing follows that would find out.
        tells_gone: whether it is told which of the rows found log files have deleted; global indexes always tell.
        update_partition: a global index moves a row whose partition changes; else the row stays where it was.
        buckets, hash_fields: of the bucket index.
    """

    kind: str = "AUTO"
    use_ranges: bool = True
    use_tree: bool = True
    exact: bool = False
    tells_gone: bool = False
    update_partition: bool = True
    buckets: int = 256
    hash_fields: tuple[str, ...] = ()

    @property
    def is_global(self) -> bool:
        """Whether the key alone identifies a record."""
        return self.kind.startswith("GLOBAL_")

    @property
    def has_buckets(self) -> bool:
        """Whether the key decides the file group, whether it is looked up or not."""
        return self.kind == "BUCKET"


@dataclass(slots=True)
class TagCounts:
    """What each narrowing step left over, for the report.

    Attributes:
        keys, files: what there was to pair; pairs are never made.
        after_ranges, after_filters: (key, file) candidates that each step left.
        checked: candidates looked up in key columns.
        false_positives: candidates that the filters let through and key columns ruled out.
        files_read, bytes_read: files whose key column was read, and compressed bytes of it.
        footer_bytes: bytes of the footers looked at.
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
        """Sum up, partition by partition."""
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))

    @classmethod
    def total(cls, several: Iterable[TagCounts]) -> dict[str, int]:
        """The sums by name, as a report shows them."""
        total = cls()
        for counts in several:
            total.add(counts)
        return asdict(total)


@dataclass(frozen=True)
class Tagged:
    """Where a set of keys is.

    Attributes:
        keys: positions of keys that have a file, one entry per (key, file) pair.
        files: for each entry the position of the slice in ``searched``.
        new: positions of keys that no file holds, in key order.
        searched: the slices looked at.
        new_buckets: for each new key the bucket it belongs to; None where the index does not say.
        leaving: for each entry whether the row moves to another partition, so that this file loses it; None for no.
        gone: for each entry whether log files have deleted the row that the base file still holds; None for no.
        base_rows: for each entry the number of the row in the slice's base file, -1 where the key stands in several;
            None where nobody looked.
    """

    keys: Ints
    files: Ints
    new: Ints
    counts: TagCounts = field(default_factory=TagCounts)
    searched: tuple[FileSlice, ...] = ()
    new_buckets: Ints | None = None
    leaving: npt.NDArray[np.bool_] | None = None
    gone: npt.NDArray[np.bool_] | None = None
    base_rows: Ints | None = None

    def inserting(self, wanted: npt.NDArray[np.bool_]) -> Tagged:
        """The same with only some of the new keys: a flag for each of them."""
        buckets = None if self.new_buckets is None else self.new_buckets[wanted]
        return replace(self, new=self.new[wanted], new_buckets=buckets)


class Index(Protocol):
    """An index of one table. A value: picklable, without state of its own."""

    def locate(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Find distinct keys in the live files of a snapshot.

        Unless the settings are exact, a pair of a key that the file in fact lacks is allowed if it is the key's only
        one and a file of its own partition: the merge of that file finds out, and inserts the row there.

        Args:
            keys: partition path -> keys to find in it; under a global index the names do not matter and every
                file of the table is searched.

        Raises:
            CorruptTableError: a file cannot be read.
            UnsupportedTableError: the table was not written with this index.
        """

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """The same keys as new ones, of operations that look nothing up. Keys may repeat."""


def in_key_order(keys: pa.ChunkedArray) -> Ints:
    """Positions that sort the keys."""
    order: Ints = np.asarray(pc.sort_indices(keys)).astype(np.int64)
    return order


def untagged(keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
    """All keys as new ones, for indexes that do not care where new keys go."""
    nothing = np.empty(0, np.int64)
    return {
        path: Tagged(nothing, nothing, in_key_order(column), TagCounts(keys=len(column)))
        for path, column in keys.items()
    }
