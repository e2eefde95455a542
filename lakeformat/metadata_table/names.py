"""Names and keys in a metadata table: its partitions, its files, and the keys and hashes of its records. Pure."""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.java import string_hashes
from lakeformat.storage.port import HOODIE

__all__ = [
    "ALL_PARTITIONS",
    "FOLDER",
    "BaseName",
    "LogName",
    "MetadataPartition",
    "base_name",
    "bloom_key",
    "file_groups_of",
    "file_id",
    "file_id_prefix",
    "group_number",
    "log_name",
    "partition_of_key",
    "partition_prefix",
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


class MetadataPartition(Enum):
    """A partition of the metadata table. Its value is the folder's name, and its name in the table's properties."""

    FILES = "files"
    COLUMN_STATS = "column_stats"
    PARTITION_STATS = "partition_stats"
    BLOOM_FILTERS = "bloom_filters"
    RECORD_INDEX = "record_index"

    @property
    def folder(self) -> str:
        """Return the partition's folder, relative to the table."""
        return f"{FOLDER}/{self.value}"

    @property
    def block_bytes(self) -> int:
        """Return the size of blocks in base files that lakeformat writes. Keys of the record index come at random."""
        return 16 << 10 if self is MetadataPartition.RECORD_INDEX else 1 << 20


#: Maps each partition to what the ids of its file groups begin with.
_PREFIXES: Final = {
    MetadataPartition.FILES: "files",
    MetadataPartition.COLUMN_STATS: "col-stats",
    MetadataPartition.PARTITION_STATS: "partition-stats",
    MetadataPartition.BLOOM_FILTERS: "bloom-filters",
    MetadataPartition.RECORD_INDEX: "record-index",
}
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
        found = _BASE.fullmatch(name)
        return found and cls(found["id"], found["time"])


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
        found = _LOG.fullmatch(name)
        return found and cls(found["id"], found["time"], int(found["version"]), found["token"])


def group_number(partition: MetadataPartition, file_id: str) -> int | None:
    """Return the number in the id of a file group; None if the id is not one of this partition."""
    found = _ID.fullmatch(file_id)
    return int(found["number"]) if found and found["prefix"] == _PREFIXES[partition] else None


def file_id_prefix(partition: MetadataPartition) -> str:
    """Return what the ids of all file groups of a partition begin with."""
    return _PREFIXES[partition]


def file_id(partition: MetadataPartition, number: int) -> str:
    """Return the id of a file group of a partition."""
    return f"{_PREFIXES[partition]}-{number:04d}-0"


def base_name(group: str, instant_time: str) -> str:
    """Return the name of a base file of a file group, whose id is given."""
    return f"{group}_{_TOKEN}_{instant_time}.hfile"


def log_name(group: str, instant_time: str, version: int) -> str:
    """Return the name of a log file of a file group, whose id is given."""
    return f".{group}_{instant_time}.log.{version}_{_TOKEN}"


def file_groups_of(keys: pa.Array, groups: int) -> npt.NDArray[np.int64]:
    """Return the number of the file group of each key. Hudi: ``mapRecordKeyToFileGroupIndex``."""
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
    at, size = len(data) // 32 * 32, len(data)
    if at:
        lanes = [(_SEED + _P1 + _P2) & _MASK, (_SEED + _P2) & _MASK, _SEED, (_SEED - _P1) & _MASK]
        for words in struct.iter_unpack("<4Q", data[:at]):
            lanes = [_mix(lane, word) for lane, word in zip(lanes, words, strict=True)]
        value = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            value = ((value ^ _mix(0, lane)) * _P1 + _P4) & _MASK
    else:
        value = (_SEED + _P5) & _MASK
    value = (value + size) & _MASK
    while size - at >= 8:
        value = (_rotate(value ^ _mix(0, int.from_bytes(data[at : at + 8], "little")), 27) * _P1 + _P4) & _MASK
        at += 8
    if size - at >= 4:
        word = int.from_bytes(data[at : at + 4], "little")
        value = (_rotate(value ^ word * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        value = _rotate(value ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32
