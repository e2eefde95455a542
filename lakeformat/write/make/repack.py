"""Repacking for ``insert``: small files that tasks have just written are merged with the table's small files.

A task divides its rows over files without knowing the table's small files, which could take the rows. Without this step
a thousand inserts of half a row group would leave a thousand files.

Memory: the rows of at most the wanted bytes of Parquet, and of at most `_SPREAD` times as many decoded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

from lakeformat.codec.conform import conform
from lakeformat.files.base_file import ROW_GROUP_ROWS
from lakeformat.files.footers import open_parquet, row_batches
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.transaction.written import Written

__all__ = ["choose_small", "read_back"]

#: Most decoded bytes per byte of Parquet that is packed again.
_SPREAD: Final = 4


def choose_small(
    written: Sequence[Written],
    tails: Mapping[str, pa.Table],
    snapshot: Snapshot,
    *,
    small_bytes: int,
    at_most_bytes: int,
) -> tuple[Written, ...]:
    """Return the new files worth packing again, smallest first: small ones whose partition has other small files or
    rows.

    Args:
        written: files that tasks have just written.
        tails: remaining rows of each partition, which will be packed in any case.
        small_bytes: smaller files count as small.
        at_most_bytes: bytes of files to choose at most. Later writes fill the small files that are not chosen.
    """
    small = [file for file in written if file.stat.size_bytes < small_bytes]
    mates = Counter(file.stat.partition_path for file in small)
    mates.update(path for path, rows in tails.items() if rows.num_rows)
    for path in {file.stat.partition_path for file in small}:
        mates[path] += sum(file.size_bytes < small_bytes for file in snapshot.by_partition.get(path, ()))
    chosen: list[Written] = []
    decoded = _SPREAD * at_most_bytes
    for file in sorted(small, key=lambda file: (file.stat.size_bytes, file.staged_path)):
        at_most_bytes -= file.stat.size_bytes
        decoded -= file.decoded_bytes
        if at_most_bytes < 0 or decoded < 0:
            break
        if mates[file.stat.partition_path] > 1:
            chosen.append(file)
    return tuple(chosen)


def read_back(
    storage: Storage, chosen: Sequence[Written], tails: Mapping[str, pa.Table], prepared: pa.Schema
) -> Mapping[str, pa.Table]:
    """Return the tails, in the prepared schema, with the rows of the chosen files before them."""
    parts: dict[str, list[pa.Table]] = {}
    for file in sorted(chosen, key=lambda file: file.staged_path):
        with storage.open_input(file.staged_path) as source, open_parquet(source, file.staged_path) as parquet:
            batches = row_batches(parquet, file.staged_path, ROW_GROUP_ROWS, columns=prepared.names)
            tables = [conform(pa.Table.from_batches([batch]), prepared) for batch in batches]
        parts.setdefault(file.stat.partition_path, []).extend(tables)
    for path, rows in tails.items():
        parts.setdefault(path, []).append(rows)
    return {path: pa.concat_tables(tables) for path, tables in sorted(parts.items())}
