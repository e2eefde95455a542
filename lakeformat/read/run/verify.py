"""A verified read: it reads all files, and counts the rows that a read with data skipping would have lost.

Skipping leaves out whole files and row groups and changes no row. So of each file, a read with skipping returns a
subset of the rows that the filter selects, and equal counts mean equal rows. Each task checks the files of its own
split, so a verified read scales like any other. It costs a read without skipping, plus a read of the filter's columns
with skipping. Memory: that of a read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from lakeformat.errors import SkippingError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.predicate import columns_of
from lakeformat.read.plan import Part, SlicePart, Split
from lakeformat.read.query import ReadQuery, readable_schema
from lakeformat.read.run.batches import read_split
from lakeformat.read.run.session import plan_read
from lakeformat.storage.port import Storage

__all__ = ["VerifiedSplit", "plan_verified", "read_verified", "read_verified_split"]

#: Maximum number of files that an error message names.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class VerifiedSplit:
    """The portion of a table that one task reads and checks. Picklable.

    Attributes:
        split: the files that the task reads, without data skipping.
        kept: the parts of these files that a read with data skipping would read.
    """

    split: Split
    kept: tuple[Part, ...]


def plan_verified(
    storage: Storage, snapshot: Snapshot, query: ReadQuery, *, split_bytes: int, at_least: int = 1
) -> tuple[VerifiedSplit, ...]:
    """Plan splits of the whole table, each with the parts that a skipping read would read.

    Arguments as in `plan_read`.
    """
    whole = replace(query, skipping=False)
    everything = plan_read(storage, snapshot, whole, split_bytes=split_bytes, at_least=at_least)
    skipping = replace(query, skipping=True)
    narrowed = plan_read(storage, snapshot, skipping, split_bytes=split_bytes, at_least=at_least)
    kept: dict[str, list[Part]] = {}
    for part in (part for split in narrowed.splits for part in split.parts):
        kept.setdefault(part.path, []).append(part)
    return tuple(
        VerifiedSplit(split, tuple(part for path in {p.path for p in split.parts} for part in kept.get(path, ())))
        for split in everything.splits
    )


def read_verified_split(
    storage: Storage, verified: VerifiedSplit, query: ReadQuery, table: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a split, as `read_split` without skipping.

    Raises:
        SkippingError: after the last row, if skipping would have lost rows; the message names the files.
        CorruptTableError: a file is missing or damaged; the message names the file.
    """
    whole, skipping = replace(query, skipping=False), replace(query, skipping=True)
    columns = columns_of(query.predicate)
    full = readable_schema(table, meta_columns=True)
    narrow = replace(skipping, schema=pa.schema([field for field in full if field.name in columns]))
    lost: dict[str, int] = {}
    for part in verified.split.parts:
        held = 0
        for batch in read_split(storage, Split((part,)), whole, table):
            held += batch.num_rows
            yield batch
        if columns and held:  # A filter without columns skips no file, so there is nothing to check.
            kept = tuple(_intersect(part, other) for other in verified.kept if other.path == part.path)
            rows_read = sum(batch.num_rows for batch in read_split(storage, Split(kept), narrow, table))
            if rows_read != held:
                lost[part.path] = lost.get(part.path, 0) + held - rows_read
    if lost:
        named = ", ".join(sorted(lost)[:_NAMED])
        raise SkippingError(
            f"skipping loses {sum(lost.values())} matching row(s) of {len(lost)} file(s): {named}; their statistics "
            "are wrong: read with hoodie.enable.data.skipping=false and have the files rewritten"
        )


def read_verified(
    storage: Storage, snapshot: Snapshot, query: ReadQuery, *, split_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all splits in order. Errors as in `plan_verified` and `read_verified_split`."""
    if snapshot.schema is not None:
        for verified in plan_verified(storage, snapshot, query, split_bytes=split_bytes):
            yield from read_verified_split(storage, verified, query, snapshot.schema)


def _intersect(part: Part, other: Part) -> Part:
    """Return the part of a file with the row groups that are in `part` and in `other`.

    A file slice with log files is not cut by row groups: return `other` as it is.
    """
    if isinstance(part, SlicePart) or isinstance(other, SlicePart):
        return other
    if part.row_groups is None or other.row_groups is None:
        groups = part.row_groups if other.row_groups is None else other.row_groups
    else:
        groups = tuple(group for group in part.row_groups if group in other.row_groups)
    return replace(other, size_bytes=part.size_bytes, row_groups=groups)
