"""What a statement changes: a query that computes the rows, and the clauses of the merge that takes them. Pure.

The query is Spark SQL: each row that changes, as it is to be, with the number of the clause (`DOES`) that takes it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from uuid import uuid4

from lakeformat.errors import InvalidInputError, SchemaMismatchError
from lakeformat.model.record import RECORD_KEY
from lakeformat.model.table_config import TableConfig
from lakeformat.sql_statements.parse import MergeInto, TableName, When
from lakeformat.write.statements.clauses import Clause, Kind
from lakeformat.write.statements.merge_into import STORED_KEY

__all__ = ["changed_rows", "clauses_of", "joined_rows"]

_DOES = "lakeformat_does"
_MATCHED = "lakeformat_matched"
_GIVEN = "lakeformat_given"


def joined_rows(said: MergeInto, given: str, stored: str) -> str:
    """The rows of both sides, paired by the merge's condition.

    Args:
        given, stored: under which names the source and the table are known.
    """
    way = "full" if any(when.on == "not matched by source" for when in said.whens) else "left"
    return (
        f"(select *, true as {_GIVEN} from {given}) as `{said.source_name}` {way} join "
        f"(select *, true as {_MATCHED} from {stored}) as `{said.target.called}` on {said.on}"
    )


def changed_rows(
    columns: Sequence[str],
    whens: Sequence[When],
    target: TableName,
    joined: str,
    source: tuple[str, Sequence[str]] | None,
    *,
    row_number: str | None = None,
) -> str:
    """The query.

    Args:
        columns: of the table.
        joined: `joined_rows`, or without a source the name of the table's rows.
        source: what qualifies its columns, and these; None without a source.
        row_number: of a table without a record key, whose rows have `RECORD_KEY`: an expression that numbers new ones.
    """
    rows = joined if source is not None else f"(select *, true as {_MATCHED} from {joined}) as `{target.called}`"
    taken = [f"when {_taken(when, source is not None)} then {at}" for at, when in enumerate(whens)]
    chosen = f"(case {' '.join(taken)} end)"
    values = [f"{chosen} as {_DOES}"]
    if row_number is not None:
        new = f"concat('{uuid4().int}_0_', cast({row_number} as string))"  # Looks as keys that writes generate.
        values.append(f"coalesce(`{target.called}`.`{RECORD_KEY}`, {new}) as {STORED_KEY}")
    for name in columns:
        said = [(at, _value(when, name, source)) for at, when in enumerate(whens)]
        parts = " ".join(f"when {at} then {value}" for at, value in said if value is not None)
        kept = f"`{target.called}`.`{name}`"
        values.append(f"{f'case {chosen} {parts} else {kept} end' if parts else kept} as `{name}`")
    return f"select {', '.join(values)} from {rows} where {chosen} is not null"


def _taken(when: When, has_source: bool) -> str:
    """When a clause takes a row."""
    sides = {
        "matched": f"{_MATCHED} and {_GIVEN}" if has_source else _MATCHED,
        "not matched": f"{_MATCHED} is null",
        "not matched by source": f"{_GIVEN} is null",
    }
    condition = f" and ({when.condition})" if when.condition is not None else ""
    return f"{sides[when.on]}{condition}"


def _value(when: When, column: str, source: tuple[str, Sequence[str]] | None) -> str | None:
    """What a clause puts into a column; None where it leaves it."""
    if when.does == "delete":
        return None
    if when.values is not None:
        named = {name.lower(): value for name, value in when.values.items()}
        return named.get(column.lower(), "null" if when.does == "insert" else None)
    name, has = source if source is not None else ("", [])
    found = next((each for each in has if each.lower() == column.lower()), None)
    return f"`{name}`.`{found}`" if found is not None else "null" if when.does == "insert" else None


def clauses_of(
    config: TableConfig, columns: Sequence[str], whens: Sequence[When], merge: MergeInto | None
) -> tuple[Clause, ...]:
    """The same as clauses of a merge by key, which take what Spark has computed."""
    fixed = {name.partition(".")[0].lower() for name in (*config.record_fields, *config.partition_fields)}
    clauses = []
    for at, when in enumerate(whens):
        where = f"source.{_DOES} = {at}"
        if when.does == "delete":
            clauses.append(Clause(Kind.DELETE, where))
        elif when.does == "insert":
            clauses.append(Clause(Kind.INSERT, f"{_DOES} = {at}"))
        else:
            set_here = _lower(when.values) if when.values is not None else None
            _check_fixed(fixed, set_here, merge)
            free = [name for name in columns if name.lower() not in fixed]
            names = [name for name in free if set_here is None or name.lower() in set_here]
            _check_known(when.values or {}, columns)
            clauses.append(Clause(Kind.UPDATE, where, names))
    return tuple(clauses)


def _check_fixed(fixed: set[str], set_here: set[str] | None, merge: MergeInto | None) -> None:
    """Key and partition columns say where a row lies. Of ``set *`` they must be the same on both sides."""
    if set_here is not None:
        if wrong := sorted(fixed & set_here):
            raise SchemaMismatchError(
                f"column {wrong[0]!r} says where a row lies and cannot be set; delete, then insert"
            )
        return
    assert merge is not None  # noqa: S101  Only merges have a star.
    on = re.sub(r"[`\s]", "", merge.on).lower()
    target, source = merge.target.called.lower(), merge.source_name.lower()
    for name in sorted(fixed):
        if f"{target}.{name}={source}.{name}" not in on and f"{source}.{name}={target}.{name}" not in on:
            raise InvalidInputError(
                f"update set * would set {name!r}, which says where a row lies; add {merge.target.called}.{name} = "
                f"{merge.source_name}.{name} to the condition, or name the columns to set"
            )


def _check_known(values: Mapping[str, str], columns: Collection[str]) -> None:
    known = {name.lower() for name in columns}
    for name in values:
        if name.lower() not in known:
            raise SchemaMismatchError(f"unknown column {name!r}; the table has {', '.join(columns)}")


def _lower(names: Collection[str]) -> set[str]:
    return {name.lower() for name in names}
