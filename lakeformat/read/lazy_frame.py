"""A polars frame that reads a table when it is collected (polars: ``register_io_source``).

polars gives its filter as an expression of its own. The parts of it that mean the same in Arrow become a condition of
the read, which skips files and row groups. polars then applies the whole filter to each batch, so a part that is not
understood only costs time.
"""

from __future__ import annotations

import json
import math
import operator
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of

if TYPE_CHECKING:
    import polars as pl

    from lakeformat.read.parts import WholeRead

__all__ = ["LARGEST_EXACT", "join_known", "make_lazy_frame"]

_COMPARISONS: Final = {
    "Eq": operator.eq,
    "Lt": operator.lt,
    "LtEq": operator.le,
    "Gt": operator.gt,
    "GtEq": operator.ge,
}
#: Comparisons of floats for which polars and Arrow agree about NaN, which polars takes for the largest value.
_FLOAT_COMPARISONS: Final = {"Eq", "Lt", "LtEq"}
_SWAPPED: Final = {"Eq": "Eq", "Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}
#: Largest integer up to which all integers are values of a 64-bit float.
LARGEST_EXACT: Final = 1 << 53
_UNITS: Final = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}


def make_lazy_frame(scan: WholeRead) -> pl.LazyFrame:
    """Return a frame over a read. Each collection reads what it needs."""
    import polars as pl
    from polars.io.plugins import register_io_source

    schema = pl.DataFrame(scan.schema.empty_table()).schema

    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        names = scan.schema.names if with_columns is None else with_columns
        needed = list(dict.fromkeys([*names, *(() if predicate is None else predicate.meta.root_names())]))
        where = None if predicate is None else _translate_filter(predicate, scan.schema)
        remaining = n_rows
        with scan.narrow(needed or scan.schema.names[:1], where).to_batches() as batches:
            for batch in batches:
                frame = pl.DataFrame(batch)
                frame = frame if predicate is None else frame.filter(predicate)
                frame = frame.select(names) if names else pl.DataFrame(height=frame.height)
                if remaining is not None:
                    frame = frame.head(remaining)
                    remaining -= frame.height
                yield frame
                if remaining == 0:
                    return

    return register_io_source(read, schema=schema, is_pure=True)


def _translate_filter(predicate: pl.Expr, schema: pa.Schema) -> pc.Expression | None:
    """Return an expression that is true for every row that the filter selects; None if none is known.

    Args:
        schema: the columns of the frame.
    """
    # The text of an expression differs between versions of polars, and reading it warns of that.
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _translate(json.loads(predicate.meta.serialize(format="json")), schema)
    return None


def _translate(node: Mapping[str, Any], schema: pa.Schema) -> pc.Expression | None:
    ((kind, body),) = node.items()
    if kind == "BinaryExpr":
        return _translate_binary(body, schema)
    if kind == "Function":
        return _translate_function(body["function"], body["input"], schema)
    return None


def _translate_binary(body: Mapping[str, Any], schema: pa.Schema) -> pc.Expression | None:
    op, left, right = body["op"], body["left"], body["right"]
    if op in {"And", "LogicalAnd", "Or", "LogicalOr"}:
        first, other = _translate(left, schema), _translate(right, schema)
        if op.endswith("And"):
            return join_known(first, other)
        return None if first is None or other is None else first | other
    if "Column" in right:
        op, left, right = _SWAPPED.get(op, ""), right, left
    return _compare(op, left, right, schema)


def join_known(one: pc.Expression | None, other: pc.Expression | None) -> pc.Expression | None:
    """Return the conjunction of the conditions that are known; None if none is."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _compare(op: str, column: Mapping[str, Any], literal: Mapping[str, Any], schema: pa.Schema) -> pc.Expression | None:
    if op not in _COMPARISONS or "Column" not in column or "Literal" not in literal:
        return None
    kind = schema.field(column["Column"]).type
    value = _read_literal(literal["Literal"], kind)
    if value is None or (kind_of(kind) is Kind.FLOAT and (op not in _FLOAT_COMPARISONS or math.isnan(value))):
        return None
    compared: pc.Expression = _COMPARISONS[op](pc.field(column["Column"]), pa.scalar(value, kind))
    return compared


def _translate_function(function: Any, given: list[Mapping[str, Any]], schema: pa.Schema) -> pc.Expression | None:
    name = function.get("Boolean") if isinstance(function, Mapping) else None
    if name in ("IsNull", "IsNotNull") and "Column" in given[0]:
        field = pc.field(given[0]["Column"])
        return field.is_null() if name == "IsNull" else field.is_valid()
    if isinstance(name, Mapping) and "IsBetween" in name:
        closed = name["IsBetween"]["closed"]
        ends = ("GtEq" if closed in {"Both", "Left"} else "Gt", "LtEq" if closed in {"Both", "Right"} else "Lt")
        return join_known(*(_compare(op, given[0], end, schema) for op, end in zip(ends, given[1:], strict=True)))
    if isinstance(name, Mapping) and "IsIn" in name and "Column" in given[0]:
        return _is_in(given[0]["Column"], given[1]["Literal"]["Scalar"]["List"], schema)
    return None


def _is_in(column: str, stored: list[int], schema: pa.Schema) -> pc.Expression | None:
    kind = schema.field(column).type
    if kind_of(kind) is Kind.FLOAT:
        return None
    values = pa.ipc.open_stream(pa.py_buffer(bytes(stored))).read_all().column(0).combine_chunks()
    return pc.field(column).isin(values.cast(kind))


def _read_literal(literal: Mapping[str, Any], kind: pa.DataType) -> Any:
    """Return the value of a literal as one of a column's type; None if it is of another type."""
    of, value = next(iter(next(iter(literal.values())).items()))
    if of in {"Int", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"}:
        is_exact = kind_of(kind) is Kind.INTEGER or (kind == pa.float64() and abs(value) <= LARGEST_EXACT)
        return value if is_exact else None
    if of in {"Float", "Float64"}:
        return value if kind == pa.float64() else None
    if of in {"String", "Str"}:
        return value if kind_of(kind) is Kind.TEXT else None
    if of == "Boolean":
        return value if kind_of(kind) is Kind.BOOLEAN else None
    if of == "Date":
        return value if kind_of(kind) is Kind.DATE else None
    if of == "Datetime" and kind_of(kind) is Kind.TIMESTAMP:
        count, unit, zone = value
        return count if _UNITS[unit] == kind.unit and (zone is None) == (kind.tz is None) else None
    return None
