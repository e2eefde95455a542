"""The bucket index: a hash of the key decides the file group (Hudi: ``HoodieSimpleBucketIndex``, ``BucketIdentifier``).

A file id begins with the number of its bucket in eight digits; each bucket of a partition has at most one file group.
Tables of version 6 store neither the number of buckets nor the hashed fields, so the values in the options are checked
against keys and ids of existing files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from lakeformat.arrow.text_order import sort_texts
from lakeformat.codec.java import FieldRule, field_list_hashes
from lakeformat.errors import CorruptTableError, InvalidOptionError, UnsupportedTableError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.index.port import IndexSettings, Ints, TagCounts, Tagged
from lakeformat.index.stored_keys import KeyColumn, mark_deleted_rows, match_keys, read_slice_keys
from lakeformat.model.files import FileSlice
from lakeformat.storage.port import Storage

__all__ = [
    "FIXED_FILE_ID",
    "BucketHash",
    "BucketIndex",
    "bucket_file_id",
    "bucket_ids",
    "bucket_of",
    "find_bucket_count",
    "has_bucket_files",
]

#: File id that every writer gives a bucket's first file group if writers do not block each other, except for the
#: bucket's number (Hudi: ``newBucketFileIdForNBCC``). Two writers that open a bucket at once then open the same group.
FIXED_FILE_ID: Final = "00000000-0000-0000-0000-000000000000-0"

_DIGITS: Final = 8
_BUCKETS: Final = "hoodie.bucket.index.num.buckets"
_FIELDS: Final = "hoodie.bucket.index.hash.field"
#: Maximum number of random file ids that may begin with eight digits by chance. More of them are buckets.
_BY_CHANCE: Final = 4
#: If all eight-digit numbers in file ids are below this, the files are buckets, however few.
_LOW: Final = 10_000
#: Minimum number of keys to find the number of buckets; fewer keys may fit a wrong number by chance.
_ENOUGH_KEYS: Final = 20
#: Maximum number of files that are read to get enough keys.
_MOST_FILES: Final = 16
_MOST_SHARES: Final = 1_000_000


def bucket_ids(keys: pa.ChunkedArray, fields: Sequence[str], buckets: int, rule: FieldRule) -> Ints:
    """Return the bucket number of each key: ``(hash & 0x7fffffff) % buckets``."""
    hashes = field_list_hashes(keys, fields, rule) & np.uint32(0x7FFFFFFF)
    return hashes.astype(np.int64) % buckets


def bucket_of(file_id: str) -> int | None:
    """Return the bucket number with which a file id begins, or None if the file id has no bucket.

    >>> bucket_of("00000012-71b8-4a64-b3a9-6f12217f3341-0")
    12
    """
    digits, dash, _ = file_id.partition("-")
    is_number = bool(dash) and len(digits) == _DIGITS and digits.isascii() and digits.isdigit()
    return int(digits) if is_number else None


def bucket_file_id(bucket: int, file_id: str) -> str:
    """Return a file id with the bucket's number as its first eight characters, and the rest of ``file_id``.

    >>> bucket_file_id(12, "6f12217f-71b8-4a64-b3a9-6f12217f3341-0")
    '00000012-71b8-4a64-b3a9-6f12217f3341-0'
    """
    return f"{bucket:0{_DIGITS}}{file_id[_DIGITS:]}"


@dataclass(frozen=True, slots=True)
class BucketHash:
    """The hash that gives each record key the number of its bucket. The value can be pickled.

    Attributes:
        fields: the hashed fields of the record key.
        buckets: the number of buckets in each partition.
        rule: how the fields are read from a record key.
    """

    fields: tuple[str, ...]
    buckets: int
    rule: FieldRule

    def numbers(self, keys: pa.ChunkedArray) -> Ints:
        """Return the bucket number of each key."""
        return bucket_ids(keys, self.fields, self.buckets, self.rule)


@dataclass(frozen=True, slots=True)
class BucketIndex:
    """The index BUCKET with the engine SIMPLE: a key's hash gives its file. One file is read to check the settings."""

    settings: IndexSettings

    def locate(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Find for each key the file slice of its bucket. If the bucket has no slice, the key is new.

        If the settings are exact, the keys of the slices are read, and a key that its slice does not contain is new
        too. Otherwise a slice in the result may lack the key; the merge of that slice then inserts the row.

        Raises:
            InvalidOptionError: a stored key is in another bucket than the one computed by the settings.
            UnsupportedTableError: a file has no bucket.
            CorruptTableError: a bucket has two files.
        """
        files = _files_of_buckets(snapshot, self.settings.buckets)
        rule = self._rule(storage, snapshot, keys.values())
        found = {path: self._locate(column, files.get(path, {}), rule) for path, column in keys.items()}
        if not self.settings.exact:
            return found
        exact = {path: _confirm_pairs(storage, snapshot, at, keys[path]) for path, at in found.items()}
        return {path: mark_deleted_rows(storage, snapshot, keys[path], at) for path, at in exact.items()}

    def _locate(self, keys: pa.ChunkedArray, files: Mapping[int, FileSlice], rule: FieldRule) -> Tagged:
        buckets = self._buckets(keys, rule)
        file_of = np.full(self.settings.buckets, -1)
        file_of[[*files]] = np.arange(len(files))
        at = file_of[buckets]
        located, new = np.flatnonzero(at >= 0), np.flatnonzero(at < 0)
        new = new[sort_texts(keys.take(pa.array(new)))]
        counts = TagCounts(len(keys), len(files), len(located), len(located))
        return Tagged(located, at[located], new, counts, tuple(files.values()), buckets[new])

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Tag all keys as new, each with its bucket, without a look-up. Raise the errors of `locate`."""
        _files_of_buckets(snapshot, self.settings.buckets)
        rule = self._rule(storage, snapshot, keys.values())
        nothing = np.empty(0, np.int64)
        placed = {}
        for path, column in keys.items():
            order = sort_texts(column)
            buckets = self._buckets(column, rule)[order]
            placed[path] = Tagged(nothing, nothing, order, TagCounts(keys=len(column)), (), buckets)
        return placed

    def rule(self, storage: Storage, snapshot: Snapshot) -> FieldRule:
        """Return the hashing rule that fits the table's stored keys. Raise the errors of `locate`.

        If no stored key distinguishes the rules, return that of Hudi 1.
        """
        _files_of_buckets(snapshot, self.settings.buckets)
        for piece in snapshot.each_slice():
            rules = self._rules_of(storage, snapshot, piece)
            if rules is not None and len(rules) == 1:
                return rules[0]
        return FieldRule.HUDI_1

    def hash(self, storage: Storage, snapshot: Snapshot) -> BucketHash:
        """Return the hash by which the table's keys belong to buckets. Raise the errors of `locate`."""
        return BucketHash(tuple(self.settings.hash_fields), self.settings.buckets, self.rule(storage, snapshot))

    def _buckets(self, keys: pa.ChunkedArray, rule: FieldRule) -> Ints:
        return bucket_ids(keys, self.settings.hash_fields, self.settings.buckets, rule)

    def _rule(self, storage: Storage, snapshot: Snapshot, keys: Iterable[pa.ChunkedArray]) -> FieldRule:
        """Return the hashing rule by which the stored keys belong to their buckets.

        The keys of one slice are always read, to check the settings. If they fit the rules of Hudi 0 and Hudi 1, and
        these rules give different buckets for some of ``keys``, more slices are read until only one rule fits. If no
        stored key distinguishes the rules, return that of Hudi 1.
        """
        in_doubt = any((self._buckets(c, FieldRule.HUDI_0) != self._buckets(c, FieldRule.HUDI_1)).any() for c in keys)
        for piece in snapshot.each_slice():
            rules = self._rules_of(storage, snapshot, piece)
            if rules is None:
                continue
            if len(rules) == 1:
                return rules[0]
            if not in_doubt:
                break
        return FieldRule.HUDI_1

    def _rules_of(self, storage: Storage, snapshot: Snapshot, piece: FileSlice) -> list[FieldRule] | None:
        """Return the hashing rules by which the keys of a slice belong to its bucket; None if it has no keys."""
        keys = _first_keys(storage, snapshot, piece).keys
        if not len(keys):
            return None
        bucket = bucket_of(piece.group.file_id)
        fits = [rule for rule in FieldRule if (self._buckets(keys, rule) == bucket).all()]
        if not fits:
            raise InvalidOptionError(
                f"{_slice_path(piece)} holds keys of other buckets, by {_BUCKETS}={self.settings.buckets} and "
                f"{_FIELDS}={','.join(self.settings.hash_fields)}; give the values that the table was written with"
            )
        return fits


def _first_keys(storage: Storage, snapshot: Snapshot, piece: FileSlice) -> KeyColumn:
    """Read keys of a slice to find the hashing rule: those of its base file, or of its log files if there is none."""
    return read_slice_keys(storage, snapshot, piece if piece.base is None else replace(piece, logs=()))


def _slice_path(piece: FileSlice) -> str:
    return (piece.base or piece.logs[0]).path


def _confirm_pairs(storage: Storage, snapshot: Snapshot, tagged: Tagged, keys: pa.ChunkedArray) -> Tagged:
    """Mark as new the keys that their bucket's slice does not contain. Memory: the key column of one slice."""
    held = np.zeros(len(keys), bool)
    counts = TagCounts(checked=len(tagged.keys))
    for at, piece in enumerate(tagged.searched):
        column = read_slice_keys(storage, snapshot, piece)
        counts.add(TagCounts(files_read=1, bytes_read=column.size_bytes))
        of_file = tagged.keys[tagged.files == at]
        held[of_file[match_keys([column], keys.take(pa.array(of_file)))[0]]] = True
    counts.add(tagged.counts)
    confirmed = held[tagged.keys]
    new = np.concatenate([tagged.new, tagged.keys[~confirmed]])
    bucket_of_file = np.array([bucket_of(piece.group.file_id) for piece in tagged.searched], np.int64)
    known = tagged.new_buckets if tagged.new_buckets is not None else tagged.new[:0]
    buckets = np.concatenate([known, bucket_of_file[tagged.files[~confirmed]]])
    order = sort_texts(keys.take(pa.array(new)))
    return Tagged(tagged.keys[confirmed], tagged.files[confirmed], new[order], counts, tagged.searched, buckets[order])


def _files_of_buckets(snapshot: Snapshot, buckets: int) -> Mapping[str, Mapping[int, FileSlice]]:
    """Return a mapping of partition path to a mapping of bucket number to file slice.

    Raise the errors of `BucketIndex.locate` if a slice has no bucket number, one that is too large, or the same number
    as another slice of its partition.
    """
    found: dict[str, dict[int, FileSlice]] = {}
    for piece in snapshot.each_slice():
        bucket = bucket_of(piece.group.file_id)
        if bucket is None:
            raise UnsupportedTableError(
                f"{_slice_path(piece)} belongs to no bucket: the table was not written with hoodie.index.type=BUCKET; "
                "leave the option out"
            )
        if bucket >= buckets:
            raise InvalidOptionError(
                f"{_slice_path(piece)} belongs to bucket {bucket}, but {_BUCKETS} is {buckets}; give the number that "
                "the table was written with"
            )
        other = found.setdefault(piece.group.partition_path, {}).setdefault(bucket, piece)
        if other is not piece:
            raise CorruptTableError(
                f"{_slice_path(piece)} and {_slice_path(other)} both belong to bucket {bucket}; remove one of them by "
                "hand"
            )
    return found


def has_bucket_files(slices: Iterable[FileSlice]) -> bool:
    """Tell from the file ids whether the live slices of a table are buckets.

    The result is False if any file id has no bucket number. A random file id may begin with eight digits by chance, and
    the files of one task of Hudi share it up to a last number. So if there are at most `_BY_CHANCE` random ids, they
    count as buckets only if all their numbers are below `_LOW`.
    """
    ids, highest = set[str](), 0
    for piece in slices:
        number = bucket_of(piece.group.file_id)
        if number is None:
            return False
        highest = max(highest, number)
        if len(ids) <= _BY_CHANCE:
            ids.add(piece.group.file_id.rpartition("-")[0])
    return len(ids) > _BY_CHANCE or (len(ids) > 0 and highest < _LOW)


def find_bucket_count(storage: Storage, snapshot: Snapshot, fields: Sequence[str]) -> int | None:
    """Compute the number of buckets of a table from its stored keys. Return None if several numbers fit.

    If the table has ``n`` buckets, every hash in bucket ``b`` is ``b`` plus a multiple of ``n``. So ``n`` divides the
    greatest common divisor of all differences between a hash and its bucket number. Also, ``n`` is greater than every
    bucket number. If the greatest common divisor is its own only divisor with this property, it is ``n``.
    Memory: a key column.

    Args:
        snapshot: snapshot of a table whose files are buckets; up to 16 files are read.
        fields: the hashed fields of the record key.
    """
    slices = tuple(snapshot.each_slice())
    highest = max(bucket_of(piece.group.file_id) or 0 for piece in slices)
    common = dict.fromkeys(FieldRule, 0)
    seen = 0
    for piece in slices[:_MOST_FILES] if highest else ():  # If only bucket 0 has files, no number is certain.
        keys, bucket = _first_keys(storage, snapshot, piece).keys, bucket_of(piece.group.file_id) or 0
        seen += len(keys)
        for rule in FieldRule:
            beyond = bucket_ids(keys, fields, 1 << 31, rule) - bucket
            common[rule] = math.gcd(common[rule], int(np.gcd.reduce(beyond)))
        fitting = {number for number in common.values() if number == 0 or number > highest}
        if seen >= _ENOUGH_KEYS and len(fitting) == 1 and _has_no_other_divisor(found := fitting.pop(), highest):
            return found
    return None


def _has_no_other_divisor(number: int, bound: int) -> bool:
    """Tell whether the number has no divisor, except itself, that is greater than the bound."""
    most = number // (bound + 1)
    return 0 < most <= _MOST_SHARES and not (number % np.arange(2, most + 1) == 0).any()
