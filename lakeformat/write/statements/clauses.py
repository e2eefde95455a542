"""The clauses of a merge: how users write them, and how they are checked against the columns of source and table."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.conform import reader_schema
from lakeformat.codec.stored_types import with_meta_columns
from lakeformat.config.foreign_names import unknown_clause
from lakeformat.errors import InvalidInputError, SchemaMismatchError, nearest
from lakeformat.model.record import IS_DELETED
from lakeformat.model.table_config import TableConfig
from lakeformat.predicate import (
    Always,
    Predicate,
    Where,
    bind,
    bind_expression,
    column_path,
    columns_of,
    parse_where,
    path_parts,
    resolve_column,
    where_type_error,
)
from lakeformat.predicate.nodes import rename_columns
from lakeformat.public import public
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.write.statements.assign import Assignment, find_settable, plan_assignments

__all__ = ["SOURCE", "TARGET", "BoundClause", "Clause", "Kind", "Merge", "bind_clauses", "columns_used"]

#: Prefix of the source's columns in a table of matched pairs (a source row and the stored row with its key).
SOURCE: Final = "source."
#: Pattern of a text that reads like an expression of SQL: a column of either side, a text in quotes, a call.
_EXPRESSION: Final = re.compile(r"(?<![\w.])(source|target)\.[`\w]|^\s*'.*'\s*$|^\s*\w+\(.*\)\s*$", re.IGNORECASE)
#: Prefix of the stored row's columns in a table of matched pairs (a source row and the stored row with its key).
TARGET: Final = "target."


class Kind(enum.Enum):
    """The action of a clause."""

    UPDATE = "when_matched_update"
    DELETE = "when_matched_delete"
    INSERT = "when_not_matched_insert"


@dataclass(frozen=True)
class Clause:
    """One clause as the user wrote it. ``columns`` are the columns that an update sets."""

    kind: Kind
    where: Where | None = None
    columns: Sequence[str] | Mapping[str, Any] | None = None


@dataclass(frozen=True)
class BoundClause:
    """One checked clause, ready to be applied to rows whose columns are ``source.x`` and ``target.x``."""

    kind: Kind
    where: Predicate
    assignments: tuple[Assignment, ...] = ()


@dataclass(frozen=True)
class _Column:
    """A function that takes pairs of source row and stored row, and returns one of their columns.

    Attributes:
        name: the column's name with its side, ``source.x`` or ``target.x``.
    """

    name: str

    def __call__(self, rows: pa.RecordBatch) -> pa.Array:
        return rows.column(self.name)


@public
@dataclass(frozen=True, repr=False)
class Merge:
    """A merge that is not yet run: add clauses, then call `execute`. Each method for a clause returns a new `Merge`.

    A source row is matched if the table has a row with its key, in the same partition unless the index is global.
    Conditions are Spark SQL, or ``pyarrow.compute`` expressions, over ``source.x`` and ``target.x`` (the stored row);
    they may compare both. A bare ``x`` is a column of the source, and is refused if both sides have it. The first
    clause whose condition is true decides. If a condition is null or false, the next clause is tried. If no clause
    applies to a row, the stored row does not change, and the source row is not inserted.

    Only the clauses decide: the event-time rule is not applied. If older rows should lose, add a condition:
    ``when_matched_update(where="source.ts >= target.ts")``.
    """

    run: Callable[[tuple[Clause, ...]], WriteResult] = field(repr=False)
    clauses: tuple[Clause, ...] = ()

    if not TYPE_CHECKING:  # Type checkers would accept every name if they saw ``__getattr__``.

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                unknown_clause(name, [name_here for name_here in dir(type(self)) if name_here[0] != "_"])
            )

    def __repr__(self) -> str:
        clauses = ", ".join(clause.kind.value for clause in self.clauses) or "no clause yet"
        return f"Merge({clauses}; execute() runs it)"

    def when_matched_update(
        self, columns: Sequence[str] | Mapping[str, Any] | None = None, where: Where | None = None
    ) -> Merge:
        """Set columns of the stored row.

        Args:
            columns: names of columns to set to the source's values; or a mapping of column name to a Python value, an
                Arrow scalar or a function. A text ``source.x`` or ``target.x`` means that column, and a text that
                looks like another expression is refused; an Arrow scalar is stored as it is. The function gets the
                matched pairs (a ``pa.RecordBatch`` with columns named ``source.x`` and ``target.x``, a part of the
                pairs at a time) and returns an Arrow array with one value per row. None sets every
                column that both sides have, except record key and partition columns.
            where: condition on the pairs; None selects all pairs that no earlier clause has selected.
        """
        return self._add_clause(Clause(Kind.UPDATE, where, columns))

    def when_matched_delete(self, where: Where | None = None) -> Merge:
        """Delete the stored row.

        Args:
            where: condition on the pairs; None selects all pairs that no earlier clause has selected.
        """
        return self._add_clause(Clause(Kind.DELETE, where))

    def when_not_matched_insert(self, where: Where | None = None) -> Merge:
        """Insert the source's row, with the columns that the table has.

        Args:
            where: condition on the source's columns; None inserts all unmatched rows.
        """
        return self._add_clause(Clause(Kind.INSERT, where))

    def execute(self) -> WriteResult:
        """Run the merge as one commit. The result's report counts the rows inserted, updated and deleted.

        Raises:
            InvalidInputError, SchemaMismatchError: if a clause or the source cannot be used. Nothing was published.
            WriteConflictError, LockTimeoutError: if another writer interfered. A retry is safe.
        """
        return self.run(self.clauses)

    def _add_clause(self, clause: Clause) -> Merge:
        return Merge(self.run, (*self.clauses, clause))


def bind_clauses(
    clauses: Sequence[Clause], source: pa.Schema, table: pa.Schema, config: TableConfig, time_zone: str = "UTC"
) -> tuple[BoundClause, ...]:
    """Check clauses against the columns of both sides, and return them ready to be applied.

    Args:
        source: the source's columns; those that the table also has have the table's types.
        table: the table's columns.
        time_zone: time zone of texts and naive times in conditions.

    Raises:
        InvalidInputError: if there is no clause, if a clause is never reached, or if a condition is invalid.
        SchemaMismatchError: if an update sets columns that do not exist or must not be set.
    """
    if not clauses:
        raise InvalidInputError("the merge has no clause; add when_matched_update(), when_matched_delete() or another")
    sides = {
        "source": reader_schema(source),
        "target": with_meta_columns(reader_schema(table)),
    }
    bound: list[BoundClause] = []
    unconditional: dict[bool, Kind] = {}
    for clause in clauses:
        inserts = clause.kind is Kind.INSERT
        if inserts in unconditional:
            raise InvalidInputError(
                f"{clause.kind.value} is never reached: {unconditional[inserts].value} before it has no condition; "
                "give that one a where, or put it last"
            )
        if clause.where is None:
            unconditional[inserts] = clause.kind
        visible = {"source": sides["source"]} if inserts else sides
        where = Always(True) if clause.where is None else _condition(clause.where, visible, sides, time_zone)
        assigned = _assignments(clause, source, table, config) if clause.kind is Kind.UPDATE else ()
        bound.append(BoundClause(clause.kind, where, assigned))
    return tuple(bound)


def columns_used(clauses: Collection[BoundClause], side: str, every: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of one side that the clauses use, in order. If a function may use any column, return all.

    Args:
        side: `SOURCE` or `TARGET`.
        every: all columns of that side.
    """
    names: set[str] = set()
    for clause in clauses:
        names |= columns_of(clause.where)
        for assignment in clause.assignments:
            if isinstance(assignment.value, _Column):
                names.add(assignment.value.name)
            elif callable(assignment.value):
                return tuple(every)
    return tuple(name for name in every if side + name in names)


def _assignments(clause: Clause, source: pa.Schema, table: pa.Schema, config: TableConfig) -> tuple[Assignment, ...]:
    columns, given = clause.columns, set(source.names)
    if isinstance(columns, Mapping):
        sides = {"source": source, "target": table}
        return plan_assignments(
            {name: _find_column(name, value, sides) for name, value in columns.items()}, table, config
        )
    if isinstance(columns, str):
        columns = [columns]
    if columns is None:
        fixed = {name.partition(".")[0] for name in (*config.record_fields, *config.partition_fields)}
        free = set(table.names).difference(fixed, {IS_DELETED})
        columns = [name for name in source.names if name in free]
        if not columns:
            raise SchemaMismatchError(
                "the source has no column to update with, only keys and partitions; name columns, or give "
                "{column: value}"
            )
    assignments: dict[str, Assignment] = {}
    for name in columns:
        column = find_settable(name, table, config)
        if column.name not in given:
            raise SchemaMismatchError(
                f"cannot update column {column.name!r}: the source has none of that name"
                f"{nearest(column.name, source.names)}; give {{column: value}}"
            )
        assignments[column.name] = Assignment(column, _Column(SOURCE + column.name))
    return tuple(assignments.values())


def _find_column(name: str, value: Any, sides: Mapping[str, pa.Schema]) -> Any:
    """Return the value that a column is set to. A text such as ``source.x`` means that column.

    Raises:
        InvalidInputError: a text names a column that does not exist, or looks like another expression.
    """
    if not isinstance(value, str):
        return value
    side, dot, column = (part.strip(" `") for part in value.partition("."))
    spellings = {of: _spelling(column, schema) for of, schema in sides.items()}
    if dot and (own := spellings.get(side.lower())):
        return _Column(f"{side.lower()}.{own}")
    if not (_EXPRESSION.search(value) or (dot and any(spellings.values()) and side.isidentifier())):
        return value
    raise InvalidInputError(
        f"column {name!r} is set to the text {value!r}, which reads like an expression; write source.column or "
        "target.column, or give a function of the rows; to store the text itself, give pyarrow.scalar(text)"
    )


def _condition(
    where: Where, visible: Mapping[str, pa.Schema], sides: Mapping[str, pa.Schema], time_zone: str
) -> Predicate:
    flat = pa.schema([
        pa.field(f"{side}.{column.name}", column.type) for side, schema in visible.items() for column in schema
    ])  # fmt: skip
    if isinstance(where, pc.Expression):
        return bind_expression(where, flat, lambda parts: _qualified_name(_split_side(parts, sides), visible, sides))
    if not isinstance(where, str):
        raise where_type_error(where)
    return bind(
        rename_columns(parse_where(where), lambda column: _qualified_name(column, visible, sides)), flat, zone=time_zone
    )


def _split_side(parts: tuple[str, ...], sides: Mapping[str, pa.Schema]) -> str:
    """Join the parts of a column path to one string. If the first part is like ``"source.x"``, it counts as two."""
    side, dot, name = parts[0].partition(".")
    return column_path([side, name, *parts[1:]] if dot and side.lower() in sides else parts)


def _qualified_name(column: str, visible: Mapping[str, pa.Schema], sides: Mapping[str, pa.Schema]) -> str:
    head, *rest = path_parts(column)
    is_named = {side: _has_column(schema, head) for side, schema in visible.items()}
    side = head.lower()
    if side in sides:
        if any(is_named.values()):
            raise InvalidInputError(
                f"{column!r} is ambiguous in a merge: {head!r} is also a column; rename the source's, or use a function"
            )
        if side not in visible:
            raise InvalidInputError(f"{column!r} cannot decide an insert: there is no stored row; use source columns")
        if not rest:
            raise InvalidInputError(f"{column!r} names no column; write {head}.column")
        parts = rest
    else:
        side, parts = "source", [head, *rest]
        if is_named.get("source") and is_named.get("target"):
            raise InvalidInputError(
                f"column {column!r} is ambiguous in a merge; write source.{column} or target.{column}"
            )
    if not _has_column(visible[side], parts[0]):
        hint = "; write target." + column if side not in column and is_named.get("target") else ""
        raise InvalidInputError(
            f"column {parts[0]!r} is not in the {side}{hint or nearest(parts[0], visible[side].names)}"
        )
    top, *inner = path_parts(resolve_column(column_path(parts), visible[side])[0])
    return column_path([f"{side}.{top}", *inner])


def _spelling(column: str, schema: pa.Schema) -> str | None:
    """Return the name of a column as the schema spells it; None if it has none of that name in any letter case."""
    position = schema.get_field_index(column)
    names = schema.names if position < 0 else [schema.names[position]]
    return next((name for name in names if name.lower() == column.lower()), None)


def _has_column(schema: pa.Schema, name: str) -> bool:
    return name.lower() in {known_name.lower() for known_name in schema.names}
