"""Which record keys a commit adds to file groups, and which it removes: what the record index must learn.

The keys are read from the files of the commit, so the answer is the same for every way of writing. Updates of rows that
stay in their file group change nothing. Memory: the keys of the file groups that get or lose keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.log_blocks import BlockKind
from lakeformat.concurrency import run_all
from lakeformat.files.block_content import decode_deletes
from lakeformat.files.log_reader import read_blocks, read_contents
from lakeformat.index.stored_keys import read_keys, read_keys_of_commit, read_logged_keys
from lakeformat.merge.versions import LogDeletes
from lakeformat.model.commit import WriteStat
from lakeformat.model.files import BaseFile, FileGroupId, FileSlice, LogFile
from lakeformat.model.operation import Operation
from lakeformat.storage.port import Storage
from lakeformat.transaction.upkeep.pending_commit import PendingCommit

__all__ = ["KeyChanges", "find_key_changes", "join_places"]

#: Maximum number of files whose keys are read at once.
_THREADS: Final = 8
_NO_KEYS: Final = pa.nulls(0, pa.string())
_PLACE: Final = pa.schema({name: pa.string() for name in ("key", "partition_path", "file_id")})


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """Record keys that a commit adds or removes.

    Attributes:
        added: a row for each key that is new in its file group: ``key``, ``partition_path``, ``file_id``. No key occurs
            twice. Keys that the record index has already, with the same place, may be among them.
        removed: keys that are in no file group any more.
        doubtful: keys that were deleted in a log file of a touched file group, or perhaps never committed there. They
            are in no file group any more if the record index still names one of `touched`.
        touched: ids of the file groups that the commit has written or replaced.
    """

    added: pa.Table
    removed: pa.Array
    doubtful: pa.Array
    touched: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Compared:
    """What one file group gets and loses, in the terms of `KeyChanges`."""

    added: pa.Array
    removed: pa.Array
    doubtful: pa.Array


@dataclass(frozen=True, slots=True)
class _SliceKeys:
    """The keys of a file slice: in its base file, in data blocks and in delete blocks of its log files.

    Blocks that were rolled back may be included.
    """

    base: pa.Array
    logged: pa.Array
    deleted: pa.Array

    @property
    def sure(self) -> pa.Array:
        """Return the keys that are in this file group and in no other."""
        return _minus(self.base, self.deleted)

    @property
    def doubtful(self) -> pa.Array:
        """Return the keys that may be in another file group now."""
        return pa.concat_arrays([self.logged, self.deleted])


_NOTHING: Final = _Compared(_NO_KEYS, _NO_KEYS, _NO_KEYS)


def find_key_changes(commit: PendingCommit) -> KeyChanges:
    """Compare the files that a commit has written with the ones before.

    A delete in a log file counts only if it is unconditional: the record index may name the place of a key that is not
    there, but must not lack one that is.
    """
    storage, metadata, snapshot = commit.storage, commit.metadata, commit.outcome.snapshot
    replaced = metadata.replaced
    stats = list(metadata.all_stats())
    touched = frozenset({stat.file_id for stat in stats}.union(*replaced.values()))
    if metadata.operation == Operation.COMPACT.name:
        return KeyChanges(_PLACE.empty_table(), _NO_KEYS, _NO_KEYS, touched)
    before = {piece.group: piece for path in {*metadata.stats, *replaced} for piece in snapshot.slices.get(path, ())}

    def compare(stat: WriteStat) -> _Compared:
        old = before.get(stat.group)
        return _compare_base(storage, commit.time, stat, old) if stat.is_base else _compare_log(storage, stat, old)

    compared = list(run_all(compare, stats, threads=_THREADS))
    added = join_places((stat.group, keys.added) for stat, keys in zip(stats, compared, strict=True))
    gone = [piece for group, piece in before.items() if group.file_id in replaced.get(group.partition_path, ())]
    # A clustering writes all keys that live, but log files may have deleted others.
    if metadata.operation != Operation.CLUSTER.name or any(piece.logs for piece in gone):
        lost = run_all(lambda piece: _read_slice(storage, piece), gone, threads=_THREADS)
        compared += [_Compared(_NO_KEYS, keys.sure, keys.doubtful) for keys in lost]
    removed = _minus(pc.unique(pa.concat_arrays([_NO_KEYS, *(keys.removed for keys in compared)])), added["key"])
    doubtful = _minus(pc.unique(pa.concat_arrays([_NO_KEYS, *(keys.doubtful for keys in compared)])), added["key"])
    return KeyChanges(added, removed, _minus(doubtful, removed), touched)


def _minus(keys: pa.Array, others: pa.Array | pa.ChunkedArray) -> pa.Array:
    return keys.filter(pc.invert(pc.is_in(keys, value_set=others)))


def join_places(found: Iterable[tuple[FileGroupId, pa.Array]]) -> pa.Table:
    """Return the keys of file groups with their places. If a key has several, the last one counts.

    The columns are ``key``, ``partition_path`` and ``file_id``, as strings.
    """
    tables = [
        pa.table([keys, pa.repeat(group.partition_path, len(keys)), pa.repeat(group.file_id, len(keys))], _PLACE)
        for group, keys in found
        if len(keys)
    ]
    rows = pa.concat_tables([_PLACE.empty_table(), *tables]).combine_chunks()
    if len(pc.unique(rows["key"])) == len(rows):
        return rows
    numbered = rows.append_column("row", pa.array(np.arange(len(rows))))
    return rows.take(numbered.group_by("key").aggregate([("row", "max")])["row_max"])


def _compare_base(storage: Storage, instant_time: str, stat: WriteStat, old: FileSlice | None) -> _Compared:
    """Compare a base file with the slice before it. If no row has gone, all rows of the commit count as new."""
    if old is not None and not stat.num_deletes and not old.logs:
        if not stat.num_inserts:
            return _NOTHING
        written = read_keys_of_commit(storage, stat.base_file, instant_time)
        return _Compared(_one_array(written), _NO_KEYS, _NO_KEYS)
    new_keys = _read_base(storage, stat.base_file)
    if old is None:
        return _Compared(new_keys, _NO_KEYS, _NO_KEYS)
    keys = _read_slice(storage, old)
    return _Compared(_minus(new_keys, keys.sure), _minus(keys.sure, new_keys), _minus(keys.doubtful, new_keys))


def _compare_log(storage: Storage, stat: WriteStat, old: FileSlice | None) -> _Compared:
    """Compare a log file with the slice that it is appended to. If it inserts rows, all its rows count as new."""
    log = stat.log_file
    assert log is not None  # noqa: S101  Files are base files or log files.
    before = _read_deletes(storage, old.logs) if old is not None else _NO_KEYS
    deleted = pa.concat_arrays([_NO_KEYS, *_sure_deletes(storage, log)]) if stat.num_deletes else _NO_KEYS
    added = _NO_KEYS
    if stat.num_inserts or len(before):
        added = _read_logged(storage, [log])
        if not stat.num_inserts:
            added = added.filter(pc.is_in(added, value_set=before))
    return _Compared(added, _minus(deleted, before), deleted)


def _read_slice(storage: Storage, piece: FileSlice) -> _SliceKeys:
    base = _NO_KEYS if piece.base is None else _read_base(storage, piece.base)
    return _SliceKeys(base, _read_logged(storage, piece.logs), _read_deletes(storage, piece.logs))


def _read_base(storage: Storage, base: BaseFile) -> pa.Array:
    return _one_array(read_keys(storage, base).keys)


def _one_array(keys: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([_NO_KEYS, *keys.chunks])


def _read_logged(storage: Storage, logs: Sequence[LogFile]) -> pa.Array:
    """Return the keys of the data blocks."""
    return pa.concat_arrays(
        [_NO_KEYS, *(chunk for log in logs for chunk in read_logged_keys(storage, log).keys.chunks)]
    )


def _read_deletes(storage: Storage, logs: Sequence[LogFile]) -> pa.Array:
    """Return the keys of the delete blocks."""
    return pa.concat_arrays([_NO_KEYS, *(deletes.keys for log in logs for deletes in _each_deletes(storage, log))])


def _sure_deletes(storage: Storage, log: LogFile) -> Iterator[pa.Array]:
    """Yield the keys of unconditional deletes."""
    for deletes in _each_deletes(storage, log):
        is_sure = pa.repeat(True, len(deletes.keys))
        for values in deletes.ordering:
            is_sure = pc.and_(is_sure, values.is_null())
        yield deletes.keys.filter(is_sure)


def _each_deletes(storage: Storage, log: LogFile) -> Iterator[LogDeletes]:
    blocks = [block for block in read_blocks(storage, log) if block.kind is BlockKind.DELETE]
    for block, content in read_contents(storage, blocks):
        yield decode_deletes(block, content)
