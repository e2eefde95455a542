"""The bucket index without its engine: a hash of the key gives the bucket, which is one file group of the partition.

`lakeformat.index.bucket` has the engine SIMPLE, `lakeformat.index.consistent_hashing` the engine CONSISTENT_HASHING.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from lakeformat.arrow.text_order import sort_texts
from lakeformat.codec.key_fields import FieldRule
from lakeformat.errors import InvalidOptionError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.index.port import IndexSettings, PartitionBuckets, TableBuckets, TagCounts, Tagged
from lakeformat.index.stored_keys import KeyColumn, mark_deleted_rows, match_keys, read_slice_keys
from lakeformat.model.files import FileSlice
from lakeformat.storage.port import Storage

__all__ = ["BUCKETS", "HashIndex", "find_field_rule", "read_first_keys", "slice_path"]

BUCKETS: Final = "hoodie.bucket.index.num.buckets"
_FIELDS: Final = "hoodie.bucket.index.hash.field"


@dataclass(frozen=True, slots=True)
class HashIndex(ABC):
    """The index BUCKET. An engine says how keys belong to buckets, and buckets to file groups."""

    settings: IndexSettings

    @abstractmethod
    def hash(
        self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray] | None = None
    ) -> TableBuckets:
        """Return how the table's keys belong to buckets. Raise the errors of `locate`.

        Args:
            keys: the keys whose buckets are needed, by partition path; None if they are not known yet.
        """

    def locate(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Find for each key the file slice of its bucket. If the bucket has no slice, the key is new.

        If the settings are exact, the keys of the slices are read, and a key that its slice does not contain is new
        too. Otherwise a slice in the result may lack the key; the merge of that slice then inserts the row.

        Raises:
            InvalidOptionError: a stored key is in another bucket than the one computed by the settings.
            UnsupportedTableError: the table was not written with this index.
            CorruptTableError: a bucket has two files, or a file has no bucket.
        """
        hashing = self.hash(storage, snapshot, keys)
        tagged: dict[str, Tagged] = {}
        for path, column in keys.items():
            buckets = hashing.of(path)
            tagged[path] = _locate(column, snapshot.slices.get(path, ()), buckets)
        if not self.settings.exact:
            return tagged
        exact = {path: _confirm_pairs(storage, snapshot, located, keys[path]) for path, located in tagged.items()}
        return {path: mark_deleted_rows(storage, snapshot, keys[path], located) for path, located in exact.items()}

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Tag all keys as new, each with its bucket, without a look-up. Raise the errors of `locate`."""
        hashing = self.hash(storage, snapshot, keys)
        nothing = np.empty(0, np.int64)
        placed = {}
        for path, column in keys.items():
            order, buckets = sort_texts(column), hashing.of(path)
            numbers = buckets.numbers(column)[order]
            placed[path] = Tagged(nothing, nothing, order, TagCounts(keys=len(column)), (), numbers, buckets)
        return placed


def _locate(keys: pa.ChunkedArray, files: Sequence[FileSlice], buckets: PartitionBuckets) -> Tagged:
    numbers = buckets.numbers(keys)
    file_of = np.full(buckets.buckets, -1)
    file_of[[buckets.bucket_of(piece.group.file_id) or 0 for piece in files]] = np.arange(len(files))
    files_of = file_of[numbers]
    located, new = np.flatnonzero(files_of >= 0), np.flatnonzero(files_of < 0)
    new = new[sort_texts(keys.take(pa.array(new)))]
    counts = TagCounts(len(keys), len(files), len(located), len(located))
    return Tagged(located, files_of[located], new, counts, tuple(files), numbers[new], buckets)


def find_field_rule(
    storage: Storage,
    snapshot: Snapshot,
    pieces: Iterable[FileSlice],
    buckets_by: Callable[[FieldRule], TableBuckets],
    keys: Mapping[str, pa.ChunkedArray] | None,
) -> FieldRule | None:
    """Return the rule by which record keys are split into fields for hashing; None if no stored key tells.

    Args:
        pieces: the slices whose keys tell.
        buckets_by: function that returns how keys belong to buckets by a rule.
        keys: the keys whose buckets are needed. If they have the same buckets by every rule, one slice with keys is
            read; else slices are read until one rule is left. None if the keys are not known.

    Raises:
        InvalidOptionError: a stored key is in another bucket than the one computed by the settings.
    """
    in_doubt = keys is None or any(_differs(path, column, buckets_by) for path, column in keys.items())
    for piece in pieces:
        rules = _rules_of(storage, snapshot, piece, buckets_by)
        if rules is None:
            continue
        if len(rules) == 1:
            return rules[0]
        if not in_doubt:
            break
    return None


def _differs(path: str, keys: pa.ChunkedArray, buckets_by: Callable[[FieldRule], TableBuckets]) -> bool:
    first, *others = (buckets_by(rule).of(path).numbers(keys) for rule in FieldRule)
    return any(bool((first != other).any()) for other in others)


def _rules_of(
    storage: Storage, snapshot: Snapshot, piece: FileSlice, buckets_by: Callable[[FieldRule], TableBuckets]
) -> Sequence[FieldRule] | None:
    """Return the rules by which the keys of a slice belong to its bucket; None if it has no keys."""
    keys = read_first_keys(storage, snapshot, piece).keys
    if not len(keys):
        return None
    path = piece.group.partition_path
    all_buckets = {rule: buckets_by(rule).of(path) for rule in FieldRule}
    fits = [
        rule
        for rule, buckets in all_buckets.items()
        if (buckets.numbers(keys) == buckets.bucket_of(piece.group.file_id)).all()
    ]
    if not fits:
        count = next(iter(all_buckets.values())).buckets
        raise InvalidOptionError(
            f"{slice_path(piece)} holds keys of other buckets, by {count} buckets ({BUCKETS}) and the hashed fields of "
            f"{_FIELDS}; give the values that the table was written with"
        )
    return fits


def read_first_keys(storage: Storage, snapshot: Snapshot, piece: FileSlice) -> KeyColumn:
    """Read keys of a slice to find the hashing rule: those of its base file, or of its log files if there is none."""
    return read_slice_keys(storage, snapshot, piece if piece.base is None else replace(piece, logs=()))


def slice_path(piece: FileSlice) -> str:
    """Return the path of a file of the slice, for messages."""
    return (piece.base or piece.logs[0]).path


def _confirm_pairs(storage: Storage, snapshot: Snapshot, tagged: Tagged, keys: pa.ChunkedArray) -> Tagged:
    """Mark as new the keys that their bucket's slice does not contain. Memory: the key column of one slice."""
    buckets = tagged.buckets
    assert buckets is not None  # noqa: S101  `_locate` sets it.
    held = np.zeros(len(keys), bool)
    counts = TagCounts(checked=len(tagged.keys))
    for number, piece in enumerate(tagged.searched):
        column = read_slice_keys(storage, snapshot, piece)
        counts.add(TagCounts(files_read=1, bytes_read=column.size_bytes))
        of_file = tagged.keys[tagged.files == number]
        held[of_file[match_keys([column], keys.take(pa.array(of_file)))[0]]] = True
    counts.add(tagged.counts)
    confirmed = held[tagged.keys]
    new = np.concatenate([tagged.new, tagged.keys[~confirmed]])
    bucket_of_file = np.array([buckets.bucket_of(piece.group.file_id) for piece in tagged.searched], np.int64)
    buckets_of_new = tagged.new_buckets if tagged.new_buckets is not None else tagged.new[:0]
    numbers = np.concatenate([buckets_of_new, bucket_of_file[tagged.files[~confirmed]]])
    order = sort_texts(keys.take(pa.array(new)))
    return Tagged(
        tagged.keys[confirmed],
        tagged.files[confirmed],
        new[order],
        counts,
        tagged.searched,
        numbers[order],
        buckets,
    )
