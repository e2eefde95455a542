"""Which record keys a commit adds to file groups, and which it removes: what the record index must learn.

The keys are read from the files of the commit, so the answer is the same for every way of writing. Updates of rows that
stay in their file group change nothing. Memory: the keys of the file groups that get or lose keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.log_blocks import BlockKind
from lakeformat.concurrency import run_all
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.block_content import decode_deletes
from lakeformat.files.footers import open_base, open_parquet
from lakeformat.files.log_reader import read_blocks, read_contents
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import BaseFile, FileGroupId, FileSlice, LogFile, LogFileName
from lakeformat.model.operation import Operation
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage

__all__ = ["KeyChanges", "find_key_changes"]

#: Maximum number of files whose keys are read at once.
_THREADS: Final = 8
_NO_KEYS: Final = pa.nulls(0, pa.string())


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """Record keys that a commit adds or removes.

    Attributes:
        added: a row for each new key: ``key``, ``partition_path``, ``file_id``. No key occurs twice.
        removed: keys that are in no file group any more.
    """

    added: pa.Table
    removed: pa.Array


def find_key_changes(
    storage: Storage, snapshot: Snapshot, metadata: CommitMetadata, replaced: Mapping[str, Sequence[str]]
) -> KeyChanges | None:
    """Compare the files that a commit has written with the ones before. Return None if the keys are not known.

    A delete in a log file counts only if it is unconditional: the record index may name the place of a key that is not
    there, but must not lack one that is.

    Args:
        snapshot: the table before the commit.
        metadata: the metadata of the commit, with the write stats.
        replaced: maps partition path to the ids of the file groups that the commit replaces. Log files add no key
            to them, because a commit that adds keys in log files has no known keys.
    """
    if metadata.operation == Operation.COMPACT.name:
        return KeyChanges(_places([]), _NO_KEYS)
    before = {piece.group: piece for path in {*metadata.stats, *replaced} for piece in snapshot.slices.get(path, ())}

    def compare(stat: WriteStat) -> tuple[pa.Array, pa.Array] | None:
        old = before.get(FileGroupId(stat.partition_path, stat.file_id))
        return _compare_base(storage, stat, old) if stat.is_base else _read_log(storage, stat)

    stats = list(metadata.all_stats())
    found = list(run_all(compare, stats, threads=_THREADS))
    gone = [piece for group, piece in before.items() if group.file_id in replaced.get(group.partition_path, ())]
    if any(each is None for each in found):
        return None
    pairs = [each for each in found if each is not None]
    added = _places([(stat, keys) for stat, (keys, _) in zip(stats, pairs, strict=True)])
    removed = [keys for _, keys in pairs]
    # A clustering writes all keys that live, but log files may have deleted others.
    if metadata.operation != Operation.CLUSTER.name or any(piece.logs for piece in gone):
        bases = [piece.base for piece in gone if piece.base is not None]
        removed += list(run_all(lambda base: _read_keys(storage, base), bases, threads=_THREADS))
    lost = pc.unique(pa.concat_arrays([_NO_KEYS, *removed]))
    return KeyChanges(added, lost.filter(pc.invert(pc.is_in(lost, value_set=added["key"]))))


def _places(found: Sequence[tuple[WriteStat, pa.Array]]) -> pa.Table:
    """Return the new keys with their places. If a key has several, the last one counts."""
    tables = [
        pa.table(
            {
                "key": keys,
                "partition_path": pa.repeat(stat.partition_path, len(keys)),
                "file_id": pa.repeat(stat.file_id, len(keys)),
            }
        )
        for stat, keys in found
        if len(keys)
    ]
    names = {"key": pa.string(), "partition_path": pa.string(), "file_id": pa.string()}
    rows = pa.concat_tables([pa.schema(names).empty_table(), *tables]).combine_chunks()
    numbered = rows.append_column("row", pa.array(np.arange(len(rows))))
    last = numbered.group_by("key").aggregate([("row", "max")])["row_max"]
    return rows if len(last) == len(rows) else rows.take(last)


def _compare_base(storage: Storage, stat: WriteStat, old: FileSlice | None) -> tuple[pa.Array, pa.Array] | None:
    """Return the keys that a base file has and the slice before it has not, and the reverse."""
    if old is not None and not stat.num_inserts and not stat.num_deletes:
        return _NO_KEYS, _NO_KEYS
    if old is not None and old.logs:
        return None
    new_keys = _read_keys(storage, stat.base_file)
    if old is None or old.base is None:
        return new_keys, _NO_KEYS
    old_keys = _read_keys(storage, old.base)
    added = new_keys.filter(pc.invert(pc.is_in(new_keys, value_set=old_keys)))
    return added, old_keys.filter(pc.invert(pc.is_in(old_keys, value_set=new_keys)))


def _read_keys(storage: Storage, base: BaseFile) -> pa.Array:
    with open_base(storage, base) as source:
        column = open_parquet(source, base.path).read([RECORD_KEY])[RECORD_KEY]
    keys: pa.Array = column.cast(pa.string()).combine_chunks()
    return keys


def _read_log(storage: Storage, stat: WriteStat) -> tuple[pa.Array, pa.Array] | None:
    """Return the keys that a log file adds (none, or the keys are not known) and those that it surely deletes."""
    if stat.num_inserts:
        return None
    if not stat.num_deletes:
        return _NO_KEYS, _NO_KEYS
    return _NO_KEYS, pa.concat_arrays([_NO_KEYS, *_sure_deletes(storage, stat)])


def _sure_deletes(storage: Storage, stat: WriteStat) -> Iterator[pa.Array]:
    name = LogFileName.match(stat.path.rpartition("/")[2])
    assert name is not None  # noqa: S101  Files are base files or log files.
    log = LogFile(stat.partition_path, name, stat.size_bytes)
    blocks = [block for block in read_blocks(storage, log) if block.kind is BlockKind.DELETE]
    for block, content in read_contents(storage, blocks):
        deletes = decode_deletes(block, content)
        is_sure = pa.repeat(True, len(deletes.keys))
        for values in deletes.ordering:
            is_sure = pc.and_(is_sure, values.is_null())
        yield deletes.keys.filter(is_sure)
