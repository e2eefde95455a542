"""What a finished base file tells of itself, taken from the Parquet writer before it forgets.

A few numbers per column and row group, raw as Parquet keeps them: they travel from tasks as JSON, and all files of a
commit are turned into columns at once, which costs milliseconds where file by file it would cost tens.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.files.footer_bounds import BoundsCollector, Raw, fold_files, stored_type
from lakeformat.model.record import COMMIT_TIME, RECORD_KEY
from lakeformat.predicate import ColumnBounds, column_path, resolve

__all__ = ["FileStats", "LeafStats", "NanCounts", "collect", "fold", "indexed_columns"]

#: Longer texts are cut, a least one downwards and a greatest one upwards.
_TEXT_BYTES: Final = 64
_LAST_CHARACTER: Final = 0x10FFFF
_DOT: Final = re.compile(r"\.")


@dataclass(frozen=True, slots=True)
class LeafStats:
    """One column of one file; one entry per row group, None where Parquet says nothing.

    Attributes:
        path: the column's path as filters spell it.
        physical, logical: Parquet's types, the logical one as JSON.
        minima, maxima: raw statistics; bytes as Latin-1 text.
        nan_count: of the whole file, None where nobody has counted.
    """

    path: str
    physical: str
    logical: str
    minima: tuple[bool | int | float | str | None, ...]
    maxima: tuple[bool | int | float | str | None, ...]
    null_counts: tuple[int | None, ...]
    nan_count: int | None = None


@dataclass(frozen=True, slots=True)
class FileStats:
    """What the Parquet writer knew of one file. Picklable, and JSON by ``dataclasses.asdict``.

    Attributes:
        group_rows: rows of each row group.
    """

    group_rows: tuple[int, ...]
    leaves: tuple[LeafStats, ...] = ()

    @classmethod
    def of_dict(cls, found: Mapping[str, Any]) -> FileStats:
        """Inverse of ``dataclasses.asdict``, also after JSON has made lists of tuples."""
        leaves = [
            LeafStats(
                leaf["path"],
                leaf["physical"],
                leaf["logical"],
                tuple(leaf["minima"]),
                tuple(leaf["maxima"]),
                tuple(leaf["null_counts"]),
                leaf.get("nan_count"),
            )
            for leaf in found["leaves"]
        ]
        return cls(tuple(found["group_rows"]), tuple(leaves))

    @property
    def rows(self) -> int:
        """Rows of the file."""
        return sum(self.group_rows)


def indexed_columns(schema: pa.Schema, wanted: Sequence[str] | None, limit: int) -> tuple[str, ...]:
    """Paths of the leaf columns whose statistics are kept: record key, commit time, and those of the table.

    Args:
        schema: the table's columns, without meta columns.
        wanted: top columns or paths of leaves, whatever their number; by default all, up to the limit. Names the
            table does not have are passed over, as in Hudi.
        limit: how many leaves of the table.
    """
    leaves = [path for path, _ in _leaves(schema)]
    if wanted is None:
        return (RECORD_KEY, COMMIT_TIME, *leaves[:limit])
    names = frozenset(wanted)
    chosen = [
        leaf for leaf in leaves if leaf in names or any(leaf[: dot.start()] in names for dot in _DOT.finditer(leaf))
    ]
    return (RECORD_KEY, COMMIT_TIME, *dict.fromkeys(chosen))


@lru_cache(64)
def _leaves(schema: pa.Schema) -> tuple[tuple[str, int], ...]:
    """Paths of the leaves that stand above no list or map, and their numbers among all leaves of a Parquet file."""
    found: list[tuple[str, int]] = []
    count = 0

    def walk(of: pa.DataType, parts: tuple[str, ...], reachable: bool) -> None:
        nonlocal count
        if pa.types.is_struct(of):
            for field in of:
                walk(field.type, (*parts, field.name), reachable)
        elif pa.types.is_map(of):
            walk(of.key_type, parts, False)
            walk(of.item_type, parts, False)
        elif pa.types.is_nested(of):
            walk(of.value_type, parts, False)
        else:
            if reachable:
                found.append((column_path(parts), count))
            count += 1

    for field in schema:
        walk(field.type, (field.name,), True)
    return tuple(found)


class NanCounts:
    """Counts NaN, of which Parquet's statistics say nothing, in the float columns of a file while it is written.

    Args:
        columns: paths of leaves; others than floats, and those the schema lacks, are passed over.
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        paths = {column_path(parts): parts for parts in _float_leaves(schema)}
        self._parts = {path: paths[path] for path in columns if path in paths}
        self.by_path: dict[str, int] = dict.fromkeys(self._parts, 0)

    def add(self, rows: pa.Table) -> None:
        """Count in more rows."""
        for path, (top, *inner) in self._parts.items():
            for chunk in rows.column(top).chunks:
                values = pc.struct_field(chunk, inner) if inner else chunk  # Null where a struct is.
                self.by_path[path] += _nan_count(values)


def _nan_count(values: pa.Array) -> int:
    if values.null_count:
        return int(pc.is_nan(values).true_count)
    plain = values.to_numpy()
    return int(np.count_nonzero(np.not_equal(plain, plain)))  # Three times as fast as `isnan`.


@lru_cache(64)
def _float_leaves(schema: pa.Schema) -> tuple[tuple[str, ...], ...]:
    """The parts of paths of floats that stand above no list or map."""
    found: list[tuple[str, ...]] = []

    def walk(of: pa.DataType, parts: tuple[str, ...]) -> None:
        if pa.types.is_struct(of):
            for field in of:
                walk(field.type, (*parts, field.name))
        elif pa.types.is_floating(of):
            found.append(parts)

    for field in schema:
        walk(field.type, (field.name,))
    return tuple(found)


def collect(
    metadata: pq.FileMetaData,
    schema: pa.Schema,
    columns: Sequence[str],
    nan_counts: Mapping[str, int] = MappingProxyType({}),
) -> FileStats:
    """Take what is wanted from a footer; the footer, with its filter, may go.

    Args:
        schema: what the file was written from.
        columns: paths of leaves; those the file lacks are passed over.
        nan_counts: NaN of the whole file, by path, where they were counted.
    """
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    wanted = frozenset(columns)
    leaves = [_leaf(metadata, groups, path, at) for path, at in _leaves(schema) if path in wanted]
    leaves = [replace(leaf, nan_count=nan_counts[leaf.path]) if leaf.path in nan_counts else leaf for leaf in leaves]
    return FileStats(tuple(group.num_rows for group in groups), tuple(leaves))


def _leaf(metadata: pq.FileMetaData, groups: Sequence[pq.RowGroupMetaData], path: str, at: int) -> LeafStats:
    column = metadata.schema.column(at)
    physical, logical = column.physical_type, column.logical_type.to_json()
    texts = physical == "BYTE_ARRAY" and not logical.startswith('{"Type": "Decimal"')
    minima: list[Any] = []
    maxima: list[Any] = []
    nulls: list[int | None] = []
    for group in groups:
        statistics = group.column(at).statistics
        low = high = None
        if statistics is not None and statistics.has_min_max:
            low, high = statistics.min_raw, statistics.max_raw
            if texts:
                low, high = _cut_down(low), _cut_up(high, is_text="String" in logical)
        minima.append(_as_json(low) if high is not None else None)
        maxima.append(_as_json(high))
        nulls.append(statistics.null_count if statistics is not None and statistics.has_null_count else None)
    return LeafStats(path, physical, logical, tuple(minima), tuple(maxima), tuple(nulls))


def _as_json(raw: Raw | None) -> bool | int | float | str | None:
    return raw.decode("latin-1") if isinstance(raw, bytes) else raw


def _as_raw(value: bool | int | float | str) -> Raw:
    return value.encode("latin-1") if isinstance(value, str) else value


def _cut_down(value: bytes) -> bytes:
    """A prefix, which is not greater."""
    end = _TEXT_BYTES
    while len(value) > end and end and value[end] & 0xC0 == 0x80:  # Not within a character.
        end -= 1
    return value[:end]


def _cut_up(value: bytes, *, is_text: bool) -> bytes | None:
    """Something short that is not less; None if there is nothing."""
    if len(value) <= _TEXT_BYTES:
        return value
    if not is_text:
        cut = value[:_TEXT_BYTES].rstrip(b"\xff")
        return cut[:-1] + bytes([cut[-1] + 1]) if cut else None
    try:
        text = _cut_down(value).decode()
    except UnicodeDecodeError:
        return None
    text = text.rstrip(chr(_LAST_CHARACTER))
    if not text:
        return None
    following = ord(text[-1]) + 1
    return (text[:-1] + chr(0xE000 if 0xD800 <= following < 0xE000 else following)).encode()


def fold(
    files: Sequence[FileStats], columns: Sequence[str], schema: pa.Schema
) -> tuple[Mapping[str, ColumnBounds], pa.Array]:
    """Bounds per file, and rows per file (int64), of files of one commit.

    Args:
        columns: paths; what a file says nothing of is unknown.
        schema: the meta columns and the table's; bounds get its types.
    """
    resolved = [(column, resolve(column, schema)[1]) for column in columns]
    collectors = {path: BoundsCollector(of) for path, of in resolved}
    for file in files:
        found = {leaf.path: leaf for leaf in file.leaves}
        for path, collector in collectors.items():
            leaf = found.get(path)
            for at in range(len(file.group_rows)):
                if leaf is None:
                    collector.add(None)
                    continue
                low, high = leaf.minima[at], leaf.maxima[at]
                raw = None if low is None or high is None else (_as_raw(low), _as_raw(high))
                # All of a file's NaN are told of its first row group: only their sum is asked for.
                nans = 0 if at and leaf.nan_count is not None else leaf.nan_count
                collector.add(leaf.null_counts[at], stored_type(leaf.physical, leaf.logical), raw, nans)
    rows = [rows for file in files for rows in file.group_rows]
    owner = np.repeat(np.arange(len(files)), [len(file.group_rows) for file in files])
    bounds = {path: collector.bounds() for path, collector in collectors.items()}
    return fold_files(bounds, pa.array(rows, pa.int64()), owner, len(files))
