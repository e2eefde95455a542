"""The bucket index: a hash of the key decides the file group (Hudi: ``HoodieSimpleBucketIndex``, ``BucketIdentifier``).

A file id begins with its bucket's number in eight digits; each bucket of a partition has one file group at most.
Tables of version 6 store neither the number of buckets nor the hashed fields, so both are held against the files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from lakeformat.codec.java_hash import FieldRule, field_list_hashes
from lakeformat.errors import CorruptTableError, InvalidOptionError, UnsupportedTableError
from lakeformat.index.deleted_rows import with_deleted_rows
from lakeformat.index.key_columns import KeyColumn, matches
from lakeformat.index.log_keys import slice_keys
from lakeformat.index.port import IndexSettings, Ints, TagCounts, Tagged, in_key_order
from lakeformat.model.files import FileSlice
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot

__all__ = ["BucketIndex", "bucket_file_id", "bucket_ids", "bucket_of", "has_bucket_files", "only_bucket_count"]

_DIGITS: Final = 8
_BUCKETS: Final = "hoodie.bucket.index.num.buckets"
_FIELDS: Final = "hoodie.bucket.index.hash.field"
#: So few files may have ids that begin with eight decimal digits by chance; but not with a number as low as this.
_BY_CHANCE: Final = 4
_LOW: Final = 10_000
#: Keys that fit by chance are fewer than this; files read to find them are at most so many.
_ENOUGH_KEYS: Final = 20
_MOST_FILES: Final = 16
_MOST_SHARES: Final = 1_000_000


def bucket_ids(keys: pa.ChunkedArray, fields: Sequence[str], buckets: int, rule: FieldRule) -> Ints:
    """The bucket of each key: ``(hash & 0x7fffffff) % buckets``."""
    hashes = field_list_hashes(keys, fields, rule) & np.uint32(0x7FFFFFFF)
    return hashes.astype(np.int64) % buckets


def bucket_of(file_id: str) -> int | None:
    """The number a file id begins with; None if it is no file id of a bucket.

    >>> bucket_of("00000012-71b8-4a64-b3a9-6f12217f3341-0")
    12
    """
    digits, dash, _ = file_id.partition("-")
    is_number = bool(dash) and len(digits) == _DIGITS and digits.isascii() and digits.isdigit()
    return int(digits) if is_number else None


def bucket_file_id(bucket: int, file_id: str) -> str:
    """A file id for this bucket, made from any other.

    >>> bucket_file_id(12, "6f12217f-71b8-4a64-b3a9-6f12217f3341-0")
    '00000012-71b8-4a64-b3a9-6f12217f3341-0'
    """
    return f"{bucket:0{_DIGITS}}{file_id[_DIGITS:]}"


@dataclass(frozen=True, slots=True)
class BucketIndex:
    """BUCKET with the engine SIMPLE: no file is opened to find a key, but one to make sure of the settings."""

    settings: IndexSettings

    def locate(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """Pairs each key with its bucket's file, whether that holds it or not; see `Index.locate`.

        Raises:
            InvalidOptionError: files hold keys in other buckets than the settings put them.
            UnsupportedTableError: a file has no bucket.
            CorruptTableError: a bucket has two files.
        """
        files = _files_of_buckets(snapshot, self.settings.buckets)
        rule = self._rule(storage, snapshot, keys.values())
        found = {path: self._locate(column, files.get(path, {}), rule) for path, column in keys.items()}
        if not self.settings.exact:
            return found
        exact = {path: _checked(storage, snapshot, at, keys[path]) for path, at in found.items()}
        return {path: with_deleted_rows(storage, snapshot, keys[path], at) for path, at in exact.items()}

    def _locate(self, keys: pa.ChunkedArray, files: Mapping[int, FileSlice], rule: FieldRule) -> Tagged:
        buckets = self._buckets(keys, rule)
        file_of = np.full(self.settings.buckets, -1)
        file_of[[*files]] = np.arange(len(files))
        at = file_of[buckets]
        located, new = np.flatnonzero(at >= 0), np.flatnonzero(at < 0)
        new = new[in_key_order(keys.take(pa.array(new)))]
        counts = TagCounts(len(keys), len(files), len(located), len(located))
        return Tagged(located, at[located], new, counts, tuple(files.values()), buckets[new])

    def place(self, storage: Storage, snapshot: Snapshot, keys: Mapping[str, pa.ChunkedArray]) -> Mapping[str, Tagged]:
        """All keys as new ones, each with its bucket. Raises as `locate` does."""
        _files_of_buckets(snapshot, self.settings.buckets)
        rule = self._rule(storage, snapshot, keys.values())
        nothing = np.empty(0, np.int64)
        placed = {}
        for path, column in keys.items():
            order = in_key_order(column)
            buckets = self._buckets(column, rule)[order]
            placed[path] = Tagged(nothing, nothing, order, TagCounts(keys=len(column)), (), buckets)
        return placed

    def rule(self, storage: Storage, snapshot: Snapshot) -> FieldRule:
        """How a table's keys are hashed. Raises as `locate` does."""
        _files_of_buckets(snapshot, self.settings.buckets)
        for piece in snapshot.each_slice():
            rules = self._rules_of(storage, snapshot, piece)
            if rules is not None and len(rules) == 1:
                return rules[0]
        return FieldRule.HUDI_1

    def _buckets(self, keys: pa.ChunkedArray, rule: FieldRule) -> Ints:
        return bucket_ids(keys, self.settings.hash_fields, self.settings.buckets, rule)

    def _rule(self, storage: Storage, snapshot: Snapshot, keys: Iterable[pa.ChunkedArray]) -> FieldRule:
        """The rule that the stored keys were placed by, as far as it matters.

        One file is always looked at, to make sure of the settings. More are only if some key goes to different
        buckets by different rules; a table that has no such key yet follows Hudi 1.
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
        """Rules that put the keys of a file into its bucket; None for a file without rows."""
        keys = _first_keys(storage, snapshot, piece).keys
        if not len(keys):
            return None
        bucket = bucket_of(piece.group.file_id)
        fits = [rule for rule in FieldRule if (self._buckets(keys, rule) == bucket).all()]
        if not fits:
            raise InvalidOptionError(
                f"{_path_of(piece)} holds keys of other buckets, by {_BUCKETS}={self.settings.buckets} and "
                f"{_FIELDS}={','.join(self.settings.hash_fields)}; give the values that the table was written with"
            )
        return fits


def _first_keys(storage: Storage, snapshot: Snapshot, piece: FileSlice) -> KeyColumn:
    """Keys of a slice, enough to tell by which rule they were placed: those of its base file, if it has one."""
    return slice_keys(storage, snapshot, piece if piece.base is None else replace(piece, logs=()))


def _path_of(piece: FileSlice) -> str:
    return (piece.base or piece.logs[0]).path


def _checked(storage: Storage, snapshot: Snapshot, tagged: Tagged, keys: pa.ChunkedArray) -> Tagged:
    """Without the pairs of keys that their file lacks; these keys are new. Memory: one key column."""
    held = np.zeros(len(keys), bool)
    counts = TagCounts(checked=len(tagged.keys))
    for at, piece in enumerate(tagged.searched):
        column = slice_keys(storage, snapshot, piece)
        counts.add(TagCounts(files_read=1, bytes_read=column.size_bytes))
        mine = tagged.keys[tagged.files == at]
        held[mine[matches([column], keys.take(pa.array(mine)))[0]]] = True
    counts.add(tagged.counts)
    kept = held[tagged.keys]
    new = np.concatenate([tagged.new, tagged.keys[~kept]])
    bucket_of_file = np.array([bucket_of(piece.group.file_id) for piece in tagged.searched], np.int64)
    known = tagged.new_buckets if tagged.new_buckets is not None else tagged.new[:0]
    buckets = np.concatenate([known, bucket_of_file[tagged.files[~kept]]])
    order = in_key_order(keys.take(pa.array(new)))
    return Tagged(tagged.keys[kept], tagged.files[kept], new[order], counts, tagged.searched, buckets[order])


def _files_of_buckets(snapshot: Snapshot, buckets: int) -> Mapping[str, Mapping[int, FileSlice]]:
    """Partition path -> bucket -> its slice."""
    found: dict[str, dict[int, FileSlice]] = {}
    for piece in snapshot.each_slice():
        bucket = bucket_of(piece.group.file_id)
        if bucket is None:
            raise UnsupportedTableError(
                f"{_path_of(piece)} belongs to no bucket: the table was not written with hoodie.index.type=BUCKET; "
                "leave the option out"
            )
        if bucket >= buckets:
            raise InvalidOptionError(
                f"{_path_of(piece)} belongs to bucket {bucket}, but {_BUCKETS} is {buckets}; give the number that "
                "the table was written with"
            )
        other = found.setdefault(piece.group.partition_path, {}).setdefault(bucket, piece)
        if other is not piece:
            raise CorruptTableError(
                f"{_path_of(piece)} and {_path_of(other)} both belong to bucket {bucket}; remove one of them by hand"
            )
    return found


def has_bucket_files(slices: Iterable[FileSlice]) -> bool:
    """Whether the live slices of a table are buckets, going by their ids. Stops at the first other one."""
    count = highest = 0
    for piece in slices:
        number = bucket_of(piece.group.file_id)
        if number is None:
            return False
        count, highest = count + 1, max(highest, number)
    return count > _BY_CHANCE or (count > 0 and highest < _LOW)


def only_bucket_count(storage: Storage, snapshot: Snapshot, fields: Sequence[str]) -> int | None:
    """The one number of buckets by which a table's files hold the keys they do; None if there may be another.

    In bucket ``b`` of ``n`` every hash less ``b`` is a multiple of ``n``, and ``n`` is above every ``b``. So ``n``
    divides what all of them have in common, and is known once no other such divisor is left. Memory: a key column.

    Args:
        snapshot: of a table of buckets; some of its files are read.
        fields: of the record key, which are hashed.
    """
    slices = tuple(snapshot.each_slice())
    highest = max(bucket_of(piece.group.file_id) or 0 for piece in slices)
    common = dict.fromkeys(FieldRule, 0)
    seen = 0
    for piece in slices[:_MOST_FILES] if highest else ():  # One bucket tells nothing: any hash fits.
        keys, bucket = _first_keys(storage, snapshot, piece).keys, bucket_of(piece.group.file_id) or 0
        seen += len(keys)
        for rule in FieldRule:
            beyond = bucket_ids(keys, fields, 1 << 31, rule) - bucket
            common[rule] = math.gcd(common[rule], int(np.gcd.reduce(beyond)))
        fitting = {number for number in common.values() if number == 0 or number > highest}
        if seen >= _ENOUGH_KEYS and len(fitting) == 1 and _is_only(found := fitting.pop(), highest):
            return found
    return None


def _is_only(number: int, bound: int) -> bool:
    """Whether a number has no other divisor above the bound."""
    most = number // (bound + 1)
    return 0 < most <= _MOST_SHARES and not (number % np.arange(2, most + 1) == 0).any()
