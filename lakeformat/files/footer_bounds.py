"""Column bounds of row groups, from Parquet footers.

A footer's statistics are used only if the file's type converts to the table's without losing order or digits.
Otherwise, the bounds could rule out row groups that hold a match. The file's type is Parquet's physical and logical
type, not the Arrow schema that a writer may have stored. In all other cases (INT96, unsigned, other time zones, NaN, no
column order) the bounds are unknown.

Old writers stored wrong bounds of texts (the deprecated min/max, in signed order). Arrow hides these: `has_min_max` is
then false.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.predicate import ColumnBounds, path_parts, resolve_column

__all__ = ["BoundsCollector", "Raw", "fold_files", "is_exact_conversion", "row_group_bounds", "stored_type"]

_TIME_UNITS: Final[Mapping[str, str]] = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BYTE_ARRAY": pa.binary(),
    "FIXED_LEN_BYTE_ARRAY": pa.binary(),
}
_INTS: Final[Mapping[int, pa.DataType]] = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}

#: A minimum or maximum as Parquet stores it.
Raw: TypeAlias = bool | int | float | bytes


@dataclass(frozen=True, slots=True)
class _LeafPlace:
    """A column of a file, and where its statistics are in the footer.

    Attributes:
        absent: whether the file does not have the column.
        index: number of the column among the leaf columns; None if the column is absent or cannot be identified.
        stored: type of the raw statistics; None if they cannot be used.
        required: whether the column cannot hold null.
    """

    absent: bool = False
    index: int | None = None
    stored: pa.DataType | None = None
    required: bool = False


class BoundsCollector:
    """A collector of one column's bounds from the statistics of row groups, whose files may store it as other types.

    Args:
        wanted: the column's type in the table; bounds get this type.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._wanted = kind
        self._null_counts: list[int | None] = []
        self._nan_counts: list[int | None] = []
        self._stored: dict[pa.DataType, tuple[list[int], list[Raw], list[Raw]]] = {}

    def add(
        self,
        null_count: int | None,
        stored: pa.DataType | None = None,
        raw: tuple[Raw, Raw] | None = None,
        nan_count: int | None = None,
    ) -> None:
        """Add the statistics of the next row group.

        Args:
            null_count: None if it is unknown.
            stored: the type of the raw values.
            raw: minimum and maximum as Parquet stores them; None if they are unknown.
            nan_count: None if it is unknown; counts as 0 if the stored type is not a float.
        """
        unit = len(self._null_counts)
        self._null_counts.append(null_count)
        self._nan_counts.append(nan_count if stored is None or kind_of(stored) is Kind.FLOAT else 0)
        if stored is not None and raw is not None:
            units, lows, highs = self._stored.setdefault(stored, ([], [], []))
            units.append(unit)
            lows.append(raw[0])
            highs.append(raw[1])

    def bounds(self) -> ColumnBounds:
        """Return the bounds, with an entry for each row group in the order of the calls of `add`."""
        total = len(self._null_counts)
        order = np.full(total, total)  # The index of each row group's bounds. `total` means that they are unknown.
        lows, highs, position = [], [], 0
        for stored, (units, low, high) in self._stored.items():
            converted = _convert(low, stored, self._wanted), _convert(high, stored, self._wanted)
            if converted[0] is None or converted[1] is None:
                continue
            lows.append(converted[0])
            highs.append(converted[1])
            order[units] = np.arange(position, position + len(units))
            position += len(units)
        order[order == total] = position
        # All row groups have bounds, stored as one type: they are in order.
        is_known = len(lows) == 1 and position == total
        return ColumnBounds(
            lows[0] if is_known else _scatter(lows, order, self._wanted),
            highs[0] if is_known else _scatter(highs, order, self._wanted),
            pa.array(self._null_counts, pa.int64()),
            pa.array(self._nan_counts, pa.int64()) if kind_of(self._wanted) is Kind.FLOAT else None,
        )


def row_group_bounds(
    footers: Sequence[pq.FileMetaData],
    columns: Sequence[str],
    schema: pa.Schema,
    nan_free: Sequence[Collection[str]] = (),
) -> tuple[Mapping[str, ColumnBounds], pa.Array, npt.NDArray[np.int64]]:
    """Return the bounds of every row group of every file, for `may_match`.

    Args:
        footers: One per file.
        columns: Paths of the wanted columns; a dotted path leads through structs.
        schema: The table's columns; bounds get their types.
        nan_free: For each footer, the paths of the columns that hold no NaN in that file, because footers do not count
            NaN. Empty if nothing is known.

    Returns:
        three values with an entry per row group, in the order of the files: a mapping of column path, as the schema
        spells it, to the column's bounds; the row counts (int64); the position in ``footers`` of the file of each row
        group. If a file has no row groups, it has no entry. If the schema of a file has no column of a name, the column
        counts as all null in this file.

    Raises:
        InvalidInputError: A column is not in ``schema``.
    """
    resolved = [resolve_column(column, schema) for column in columns]
    collectors = {path: BoundsCollector(of) for path, of in resolved}
    layouts: list[tuple[pq.ParquetSchema, list[tuple[str, BoundsCollector, _LeafPlace]]]] = []
    row_counts: list[int] = []
    file_index: list[int] = []
    for position, footer in enumerate(footers):
        file_schema = footer.schema
        layout = next(
            (places for layout_schema, places in reversed(layouts) if layout_schema.equals(file_schema)), None
        )
        if layout is None:
            leaf_indexes = _leaf_indexes(file_schema)
            layout = [(path, of, _locate(path, file_schema, leaf_indexes)) for path, of in collectors.items()]
            layouts.append((file_schema, layout))
        without_nan = nan_free[position] if nan_free else ()
        for i in range(footer.num_row_groups):
            row_group = footer.row_group(i)
            row_counts.append(row_group.num_rows)
            file_index.append(position)
            for path, collector, place in layout:
                _observe(collector, place, row_group, 0 if path in without_nan else None)
    return (
        {path: collector.bounds() for path, collector in collectors.items()},
        pa.array(row_counts, pa.int64()),
        np.array(file_index, dtype=np.int64),
    )


def _observe(
    collector: BoundsCollector, place: _LeafPlace, row_group: pq.RowGroupMetaData, nan_count: int | None
) -> None:
    statistics = None if place.index is None else row_group.column(place.index).statistics
    if statistics is not None and statistics.has_null_count:
        null_count = statistics.null_count
    elif place.absent:
        null_count = row_group.num_rows
    else:
        null_count = 0 if place.required else None
    raw = None
    if statistics is not None and statistics.has_min_max:
        raw = statistics.min_raw, statistics.max_raw
    collector.add(null_count, place.stored, raw, nan_count)


def fold_files(
    bounds: Mapping[str, ColumnBounds],
    row_counts: pa.Array,
    unit_file_index: npt.NDArray[np.int64],
    file_count: int,
) -> tuple[Mapping[str, ColumnBounds], pa.Array]:
    """Combine the bounds and row counts of row groups (the result of `row_group_bounds`) into those of their files.

    A file's bound is unknown if any of its row groups that may hold a value has an unknown bound. A file's count is
    unknown if the count of any of its row groups is unknown. A file with no row groups has row count 0, counts of 0 and
    unknown bounds.
    """
    if np.array_equal(unit_file_index, np.arange(file_count)):  # Each file has one row group: nothing to combine.
        return bounds, row_counts
    parts = [_Part(row_counts, "sum", pa.repeat(pa.scalar(False), len(row_counts)), 0)]
    for column in bounds.values():
        all_null = pc.fill_null(pc.equal(column.null_count, row_counts), False)
        parts += [
            _Part(column.minimum, "min", pc.and_not(pc.is_null(column.minimum), all_null)),
            _Part(column.maximum, "max", pc.and_not(pc.is_null(column.maximum), all_null)),
            *(_Part(of, "sum", pc.is_null(of), 0) for of in (column.null_count, column.nan_count) if of is not None),
        ]
    total, *folded = _fold(parts, pa.array(unit_file_index), file_count)
    rest = iter(folded)
    return {
        path: ColumnBounds(next(rest), next(rest), next(rest), None if column.nan_count is None else next(rest))
        for path, column in bounds.items()
    }, total


#: The file's schema as nested names. A value is the subtree of a struct, the index of a leaf, or None for a list, a map
#: or a name that occurs twice.
_Tree: TypeAlias = "dict[str, _Tree | int | None]"


def _leaf_indexes(schema: pq.ParquetSchema) -> _Tree | None:
    """Return the indexes of the file's leaves as nested names, or None if Arrow cannot read the file's structure."""
    try:
        fields = schema.to_arrow_schema()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    counter = [0]

    def walk(of: pa.DataType) -> _Tree | int | None:
        if isinstance(of, pa.BaseExtensionType):
            of = of.storage_type
        if kind_of(of).is_nested:
            # A map has no child fields in Arrow, but its key and its value are leaves of the file and must be counted.
            children = (
                [("key", of.key_type), ("value", of.item_type)]
                if kind_of(of) is Kind.MAP
                else [(of.field(i).name, of.field(i).type) for i in range(of.num_fields)]
            )
            tree: _Tree = {}
            for name, child in children:
                tree[name] = None if name in tree else walk(child)
            return tree if kind_of(of) is Kind.STRUCT else None
        counter[0] += 1
        return counter[0] - 1

    root: _Tree = {}
    for field in fields:
        indexes = walk(field.type)
        root[field.name] = None if field.name in root else indexes
    return root if counter[0] == len(schema.names) else None


def _locate(path: str, schema: pq.ParquetSchema, tree: _Tree | None) -> _LeafPlace:
    node: _Tree | int | None = tree
    for part in path_parts(path):
        if not isinstance(node, dict):
            return _LeafPlace()
        if part not in node:
            # An absent column is null in all rows, which may rule out the file. If the file has a name that differs
            # only in case, the column counts as unknown instead: some readers take both names for the same column.
            return _LeafPlace(absent=part.lower() not in {name.lower() for name in node})
        node = node[part]
    if not isinstance(node, int):
        return _LeafPlace()
    leaf = schema.column(node)
    stored = stored_type(leaf.physical_type, leaf.logical_type.to_json())
    return _LeafPlace(index=node, stored=stored, required=leaf.max_definition_level == 0)


@lru_cache(256)
def stored_type(physical: str, logical_json: str) -> pa.DataType | None:
    """Return the type of a leaf's raw statistics, or None if Arrow has no type with the same order and meaning.

    Args:
        physical: Parquet's physical type.
        logical_json: its logical type, as Arrow spells it in JSON.
    """
    logical = json.loads(logical_json)
    match logical["Type"]:
        case "None" | "Undefined":
            return _PLAIN.get(physical)
        case "String" | "Enum" | "JSON" | "Json":
            return pa.string()
        case "Date":
            return pa.date32()
        case "Int" if logical["isSigned"]:
            return _INTS.get(logical["bitWidth"])
        case "Timestamp":
            unit = _TIME_UNITS.get(logical["timeUnit"])
            return unit and pa.timestamp(unit, "UTC" if logical["isAdjustedToUTC"] else None)
        case "Decimal" if logical["precision"] <= 38:
            return pa.decimal128(logical["precision"], logical["scale"])
        case _:
            return None


def is_exact_conversion(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Tell whether a safe cast between the types keeps order and value, so that a successful cast gives true bounds.

    That of a float to a double does not: rows are converted by their texts (`conform_array`).
    """
    if stored == wanted:
        return True
    if kind_of(stored) is Kind.INTEGER:
        if kind_of(wanted) is Kind.FLOAT:
            return bool(stored.bit_width <= {32: 16, 64: 32}.get(wanted.bit_width, 0))
        return kind_of(wanted) in (Kind.INTEGER, Kind.DECIMAL) and not pa.types.is_unsigned_integer(wanted)
    if kind_of(stored) is kind_of(wanted) is Kind.TIMESTAMP:
        return (stored.tz is None) == (wanted.tz is None)
    if kind_of(stored) is Kind.DECIMAL:
        return kind_of(wanted) is Kind.DECIMAL
    return _is_bytewise(stored) and _is_bytewise(wanted)


def _is_bytewise(of: pa.DataType) -> bool:
    return kind_of(of) in (Kind.TEXT, Kind.BYTES)


def _convert(raw: list[Raw], stored: pa.DataType, kind: pa.DataType) -> pa.Array | None:
    """Convert raw statistics to the table's type.

    Values without an exact counterpart become null. Return None if the types do not convert.
    """
    if not is_exact_conversion(stored, kind):
        return None
    try:
        if kind_of(stored) is Kind.DECIMAL:
            values = pa.array([_decimal(value, stored.scale) for value in raw], stored)
        elif _is_bytewise(stored):
            values = pa.array(raw, pa.binary())
        else:
            values = pa.array(raw, stored)
        values = values.cast(kind)
    except pa.ArrowNotImplementedError:
        return None
    except pa.ArrowInvalid:
        # At least one value does not convert. Convert each half alone, down to single values: only those that do not
        # convert become null.
        if len(raw) == 1:
            return pa.nulls(1, kind)
        middle = len(raw) // 2
        first, second = _convert(raw[:middle], stored, kind), _convert(raw[middle:], stored, kind)
        return None if first is None or second is None else pa.concat_arrays([first, second])
    if kind_of(kind) is Kind.FLOAT:
        return pc.if_else(pc.is_nan(values), pa.scalar(None, kind), values)
    return values


def _decimal(raw: Raw, scale: int) -> Decimal:
    unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
    digits = tuple(int(digit) for digit in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))


def _scatter(groups: Sequence[pa.Array], order: npt.NDArray[np.int64], of: pa.DataType) -> pa.Array:
    return pa.concat_arrays([*groups, pa.nulls(1, of)]).take(pa.array(order))


@dataclass(frozen=True, slots=True)
class _Part:
    """What is to be combined of the row groups of each file.

    Attributes:
        values: a value per row group.
        how: the name of the Arrow aggregate, such as ``min``.
        unknown: per row group, whether it makes the value of its file unknown.
        empty: the value of a file with no row groups.
    """

    values: pa.Array
    how: str
    unknown: pa.Array
    empty: int | None = None


def _fold(parts: Sequence[_Part], files: pa.Array, file_count: int) -> list[pa.Array]:
    """Return each part's value per file, null if it is unknown. All are computed in one pass.

    Args:
        parts: a part of a nested type, which Arrow does not compare, is unknown in all files.
        files: the number of each row group's file.
        file_count: the number of files.
    """
    units = {"": files}
    aggregates = []
    for number, part in enumerate(parts):
        if not kind_of(part.values.type).is_nested:
            units |= {f"{number}": part.values, f"{number} unknown": part.unknown}
            aggregates += [(f"{number}", part.how), (f"{number} unknown", "any")]
    grouped = pa.table(units).group_by("", use_threads=False).aggregate(aggregates)
    order = np.full(file_count, len(grouped))
    order[grouped[""].to_numpy()] = np.arange(len(grouped))
    # The last row is that of files with no row groups.
    return [
        pa.nulls(file_count, part.values.type)
        if kind_of(part.values.type).is_nested
        else pa.chunked_array(
            [
                pc.if_else(grouped[f"{number} unknown_any"], None, grouped[f"{number}_{part.how}"]).combine_chunks(),
                pa.array([part.empty], grouped[f"{number}_{part.how}"].type),
            ]
        )
        .combine_chunks()
        .take(pa.array(order))
        for number, part in enumerate(parts)
    ]
