"""The values that updates set columns to: literals and functions of the rows, checked against the columns' types.

A value is either stored unchanged or refused: it is never truncated, wrapped or converted to text. Only floats are
rounded to the precision of their column, as in every write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.conform import conform_array, conform_exactly
from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.codec.stored_types import arrow_type_for_storage
from lakeformat.errors import InvalidInputError, SchemaMismatchError, nearest
from lakeformat.model.record import IS_DELETED, META_COLUMNS
from lakeformat.model.table_config import TableConfig
from lakeformat.write.rows.schema import evolve

__all__ = ["Assignment", "Computed", "check_type", "find_settable", "fit_to_column", "plan_assignments"]

#: Part of an error message: if the user gives a string as value but may mean an expression, it shows how to use SQL.
_BY_SQL: Final = 'write lakeformat.sql("update t set v = v + 1", t=table)'
_COMPUTED: Final = f", a function of the rows, such as lambda rows: pc.add(rows['v'], 1), or {_BY_SQL}"
#: A function that takes rows and returns an array with one value per row.
Computed: TypeAlias = Callable[[pa.RecordBatch], Any]


@dataclass(frozen=True)
class Assignment:
    """One column and its new values. ``value`` is a scalar of the column's type, or a function of the rows."""

    field: pa.Field
    value: pa.Scalar | Computed

    @property
    def is_literal(self) -> bool:
        """Tell whether the value does not depend on the row."""
        return isinstance(self.value, pa.Scalar)

    @property
    def literal_bytes(self) -> int:
        """Return the size in bytes of a literal value; 0 if a function computes the values."""
        return int(pa.repeat(self.value, 1).nbytes) if isinstance(self.value, pa.Scalar) else 0

    def values(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the column's new values, one per row.

        Args:
            rows: the rows for which a function computes the values.

        Raises:
            InvalidInputError: if the function fails, or does not return one value per row.
            SchemaMismatchError: if the column cannot hold a value.
        """
        if isinstance(self.value, pa.Scalar):
            return pa.repeat(self.value, rows.num_rows)
        name = self.field.name
        try:
            values = self.value(rows)
        except Exception as error:
            raise InvalidInputError(
                f"the function for column {name!r} failed with {type(error).__name__}: {error}"
            ) from error
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if not isinstance(values, pa.Array) or len(values) != rows.num_rows:
            what = f"{len(values)} values" if isinstance(values, pa.Array) else type(values).__name__
            raise InvalidInputError(
                f"the function for column {name!r} gave {what} for {rows.num_rows} rows; return an Arrow array with "
                "one value a row"
            )
        return fit_to_column(values, self.field)


def plan_assignments(new_values: Mapping[str, Any], schema: pa.Schema, config: TableConfig) -> tuple[Assignment, ...]:
    """Check the new values of an update against the table, and return them as assignments.

    Args:
        new_values: for each column name, a Python value, an Arrow scalar or a function of the rows.
        schema: the table's columns, without meta columns.

    Raises:
        SchemaMismatchError: if a column is unknown or must not be set, or a value does not fit it; the
            message names the column.
        InvalidInputError: if there is nothing to set, or one column is set twice.
    """
    if isinstance(new_values, str):
        raise InvalidInputError(
            f"there is nothing to set: {_quote(new_values)} is text; give {{column: value}}, or {_BY_SQL}"
        )
    if not isinstance(new_values, Mapping) or not new_values:
        raise InvalidInputError("there is nothing to set; give set={column: value}")
    planned: dict[str, Assignment] = {}
    for name, value in new_values.items():
        field = find_settable(name, schema, config)
        if field.name in planned:
            raise InvalidInputError(f"column {field.name!r} is set twice; give it once")
        planned[field.name] = Assignment(field, value if callable(value) else _literal(value, field))
    return tuple(planned.values())


def find_settable(name: str, schema: pa.Schema, config: TableConfig) -> pa.Field:
    """Return the column of that name, in any letter case, if its values may change without moving the row.

    Raises:
        SchemaMismatchError: if there is no such column, or it is a key, partition or meta column.
    """
    lower, position = str(name).lower(), schema.get_field_index(str(name))
    fields = [schema.field(position)] if position >= 0 else [field for field in schema if field.name.lower() == lower]
    if lower in META_COLUMNS:
        raise SchemaMismatchError(f"meta column {name!r} cannot be set; it is the table's own")
    if not fields:
        raise SchemaMismatchError(
            f"cannot set column {name!r}: the table has none of that name{nearest(str(name), schema.names)}"
        )
    field = fields[0]
    if field.name == IS_DELETED:
        raise SchemaMismatchError(f"column {field.name!r} cannot be set; use delete to delete rows")
    for role, names in (("record key", config.record_fields), ("partition", config.partition_fields)):
        if field.name in {column.partition(".")[0] for column in names}:
            raise SchemaMismatchError(
                f"{role} column {field.name!r} cannot be set, rows would have to move; delete the rows and insert them "
                "again"
            )
    return field


def _literal(value: Any, field: pa.Field) -> pa.Scalar:
    """Convert a Python value to a scalar of the column's type; refuse it if the conversion would change the value."""
    if isinstance(value, pc.Expression):
        raise InvalidInputError(f"column {field.name!r} is set to an expression; give a value{_COMPUTED}")
    if isinstance(value, pa.Scalar):
        return fit_to_column(pa.repeat(value, 1), field)[0]
    if value is None:
        _check_nulls(pa.nulls(1, field.type), field)
        return pa.scalar(None, field.type)
    kind = field.type
    if isinstance(value, datetime) and value.tzinfo is None and kind_of(kind) is Kind.TIMESTAMP and kind.tz:
        value = value.replace(tzinfo=timezone.utc)  # As in filters, a naive time is taken as UTC.
    if isinstance(value, dict) and kind_of(kind) is Kind.MAP:
        value = list(value.items())
    try:
        scalar = pa.scalar(value, kind)
        keeps_value = _is_same(scalar.as_py(), value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        keeps_value = False
    if not keeps_value:
        raise SchemaMismatchError(
            f"cannot set column {field.name!r} of type {kind} to {_quote(value)}: it would not keep its value; give "
            f"one of the column's type{_COMPUTED if isinstance(value, str) else ''}"
        )
    return scalar


def _is_same(stored: Any, new: Any, kind: pa.DataType) -> bool:
    if (kind_of(kind) is Kind.BOOLEAN) != isinstance(new, bool | np.bool_):
        return False
    if kind_of(kind) is Kind.FLOAT:
        wide = float(new)
        if math.isnan(wide) or math.isinf(wide):
            return math.isnan(stored) == math.isnan(wide) and (math.isnan(wide) or stored == wide)
        if math.isinf(stored):
            return False
        # An integer must be exactly equal; a float may be rounded to the precision of the column.
        return isinstance(new, float) or bool(stored == new)
    return bool(stored == new)


def _quote(value: Any) -> str:
    text = f"{value!r} ({type(value).__name__})"
    return text if len(text) <= 80 else text[:77] + "..."


def fit_to_column(values: pa.Array, field: pa.Field) -> pa.Array:
    """Convert an array to the column's type without losing a value.

    Raises:
        SchemaMismatchError: if a value does not fit; the message names the column.
        InvalidInputError: if the array is damaged, or has nulls for a required column.
    """
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"column {field.name!r} holds damaged values ({error}); correct them") from None
    stored = _convert(values, field)
    _check_nulls(stored, field)
    return stored


def _convert(values: pa.Array, field: pa.Field) -> pa.Array:
    """Convert an array to the column's type without losing a value. Nulls are not checked.

    Numbers may be converted to a narrower type if every value fits; other types only to a wider one.
    """
    kind = field.type
    given = values.type.value_type if kind_of(values.type) is Kind.DICTIONARY else values.type
    check_type(given, field)
    try:
        stored = conform_exactly(values, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaMismatchError(
            f"the new values of column {field.name!r} of type {values.type} do not fit the table's {kind}: "
            f"{str(error).splitlines()[0]}; convert them first"
        ) from None
    if kind == pa.float32() and given == pa.float64():
        overflow = pc.and_(pc.is_inf(stored), pc.is_finite(conform_array(values, given)))
        if pc.any(overflow).as_py():
            raise SchemaMismatchError(
                f"the new values of column {field.name!r} of type {given} exceed the table's {kind}; convert them first"
            )
    return stored


def check_type(given: pa.DataType, field: pa.Field) -> None:
    """Refuse a type whose values the column cannot hold.

    A wider number type passes if Arrow's cast refuses each value that does not fit, when the values are converted.

    Raises:
        SchemaMismatchError: if the type is refused; the message names the column.
    """
    kind = field.type
    if given.equals(kind) or kind_of(given) is Kind.NULL or _narrows(given, kind):
        return
    plain = pa.field(field.name, arrow_type_for_storage(given, column=field.name))
    merged = evolve(pa.schema([field.with_nullable(True)]), pa.schema([plain]), fill_missing=False, exact=True)
    if not merged.field(0).type.equals(kind):
        raise SchemaMismatchError(
            f"the new values of column {field.name!r} are {given}, which {kind} cannot hold; convert them"
        )


def _narrows(given: pa.DataType, kind: pa.DataType) -> bool:
    """Tell whether both types are number types, and Arrow's safe cast refuses every number that does not fit.

    Return False for floats to decimals, because Arrow's safe cast drops digits of such values silently.
    """
    numbers = kind_of(given).is_number and kind_of(kind).is_number
    return numbers and (kind_of(given), kind_of(kind)) != (Kind.FLOAT, Kind.DECIMAL)


def _check_nulls(values: pa.Array, field: pa.Field) -> None:
    if not field.nullable and values.null_count:
        raise InvalidInputError(f"column {field.name!r} may not be null in this table; set it to a value")
