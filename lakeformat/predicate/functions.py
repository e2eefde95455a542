"""The functions that a condition may use: one table, with names, types, meaning and kernel.

Names and results are Spark's, in ANSI mode. A new function is one entry of `_TABLE`, and a kernel if Arrow has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.errors import InvalidInputError, nearest
from lakeformat.predicate import kernels
from lakeformat.predicate.argument_types import (
    UNITS,
    Typing,
    align,
    alike,
    arithmetic_types,
    cast_value,
    contains_types,
    division_types,
    floor_types,
    is_null,
    round_types,
    takes,
    type_of,
    unit_types,
    value_text,
    whole_division_types,
)
from lakeformat.predicate.casts import MOMENT, cast_may_fail
from lakeformat.predicate.kernels import Kernel, calendar_part, compared, plain
from lakeformat.predicate.nodes import Call, Case, Constant, Value, values_of

__all__ = [
    "COMPARISONS",
    "DIVISIONS",
    "FUNCTIONS",
    "GROUPS",
    "TIME_FUNCTIONS",
    "WRITTEN_OUT",
    "Function",
    "call_may_fail",
    "find_function",
    "make_call",
    "make_case",
]

#: Operators whose second operand Spark computes first.
DIVISIONS: Final = frozenset({"/", "div", "%"})
COMPARISONS: Final = frozenset({"=", "<=>", "!=", "<", "<=", ">", ">="})


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the table.

    Attributes:
        name: Spark's name, in lower case; an operator's sign.
        usage: how it is called, for messages and pages.
        meaning: what it returns, one phrase; empty for what pages do not list.
        types: checks the arguments.
        kernel: computes the result for whole columns.
        literals: the positions of arguments that must be literals.
        aliases: further names.
        may_fail: whether rows can have no result, which is an error.
        by_spark: whether Spark's function of this name gives the same result whatever the session's settings are.
        zoned: whether the kernel needs the time zone.
        null_if_null: whether the result is null for each null argument.
    """

    name: str
    usage: str
    meaning: str
    types: Typing
    kernel: Kernel
    literals: tuple[int, ...] = ()
    aliases: tuple[str, ...] = ()
    may_fail: bool = False
    by_spark: bool = True
    zoned: bool = False
    null_if_null: bool = True

    @property
    def stops_at_null(self) -> bool:
        """Tell whether a null argument decides the result, so that Spark does not compute the ones after it."""
        return (self.null_if_null and self.name != "concat") or self.name in COMPARISONS - {"<=>"}


# --- the table --------------------------------------------------------------------------------------------

_TEXT, _INT, _LONG, _FLAG, _DAY = pa.string(), pa.int32(), pa.int64(), pa.bool_(), pa.date32()


def _first(types: Sequence[pa.DataType]) -> pa.DataType:
    return types[0]


def _part(name: str, meaning: str, kind: str, kernel: Kernel, *aliases: str) -> Function:
    usage = f"{name}({'date' if kind == 'date' else 'timestamp'})"
    return Function(name, usage, meaning, takes(kind, gives=_INT), kernel, aliases=aliases)


def _sum_type(left: pa.DataType, right: pa.DataType) -> tuple[int, int]:
    scale = max(left.scale, right.scale)
    return max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale


def _product_type(left: pa.DataType, right: pa.DataType) -> tuple[int, int]:
    return left.precision + right.precision + 1, left.scale + right.scale


def _operator(name: str, meaning: str, types: Typing, kernel: Kernel, *aliases: str) -> Function:
    return Function(name, f"a {name} b", meaning, types, kernel, aliases=aliases, may_fail=True, by_spark=False)


_OPERATORS: Final = (
    *(Function(op, f"a {op} b", "", alike(_FLAG, most=2), compared(op), null_if_null=False) for op in COMPARISONS),
    Function("in", "a in (...)", "", alike(_FLAG), kernels.listed, null_if_null=False),
    _operator("+", "sum; an overflow of integers is an error", arithmetic_types(_sum_type),
              kernels.arithmetic(pc.add_checked, pc.add)),
    _operator("-", "difference", arithmetic_types(_sum_type), kernels.arithmetic(pc.subtract_checked, pc.subtract)),
    _operator("*", "product", arithmetic_types(_product_type), kernels.arithmetic(pc.multiply_checked, pc.multiply)),
    _operator("/", "quotient, a double; a division by zero is an error", division_types, kernels.divide),
    _operator("div", "quotient of integers without its fraction", whole_division_types, kernels.divide),
    _operator("%", "remainder, with the sign of a", arithmetic_types(None), kernels.remainder, "mod"),
    Function("negative", "-a", "the number with the other sign", takes("number", gives=_first),
             kernels.arithmetic(pc.negate_checked, pc.negate), may_fail=True, by_spark=False),
)  # fmt: skip

_TEXTS: Final = (
    Function("lower", "lower(text)", "small letters", takes("text", gives=_TEXT),
             kernels.change_case("lower", pc.utf8_lower), aliases=("lcase",)),
    Function("upper", "upper(text)", "capital letters", takes("text", gives=_TEXT),
             kernels.change_case("upper", pc.utf8_upper), aliases=("ucase",)),
    Function("trim", "trim(text)", "without blanks at both ends", takes("text", gives=_TEXT),
             plain(pc.utf8_trim, characters=" ")),
    Function("ltrim", "ltrim(text)", "without blanks at the start", takes("text", gives=_TEXT),
             plain(pc.utf8_ltrim, characters=" ")),
    Function("rtrim", "rtrim(text)", "without blanks at the end", takes("text", gives=_TEXT),
             plain(pc.utf8_rtrim, characters=" ")),
    Function("length", "length(text)", "number of characters", takes("text", gives=_INT), plain(pc.utf8_length),
             aliases=("char_length", "character_length", "len")),
    Function("octet_length", "octet_length(text or bytes)", "number of bytes", takes("text or bytes", gives=_INT),
             plain(pc.binary_length)),
    Function("substring", "substring(text, position[, length])", "a part; positions count from 1, or from the end",
             takes("text", "integer", "integer", gives=_TEXT, optional=1), kernels.substring, (1, 2), ("substr",)),
    Function("left", "left(text, length)", "the first characters", takes("text", "integer", gives=_TEXT),
             kernels.cut_left, (1,)),
    Function("right", "right(text, length)", "the last characters", takes("text", "integer", gives=_TEXT),
             kernels.cut_right, (1,)),
    Function("concat", "concat(text, ...)", "the texts joined, also `a || b`",
             takes("text", gives=_TEXT, repeats=True),
             lambda given, call: pc.binary_join_element_wise(*given, "")),
    Function("replace", "replace(text, search[, by])", "each occurrence replaced",
             takes("text", "text", "text", gives=_TEXT, optional=1), kernels.replace_text, (1, 2)),
    Function("reverse", "reverse(text)", "the characters in reverse order", takes("text", gives=_TEXT),
             plain(pc.utf8_reverse)),
    Function("startswith", "startswith(text, prefix)", "whether it begins so", takes("text", "text", gives=_FLAG),
             lambda given, call: pc.starts_with(given[0], given[1].as_py()), (1,)),
    Function("endswith", "endswith(text, suffix)", "whether it ends so", takes("text", "text", gives=_FLAG),
             lambda given, call: pc.ends_with(given[0], given[1].as_py()), (1,)),
    Function("contains", "contains(text, part)", "whether it has the part", takes("text", "text", gives=_FLAG),
             lambda given, call: pc.match_substring(given[0], given[1].as_py()), (1,)),
    Function("like", "text like pattern", "", takes("text", "text", gives=_FLAG), kernels.match_like, (1,)),
    Function("rlike", "text rlike pattern", "whether a regular expression of Java finds something",
             takes("text", "text", gives=_FLAG), kernels.match_java, (1,), ("regexp", "regexp_like")),
)  # fmt: skip

_NUMBERS: Final = (
    Function("abs", "abs(number)", "the number without its sign", takes("number", gives=_first),
             kernels.arithmetic(pc.abs_checked, pc.abs), may_fail=True, by_spark=False),
    Function("round", "round(number[, digits])", "rounded, halves away from zero; a double only to whole numbers",
             round_types, kernels.round_half_up, (1,), may_fail=True, by_spark=False),
    Function("floor", "floor(number)", "the next whole number below", floor_types,
             kernels.floor_or_ceil(pc.floor), may_fail=True, by_spark=False),
    Function("ceil", "ceil(number)", "the next whole number above", floor_types,
             kernels.floor_or_ceil(pc.ceil), aliases=("ceiling",), may_fail=True, by_spark=False),
    Function("isnan", "isnan(number)", "whether it is NaN; false for null", takes("number", gives=_FLAG),
             lambda given, call: pc.fill_null(pc.is_nan(given[0]), False), null_if_null=False, by_spark=False),
    Function("greatest", "greatest(a, b, ...)", "the greatest that is not null", alike(),
             kernels.extreme(">="), null_if_null=False),
    Function("least", "least(a, b, ...)", "the least that is not null", alike(),
             kernels.extreme("<="), null_if_null=False),
)  # fmt: skip

_TIMES: Final = (
    _part("year", "the year", "date", calendar_part(pc.year)),
    _part("quarter", "1 to 4", "date", calendar_part(pc.quarter)),
    _part("month", "1 to 12", "date", calendar_part(pc.month)),
    _part("day", "the day of the month", "date", calendar_part(pc.day), "dayofmonth"),
    _part("dayofweek", "1 for Sunday to 7", "date",
          calendar_part(pc.day_of_week, count_from_zero=False, week_start=7)),
    _part("weekday", "0 for Monday to 6", "date", calendar_part(pc.day_of_week)),
    _part("dayofyear", "1 to 366", "date", calendar_part(pc.day_of_year)),
    _part("weekofyear", "the week by ISO 8601", "date", calendar_part(pc.iso_week)),
    _part("hour", "0 to 23", "local time", calendar_part(pc.hour)),
    _part("minute", "0 to 59", "local time", calendar_part(pc.minute)),
    _part("second", "0 to 59", "local time", calendar_part(pc.second)),
    Function("to_date", "to_date(value)", "as `cast(value as date)`", takes("date", gives=_DAY),
             plain(lambda dates: dates), aliases=("date",)),
    Function("date_add", "date_add(date, days)", "the date some days later", takes("date", "integer", gives=_DAY),
             kernels.add_days(1), aliases=("dateadd",), by_spark=False),
    Function("date_sub", "date_sub(date, days)", "the date some days earlier",
             takes("date", "integer", gives=_DAY), kernels.add_days(-1), by_spark=False),
    Function("datediff", "datediff(end, start)", "the days from start to end", takes("date", "date", gives=_INT),
             lambda given, call: pc.subtract(*(days.view(pa.int32()) for days in given)),
             aliases=("date_diff",), by_spark=False),
    Function("add_months", "add_months(date, months)", "the same day of another month",
             takes("date", "integer", gives=_DAY), kernels.add_months, may_fail=True, by_spark=False),
    Function("last_day", "last_day(date)", "the last day of the month", takes("date", gives=_DAY),
             kernels.last_day),
    Function("trunc", "trunc(date, unit)", "the first day of the year, quarter, month or week",
             unit_types(1, "date", "text", gives=_DAY, units=("year", "quarter", "month", "week")),
             kernels.truncate_date, (1,)),
    Function("date_trunc", "date_trunc(unit, timestamp)", "the start of the year, month, week, day, hour, ...",
             unit_types(0, "text", "timestamp", gives=MOMENT, units=tuple(dict.fromkeys(UNITS.values()))),
             kernels.truncate_moment, (0,), zoned=True, by_spark=False),
)  # fmt: skip

_OTHERS: Final = (
    Function("coalesce", "coalesce(a, b, ...)", "the first that is not null", alike(least=1), plain(pc.coalesce),
             aliases=("nvl", "ifnull"), null_if_null=False),
    Function("isnull", "isnull(a)", "whether it is null", takes("any", gives=_FLAG), plain(pc.is_null),
             null_if_null=False),
    Function("isnotnull", "isnotnull(a)", "whether it is not null", takes("any", gives=_FLAG),
             plain(pc.is_valid), null_if_null=False),
    Function("size", "size(array or map)", "number of elements; null for null", takes("array or map", gives=_INT),
             kernels.size, aliases=("cardinality",), by_spark=False),
    Function("array_contains", "array_contains(array, value)", "whether the array has the value",
             contains_types, kernels.array_contains, null_if_null=False),
)  # fmt: skip


def _no_types(given: Sequence[Value], zone: str) -> tuple[tuple[Value, ...], pa.DataType]:
    raise AssertionError("casts are made by name and type")


_CASTS: Final = (
    Function("cast", "cast(a as type)", "the value as another type; an error if it has none", _no_types, kernels.cast,
             null_if_null=False, may_fail=True, by_spark=False),
    Function("try_cast", "try_cast(a as type)", "the value as another type; null if it has none", _no_types,
             kernels.try_cast, null_if_null=False, by_spark=False),
)  # fmt: skip
#: The functions by the headings of the page.
GROUPS: Final = {
    "Numbers": (*_OPERATORS, *_NUMBERS),
    "Texts": _TEXTS,
    "Dates and times": _TIMES,
    "Others": (*_OTHERS, *_CASTS),
}
FUNCTIONS: Final = {function.name: function for group in GROUPS.values() for function in group}
#: Functions and casts that may take or give timestamps.
TIME_FUNCTIONS: Final = frozenset(function.name for function in (*_TIMES, *_CASTS))
_BY_NAME: Final = {name: function for function in FUNCTIONS.values() for name in (function.name, *function.aliases)}
#: Functions that the parser makes of other nodes: usage and meaning.
WRITTEN_OUT: Final = {
    "nullif": ("nullif(a, b)", "null if a = b, else a"),
    "nvl2": ("nvl2(a, b, c)", "b if a is not null, else c"),
    "if": ("if(condition, a, b)", "a or b; also `case when ... then ... else ... end`"),
    "current_date": ("current_date()", "today, in the time zone of the condition"),
    "current_timestamp": ("current_timestamp(), now()", "the moment at which the condition was read"),
}


def find_function(name: str) -> Function:
    """Return the function of this name, in any letter case.

    Raises:
        InvalidInputError: There is none; the message has the nearest name and the list.
    """
    function = _BY_NAME.get(name.lower())
    if function is None or function.types is _no_types:
        called = [
            called_function
            for called_function in FUNCTIONS.values()
            if called_function.usage.startswith(f"{called_function.name}(")
        ]
        names = sorted(
            {
                *WRITTEN_OUT,
                "now",
                *(key for called_function in called for key in (called_function.name, *called_function.aliases)),
                "mod",
            }
        )
        hint = nearest(name.lower(), names)
        raise InvalidInputError(f"there is no function {name}{f'{hint} All' if hint else ', but'}: {', '.join(names)}")
    return function


def make_call(call: Call, arguments: Sequence[Value], zone: str) -> Value:
    """Return the call with these bound arguments, cast to the types that it takes, and with the type of its result.

    Raises:
        InvalidInputError: The function does not take these arguments.
    """
    try:
        if call.of is not None:
            return cast_value(arguments[0], call.of, zone, call.function)
        function = FUNCTIONS[_of_dates(call.function, arguments)]
        values, of = function.types(arguments, zone)
        for number in function.literals:
            if number < len(values) and not isinstance(values[number], Constant):
                raise InvalidInputError(f"argument {number + 1} must be a literal")
        if (function.null_if_null or function.stops_at_null) and any(is_null(value) for value in values):
            return Constant(pa.scalar(None, of), of)
        made = Call(function.name, values, of, zone if function.zoned else "")
        if function.literals:
            _try_on_no_row(made)
        return made
    except (InvalidInputError, ValueError, pa.ArrowException) as error:
        usage = FUNCTIONS[call.function].usage
        shown = value_text(replace(call, arguments=tuple(arguments)))
        reason = str(error).splitlines()[0]
        raise InvalidInputError(f"cannot filter by {shown}: {reason} ({usage})") from None


def _of_dates(function: str, arguments: Sequence[Value]) -> str:
    """Return the function that an operator means: a sum or difference of a date and days is date_add or date_sub."""
    if function in ("+", "-") and kind_of(type_of(arguments[0])) is Kind.DATE:
        return "date_add" if function == "+" else "date_sub"
    return function


def _try_on_no_row(call: Call) -> None:
    """Run a kernel on no row, so that a literal that it refuses is an error at once."""
    function = FUNCTIONS[call.function]
    given = [
        value.value if number in function.literals and isinstance(value, Constant) else pa.array([], type_of(value))
        for number, value in enumerate(call.arguments)
    ]
    function.kernel(given, call)


def make_case(case: Case, zone: str) -> Case:
    """Return a case whose results, bound already, are cast to one common type."""
    results = align([*(result for _, result in case.branches), case.otherwise], zone)
    branches = tuple((condition, result) for (condition, _), result in zip(case.branches, results[:-1], strict=True))
    return Case(branches, results[-1], type_of(results[-1]))


def call_may_fail(value: Value) -> bool:
    """Tell whether a row can have no result, which is an error; conditions inside of the value are not looked at."""
    for part in values_of(value):
        if not isinstance(part, Call):
            continue
        if part.function == "cast":
            if cast_may_fail(type_of(part.arguments[0]), type_of(part)):
                return True
        elif FUNCTIONS[part.function].may_fail:
            return True
    return False
