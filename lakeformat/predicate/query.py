"""The parser of pre-commit queries: a small SELECT over one table.

``select count(*), max(v) from <TABLE_NAME> where v > 3``: aggregates of columns and one condition. All other SQL
(subqueries, joins, grouping, plain columns, functions in the list) is refused; the error names the unsupported part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lakeformat.errors import InvalidInputError, InvalidOptionError
from lakeformat.predicate.nodes import Always, Predicate
from lakeformat.predicate.sql import check_escapes, explain_parse_errors, node_to_predicate, sql_dialect

if TYPE_CHECKING:
    from sqlglot.expressions import Expression

__all__ = ["TABLE_NAME", "Aggregate", "Select", "parse_select"]

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
        import sqlglot  # noqa: F401
    except ImportError as error:
        raise InvalidOptionError("SQL validators need sqlglot; run: pip install sqlglot") from error

    check_escapes(text)
    if TABLE_NAME not in text:
        raise InvalidInputError(f"cannot run the query {text!r}: it must select from {TABLE_NAME}")
    with explain_parse_errors("run the query", text):
        parsed = sql_dialect().parse(text.replace(TABLE_NAME, _TABLE_IN_SQL))
        if len(parsed) != 1 or parsed[0] is None:
            raise InvalidInputError(f"cannot run the query {text!r}: write one SELECT")
        return _read_select(text, parsed[0])


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
