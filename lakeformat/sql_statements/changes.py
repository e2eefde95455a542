"""Spark expressions that compute the rows which an ``update``, ``delete`` or ``merge`` changes. No I/O.

In each changed row, the column `CLAUSE_NUMBER` has the number of the clause that applies to the row, counted from 0 in
the order of the statement. The value is `MOVED` if the statement would change the row's key or partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from lakeformat.errors import SchemaMismatchError
from lakeformat.model.table_config import TableConfig
from lakeformat.sql_statements.parse import When
from lakeformat.write.statements.clauses import Clause, Kind

__all__ = [
    "CLAUSE_NUMBER",
    "IN_SOURCE",
    "IN_TARGET",
    "MOVED",
    "clause_number",
    "make_clauses",
    "moved_condition",
    "value_of",
]

#: Names of columns that are added to the joined rows of table and source. `CLAUSE_NUMBER` has the number of the clause
#: that applies to the row. `IN_TARGET` is true if the row has values of the table, else null. `IN_SOURCE` is true if
#: the row has values of the source, else null.
CLAUSE_NUMBER, IN_TARGET, IN_SOURCE = "lakeformat_clause", "lakeformat_in_target", "lakeformat_in_source"
MOVED = -1


def clause_number(whens: Sequence[When], *, has_source: bool) -> str:
    """Return a SQL expression for the number of the clause that applies to a row; null if no clause applies."""
    taken = [f"when {_when_condition(when, has_source)} then {number}" for number, when in enumerate(whens)]
    return f"case {' '.join(taken)} end"


def _when_condition(when: When, has_source: bool) -> str:
    sides = {
        "matched": f"{IN_TARGET} and {IN_SOURCE}" if has_source else "true",
        "not matched": f"{IN_TARGET} is null",
        "not matched by source": f"{IN_SOURCE} is null",
    }
    condition = f" and ({when.condition}\n)" if when.condition is not None else ""
    return f"{sides[when.on]}{condition}"


def value_of(
    whens: Sequence[When], column: str, old_value: str, source: tuple[str, Sequence[str]] | None, kind: str
) -> str:
    """Return a SQL expression for a column's new value in a row, which depends on the clause that applies to the row.

    Args:
        whens: the clauses of the statement.
        column: name of the column.
        old_value: a SQL expression for the column's old value.
        source: the qualifier of the source's columns, and their names; None if the statement has no source.
        kind: the SQL type that each value is cast to; "" for no cast.
    """
    values = [(number, _value(when, column, source)) for number, when in enumerate(whens)]
    parts = [f"when {number} then {_cast(value, kind)}" for number, value in values if value is not None]
    return f"case {CLAUSE_NUMBER} {' '.join(parts)} else {old_value} end" if parts else old_value


def _cast(value: str, kind: str) -> str:
    return f"cast(({value}\n) as {kind})" if kind and value != "null" else f"({value}\n)"


def _value(when: When, column: str, source: tuple[str, Sequence[str]] | None) -> str | None:
    """Return the SQL expression for the value that a clause gives a column; None if the clause does not set it."""
    if when.action == "delete":
        return None
    if when.values is not None:
        named = {name.lower(): value for name, value in when.values.items()}
        return named.get(column.lower(), "null" if when.action == "insert" else None)
    name, has = source if source is not None else ("", [])
    given_name = next((name_given for name_given in has if name_given.lower() == column.lower()), None)
    return _qualify(name, given_name) if given_name is not None else "null" if when.action == "insert" else None


def _qualify(name: str, column: str) -> str:
    return ".".join(f"`{part.replace('`', '``')}`" for part in (name, column))


def moved_condition(
    whens: Sequence[When], fixed: Mapping[str, tuple[str, str]], source: tuple[str, Sequence[str]] | None
) -> str:
    """Return a SQL condition that is true if an update would change a row's key or partition.

    Args:
        fixed: maps each key or partition column to a SQL expression for its old value, and its SQL type.
        source: the qualifier of the source's columns, and their names; None if the statement has no source.
    """
    updates = [(number, when) for number, when in enumerate(whens) if when.action == "update"]
    moves = [
        f"{CLAUSE_NUMBER} = {number} and not ({_cast(value, kind)} <=> {kept})"
        for number, when in updates
        for column, (kept, kind) in fixed.items()
        if (value := _value(when, column, source)) is not None
    ]
    return " or ".join(f"({move})" for move in moves) or "false"


def make_clauses(config: TableConfig, columns: Sequence[str], whens: Sequence[When]) -> tuple[Clause, ...]:
    """Return the clauses with which `merge_rows` writes the changed rows that Spark has computed.

    Each clause applies to the rows that have its number in the column `CLAUSE_NUMBER`.

    Raises:
        SchemaMismatchError: if a clause names a column that the table does not have.
    """
    fixed = {name.partition(".")[0].lower() for name in (*config.record_fields, *config.partition_fields)}
    clauses = []
    for number, when in enumerate(whens):
        where = f"source.{CLAUSE_NUMBER} = {number}"
        _check_columns_exist(when.values or {}, columns)
        if when.action == "delete":
            clauses.append(Clause(Kind.DELETE, where))
        elif when.action == "insert":
            clauses.append(Clause(Kind.INSERT, f"{CLAUSE_NUMBER} = {number}"))
        else:
            named = columns if when.values is None else when.values
            set_here = {name.lower() for name in named} - fixed
            clauses.append(Clause(Kind.UPDATE, where, [name for name in columns if name.lower() in set_here]))
    return tuple(clauses)


def _check_columns_exist(values: Mapping[str, str], columns: Collection[str]) -> None:
    lower_names = {name.lower() for name in columns}
    for name in values:
        if name.lower() not in lower_names:
            raise SchemaMismatchError(f"unknown column {name!r}; the table has {', '.join(columns)}")
