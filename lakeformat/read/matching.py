"""Which base files hold a row that a filter selects: what updates and deletes by predicate have to rewrite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lakeformat.model.files import FileSlice
from lakeformat.predicate import Always, Predicate, columns_of
from lakeformat.read.batches import read_split
from lakeformat.read.query import ReadQuery, readable_schema
from lakeformat.read.session import plan_read
from lakeformat.read.splits import Split
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot

__all__ = ["Found", "find_matches"]

_UNCUT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Found:
    """The live slices that hold a match. ``counts``: what each narrowing step left, for the report."""

    slices: Sequence[FileSlice]
    counts: Mapping[str, int]


def find_matches(storage: Storage, snapshot: Snapshot, predicate: Predicate, *, skipping: bool = True) -> Found:
    """Narrow as reads do, by names, footers and row groups; then look at the filter's columns, up to a first match.

    Memory: per thread the filter's columns of one batch.

    Args:
        predicate: bound to the meta columns and the table's, as readers see them.
        skipping: whether names and statistics may rule out files and row groups.

    Raises:
        CorruptTableError: a file is damaged; names the file.
    """
    if snapshot.schema is None:
        return Found((), {"files": 0})
    table = snapshot.schema
    full = readable_schema(table, meta_columns=True)
    columns = columns_of(predicate)
    query = ReadQuery(pa.schema([field for field in full if field.name in columns]), predicate, skipping)
    plan = plan_read(storage, snapshot, query, split_bytes=_UNCUT)
    parts = [part for split in plan.splits for part in split.parts]

    def matches(split: Split) -> bool:
        return next(read_split(storage, split, query, table), None) is not None

    if predicate != Always(True):
        with ThreadPoolExecutor(max(1, pa.cpu_count())) as pool:
            flags = list(pool.map(matches, [Split((part,)) for part in parts]))
        parts = [part for part, flag in zip(parts, flags, strict=True) if flag]
    paths = {part.path for part in parts}
    folders = {path.rpartition("/")[0] for path in paths}
    slices = tuple(s for folder in sorted(folders) for s in snapshot.slices[folder] if _path_of(s) in paths)
    counts = {
        "files": plan.files,
        "after_names": plan.files_after_names,
        "after_stats": plan.files_after_stats,
        "with_matches": len(slices),
    }
    return Found(slices, counts)


def _path_of(piece: FileSlice) -> str:
    """As the part of a plan that reads it names it."""
    return (piece.base or piece.logs[0]).path
