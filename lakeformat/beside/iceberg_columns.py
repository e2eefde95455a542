"""Iceberg's form of columns, values and files. Pure.

Source: the specification of Iceberg tables, version 2.

The files hold no field ids, so readers find a column by its name (``schema.name-mapping.default``). Therefore an id
belongs to a name for the life of the metadata, and older snapshots are read right whatever columns come and go.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.beside.face import bounded_columns, file_paths, sure_bounds
from lakeformat.errors import UnsupportedTableError
from lakeformat.file_system_view.live_files import Portion
from lakeformat.predicate import ColumnBounds, column_path

__all__ = [
    "add_ids",
    "data_files",
    "iceberg_schema",
    "mapped_ids",
    "name_mapping",
    "parts_table",
    "plain_values",
    "schema_ids",
    "sole_values",
]

_SIGNED: Final = frozenset({pa.int8(), pa.int16(), pa.int32(), pa.int64()})
#: Kinds of partition columns that Iceberg's identity partitions take.
_PARTING: Final = frozenset(
    {Kind.BOOLEAN, Kind.INTEGER, Kind.DECIMAL, Kind.TEXT, Kind.DATE, Kind.TIMESTAMP},
)


def schema_ids(schemas: Iterable[Schema]) -> dict[str, int]:
    """Return the id of each column that some schema has. A path names a field: ``s.x``, ``l.element``, ``m.value``."""
    return {name: schema.find_field(name).field_id for schema in schemas for name in schema.column_names}


def mapped_ids(mapping: str) -> dict[str, int]:
    """Return the id of each column from the table property that `name_mapping` makes; none if it is empty."""

    def paths(fields: Iterable[Mapping[str, Any]], above: str) -> Iterator[tuple[str, int]]:
        for field in fields:
            path = above + field["names"][0]
            yield path, field["field-id"]
            yield from paths(field.get("fields", ()), f"{path}.")

    return dict(paths(json.loads(mapping or "[]"), ""))


def name_mapping(ids: Mapping[str, int]) -> str:
    """Return the table property that gives names of files' columns their ids, as JSON."""
    tree: dict[str, Any] = {}
    for path in ids:
        level = tree
        for name in path.split("."):
            level = level.setdefault(name, {})

    def fields(level: Mapping[str, Any], above: str) -> list[dict[str, Any]]:
        return [
            {"field-id": ids[above + name], "names": [name], "fields": fields(below, f"{above}{name}.")}
            for name, below in level.items()
        ]

    return json.dumps(fields(tree, ""))


def add_ids(ids: Mapping[str, int], fields: Iterable[pa.Field]) -> Mapping[str, int]:
    """Return ids to which those of further columns are added: pyiceberg reads no file with a column that has none."""
    numbers = _Numbers(ids)
    for path in _paths(fields, ""):
        numbers.give(path)
    return numbers


def _paths(fields: Iterable[pa.Field], above: str) -> Iterator[str]:
    for field in fields:
        yield from _paths_of(field.type, above + field.name)


def _paths_of(of: pa.DataType, path: str) -> Iterator[str]:
    yield path
    kind = kind_of(of)
    if kind is Kind.STRUCT:
        yield from _paths(of, f"{path}.")
    elif kind is Kind.LIST:
        yield from _paths_of(of.value_type, f"{path}.element")
    elif kind is Kind.MAP:
        yield from _paths_of(of.key_type, f"{path}.key")
        yield from _paths_of(of.item_type, f"{path}.value")


class _Numbers(dict[str, int]):
    """The ids of paths."""

    def give(self, path: str) -> int:
        """Return the id of a path. A new one gets the next number."""
        if path not in self:
            self[path] = max(self.values(), default=0) + 1
        return self[path]


def iceberg_schema(schema: pa.Schema, ids: Mapping[str, int], schema_id: int = 0) -> Schema:
    """Convert the columns of a table. Columns without an id get new ones.

    Raises:
        UnsupportedTableError: Iceberg has no type for a column.
    """
    numbers = _Numbers(ids)
    return Schema(*(_field(field, field.name, numbers) for field in schema), schema_id=schema_id)


def _field(field: pa.Field, path: str, numbers: _Numbers) -> NestedField:
    number = numbers.give(path)
    return NestedField(number, field.name, _type(field.type, path, numbers), required=False)


def _type(of: pa.DataType, path: str, numbers: _Numbers) -> IcebergType:
    kind = kind_of(of)
    if kind is Kind.STRUCT:
        return StructType(*(_field(field, f"{path}.{field.name}", numbers) for field in of))
    if kind is Kind.LIST:
        element = f"{path}.element"
        return ListType(numbers.give(element), _type(of.value_type, element, numbers), element_required=False)
    if kind is Kind.MAP:
        key, value = f"{path}.key", f"{path}.value"
        key_id, key_type = numbers.give(key), _type(of.key_type, key, numbers)
        return MapType(key_id, key_type, numbers.give(value), _type(of.item_type, value, numbers), value_required=False)
    plain = _plain_type(of, kind)
    if plain is None:
        raise UnsupportedTableError(f"Iceberg has no type for the column {path}: {of}")
    return plain


def _plain_type(of: pa.DataType, kind: Kind) -> PrimitiveType | None:
    match kind:
        case Kind.BOOLEAN:
            return BooleanType()
        case Kind.INTEGER if of in _SIGNED:
            return LongType() if of == pa.int64() else IntegerType()
        case Kind.FLOAT if of in (pa.float32(), pa.float64()):
            return DoubleType() if of == pa.float64() else FloatType()
        case Kind.DECIMAL if of.precision <= 38:
            return DecimalType(of.precision, of.scale)
        case Kind.TEXT:
            return StringType()
        case Kind.BYTES:
            return FixedType(of.byte_width) if isinstance(of, pa.FixedSizeBinaryType) else BinaryType()
        case Kind.DATE:
            return DateType()
        case Kind.TIMESTAMP if of.unit != "ns":
            return TimestampType() if of.tz is None else TimestamptzType()
        case _:
            return None


def plain_values(values: pa.Array) -> list[Any]:
    """Return values as Iceberg's manifests know them: days and microseconds are numbers."""
    if kind_of(values.type) is Kind.DATE:
        values = values.cast(pa.date32()).cast(pa.int32())
    elif kind_of(values.type) is Kind.TIMESTAMP:
        values = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    plain: list[Any] = values.to_pylist()
    return plain


def parts_table(of: pa.DataType) -> bool:
    """Tell whether values of a type can be identity partitions."""
    return kind_of(of) in _PARTING


def sole_values(portion: Portion, names: Sequence[str], rows: Sequence[int]) -> list[tuple[Any, ...] | None]:
    """Return the values that all rows of a file have in some columns, for each file; None where that is not sure."""
    if not names:
        return [()] * len(rows)
    columns = [_sole_values(portion.bounds.get(column_path([name])), rows) for name in names]
    return [None if any(value is _UNSURE for value in values) else values for values in zip(*columns, strict=True)]


_UNSURE: Final = object()


def _sole_values(bounds: ColumnBounds | None, rows: Sequence[int]) -> list[Any]:
    if bounds is None or not parts_table(bounds.minimum.type):
        return [_UNSURE] * len(rows)
    same = pc.equal(bounds.minimum, bounds.maximum).to_pylist()
    values = zip(plain_values(bounds.minimum), same, bounds.null_count.to_pylist(), rows, strict=True)
    return [
        value if is_same and nulls == 0 else None if nulls == count else _UNSURE
        for value, is_same, nulls, count in values
    ]


@dataclass(frozen=True, slots=True)
class _Statistics:
    """The bounds of one column as bytes, and its counts, an entry per file; None if not known."""

    field_id: int
    low: Sequence[bytes | None]
    high: Sequence[bytes | None]
    nulls: Sequence[int | None]
    nans: Sequence[int | None]

    def of(self, values: Sequence[Any], at: int) -> dict[int, Any]:
        return {} if values[at] is None else {self.field_id: values[at]}


def _statistics(portion: Portion, schema: pa.Schema, columns: Schema) -> Iterator[_Statistics]:
    for name in bounded_columns(schema):
        bounds = portion.bounds.get(column_path([name]))
        if bounds is None or bounds.minimum.type != schema.field(name).type:
            continue
        field = columns.find_field(name)
        low, high = (
            [_encode(value, field.field_type) for value in plain_values(bound)] for bound in sure_bounds(bounds)
        )
        nans = [None] * len(low) if bounds.nan_count is None else bounds.nan_count.to_pylist()
        yield _Statistics(field.field_id, low, high, bounds.null_count.to_pylist(), nans)


def _encode(value: Any, of: IcebergType) -> bytes | None:
    return None if value is None or not isinstance(of, PrimitiveType) else to_bytes(of, value)


def data_files(
    portion: Portion,
    rows: Sequence[int],
    partitions: Sequence[Sequence[Any]],
    schema: pa.Schema,
    columns: Schema,
    location: str,
) -> Iterator[DataFile]:
    """Yield the entry of each file in a manifest.

    Args:
        rows: number of rows of each file.
        partitions: the partition values of each file.
        schema, columns: the columns of the table, in both forms.
        location: the folder of the table.
    """
    statistics = list(_statistics(portion, schema, columns))
    paths, sizes = (cells.to_pylist() for cells in (file_paths(portion.files), portion.files["size_bytes"]))
    for number, (path, size) in enumerate(zip(paths, sizes, strict=True)):
        counts: dict[str, dict[int, Any]] = {
            "value_counts": {measured.field_id: rows[number] for measured in statistics},
            "null_value_counts": {},
            "nan_value_counts": {},
            "lower_bounds": {},
            "upper_bounds": {},
        }
        for column in statistics:
            counts["null_value_counts"] |= column.of(column.nulls, number)
            counts["nan_value_counts"] |= column.of(column.nans, number)
            counts["lower_bounds"] |= column.of(column.low, number)
            counts["upper_bounds"] |= column.of(column.high, number)
        yield DataFile.from_args(
            _table_format_version=2,
            content=DataFileContent.DATA,
            file_path=f"{location}/{path}",
            file_format=FileFormat.PARQUET,
            partition=Record(*partitions[number]),
            record_count=rows[number],
            file_size_in_bytes=size,
            **counts,
        )
