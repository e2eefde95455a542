"""The parser of ``where=`` conditions: a subset of Spark SQL.

Comparisons of a column with a literal become leaves, which skip files. Functions, operators, casts and CASE become
values. SQL that is left (subqueries, aggregates, windows, intervals, lambdas) is refused; the error names the part.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from lakeformat.errors import InvalidInputError, InvalidOptionError
from lakeformat.predicate.casts import TYPES
from lakeformat.predicate.coerce import parse_date, parse_timestamp
from lakeformat.predicate.functions import find_function
from lakeformat.predicate.nodes import (
    MIRRORED,
    Always,
    And,
    Calculated,
    Call,
    Case,
    ColumnComparison,
    ColumnValue,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Operator,
    Or,
    Predicate,
    Truth,
    Value,
    column_path,
)

if TYPE_CHECKING:
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.expressions import Expression

__all__ = ["check_escapes", "explain_parse_errors", "node_to_predicate", "parse_where", "sql_dialect"]

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
_TIME_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "DATE": parse_date,
    "TIMESTAMP": parse_timestamp,
    "TIMESTAMPTZ": parse_timestamp,
}
_BETWEEN: Final[tuple[Operator, Operator]] = (">=", "<=")
#: Operators of values: sqlglot's nodes to the names of functions.
_BINARY: Final = {
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "IntDiv": "div", "Mod": "%", "DPipe": "concat",
}  # fmt: skip
_DECIMAL_TYPE: Final = re.compile(r"(?:decimal|dec|numeric)(?:\((\d{1,2})(?:, ?(\d{1,2}))?\))?", re.ASCII)
_TYPE_NAMES: Final = {
    "integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint", "real": "float",
    "timestamp_ltz": "timestamp", "timestampntz": "timestamp_ntz",
}  # fmt: skip
#: The current time of the condition that is being read.
_NOW: Final[ContextVar[datetime]] = ContextVar("_NOW")
#: The most levels of values in values. A deeper one is refused before Python's own limit.
_MOST_LEVELS: Final = 60
_INTEGER_SUFFIX_BITS: Final = {"TINYINT": 8, "SMALLINT": 16, "BIGINT": 64}


def _select(helpers: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: helpers[name] for name in names}


@cache
def sql_dialect() -> Dialect:
    """Return Spark's dialect of sqlglot, which reads each function as a name with arguments."""
    from sqlglot.dialects.spark import Spark

    class WithoutFunctions(Spark):  # type: ignore[misc]
        class Parser(Spark.Parser):  # type: ignore[misc]
            FUNCTIONS: ClassVar[Any] = _select(Spark.Parser.FUNCTIONS, "COUNT", "SUM", "MIN", "MAX", "AVG")
            FUNCTION_PARSERS: ClassVar[Any] = _select(Spark.Parser.FUNCTION_PARSERS, "CAST", "TRY_CAST")

    return WithoutFunctions()


def parse_where(text: str) -> Predicate:
    """Parse a filter: ``distance > 2000 and dest like 'A%'``.

    The subset has comparisons (``= == <=> != <> < <= > >=``), ``in``, ``between``, ``like``, ``rlike``, ``is null`` and
    their negations, a boolean column on its own, ``and``/``or``/``not`` and parentheses; the functions and operators of
    `lakeformat.predicate.functions`, ``cast``, ``case`` and ``if``. Literals: integers, decimals, ``1e3`` and ``2.5D``
    doubles, ``5L``, texts, ``true``/``false``/``null``, ``DATE '2024-01-31'``, ``TIMESTAMP '2024-01-31 10:00:00'``,
    ``X'1FA0'``. Names may be dotted (fields of structs) and backquoted. The current time is taken here, once.

    Args:
        text: The predicate.

    Returns:
        A filter with Python literals; ``1.5`` is a `decimal.Decimal` and ``1.5D`` a float, as in Spark.

    Raises:
        InvalidInputError: The text is not a predicate of that subset; the message names the part.
        InvalidOptionError: sqlglot is not installed.
    """
    try:
        from sqlglot.expressions import Condition
    except ImportError as error:
        raise InvalidOptionError("where= needs sqlglot; run: pip install sqlglot") from error

    check_escapes(text)
    with explain_parse_errors("read the filter", text):
        parsed = sql_dialect().parse_into(Condition, text)
        if len(parsed) != 1 or parsed[0] is None:
            raise InvalidInputError(f"cannot read the filter {text!r}: write one predicate")
        return node_to_predicate(parsed[0])


@contextmanager
def explain_parse_errors(task: str, text: str) -> Iterator[None]:
    """Turn errors of the parser into `InvalidInputError`. ``task`` says what is done with the text."""
    from sqlglot.errors import SqlglotError

    try:
        yield
    except SqlglotError as error:
        raise InvalidInputError(
            f"cannot {task} {text!r}: not Spark SQL; put names that are keywords into backquotes"
        ) from error
    except RecursionError as error:
        raise InvalidInputError(f"cannot {task}: it is nested too deeply") from error


def check_escapes(text: str) -> None:
    """Raise `InvalidInputError` if the text has a backslash whose meaning differs between parsers."""
    for escape in _ESCAPE.finditer(text):
        if escape[1] not in _PLAIN_ESCAPES:
            raise InvalidInputError(
                f"cannot read the filter {text!r}: backslash before {escape[1]!r}; write \\\\ for a backslash"
            )


def node_to_predicate(node: Expression) -> Predicate:
    """Return a condition parsed by `sql_dialect` as a filter.

    Raises:
        InvalidInputError: The condition is not in the subset of `parse_where`.
    """
    token = _NOW.set(datetime.now(timezone.utc))
    try:
        return _read_predicate(node)
    finally:
        _NOW.reset(token)


def _read_predicate(node: Expression) -> Predicate:
    reader = _READERS.get(_kind(node))
    return Calculated(_read_value(node)) if reader is None else reader(node)


def _kind(node: Expression | None) -> str:
    return type(node).__name__


#: Maps kinds of expressions that no filter takes to what to write.
_INSTEAD: Final = {
    "ILike": "write lower(column) like 'pattern in small letters'",
    "SimilarTo": "write column rlike 'pattern'",
    "Exists": "write lakeformat.sql",
    "Subquery": "write lakeformat.sql",
    "Select": "write lakeformat.sql",
    "BitwiseAnd": "write and",
    "BitwiseOr": "write or",
}


def _refusal(node: Expression, why: str = "") -> InvalidInputError:
    if not why:
        instead = _INSTEAD.get(_kind(node))
        why = "it is not in the subset a filter may use" + (f"; {instead}" if instead else "")
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
    column, other = _read_path(left), _read_path(right)
    if column is not None and other is not None:
        return ColumnComparison(column, op, other)
    if column is not None and _is_literal(right):
        return Comparison(column, op, _read_literal(right, node))
    if other is not None and _is_literal(left):
        return Comparison(other, MIRRORED[op], _read_literal(left, node))
    return Calculated(Call(op, (_read_value(left), _read_value(right))))


def _read_between(node: Expression) -> Predicate:
    if node.args.get("symmetric"):
        raise _refusal(node)
    value, bounds = node.this, (node.args["low"], node.args["high"])
    column = _read_path(value)
    return And(
        tuple(
            Comparison(column, op, _read_literal(bound, node))
            if column is not None and _is_literal(bound)
            else Calculated(Call(op, (_read_value(value), _read_value(bound))))
            for op, bound in zip(_BETWEEN, bounds, strict=True)
        )
    )


def _read_in(node: Expression) -> Predicate:
    values = node.expressions
    if not values or any(node.args.get(key) for key in ("query", "unnest", "field", "is_global")):
        raise _refusal(node, "IN takes a list of literals")
    column = _read_path(node.this)
    literals = tuple(_read_literal(value, node) for value in values)
    if column is not None:
        return In(column, literals)
    return Calculated(Call("in", (_read_value(node.this), *(_read_constant(value) for value in values))))


def _read_like(node: Expression) -> Predicate:
    escape: object = "\\"
    if _kind(node) == "Escape":
        escape = _read_literal(node.args["expression"], node)
        if not (isinstance(escape, str) and len(escape) == 1) or _kind(node.this) != "Like":
            raise _refusal(node, "ESCAPE takes one character, after LIKE")
        node = node.this
    pattern = _read_literal(node.args["expression"], node)
    if not isinstance(pattern, str):
        raise _refusal(node, "LIKE takes a text")
    if isinstance(escape, str) and escape != "\\":
        pattern = _with_backslashes(pattern, escape, node)
    column = _read_path(node.this)
    like: Predicate
    if column is not None:
        like = Like(column, pattern)
    else:
        like = Calculated(Call("like", (_read_value(node.this), Constant(pattern))))
    return Not(like) if node.args.get("negate") else like


def _with_backslashes(pattern: str, escape: str, node: Expression) -> str:
    """Return a LIKE pattern with backslashes instead of another escape character."""
    parts: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in ("%", "_", escape):
                raise _refusal(node, f"{escape} must stand before %, _ or itself")
            parts.append("\\" + following if following in "%_" else following.replace("\\", "\\\\"))
        else:
            parts.append(character.replace("\\", "\\\\"))
    return "".join(parts)


def _read_is(node: Expression) -> Predicate:
    if _kind(node.args["expression"]) != "Null":
        raise _refusal(node)
    column = _read_path(node.this)
    return IsNull(column) if column is not None else Calculated(Call("isnull", (_read_value(node.this),)))


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
    "Escape": _read_like,
    "Is": _read_is,
    "Column": _read_flag,
    "Dot": _read_flag,
    "Boolean": lambda node: Always(bool(node.this)),
    **dict.fromkeys(_OPERATORS, _read_comparison),
}


# --- values -----------------------------------------------------------------------------------------------


def _read_value(node: Expression, depth: int = 0) -> Value:
    """Read a value: a column, a literal, an operator, a function, or a condition."""
    if depth > _MOST_LEVELS:
        raise InvalidInputError("cannot read the filter: its functions and operators are nested too deeply")
    kind = _kind(node)
    if (path := _read_path(node)) is not None:
        return ColumnValue(path)
    if _is_literal(node):
        return _read_constant(node)

    def read(inner: Expression) -> Value:
        return _read_value(inner, depth + 1)

    match kind:
        case "Paren":
            return read(node.this)
        case "Neg":
            return Call("negative", (read(node.this),))
        case "RegexpLike":
            return Call("rlike", (read(node.this), read(node.args["expression"])))
        case "Cast" | "TryCast":
            function = "try_cast" if node.args.get("safe") else "cast"
            return Call(function, (read(node.this),), _read_type(node))
        case "Case" | "If":
            return _read_case(node, read)
        case "CurrentDate" | "CurrentTimestamp":
            return _call_by_name("current_date" if kind == "CurrentDate" else "now", [], node)
        case "Anonymous" if isinstance(node.this, str):
            return _call_by_name(node.this, [read(argument) for argument in node.expressions], node)
    if kind in _BINARY:
        return Call(_BINARY[kind], (read(node.this), read(node.args["expression"])))
    if kind in _READERS:
        return Truth(_read_predicate(node))
    raise _refusal(node)


def _call_by_name(name: str, arguments: list[Value], node: Expression) -> Value:
    match name.lower(), arguments:
        case "nullif", [first, other]:
            return Case(((Calculated(Call("=", (first, other))), Constant(None)),), first)
        case "nvl2", [tested, first, other]:
            return Case(((Calculated(Call("isnotnull", (tested,))), first),), other)
        case "current_timestamp" | "now", []:
            return Constant(_NOW.get())
        case (("current_date" | "curdate"), []):
            return Call("cast", (Constant(_NOW.get()),), TYPES["date"])
        case (("nullif" | "nvl2" | "if" | "current_date" | "current_timestamp" | "now"), _):
            raise _refusal(node, f"{len(arguments)} arguments")
    return Call(find_function(name).name, tuple(arguments))


def _read_case(node: Expression, read: Callable[[Expression], Value]) -> Value:
    if _kind(node) == "If":
        branches, default = [node], node.args.get("false")
    else:
        branches, default = node.args["ifs"], node.args.get("default")
    subject = node.this if _kind(node) == "Case" else None
    conditions = [
        _read_predicate(branch.this) if subject is None else Calculated(Call("=", (read(subject), read(branch.this))))
        for branch in branches
    ]
    results = [read(branch.args["true"]) for branch in branches]
    otherwise = Constant(None) if default is None else read(default)
    return Case(tuple(zip(conditions, results, strict=True)), otherwise)


def _read_type(node: Expression) -> pa.DataType:
    text = node.args["to"].sql(dialect="spark").lower()
    if match := _DECIMAL_TYPE.fullmatch(text):
        precision, scale = (int(part or default) for part, default in zip(match.groups(), (10, 0), strict=True))
        if 1 <= precision <= 38 and scale <= precision:
            return pa.decimal128(precision, scale)
    kind = TYPES.get(_TYPE_NAMES.get(text, text))
    if kind is None:
        raise _refusal(node, f"it has no type {text}; it has decimal(p,s), {', '.join(TYPES)}")
    return kind


def _is_literal(node: Expression) -> bool:
    kind = _kind(node)
    if kind in ("Paren", "Neg"):
        return _is_literal(node.this)
    if kind in ("Cast", "TryCast"):
        inner, to = node.this, node.args["to"].this.name
        if _kind(inner) != "Literal" or node.args.get("safe"):
            return False
        if inner.is_string:
            return kind == "Cast" and to in _TIME_PARSERS
        return to == "DOUBLE" or to in _INTEGER_SUFFIX_BITS
    return kind in ("Null", "Boolean", "Literal", "HexString")


def _read_constant(node: Expression) -> Constant:
    """Read a literal with the type that its suffix says."""
    inner = node
    while _kind(inner) in ("Paren", "Neg"):
        inner = inner.this
    value = _read_literal(node, node)
    if _kind(inner) == "TryCast" and isinstance(value, int):
        return Constant(value, TYPES[inner.args["to"].this.name.lower()])
    return Constant(value)


# --- names and literals -----------------------------------------------------------------------------------


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
    parser = _TIME_PARSERS.get(node.args["to"].this.name)
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
