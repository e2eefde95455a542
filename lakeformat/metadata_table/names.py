"""Names and keys in a metadata table: its partitions, its files, and the keys and hashes of its records. Pure."""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.java import string_hashes
from lakeformat.metadata_table.secondary_keys import value_prefixes
from lakeformat.storage.port import HOODIE

__all__ = [
    "ALL_PARTITIONS",
    "FIXED_PARTITIONS",
    "FOLDER",
    "BaseName",
    "LogName",
    "MetadataPartition",
    "RecordKind",
    "base_name",
    "bloom_key",
    "file_groups_of",
    "file_id",
    "file_id_prefix",
    "group_number",
    "log_name",
    "partition_of_key",
    "partition_of_name",
    "partition_prefix",
    "secondary_partition",
    "statistics_prefix",
    "stored_partition",
    "table_partition",
]

FOLDER: Final = f"{HOODIE}/metadata"
#: Key of the record of `MetadataPartition.FILES` that lists the partitions of the table.
ALL_PARTITIONS: Final = "__all_partitions__"
#: Characters of the hash of a column or partition in a key.
_HASH_CHARACTERS: Final = 12
#: The partition path of an unpartitioned table, in keys and in `MetadataPartition.FILES`.
_NO_PARTITION: Final = "."


class RecordKind(Enum):
    """What the records of a partition of the metadata table say."""

    FILES = auto()
    COLUMN_STATS = auto()
    PARTITION_STATS = auto()
    BLOOM_FILTERS = auto()
    RECORD_INDEX = auto()
    SECONDARY_INDEX = auto()


#: Kinds of partitions whose keys are looked up one by one, and come at random.
_LOOKED_UP: Final = frozenset({RecordKind.RECORD_INDEX, RecordKind.SECONDARY_INDEX})


@dataclass(frozen=True, slots=True)
class MetadataPartition:
    """A partition of the metadata table.

    Attributes:
        value: The folder's name, and the partition's name in the table's properties.
        kind: What its records say.
    """

    value: str
    kind: RecordKind

    FILES: ClassVar[MetadataPartition]
    COLUMN_STATS: ClassVar[MetadataPartition]
    PARTITION_STATS: ClassVar[MetadataPartition]
    BLOOM_FILTERS: ClassVar[MetadataPartition]
    RECORD_INDEX: ClassVar[MetadataPartition]

    @property
    def folder(self) -> str:
        """Return the partition's folder, relative to the table."""
        return f"{FOLDER}/{self.value}"

    @property
    def has_places(self) -> bool:
        """Tell whether the number of file groups decides what a look-up of one key finds."""
        return self.kind in _LOOKED_UP

    @property
    def block_bytes(self) -> int:
        """Return the size of blocks in base files that lakeformat writes."""
        return 16 << 10 if self.has_places else 1 << 20


MetadataPartition.FILES = MetadataPartition("files", RecordKind.FILES)
MetadataPartition.COLUMN_STATS = MetadataPartition("column_stats", RecordKind.COLUMN_STATS)
MetadataPartition.PARTITION_STATS = MetadataPartition("partition_stats", RecordKind.PARTITION_STATS)
MetadataPartition.BLOOM_FILTERS = MetadataPartition("bloom_filters", RecordKind.BLOOM_FILTERS)
MetadataPartition.RECORD_INDEX = MetadataPartition("record_index", RecordKind.RECORD_INDEX)
#: The partitions that a metadata table has at most once, in the order in which they are made.
FIXED_PARTITIONS: Final = (
    MetadataPartition.FILES,
    MetadataPartition.COLUMN_STATS,
    MetadataPartition.PARTITION_STATS,
    MetadataPartition.BLOOM_FILTERS,
    MetadataPartition.RECORD_INDEX,
)
_FIXED_BY_NAME: Final = {partition.value: partition for partition in FIXED_PARTITIONS}
#: What the name of a partition with a secondary index begins with.
_SECONDARY: Final = "secondary_index_"
#: Maps partitions to what the ids of their file groups begin with, if it is not their name.
_PREFIXES: Final = {MetadataPartition.COLUMN_STATS: "col-stats"}


def secondary_partition(name: str) -> MetadataPartition:
    """Return the partition of a secondary index, whose name is given with or without the prefix of Hudi's."""
    return MetadataPartition(f"{_SECONDARY}{name.removeprefix(_SECONDARY)}", RecordKind.SECONDARY_INDEX)


def partition_of_name(name: str) -> MetadataPartition | None:
    """Return the partition of this name; None if its records are of a kind that is not known here."""
    if name.startswith(_SECONDARY):
        return MetadataPartition(name, RecordKind.SECONDARY_INDEX)
    return _FIXED_BY_NAME.get(name)


_BASE: Final = re.compile(r"(?P<id>[^_]+)_(?P<token>\d+-\d+-\d+)_(?P<time>\d{14,23})\.hfile")
_LOG: Final = re.compile(r"\.(?P<id>[^._]+)_(?P<time>\d{14,23})\.log\.(?P<version>\d+)(?:_(?P<token>\d+-\d+-\d+))?")
#: Write token of files that lakeformat writes.
_TOKEN: Final = "0-0-0"
_ID: Final = re.compile(r"(?P<prefix>.+)-(?P<number>\d{4,9})-0")


@dataclass(frozen=True, slots=True)
class BaseName:
    """The parts of a base file's name."""

    file_id: str
    instant_time: str

    @classmethod
    def match(cls, name: str) -> BaseName | None:
        """Parse a file name; return None if it is not that of a base file of a metadata table."""
        match = _BASE.fullmatch(name)
        return match and cls(match["id"], match["time"])


@dataclass(frozen=True, slots=True)
class LogName:
    """The parts of a log file's name. In table version 6 the instant is that of the slice, else of the deltacommit."""

    file_id: str
    instant_time: str
    version: int
    write_token: str | None

    @classmethod
    def match(cls, name: str) -> LogName | None:
        """Parse a file name; return None if it is not that of a log file of a metadata table."""
        match = _LOG.fullmatch(name)
        return match and cls(match["id"], match["time"], int(match["version"]), match["token"])


def group_number(partition: MetadataPartition, file_id: str) -> int | None:
    """Return the number in the id of a file group; None if the id is not one of this partition."""
    match = _ID.fullmatch(file_id)
    return int(match["number"]) if match and match["prefix"] == file_id_prefix(partition) else None


def file_id_prefix(partition: MetadataPartition) -> str:
    """Return what the ids of all file groups of a partition begin with."""
    return _PREFIXES.get(partition) or partition.value.replace("_", "-")


def file_id(partition: MetadataPartition, number: int) -> str:
    """Return the id of a file group of a partition."""
    return f"{file_id_prefix(partition)}-{number:04d}-0"


def base_name(group: str, instant_time: str) -> str:
    """Return the name of a base file of a file group, whose id is given."""
    return f"{group}_{_TOKEN}_{instant_time}.hfile"


def log_name(group: str, instant_time: str, version: int) -> str:
    """Return the name of a log file of a file group, whose id is given."""
    return f".{group}_{instant_time}.log.{version}_{_TOKEN}"


def file_groups_of(partition: MetadataPartition, keys: pa.Array, groups: int) -> npt.NDArray[np.int64]:
    """Return the number of the file group of each key, or of each beginning of a key of a secondary index.

    Hudi: ``mapRecordKeyToFileGroupIndex``, ``getSecondaryKeyToFileGroupMappingFunction``.
    """
    if partition.kind is RecordKind.SECONDARY_INDEX:
        keys = value_prefixes(keys)
    hashes = string_hashes(keys).view(np.int32).astype(np.int64)
    numbers: npt.NDArray[np.int64] = np.abs(hashes) % groups
    return numbers


def stored_partition(partition_path: str) -> str:
    """Return the name under which the metadata table stores a partition."""
    return partition_path or _NO_PARTITION


def table_partition(stored: str) -> str:
    """Return the partition path for the name under which the metadata table stores it."""
    return "" if stored == _NO_PARTITION else stored


def statistics_prefix(column: str, partition_path: str | None = None) -> str:
    """Return how the keys of the statistics of a column begin, in all partitions or in one."""
    return _short_hash(column) + ("" if partition_path is None else _short_hash(stored_partition(partition_path)))


def partition_prefix(partition_path: str) -> str:
    """Return the part that the keys of all statistics of a partition have in common."""
    return _short_hash(stored_partition(partition_path))


def partition_of_key(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the result of `partition_prefix` for each key of the statistics of a file."""
    return pc.utf8_slice_codeunits(keys, _HASH_CHARACTERS, 2 * _HASH_CHARACTERS)


def bloom_key(partition_path: str, file_name: str) -> str:
    """Return the key of a base file's bloom filter."""
    digest = hashlib.md5(file_name.encode(), usedforsecurity=False).digest()
    return _short_hash(stored_partition(partition_path)) + base64.b64encode(digest).decode()


# --- XXH64 ----------------------------------------------------------------------------------------

_MASK: Final = (1 << 64) - 1
#: The seed is the Java int 0xdabadaba, sign-extended.
_SEED: Final = 0xFFFFFFFFDABADABA
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


@lru_cache(maxsize=1 << 16)
def _short_hash(text: str) -> str:
    """Return the base64 of a text's XXH64, as keys contain it for columns and partitions."""
    return base64.b64encode(_xxh64(text.encode()).to_bytes(8, "big")).decode()


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _mix(lane: int, word: int) -> int:
    return _rotate((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def _xxh64(data: bytes) -> int:
    position, size = len(data) // 32 * 32, len(data)
    if position:
        lanes = [(_SEED + _P1 + _P2) & _MASK, (_SEED + _P2) & _MASK, _SEED, (_SEED - _P1) & _MASK]
        for words in struct.iter_unpack("<4Q", data[:position]):
            lanes = [_mix(lane, word) for lane, word in zip(lanes, words, strict=True)]
        value = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            value = ((value ^ _mix(0, lane)) * _P1 + _P4) & _MASK
    else:
        value = (_SEED + _P5) & _MASK
    value = (value + size) & _MASK
    while size - position >= 8:
        value = (
            _rotate(value ^ _mix(0, int.from_bytes(data[position : position + 8], "little")), 27) * _P1 + _P4
        ) & _MASK
        position += 8
    if size - position >= 4:
        word = int.from_bytes(data[position : position + 4], "little")
        value = (_rotate(value ^ word * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        position += 4
    for byte in data[position:]:
        value = _rotate(value ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32
