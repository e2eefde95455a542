"""The read path with its effects: timeline and listing, pruning, footers, splits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.file_index.footer_bounds import row_group_bounds
from lakeformat.index.footers import read_metadata
from lakeformat.model.files import BaseFile
from lakeformat.predicate import Always, may_match
from lakeformat.predicate.nodes import leaves
from lakeformat.read.batches import read_split
from lakeformat.read.pruning import prune_by_name, reading_keys
from lakeformat.read.query import ReadQuery, readable_schema
from lakeformat.read.splits import FilePart, Split, pack
from lakeformat.storage.port import Storage
from lakeformat.timeline.snapshot import Snapshot

__all__ = ["ReadPlan", "plan_read", "read_all"]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What a read is going to touch, after each pruning step. Bytes are compressed."""

    splits: tuple[Split, ...]
    files: int
    files_after_names: int
    files_after_footers: int
    bytes: int
    bytes_after: int
    row_groups: int | None
    row_groups_after: int | None

    def describe(self) -> str:
        """For people."""
        lines = [
            f"files      {self.files:>10,}  {self.bytes:>15,} bytes",
            f"  by name  {self.files_after_names:>10,}  after partition values and file names",
            f"  by stats {self.files_after_footers:>10,}  {self.bytes_after:>15,} bytes, after footers",
        ]
        if self.row_groups is not None:
            lines.append(f"row groups {self.row_groups_after:>10,}  of {self.row_groups:,} in the files opened")
        return "\n".join(lines)


def plan_read(
    storage: Storage, snapshot: Snapshot, query: ReadQuery, *, split_bytes: int, at_least: int = 1
) -> ReadPlan:
    """Choose files and row groups and cut them into splits.

    Raises:
        CorruptTableError: a footer that the filter needs is damaged; names the file.
    """
    files = snapshot.files
    total = sum(file.size_bytes for file in files)
    filtered = query.skipping and not isinstance(query.predicate, Always)
    kept = _by_name(files, snapshot, query) if filtered else files
    if isinstance(query.predicate, Always) and not query.predicate.value:
        kept = ()
    by_name = len(kept)
    groups_seen = groups_kept = None
    if filtered:
        parts, groups_seen, groups_kept = _by_footers(storage, kept, snapshot, query)
    else:
        parts = [part for file in kept for part in _whole(storage, file, split_bytes)]
    return ReadPlan(
        splits=pack(parts, split_bytes, at_least),
        files=len(files),
        files_after_names=by_name,
        files_after_footers=len({part.path for part in parts}),
        bytes=total,
        bytes_after=sum(part.size_bytes for part in parts),
        row_groups=groups_seen,
        row_groups_after=groups_kept,
    )


def _by_name(files: Sequence[BaseFile], snapshot: Snapshot, query: ReadQuery) -> tuple[BaseFile, ...]:
    if not files or snapshot.schema is None:
        return ()
    full = readable_schema(snapshot.schema, meta_columns=True)
    flags = prune_by_name(files, query.predicate, reading_keys(snapshot.config), full)
    return tuple(file for file, flag in zip(files, flags.tolist(), strict=True) if flag)


def _by_footers(
    storage: Storage, files: Sequence[BaseFile], snapshot: Snapshot, query: ReadQuery
) -> tuple[list[FilePart], int, int]:
    if not files or snapshot.schema is None:
        return [], 0, 0
    with ThreadPoolExecutor(max(2, pa.cpu_count())) as pool:
        footers = list(pool.map(lambda file: read_metadata(storage, file), files))
    columns = sorted({leaf.column for leaf in leaves(query.predicate)})
    full = readable_schema(snapshot.schema, meta_columns=True)
    bounds, rows, owner = row_group_bounds(footers, columns, full)
    flags = may_match(query.predicate, bounds, rows)
    parts: list[FilePart] = []
    for at, file in enumerate(files):
        mine = np.flatnonzero(owner == at)
        keep = np.flatnonzero(flags[mine]).tolist()
        parts += [FilePart(file.path, _group_bytes(footers[at], group), (group,)) for group in keep]
    return parts, len(flags), int(flags.sum())


def _whole(storage: Storage, file: BaseFile, split_bytes: int) -> list[FilePart]:
    """A file as one part, or by row groups if it is larger than a split."""
    if file.size_bytes <= split_bytes:
        return [FilePart(file.path, file.size_bytes)]
    footer = read_metadata(storage, file)
    return [FilePart(file.path, _group_bytes(footer, at), (at,)) for at in range(footer.num_row_groups)]


def _group_bytes(footer: pq.FileMetaData, group: int) -> int:
    row_group = footer.row_group(group)
    return sum(row_group.column(column).total_compressed_size for column in range(row_group.num_columns))


def read_all(storage: Storage, snapshot: Snapshot, query: ReadQuery, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """All splits one after the other."""
    if snapshot.schema is not None:
        for split in plan.splits:
            yield from read_split(storage, split, query, snapshot.schema)
