"""The protocol of the indexes, which find the file slices of record keys (Hudi: ``HoodieIndex.tagLocation``).

A record is identified by its key and partition path; for a global index only by its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.arrow.text_order import sort_texts
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.bucket_rule import BucketRule
from lakeformat.model.files import FileSlice
from lakeformat.model.index_type import AUTO, CONSISTENT, INDEX_TYPES, IndexType
from lakeformat.storage.port import Storage

__all__ = [
    "Index",
    "IndexSettings",
    "Ints",
    "PartitionBuckets",
    "TableBuckets",
    "TagCounts",
    "Tagged",
    "sort_texts",
    "tag_as_new",
]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The index of a write and its settings, from the options.

    Attributes:
        kind: a value of ``hoodie.index.type``.
        use_ranges: whether files are skipped by their key ranges (Hudi: ``hoodie.bloom.index.prune.by.ranges``).
        use_tree: whether ranges are searched in sorted keys, instead of comparing each range with every key (Hudi:
            ``hoodie.bloom.index.use.treebased.filter``).
        exact: whether each slice in the result must contain its key. Set it if no later step checks that.
        finds_deleted: whether to find out which rows log files have deleted; global indexes always do.
        update_partition: whether a global index moves a row whose partition changes. If False, the row stays in its
            old partition.
        engine: a value of ``hoodie.index.bucket.engine``, for the bucket index.
        buckets: number of buckets of a partition, for the bucket index; under consistent hashing, of a new partition.
        bucket_rule: the numbers of buckets of single partitions, for the bucket index; None if all have ``buckets``.
        hash_fields: fields of the record key that the bucket index hashes.
        use_metadata_table: whether the record index of the metadata table may be used.
        asks_stored_filters: whether the bloom filters of the metadata table are asked before any file is opened (Hudi:
            ``hoodie.bloom.index.use.metadata``).
        finds_copies: whether AUTO must find every copy of a key that plain inserts may have stored.
        replaced_by: id of the write if it replaces partitions, else "". Under consistent hashing the buckets of these
            partitions become new file groups, whose ids are derived from it.
    """

    kind: str = AUTO.name
    use_ranges: bool = True
    use_tree: bool = True
    exact: bool = False
    finds_deleted: bool = False
    update_partition: bool = True
    engine: str = "SIMPLE"
    buckets: int = 256
    bucket_rule: BucketRule | None = None
    hash_fields: tuple[str, ...] = ()
    use_metadata_table: bool = True
    asks_stored_filters: bool = False
    finds_copies: bool = False
    replaced_by: str = ""

    @property
    def type(self) -> IndexType:
        """Return the traits of the index type."""
        return INDEX_TYPES[self.kind]

    @property
    def is_global(self) -> bool:
        """Tell whether the index is global: the key identifies a record in the whole table."""
        return self.type.is_global

    @property
    def has_buckets(self) -> bool:
        """Tell whether the index is the bucket index, where the key's hash gives the file group."""
        return self.type.has_buckets

    @property
    def is_consistent(self) -> bool:
        """Tell whether the index is the bucket index with consistent hashing."""
        return self.has_buckets and self.engine == CONSISTENT

    @property
    def file_search(self) -> str:
        """Return how files are searched for keys: ``BLOOM``, ``SIMPLE``, or ``AUTO`` for the cheaper one per file."""
        return self.type.file_search

    @property
    def trusts_record_index(self) -> bool:
        """Tell whether a place may be false, because nothing but the record index names it."""
        return self.type.trusts_record_index and not self.exact


class PartitionBuckets(Protocol):
    """The buckets of one partition under the bucket index. A picklable value."""

    @property
    def buckets(self) -> int:
        """Return the number of buckets. They are numbered from 0."""

    def numbers(self, keys: pa.ChunkedArray) -> Ints:
        """Return the bucket number of each record key."""

    def bucket_of(self, file_id: str) -> int | None:
        """Return the number of the bucket whose file group has this file id; None if it belongs to no bucket."""

    def new_file_id(self, bucket: int, file_id: str) -> str:
        """Return the file id of a bucket's first file group.

        Args:
            file_id: a file id from which the result may be made.
        """


class TableBuckets(Protocol):
    """The buckets of a table under the bucket index. A picklable value."""

    def of(self, partition_path: str) -> PartitionBuckets:
        """Return the buckets of a partition, which may be new."""


@dataclass(slots=True)
class TagCounts:
    """The counts of the steps of a look-up, for the report of a write.

    Attributes:
        keys: number of keys to find.
        files: number of files to search.
        after_ranges: number of candidates, which are (key, file) pairs, left by the key ranges.
        after_filters: number of candidates left by the footer filters.
        checked: number of candidates looked up in key columns.
        false_positives: number of candidates that passed a filter though the file lacks the key.
        files_read: number of files whose key column was read.
        bytes_read: compressed size of these key columns, in bytes.
        footer_bytes: size of the footers read, in bytes.
        index_keys: number of keys looked up in the record index of the metadata table.
        index_groups: number of file groups of the record index that were read.
        index_bytes: number of bytes that were read from them.
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
    index_keys: int = 0
    index_groups: int = 0
    index_bytes: int = 0

    def add(self, other: TagCounts) -> None:
        """Add other counts to these, such as those of another partition."""
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))

    @classmethod
    def total(cls, several: Iterable[TagCounts]) -> dict[str, int]:
        """Return a mapping of the counts' names to their sums, as a report shows them."""
        total = cls()
        for counts in several:
            total.add(counts)
        return asdict(total)


@dataclass(frozen=True)
class Tagged:
    """The result of a look-up: which file slice contains each key, and which keys are new.

    An entry is a pair of a key and a slice. Positions of keys are those in the column that was looked up.

    Attributes:
        keys: for each entry the position of its key.
        files: for each entry the position of its slice in ``searched``.
        new: positions of the keys that no file contains, sorted by key.
        counts: counts of the steps of the look-up.
        searched: the slices that were searched.
        new_buckets: for each new key its bucket; None if the index has no buckets.
        buckets: the buckets of the partition; None if the index has none.
        is_leaving: for each entry whether the row moves to another partition, so that it is removed from this slice;
            None if no row moves.
        is_deleted: for each entry whether log files have deleted the row in the base file; None if no row is deleted.
        base_rows: for each entry the row number in the slice's base file, -1 if it is unknown or the key has several
            rows; None if all are unknown.
    """

    keys: Ints
    files: Ints
    new: Ints
    counts: TagCounts = field(default_factory=TagCounts)
    searched: tuple[FileSlice, ...] = ()
    new_buckets: Ints | None = None
    buckets: PartitionBuckets | None = None
    is_leaving: npt.NDArray[np.bool_] | None = None
    is_deleted: npt.NDArray[np.bool_] | None = None
    base_rows: Ints | None = None

    def with_new_keys(self, wanted: npt.NDArray[np.bool_]) -> Tagged:
        """Return a copy with only some of the new keys: ``wanted`` has a flag for each entry of ``new``."""
        buckets = None if self.new_buckets is None else self.new_buckets[wanted]
        return replace(self, new=self.new[wanted], new_buckets=buckets)


class Index(Protocol):
    """An index, which finds the file slices of record keys. A picklable value; it stores no data of the table."""

    def locate(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Find distinct keys in the live files of a snapshot.

        If the settings are not exact, the result may name a slice for a key that the slice does not contain. This is
        harmless, because such a slice is the only one named for the key and is in the key's own partition: the merge
        of the slice inserts the row.

        Args:
            keys: maps each partition path to the keys to find in it. A global index ignores the paths and searches
                every file of the table.

        Returns:
            the result for each partition path.

        Raises:
            CorruptTableError: a file cannot be read.
            UnsupportedTableError: the table was not written with this index.
        """

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Return a result for each partition path with all keys as new. Keys may repeat.

        Used by operations that do not look up keys, such as bulk insert.
        """


def tag_as_new(keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
    """Tag all keys as new, for indexes that do not decide the file group of a new key."""
    nothing = np.empty(0, np.int64)
    return {
        path: Tagged(nothing, nothing, sort_texts(column), TagCounts(keys=len(column))) for path, column in keys.items()
    }
