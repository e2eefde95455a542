"""A ``pyarrow.compute`` expression as a filter. Arrow evaluates rows; for files, the parts that can be parsed are used.

Expressions have no public structure, but they can be pickled: into an IPC file whose schema metadata lists the nodes in
prefix order (``call``, ``field_ref``, ``literal`` ... ``end``) and whose only row contains literals and options (Arrow:
``compute::Serialize``). The parsed form is used only to skip files. It may select more rows than the expression: a node
that cannot be parsed counts as true for every row. So if a later release changes the format, fewer files are skipped,
but the rows stay correct.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.errors import InvalidInputError
from lakeformat.predicate.bind import bind, bind_lenient, resolve_column
from lakeformat.predicate.nodes import (
    MIRRORED,
    Always,
    And,
    Comparison,
    Computed,
    In,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    StartsWith,
    column_path,
)
from lakeformat.predicate.rows import mask
from lakeformat.predicate.sql import parse_where

__all__ = ["Where", "bind_expression", "bind_where", "where_type_error"]

#: Description, for error messages, of the values that ``where=`` accepts in the Python API.
TAKES: Final = "Spark SQL text, \"x > 3 and y = 'a'\", or a pyarrow.compute expression"
Where: TypeAlias = str | pc.Expression

Parts: TypeAlias = tuple[str, ...]
#: A function that gets the parts of a name in the expression and returns the path of the column.
Place: TypeAlias = Callable[[Parts], str]


@dataclass(frozen=True, slots=True)
class _Field:
    parts: Parts


@dataclass(frozen=True, slots=True)
class _Literal:
    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class _Call:
    function: str
    arguments: tuple[_Node, ...]
    options: Mapping[str, Any]


_Node: TypeAlias = _Field | _Literal | _Call

_OPERATORS: Final[Mapping[str, Operator]] = {
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_NEGATED: Final[Mapping[Operator, Operator]] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_ALL: Final = {"and_kleene": True, "and": True, "or_kleene": False, "or": False}


def bind_expression(expression: pc.Expression, schema: pa.Schema, place: Place = column_path) -> Predicate:
    """Return a bound filter that selects the rows for which Arrow evaluates the expression to true.

    Nulls and NaN follow Arrow's rules.

    Args:
        schema: the columns of the rows.
        place: maps the parts of a name in the expression to the path of a column.

    Raises:
        InvalidInputError: an unknown column, a column given by its number, or types that Arrow does not compare.
    """
    try:
        pickled = expression.__reduce__()[1][0]
    except pa.ArrowNotImplementedError as error:
        raise InvalidInputError(f"where={str(expression)[:200]}: {error}; use names, pc.field('x')") from None
    try:
        nodes, row = _read_nodes(pickled)
        tree: _Node | None = _parse_tree(iter(nodes), row)
        names = {field.parts for field in _find_fields(tree)} if tree else set()
    except (StopIteration, ValueError, KeyError, IndexError, struct.error, pa.ArrowException):
        tree, names = None, {(name,) for name in schema.names}
    columns = {parts: resolve_column(place(parts), schema) for parts in sorted(names)}
    paths = {parts: path for parts, (path, _) in columns.items()}
    hint = _Hint({parts: (paths[parts], of) for parts, (_, of) in columns.items()})
    wide = hint.of(tree, True) if tree is not None else Always(True)
    bound = Computed(expression, tuple(paths.items()), bind_lenient(wide, schema))
    mask(bound, schema.empty_table())  # Raises an error if Arrow cannot compare the types.
    if columns:
        return bound
    return Always(bool(mask(bound, pa.table({"": [0]}))[0].as_py()))


def bind_where(where: Where, schema: pa.Schema, time_zone: str = "UTC") -> Predicate:
    """Return Spark SQL text or a ``pyarrow.compute`` expression as a filter bound to ``schema``.

    Args:
        where: The condition.
        schema: The columns of the rows.
        time_zone: The zone of texts and times without a zone that are compared with timestamps: the session's zone
            under Spark. An expression has no such literals.

    Raises:
        InvalidInputError: The condition has another type, or cannot be evaluated exactly; the message names the part.
        InvalidOptionError: The zone is not known.
    """
    if isinstance(where, str):
        return bind(parse_where(where), schema, zone=time_zone)
    if isinstance(where, pc.Expression):
        return bind_expression(where, schema)
    raise where_type_error(where)


def where_type_error(where: object, takes: str = TAKES) -> InvalidInputError:
    """Return the error for a condition whose type is not accepted; ``takes`` describes the accepted types."""
    kind = type(where)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return InvalidInputError(f"where= is of type {name}; give {takes}")


class _Hint:
    """A builder of the filters by which files are skipped, from the nodes of an expression.

    The filter for a node and a value (True or False) selects at least the rows for which the node has this value. If
    nothing is known about a node, its filter is `Always(True)`.
    """

    def __init__(self, columns: Mapping[Parts, tuple[str, pa.DataType]]) -> None:
        self._columns = columns

    def of(self, node: _Node, wanted: bool) -> Predicate:
        """Return a filter that selects every row for which the node is equal to ``wanted``."""
        match node:
            case _Call(function, arguments) if function in _ALL:
                parts = tuple(self.of(argument, wanted) for argument in arguments)
                return And(parts) if _ALL[function] == wanted else Or(parts)
            case _Call("invert", (inner,)):
                return self.of(inner, not wanted)
            case _Call("is_null" | "is_valid" as function, (_Field(parts),), options):
                return self._hint_null(
                    parts,
                    wanted == (function == "is_null"),
                    "nan_is_null" in options and options["nan_is_null"].as_py(),
                )
            case _Call(function, (_Field(parts), _Literal(value))) if function in _OPERATORS:
                return self._hint_comparison(parts, _OPERATORS[function], value, wanted)
            case _Call(function, (_Literal(value), _Field(parts))) if function in _OPERATORS:
                return self._hint_comparison(parts, MIRRORED[_OPERATORS[function]], value, wanted)
            case _Call("is_in", (_Field(parts),), {"value_set": pa.ListScalar() as values}):
                return self._hint_in(parts, values, wanted)
            case _Call("starts_with", (_Field(parts),), {"pattern": pa.Scalar() as text, "ignore_case": ignores}):
                path, of = self._columns[parts]
                starts = StartsWith(path, text.as_py())
                plain = kind_of(of) is Kind.TEXT and not ignores.as_py()
                return Always(True) if not plain else starts if wanted else Not(starts)
            case _Field(parts) if kind_of(self._columns[parts][1]) is Kind.BOOLEAN:
                return Comparison(self._columns[parts][0], "=", wanted)
            case _Literal(value):
                return Always(value.as_py() is wanted)
            case _:
                return Always(True)

    def _hint_null(self, parts: Parts, is_true: bool, nan_too: bool) -> Predicate:
        path, of = self._columns[parts]
        if nan_too and kind_of(of) is Kind.FLOAT:
            return Always(True)
        return IsNull(path) if is_true else Not(IsNull(path))

    def _hint_comparison(self, parts: Parts, op: Operator, value: pa.Scalar, is_true: bool) -> Predicate:
        if not value.is_valid:
            return Always(False)
        path, of = self._columns[parts]
        if not _compares_alike(of, value.type):
            return Always(True)
        # In Arrow every comparison with NaN is false except !=; in this package NaN is greater than everything.
        if kind_of(of) is Kind.FLOAT and (value.as_py() != value.as_py() or (not is_true and op in {">", ">="})):
            return Not(IsNull(path))
        return Comparison(path, op if is_true else _NEGATED[op], value.as_py())

    def _hint_in(self, parts: Parts, values: pa.Scalar, is_true: bool) -> Predicate:
        path, of = self._columns[parts]
        listed = values.values
        floating = kind_of(of) is Kind.FLOAT
        if listed is None or not _compares_alike(of, listed.type) or (floating and not is_true):
            # Arrow compares these types unlike `bind`, or its is_in distinguishes 0.0 from -0.0. So skip no file.
            return Always(True)
        listed_values = In(path, tuple(listed.drop_null().to_pylist()))
        return Or((listed_values, IsNull(path))) if is_true else Or((Not(listed_values), IsNull(path)))


def _compares_alike(of: pa.DataType, given: pa.DataType) -> bool:
    """Tell whether Arrow compares a column and a literal of these types as `bind` does."""
    if kind_of(of) is kind_of(given) is Kind.TIMESTAMP:
        return bool(given.unit != "ns" and (of.tz is None) == (given.tz is None))
    return bool(
        (kind_of(of) is Kind.INTEGER and pa.types.is_signed_integer(given))
        or (kind_of(of) is kind_of(given) is Kind.FLOAT)
        or (of == pa.float64() and pa.types.is_signed_integer(given))
        or (of == pa.string() and given in (pa.string(), pa.large_string()))
        or (kind_of(of) is kind_of(given) is Kind.DECIMAL)
        or (of.equals(given) and kind_of(of) in (Kind.BOOLEAN, Kind.DATE, Kind.BYTES))
    )


# --- the nodes of a pickled expression --------------------------------------------------------------------


def _read_nodes(pickled: pa.Buffer) -> tuple[list[tuple[str, str]], pa.RecordBatch]:
    row = pa.ipc.open_file(pickled).get_batch(0)
    return list(_read_metadata(row.schema.serialize().to_pybytes())), row


def _parse_tree(nodes: Iterator[tuple[str, str]], row: pa.RecordBatch) -> _Node:
    return _parse_node(next(nodes), nodes, row)


def _parse_node(head: tuple[str, str], nodes: Iterator[tuple[str, str]], row: pa.RecordBatch) -> _Node:
    match head:
        case ("field_ref", name):
            return _Field((name,))
        case ("nested_field_ref", count):
            return _Field(tuple(next(nodes)[1] for _ in range(int(count))))
        case ("literal", number):
            return _Literal(row.column(int(number))[0])
        case ("call", function):
            arguments: list[_Node] = []
            options: dict[str, Any] = {}
            while (following := next(nodes))[0] != "end":
                if following[0] == "options":
                    options = dict(row.column(int(following[1]))[0].items())
                else:
                    arguments.append(_parse_node(following, nodes, row))
            return _Call(function, tuple(arguments), options)
        case _:
            raise ValueError(f"unknown node {head}")


def _find_fields(node: _Node) -> Iterator[_Field]:
    match node:
        case _Field():
            yield node
        case _Call(arguments=arguments):
            for argument in arguments:
                yield from _find_fields(argument)


def _read_metadata(message: bytes) -> Iterator[tuple[str, str]]:
    """Yield all (key, value) entries of a schema message's metadata, in order.

    pyarrow returns only one entry of each key, but the nodes of an expression repeat keys.

    Source: Arrow's ``Message.fbs`` and ``Schema.fbs``. In a FlatBuffers table, the vtable has the offset of each field.
    """
    # An Arrow IPC message begins with a continuation marker and its length, four bytes each. Skip both.
    data = message[8:]

    def number(form: str, offset: int) -> int:
        return int(struct.unpack_from(form, data, offset)[0])

    def slot(table: int, field: int) -> int:
        vtable = table - number("<i", table)
        inside = 4 + 2 * field < number("<H", vtable)
        offset = number("<H", vtable + 4 + 2 * field) if inside else 0
        if not offset:
            raise KeyError(field)
        return table + offset

    def follow(offset: int) -> int:
        return offset + number("<I", offset)

    def text(table: int, field: int) -> str:
        offset = follow(slot(table, field))
        return data[offset + 4 : offset + 4 + number("<I", offset)].decode()

    header = follow(slot(follow(0), 2))
    entries = follow(slot(header, 2))
    for index in range(number("<I", entries)):
        entry = follow(entries + 4 + 4 * index)
        yield text(entry, 0), text(entry, 1)
