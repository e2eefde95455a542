"""The bucket index: a hash of the key decides the file group (Hudi: ``HoodieSimpleBucketIndex``, ``BucketIdentifier``).

A file id begins with the number of its bucket in eight digits; each bucket of a partition has at most one file group.
Tables of version 6 store neither the number of buckets nor the hashed fields, so the values in the options are checked
against keys and ids of existing files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from lakeformat.codec.java import field_list_hashes
from lakeformat.codec.key_fields import FieldRule
from lakeformat.errors import CorruptTableError, InvalidOptionError, UnsupportedTableError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.index.hash_index import BUCKETS, HashIndex, find_field_rule, read_first_keys, slice_path
from lakeformat.index.port import Ints
from lakeformat.model.bucket_rule import BucketRule
from lakeformat.model.files import FileSlice
from lakeformat.model.hashing_metadata import MOST_BUCKETS
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
        counts: the numbers of buckets of single partitions; None if all have ``buckets``.
    """

    fields: tuple[str, ...]
    buckets: int
    rule: FieldRule
    counts: BucketRule | None = None

    def of(self, partition_path: str) -> BucketHash:
        """Return the hash of a partition."""
        if self.counts is None:
            return self
        return BucketHash(self.fields, self.counts.buckets_of(partition_path), self.rule)

    def numbers(self, keys: pa.ChunkedArray) -> Ints:
        """Return the bucket number of each key."""
        return bucket_ids(keys, self.fields, self.buckets, self.rule)

    def bucket_of(self, file_id: str) -> int | None:
        """Return the bucket number with which a file id begins."""
        return bucket_of(file_id)

    def new_file_id(self, bucket: int, file_id: str) -> str:
        """Return ``file_id`` with the bucket's number as its first eight characters."""
        return bucket_file_id(bucket, file_id)


@dataclass(frozen=True, slots=True)
class BucketIndex(HashIndex):
    """The index BUCKET with the engine SIMPLE: a key's hash gives its file. One file is read to check the settings."""

    def hash(
        self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray] | None = None
    ) -> BucketHash:
        """Return the hash by which the table's keys belong to buckets.

        The keys of one slice are always read, to check the settings. If they fit the rules of Hudi 0 and Hudi 1, and
        these rules give different buckets for some of ``keys``, more slices are read until only one rule fits.
        """
        _check_buckets(snapshot, self._hash_of(FieldRule.HUDI_1))
        rule = find_field_rule(storage, snapshot, snapshot.each_slice(), self._hash_of, keys)
        if self.settings.bucket_rule is not None:  # Hudi lets partitions have other numbers than the rule says.
            for path in snapshot.slices if keys is None else keys:
                find_field_rule(storage, snapshot, snapshot.slices.get(path, ()), self._hash_of, {})
        return self._hash_of(FieldRule.HUDI_1 if rule is None else rule)

    def _hash_of(self, rule: FieldRule) -> BucketHash:
        settings = self.settings
        return BucketHash(tuple(settings.hash_fields), settings.buckets, rule, settings.bucket_rule)


def _check_buckets(snapshot: Snapshot, hashing: BucketHash) -> None:
    """Raise the errors of `HashIndex.locate` if a slice has no bucket, one that is too large, or that of another."""
    places: dict[tuple[str, int], FileSlice] = {}
    for piece in snapshot.each_slice():
        bucket = bucket_of(piece.group.file_id)
        if bucket is None:
            raise UnsupportedTableError(
                f"{slice_path(piece)} belongs to no bucket: the table was not written with hoodie.index.type=BUCKET; "
                "leave the option out"
            )
        buckets = hashing.of(piece.group.partition_path).buckets
        if bucket >= buckets:
            raise InvalidOptionError(
                f"{slice_path(piece)} belongs to bucket {bucket}, but {BUCKETS} is {buckets}; give the number that "
                "the table was written with"
            )
        other = places.setdefault((piece.group.partition_path, bucket), piece)
        if other is not piece:
            raise CorruptTableError(
                f"{slice_path(piece)} and {slice_path(other)} both belong to bucket {bucket}; remove one of them by "
                "hand"
            )


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
    places = [(number, piece) for path in snapshot.slices for number, piece in enumerate(snapshot.slices[path])]
    slices = [piece for _, piece in sorted(places, key=lambda place: place[0])]  # Of many partitions first.
    partitions = min(len(snapshot.slices), _MOST_FILES)
    highest = max(bucket_of(piece.group.file_id) or 0 for piece in slices)
    common = dict.fromkeys(FieldRule, 0)
    seen = 0
    # If only bucket 0 has files, no number is certain.
    for read, piece in enumerate(slices[:_MOST_FILES] if highest else (), 1):
        keys, bucket = read_first_keys(storage, snapshot, piece).keys, bucket_of(piece.group.file_id) or 0
        seen += len(keys)
        for rule in FieldRule:
            beyond = bucket_ids(keys, fields, 1 << 31, rule) - bucket
            common[rule] = math.gcd(common[rule], int(np.gcd.reduce(beyond)))
        fitting = {number for number in common.values() if number == 0 or number > highest}
        if read < partitions:  # Partitions may have their own numbers.
            continue
        if seen >= _ENOUGH_KEYS and len(fitting) == 1 and _has_no_other_divisor(fit := fitting.pop(), highest):
            return fit if fit <= MOST_BUCKETS else None
    return None


def _has_no_other_divisor(number: int, bound: int) -> bool:
    """Tell whether the number has no divisor, except itself, that is greater than the bound."""
    most = number // (bound + 1)
    return 0 < most <= _MOST_SHARES and not (number % np.arange(2, most + 1) == 0).any()
