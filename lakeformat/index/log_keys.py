"""Keys of file slices that have log files: those that only the log files hold.

Hudi's own indexes look into base files alone (``canIndexLogFiles`` is false) and never put a new key into a log file.
So log files are read only where their commits do not say that they hold updates and deletes alone.

Memory: the keys of the log files that are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lakeformat.files.log_reader import read_parts
from lakeformat.index.key_columns import KeyColumn, matches, read_keys
from lakeformat.index.port import Ints, Tagged, in_key_order
from lakeformat.merge.log_records import LogRows
from lakeformat.model.files import FileSlice, LogFile
from lakeformat.model.instant import VisibleInstants
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.table_state.live import ListedSlices
from lakeformat.table_state.snapshot import Snapshot

__all__ = [
    "LogsWithKeys",
    "logged_keys",
    "logs_with_keys",
    "slice_keys",
    "with_keys_of",
    "with_log_keys",
]


def with_log_keys(
    storage: Storage,
    snapshot: Snapshot,
    slices: Sequence[FileSlice],
    keys: pa.ChunkedArray,
    tagged: Tagged,
    pool: Executor,
) -> Tagged:
    """The same, with the keys that only log files hold found there.

    Args:
        slices: those that ``tagged`` points into.
    """
    found = {at: logs for at, each in enumerate(slices) if (logs := logs_with_keys(snapshot, each)) is not None}
    return with_keys_of(storage, found, keys, tagged, pool)


@dataclass(frozen=True, slots=True)
class LogsWithKeys:
    """Log files of a slice that may hold keys which its base file lacks. Picklable.

    Attributes:
        visible: instants whose blocks count.
    """

    logs: tuple[LogFile, ...]
    visible: VisibleInstants


def logs_with_keys(snapshot: Snapshot, piece: FileSlice) -> LogsWithKeys | None:
    """The slice's log files, if any of them may hold new keys; None if the base file has all keys."""
    updating = snapshot.live.updating if isinstance(snapshot.live, ListedSlices) else frozenset()
    if all(piece.base is not None and log.path in updating for log in piece.logs):
        return None
    return LogsWithKeys(piece.logs, snapshot.merging(piece).visible)


def with_keys_of(
    storage: Storage,
    logs: Mapping[int, LogsWithKeys],
    keys: pa.ChunkedArray,
    tagged: Tagged,
    pool: Executor,
) -> Tagged:
    """The same, with what is found in log files.

    Args:
        logs: by the position of their slice among those that ``tagged`` points into.
    """
    if not logs:
        return tagged
    columns = list(pool.map(lambda one: _written_keys(storage, one), logs.values()))
    found = matches(columns, keys)
    pairs, first = np.unique(
        np.concatenate(
            [
                np.stack([tagged.keys, tagged.files], 1),
                *(np.stack([at, np.full(len(at), file)], 1) for at, file in zip(found, logs, strict=True)),
            ]
        ),
        axis=0,
        return_index=True,
    )
    new = np.setdiff1d(tagged.new, pairs[:, 0], assume_unique=True)
    new = new[in_key_order(keys.take(pa.array(new)))]
    return replace(
        tagged, keys=pairs[:, 0].copy(), files=pairs[:, 1].copy(), new=new, base_rows=_of_first(tagged.base_rows, first)
    )


def _of_first(base_rows: Ints | None, first: Ints) -> Ints | None:
    """Row numbers of pairs, of which those that base files hold came first; -1 for the others."""
    if base_rows is None:
        return None
    known = first < len(base_rows)
    return np.where(known, base_rows[np.where(known, first, 0)], -1) if len(base_rows) else np.full(len(first), -1)


def slice_keys(storage: Storage, snapshot: Snapshot, piece: FileSlice) -> KeyColumn:
    """Every key that a file of the slice holds, deleted or not; keys may repeat."""
    parts = [read_keys(storage, piece.base)] if piece.base is not None else []
    if piece.logs:
        parts.append(_written_keys(storage, LogsWithKeys(piece.logs, snapshot.merging(piece).visible)))
    chunks = [chunk for part in parts for chunk in part.keys.chunks]
    return KeyColumn(pa.chunked_array(chunks, pa.string()), sum(part.size_bytes for part in parts))


def _written_keys(storage: Storage, of: LogsWithKeys) -> KeyColumn:
    """The keys of all rows of data in a slice's log files."""
    parts = read_parts(storage, of.logs, is_committed=of.visible, columns=[RECORD_KEY])
    return KeyColumn(pa.chunked_array(_key_chunks(parts), pa.string()), sum(log.size_bytes for log in of.logs))


def logged_keys(storage: Storage, log: LogFile) -> KeyColumn:
    """The keys of the rows of data in one log file, of whatever commit."""
    parts = read_parts(storage, [log], is_committed=lambda _: True, columns=[RECORD_KEY])
    return KeyColumn(pa.chunked_array(_key_chunks(parts), pa.string()), log.size_bytes)


def _key_chunks(parts: Iterable[object]) -> list[pa.Array]:
    rows = (part.rows for part in parts if isinstance(part, LogRows))
    return [chunk for table in rows for chunk in table.column(RECORD_KEY).cast(pa.string()).chunks]
