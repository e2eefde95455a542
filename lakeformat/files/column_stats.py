"""The column statistics of a finished base file, taken from the Parquet writer when it closes the file.

The statistics are a few numbers per column and row group. Each task sends those of its files as JSON, in the raw form
in which Parquet stores them. Then the statistics of all files of a commit are converted to Arrow columns at once, which
is faster than file by file.
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

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.files.footer_bounds import BoundsCollector, Raw, fold_files, stored_type
from lakeformat.model.record import COMMIT_TIME, RECORD_KEY
from lakeformat.predicate import ColumnBounds, column_path, resolve_column

__all__ = ["FileStats", "LeafStats", "NanCounts", "collect_file_stats", "fold_file_stats", "indexed_columns"]

#: Maximum length of a text statistic in bytes. A longer minimum is cut to a smaller text, a longer maximum to a greater
#: one.
_TEXT_BYTES: Final = 64
_LAST_CHARACTER: Final = 0x10FFFF
_DOT: Final = re.compile(r"\.")


@dataclass(frozen=True, slots=True)
class LeafStats:
    """Column statistics of one column of one file: one entry per row group, None if the footer has no statistics.

    Attributes:
        path: the column's path as filters spell it.
        physical, logical: Parquet's types, the logical one as JSON.
        minima, maxima: raw statistics. Binary values are Latin-1 strings, so that JSON can hold them.
        nan_count: NaN values of the whole file, None if they were not counted.
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
    """Statistics of one file from the Parquet writer. Picklable; ``dataclasses.asdict`` converts it for JSON.

    Attributes:
        group_rows: row count of each row group.
    """

    group_rows: tuple[int, ...]
    leaves: tuple[LeafStats, ...] = ()

    @classmethod
    def of_dict(cls, document: Mapping[str, Any]) -> FileStats:
        """Make the object from the result of ``dataclasses.asdict``. Tuples may be lists, as JSON makes them."""
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
            for leaf in document["leaves"]
        ]
        return cls(tuple(document["group_rows"]), tuple(leaves))

    @property
    def rows(self) -> int:
        """Return the row count of the file."""
        return sum(self.group_rows)


def indexed_columns(schema: pa.Schema, wanted: Sequence[str] | None, limit: int) -> tuple[str, ...]:
    """Return the paths of the leaf columns with stored statistics: record key, commit time, and the table's leaves.

    Args:
        schema: the table's columns, without meta columns.
        wanted: top-level columns or paths of leaves, in any number; None means the first ``limit`` leaves. Names
            that the table does not have are skipped, as in Hudi.
        limit: maximum number of leaves of the table if ``wanted`` is None.
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
    """Return the paths of the leaves outside lists and maps, and their indexes among all leaves of a Parquet file."""
    leaves: list[tuple[str, int]] = []
    count = 0

    def walk(of: pa.DataType, parts: tuple[str, ...], reachable: bool) -> None:
        nonlocal count
        if kind_of(of) is Kind.STRUCT:
            for field in of:
                walk(field.type, (*parts, field.name), reachable)
        elif kind_of(of) is Kind.MAP:
            walk(of.key_type, parts, False)
            walk(of.item_type, parts, False)
        elif kind_of(of).is_nested:
            walk(of.value_type, parts, False)
        else:
            if reachable:
                leaves.append((column_path(parts), count))
            count += 1

    for field in schema:
        walk(field.type, (field.name,), True)
    return tuple(leaves)


class NanCounts:
    """A counter of NaN in the float columns of a file while it is written. Parquet's statistics do not count NaN.

    Args:
        columns: paths of leaves; leaves that are not floats or not in the schema are skipped.
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str]) -> None:
        paths = {column_path(parts): parts for parts in _float_leaves(schema)}
        self._parts = {path: paths[path] for path in columns if path in paths}
        self.by_path: dict[str, int] = dict.fromkeys(self._parts, 0)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the table's columns that have counted floats."""
        return tuple(dict.fromkeys(top for top, *_ in self._parts.values()))

    def add(self, rows: pa.Table) -> None:
        """Count the NaN of more rows. Columns that they lack are not counted."""
        given = set(rows.schema.names)
        for path, (top, *inner) in self._parts.items():
            if top not in given:
                continue
            for chunk in rows.column(top).chunks:
                values = pc.struct_field(chunk, inner) if inner else chunk  # Fields of a null struct count as null.
                self.by_path[path] += _nan_count(values)


def _nan_count(values: pa.Array) -> int:
    if values.null_count:
        return int(pc.is_nan(values).true_count)
    plain = values.to_numpy()
    return int(np.count_nonzero(np.not_equal(plain, plain)))  # Only NaN is unequal to itself. Faster than `isnan`.


@lru_cache(64)
def _float_leaves(schema: pa.Schema) -> tuple[tuple[str, ...], ...]:
    """Return the path parts of the float leaves outside lists and maps."""
    leaves: list[tuple[str, ...]] = []

    def walk(of: pa.DataType, parts: tuple[str, ...]) -> None:
        if kind_of(of) is Kind.STRUCT:
            for field in of:
                walk(field.type, (*parts, field.name))
        elif kind_of(of) is Kind.FLOAT:
            leaves.append(parts)

    for field in schema:
        walk(field.type, (field.name,))
    return tuple(leaves)


def collect_file_stats(
    metadata: pq.FileMetaData,
    schema: pa.Schema,
    columns: Sequence[str],
    nan_counts: Mapping[str, int] = MappingProxyType({}),
) -> FileStats:
    """Collect the statistics of some columns from a footer, so that the footer with its filter can be freed.

    Args:
        schema: the schema from which the file was written.
        columns: paths of leaves; leaves that the file lacks are skipped.
        nan_counts: number of NaN values in the whole file by path, for the columns in which they were counted.
    """
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    indexed = frozenset(columns)
    leaves = [_collect_leaf(metadata, groups, path, leaf) for path, leaf in _leaves(schema) if path in indexed]
    leaves = [replace(leaf, nan_count=nan_counts[leaf.path]) if leaf.path in nan_counts else leaf for leaf in leaves]
    return FileStats(tuple(group.num_rows for group in groups), tuple(leaves))


def _collect_leaf(metadata: pq.FileMetaData, groups: Sequence[pq.RowGroupMetaData], path: str, leaf: int) -> LeafStats:
    column = metadata.schema.column(leaf)
    physical, logical = column.physical_type, column.logical_type.to_json()
    texts = physical == "BYTE_ARRAY" and not logical.startswith('{"Type": "Decimal"')
    minima: list[Any] = []
    maxima: list[Any] = []
    nulls: list[int | None] = []
    for group in groups:
        statistics = group.column(leaf).statistics
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
    """Cut a string to at most `_TEXT_BYTES` bytes. The result is safe as a minimum, because it is not greater."""
    end = _TEXT_BYTES
    while len(value) > end and end and value[end] & 0xC0 == 0x80:  # Do not split a UTF-8 character.
        end -= 1
    return value[:end]


def _cut_up(value: bytes, *, is_text: bool) -> bytes | None:
    """Cut a value to at most `_TEXT_BYTES` bytes, and increase its last character, so that it is safe as a maximum.

    A value that is short enough is returned as it is. Return None if no value of this length is greater, or if a text
    is not valid UTF-8. Then the maximum is unknown.
    """
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


def fold_file_stats(
    files: Sequence[FileStats], columns: Sequence[str], schema: pa.Schema
) -> tuple[Mapping[str, ColumnBounds], pa.Array]:
    """Return a mapping of column path to bounds with an entry per file, and the row counts of the files (int64).

    Args:
        columns: paths of columns; a bound is unknown if the file has no statistics for the column.
        schema: the meta columns and the table's columns; bounds get its types.
    """
    resolved = [(column, resolve_column(column, schema)[1]) for column in columns]
    collectors = {path: BoundsCollector(of) for path, of in resolved}
    for file in files:
        leaves = {leaf.path: leaf for leaf in file.leaves}
        for path, collector in collectors.items():
            leaf = leaves.get(path)
            for group in range(len(file.group_rows)):
                if leaf is None:
                    collector.add(None)
                    continue
                low, high = leaf.minima[group], leaf.maxima[group]
                raw = None if low is None or high is None else (_as_raw(low), _as_raw(high))
                # The first row group gets the NaN count of the file, because only the sum of all row groups is used.
                nans = 0 if group and leaf.nan_count is not None else leaf.nan_count
                collector.add(leaf.null_counts[group], stored_type(leaf.physical, leaf.logical), raw, nans)
    rows = [rows for file in files for rows in file.group_rows]
    owner = np.repeat(np.arange(len(files)), [len(file.group_rows) for file in files])
    bounds = {path: collector.bounds() for path, collector in collectors.items()}
    return fold_files(bounds, pa.array(rows, pa.int64()), owner, len(files))
