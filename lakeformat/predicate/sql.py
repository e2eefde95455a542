"""The parsers of ``where=`` conditions, of pre-commit queries, and of conditions whose time zone is not known yet.

A condition is in a subset of Spark SQL's predicates. One side of every comparison is a column, the other a literal or,
in a merge, another column. A pre-commit query is a small SELECT over one table, ``select count(*), max(v) from
<TABLE_NAME> where v > 3``: aggregates of columns and one condition. All other SQL (functions, arithmetic, casts,
subqueries, joins, grouping, plain columns) is refused; the error names the unsupported part.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakeformat.errors import InvalidInputError, InvalidOptionError
from lakeformat.predicate.bind import bind, resolve_column
from lakeformat.predicate.coerce import parse_date, parse_timestamp
from lakeformat.predicate.nodes import (
    MIRRORED,
    Always,
    And,
    ColumnComparison,
    Comparison,
    In,
    IsNull,
    Leaf,
    Like,
    Not,
    Operator,
    Or,
    Predicate,
    bound_literal,
    column_comparisons,
    column_path,
    leaves,
)

if TYPE_CHECKING:
    from sqlglot.expressions import Expression

__all__ = [
    "TABLE_NAME",
    "Aggregate",
    "Select",
    "ZonedCondition",
    "check_escapes",
    "node_to_predicate",
    "parse_select",
    "parse_where",
    "zoned_condition",
]

_OPERATORS: Final[Mapping[str, Operator]] = {
    "EQ": "=",
    "NullSafeEQ": "<=>",
    "NEQ": "!=",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
}
#: Pattern of a backslash and the character after it.
_ESCAPE: Final = re.compile(r"\\(.?)", re.DOTALL)
#: Characters that may follow a backslash. The meaning of all other escapes (octal, \u, a needless backslash) differs
#: between releases of Spark and sqlglot.
_PLAIN_ESCAPES: Final = frozenset("\\'\"%_ntr")
_INTEGER: Final = re.compile(r"\d+", re.ASCII)
_DECIMAL: Final = re.compile(r"\d+\.\d*|\.\d+", re.ASCII)
_EXPONENT: Final = re.compile(r"(\d+\.?\d*|\.\d+)[eE][+-]?\d+", re.ASCII)
_INTEGER_SUFFIX_BITS: Final = {"TINYINT": 8, "SMALLINT": 16, "BIGINT": 64}


def parse_where(text: str, *, two_columns: bool = False) -> Predicate:
    """Parse a filter: ``distance > 2000 and dest like 'A%'``.

    The subset has comparisons (``= == <=> != <> < <= > >=``), ``in``, ``between``, ``like``, ``is null`` and their
    negations, a boolean column on its own, ``and``/``or``/``not`` and parentheses. Literals: integers,
    decimals, ``1e3`` and ``2.5D`` doubles, ``5L``, texts, ``true``/``false``/``null``, ``DATE '2024-01-31'``,
    ``TIMESTAMP '2024-01-31 10:00:00'``, ``X'1FA0'``. Names may be dotted (fields of structs) and backquoted.

    Args:
        text: The predicate.
        two_columns: Whether a comparison may have a column on each side.

    Returns:
        A filter with Python literals; ``1.5`` is a `decimal.Decimal` and ``1.5D`` a float, as in Spark.

    Raises:
        InvalidInputError: The text is not a predicate of that subset; the message names the part.
        InvalidOptionError: sqlglot is not installed.
    """
    try:
        from sqlglot.dialects.dialect import Dialect
        from sqlglot.errors import SqlglotError
        from sqlglot.expressions import Condition
    except ImportError as error:
        raise InvalidOptionError("where= needs sqlglot; run: pip install sqlglot") from error

    check_escapes(text)
    try:
        parsed = Dialect.get_or_raise("spark").parse_into(Condition, text)
        if len(parsed) != 1 or parsed[0] is None:
            raise InvalidInputError(f"cannot read the filter {text!r}: write one predicate")
        return node_to_predicate(parsed[0], two_columns=two_columns)
    except SqlglotError as error:
        raise InvalidInputError(
            f"cannot read the filter {text!r}: not Spark SQL; put names that are keywords into backquotes"
        ) from error
    except RecursionError as error:
        raise InvalidInputError("cannot read the filter: it is nested too deeply") from error


def check_escapes(text: str) -> None:
    """Raise `InvalidInputError` if the text has a backslash whose meaning differs between parsers."""
    for escape in _ESCAPE.finditer(text):
        if escape[1] not in _PLAIN_ESCAPES:
            raise InvalidInputError(
                f"cannot read the filter {text!r}: backslash before {escape[1]!r}; write \\\\ for a backslash"
            )


def node_to_predicate(node: Expression, *, two_columns: bool = False) -> Predicate:
    """Return a condition parsed by sqlglot as a filter.

    Args:
        node: The condition.
        two_columns: Whether a comparison may have a column on each side.

    Raises:
        InvalidInputError: The condition is not in the subset of `parse_where`.
    """
    predicate = _read_predicate(node)
    if not two_columns and (compared := next(column_comparisons(predicate), None)):
        raise InvalidInputError(
            f"cannot filter by '{compared.left} {compared.op} {compared.right}': one side must be a column, the "
            "other a literal"
        )
    return predicate


def _read_predicate(node: Expression) -> Predicate:
    reader = _READERS.get(_kind(node))
    if reader is None:
        raise _refusal(node)
    return reader(node)


def _kind(node: Expression | None) -> str:
    return type(node).__name__


def _refusal(node: Expression, why: str = "it is not in the subset a filter may use") -> InvalidInputError:
    return InvalidInputError(f"cannot filter by {node.sql(dialect='spark')!r}: {why}")


def _read_chain(node: Expression) -> Predicate:
    """Read a chain such as ``a and b and c`` with a loop, so that long chains do not exceed the recursion limit."""
    operands: list[Predicate] = []
    link = node
    while _kind(link) == _kind(node):
        operands.append(_read_predicate(link.args["expression"]))
        link = link.this
    operands.append(_read_predicate(link))
    operands.reverse()
    return And(tuple(operands)) if _kind(node) == "And" else Or(tuple(operands))


def _read_comparison(node: Expression) -> Predicate:
    op = _OPERATORS[_kind(node)]
    left, right = node.this, node.args["expression"]
    if (column := _read_path(left)) is not None:
        if (other := _read_path(right)) is not None:
            return ColumnComparison(column, op, other)
        return Comparison(column, op, _read_literal(right, node))
    if (column := _read_path(right)) is not None:
        return Comparison(column, MIRRORED[op], _read_literal(left, node))
    raise _refusal(node, "one side must be a column, the other a literal")


def _read_between(node: Expression) -> Predicate:
    if node.args.get("symmetric"):
        raise _refusal(node)
    column = _read_column(node)
    return And(
        (
            Comparison(column, ">=", _read_literal(node.args["low"], node)),
            Comparison(column, "<=", _read_literal(node.args["high"], node)),
        )
    )


def _read_in(node: Expression) -> Predicate:
    values = node.expressions
    if not values or any(node.args.get(key) for key in ("query", "unnest", "field", "is_global")):
        raise _refusal(node, "IN takes a list of literals")
    return In(_read_column(node), tuple(_read_literal(value, node) for value in values))


def _read_like(node: Expression) -> Predicate:
    pattern = _read_literal(node.args["expression"], node)
    if not isinstance(pattern, str):
        raise _refusal(node, "LIKE takes a text")
    like = Like(_read_column(node), pattern)
    return Not(like) if node.args.get("negate") else like


def _read_is(node: Expression) -> Predicate:
    if _kind(node.args["expression"]) != "Null":
        raise _refusal(node)
    return IsNull(_read_column(node))


def _read_flag(node: Expression) -> Predicate:
    column = _read_path(node)
    if column is None:
        raise _refusal(node)
    return Comparison(column, "=", True)


_READERS: Final[Mapping[str, Callable[[Any], Predicate]]] = {
    "And": _read_chain,
    "Or": _read_chain,
    "Not": lambda node: Not(_read_predicate(node.this)),
    "Paren": lambda node: _read_predicate(node.this),
    "Between": _read_between,
    "In": _read_in,
    "Like": _read_like,
    "Is": _read_is,
    "Column": _read_flag,
    "Dot": _read_flag,
    "Boolean": lambda node: Always(bool(node.this)),
    **dict.fromkeys(_OPERATORS, _read_comparison),
}


def _read_column(node: Expression) -> str:
    column = _read_path(node.this)
    if column is None:
        raise _refusal(node, "its left side must be a column")
    return column


def _read_path(node: Expression) -> str | None:
    """Return the column's path, or None if ``node`` is not a plain, possibly dotted, name."""
    while _kind(node) == "Paren":
        node = node.this
    parts: list[str] = []
    while _kind(node) == "Dot":
        if _kind(node.args["expression"]) != "Identifier":
            return None
        parts.append(node.args["expression"].name)
        node = node.this
    if _kind(node) != "Column":
        return None
    names = [node.args.get(key) for key in ("catalog", "db", "table", "this")]
    if any(name is not None and _kind(name) != "Identifier" for name in names):
        return None
    return column_path([*(name.name for name in names if name is not None), *reversed(parts)])


def _read_literal(node: Expression, within: Expression) -> object:
    """Return the Python value of a literal. ``within`` is the condition around it, for the error message."""
    match _kind(node):
        case "Paren":
            return _read_literal(node.this, within)
        case "Neg":
            value = _read_literal(node.this, within)
            if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
                raise _refusal(within, "a minus sign needs a number")
            return value.copy_negate() if isinstance(value, Decimal) else -value
        case "Null":
            return None
        case "Boolean":
            return bool(node.this)
        case "Literal":
            return node.this if node.is_string else _read_number(node.this, within)
        case "HexString":
            return _read_hex(node.this, within)
        case "Cast":
            return _read_typed_text(node, within)
        case "TryCast":
            return _read_suffixed_number(node, within)
        case _:
            raise _refusal(within, f"{node.sql(dialect='spark')} is not a literal")


def _read_number(text: str, within: Expression) -> int | float | Decimal:
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return Decimal(text)
    if _EXPONENT.fullmatch(text) and not math.isinf(value := float(text)):
        return value
    raise _refusal(within, f"{text} is not a number")


def _read_hex(digits: str, within: Expression) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError as error:
        raise _refusal(within, "X'...' takes pairs of hexadecimal digits") from error


def _read_typed_text(node: Expression, within: Expression) -> object:
    """Read ``DATE '...'`` and ``TIMESTAMP '...'``, which sqlglot parses as casts of a text."""
    parsers: dict[str, Callable[[str], object]] = {
        "DATE": parse_date,
        "TIMESTAMP": parse_timestamp,
        "TIMESTAMPTZ": parse_timestamp,
    }
    parser = parsers.get(node.args["to"].this.name)
    if parser is None or _kind(node.this) != "Literal" or not node.this.is_string:
        raise _refusal(within)
    value = parser(node.this.this)
    if value is None:
        raise _refusal(within, "write DATE 'yyyy-MM-dd' or TIMESTAMP 'yyyy-MM-dd HH:mm:ss', an existing day")
    return value


def _read_suffixed_number(node: Expression, within: Expression) -> object:
    """Read numbers with a suffix, such as ``5L`` and ``2.5D``, which sqlglot parses as casts of a number."""
    suffix = node.args["to"].this.name
    if node.args.get("safe") or _kind(node.this) != "Literal" or node.this.is_string:
        raise _refusal(within)
    value = _read_number(node.this.this, within)
    if suffix == "DOUBLE":
        return float(value)
    if bits := _INTEGER_SUFFIX_BITS.get(suffix):
        # sqlglot parses -128Y as minus 128Y, so one more than the greatest value is allowed.
        if isinstance(value, int) and value <= 1 << (bits - 1):
            return value
        raise _refusal(within, f"{value} is not a {suffix}")
    raise _refusal(within)


#: The placeholder for the table in a query (Hudi: ``HoodiePreCommitValidatorConfig.VALIDATOR_TABLE_VARIABLE``).
TABLE_NAME: Final = "<TABLE_NAME>"
_TABLE_IN_SQL: Final = "lakeformat_table"
_FUNCTIONS: Final = {"Count": "count", "Sum": "sum", "Min": "min", "Max": "max", "Avg": "avg"}
_CLAUSES: Final = frozenset({"expressions", "from", "from_", "where", "kind"})


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One value of a query's result.

    Attributes:
        function: count, sum, min, max or avg.
        column: column name; None counts rows.
        distinct: whether each value is counted once.
    """

    function: str
    column: str | None
    distinct: bool = False


@dataclass(frozen=True, slots=True)
class Select:
    """A query, whose result is one row of aggregates over the rows that ``where`` selects. ``text`` is its SQL text."""

    text: str
    aggregates: tuple[Aggregate, ...]
    where: Predicate


def parse_select(text: str) -> Select:
    """Parse a pre-commit query over ``<TABLE_NAME>``.

    Raises:
        InvalidInputError: the query is not a SELECT of aggregates with one condition; the message names the part.
        InvalidOptionError: sqlglot is not installed.
    """
    try:
        from sqlglot import parse
        from sqlglot.errors import SqlglotError
    except ImportError as error:
        raise InvalidOptionError("SQL validators need sqlglot; run: pip install sqlglot") from error

    check_escapes(text)
    if TABLE_NAME not in text:
        raise InvalidInputError(f"cannot run the query {text!r}: it must select from {TABLE_NAME}")
    try:
        parsed = parse(text.replace(TABLE_NAME, _TABLE_IN_SQL), read="spark")
        if len(parsed) != 1 or parsed[0] is None:
            raise InvalidInputError(f"cannot run the query {text!r}: write one SELECT")
        return _read_select(text, parsed[0])
    except SqlglotError as error:
        raise InvalidInputError(
            f"cannot run the query {text!r}: not Spark SQL; put names that are keywords into backquotes"
        ) from error
    except RecursionError as error:
        raise InvalidInputError("cannot run the query: it is nested too deeply") from error


def _read_select(text: str, node: Expression) -> Select:
    if type(node).__name__ != "Select":
        raise InvalidInputError(f"cannot run the query {text!r}: write one SELECT")
    for clause, value in node.args.items():
        if value and clause not in _CLAUSES:
            raise _refuse_query(text, clause.strip("_"))
    source = node.args.get("from_") or node.args.get("from")
    table = source.this if source is not None else None
    extras = {name for name, value in table.args.items() if value} - {"this", "alias"} if table is not None else {""}
    if table is None or type(table).__name__ != "Table" or table.name != _TABLE_IN_SQL or extras:
        raise _refuse_query(text, f"a source other than {TABLE_NAME}")
    where = node.args.get("where")
    return Select(
        text,
        tuple(_read_aggregate(text, expression) for expression in node.expressions),
        node_to_predicate(where.this) if where is not None else Always(True),
    )


def _refuse_query(text: str, part: str) -> InvalidInputError:
    return InvalidInputError(
        f"cannot run the query {text!r}: {part} is not in the subset (count, sum, min, max, avg of columns, and where)"
    )


def _read_aggregate(text: str, node: Expression) -> Aggregate:
    if type(node).__name__ == "Alias":
        node = node.this
    function = _FUNCTIONS.get(type(node).__name__)
    shown = node.sql(dialect="spark")
    if function is None or node.args.get("expressions"):
        raise _refuse_query(text, shown)
    inner = node.this
    distinct = type(inner).__name__ == "Distinct"
    if distinct:
        if function != "count" or len(inner.expressions) != 1:
            raise _refuse_query(text, shown)
        inner = inner.expressions[0]
    if function == "count" and not distinct and type(inner).__name__ in {"Star", "Literal"}:
        return Aggregate("count", None)
    if type(inner).__name__ != "Column" or inner.table:
        raise _refuse_query(text, shown)
    return Aggregate(function, inner.name, distinct)


#: The zones with the latest and the earliest local time. The local times of all other zones lie between them.
_ENDS: Final = ("+18:00", "-18:00")


@dataclass(frozen=True)
class ZonedCondition:
    """A condition that compares timestamps with literals without a zone, whose zone is not known yet.

    Attributes:
        predicate: The condition, not bound.
        schema: The columns of the rows.
        wide: A bound filter that is true for every row for which the condition is true in any zone.
    """

    predicate: Predicate
    schema: pa.Schema
    wide: Predicate

    def bind_zone(self, zone: str) -> Predicate:
        """Bind the condition to a zone. Raise the errors of `bind`."""
        return bind(self.predicate, self.schema, zone=zone)


def zoned_condition(where: str, schema: pa.Schema) -> ZonedCondition | None:
    """Parse a condition that depends on the time zone. Return None if it has the same result in all zones.

    Raise the errors of `parse_where` and `bind`.
    """
    predicate = parse_where(where)
    if _bind_if_same(predicate, schema) is not None:
        return None
    return ZonedCondition(predicate, schema, And(tuple(_widen(part, schema) for part in _split_conjunction(predicate))))


def _bind_if_same(predicate: Predicate, schema: pa.Schema) -> Predicate | None:
    """Return the bound condition if it has the same result in all zones, else None."""
    east, west = (bind(predicate, schema, zone=zone) for zone in _ENDS)
    return east if east == west and not any(_compares_days(leaf, schema) for leaf in leaves(predicate)) else None


def _compares_days(leaf: Leaf, schema: pa.Schema) -> bool:
    """Tell whether the leaf compares dates with datetimes, so that the zone's start of a day matters."""
    values = leaf.values if isinstance(leaf, In) else (leaf.value,) if isinstance(leaf, Comparison) else ()
    has_moment = any(isinstance(value, datetime) for value in values)
    return has_moment and bool(pa.types.is_date32(resolve_column(leaf.column, schema)[1]))


def _split_conjunction(predicate: Predicate) -> tuple[Predicate, ...]:
    """Split a conjunction into its parts."""
    if not isinstance(predicate, And):
        return (predicate,)
    return tuple(part for operand in predicate.operands for part in _split_conjunction(operand))


def _widen(part: Predicate, schema: pa.Schema) -> Predicate:
    if (agreed := _bind_if_same(part, schema)) is not None:
        return agreed
    match tuple(bind(part, schema, zone=zone) for zone in _ENDS):
        case (Comparison(column, op, one), Comparison(_, same, other)) if op == same:
            low, high = _order_literals(bound_literal(one), bound_literal(other))
            if op in ("<", "<="):
                return Comparison(column, op, high)
            if op in (">", ">="):
                return Comparison(column, op, low)
            if op == "=":
                return And((Comparison(column, ">=", low), Comparison(column, "<=", high)))
    return Always(True)


def _order_literals(one: pa.Scalar, other: pa.Scalar) -> tuple[pa.Scalar, pa.Scalar]:
    """Return two literals in ascending order. Dates are moved outwards by a day: clocks may have skipped a day."""
    low, high = sorted((int(one.value), int(other.value)))
    spare = 1 if pa.types.is_date32(one.type) else 0
    return pa.scalar(low - spare, one.type), pa.scalar(high + spare, one.type)
