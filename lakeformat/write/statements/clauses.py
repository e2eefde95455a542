"""The clauses of a merge: as they are said and built, and held against the source's and the table's columns."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.conform import read_schema
from lakeformat.config.other_names import unknown_clause
from lakeformat.errors import InvalidInputError, SchemaMismatchError, nearest
from lakeformat.model.record import IS_DELETED, META_COLUMNS
from lakeformat.model.table_config import TableConfig
from lakeformat.predicate import (
    Always,
    And,
    ColumnComparison,
    Computed,
    Not,
    Or,
    Predicate,
    Where,
    bind,
    bind_expression,
    column_path,
    columns_of,
    parse_where,
    path_parts,
    refused_where,
    resolve,
)
from lakeformat.transaction.result import WriteResult
from lakeformat.write.statements.assign import Assignment, plan_assignments, settable

__all__ = ["SOURCE", "TARGET", "BoundClause", "Clause", "Kind", "Merge", "bind_clauses", "looked_at"]

#: How the columns of the two sides are named where both are at hand.
SOURCE: Final = "source."
TARGET: Final = "target."


class Kind(enum.Enum):
    """What a clause does."""

    UPDATE = "when_matched_update"
    DELETE = "when_matched_delete"
    INSERT = "when_not_matched_insert"


@dataclass(frozen=True)
class Clause:
    """One clause as it is said. ``columns``: of an update, see `lakeformat.Merge`."""

    kind: Kind
    where: Where | None = None
    columns: Sequence[str] | Mapping[str, Any] | None = None


@dataclass(frozen=True)
class BoundClause:
    """One clause, ready to be applied to rows whose columns are ``source.x`` and ``target.x``."""

    kind: Kind
    where: Predicate
    assignments: tuple[Assignment, ...] = ()


@dataclass(frozen=True)
class _FromSource:
    """A column of the source, as a function of the pairs."""

    column: str

    def __call__(self, rows: pa.RecordBatch) -> pa.Array:
        return rows.column(SOURCE + self.column)


@dataclass(frozen=True, repr=False)
class Merge:
    """A merge on its way: add clauses, then `execute`. Each call gives a new value.

    A row of the source is matched if the table holds its record key, in its partition unless the index is global.
    Conditions are Spark SQL, or ``pyarrow.compute`` expressions, over ``source.x`` and ``target.x`` (the stored row),
    which may be compared with each other; a bare ``x`` is the source's, and refused where both have it. The first
    clause whose condition is true decides; where it is null or false, the next one is asked. Rows that no clause takes
    stay as they are, or are not inserted.

    The clauses decide alone: the event-time rule does not come in. Where older rows should lose, say so:
    ``when_matched_update(where="source.ts >= target.ts")``.
    """

    run: Callable[[tuple[Clause, ...]], WriteResult] = field(repr=False)
    clauses: tuple[Clause, ...] = ()

    if not TYPE_CHECKING:  # To type checkers an unknown name stays unknown.

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(unknown_clause(name, [known for known in dir(type(self)) if known[0] != "_"]))

    def __repr__(self) -> str:
        said = ", ".join(clause.kind.value for clause in self.clauses) or "no clause yet"
        return f"Merge({said}; execute() runs it)"

    def when_matched_update(
        self, columns: Sequence[str] | Mapping[str, Any] | None = None, where: Where | None = None
    ) -> Merge:
        """Set columns of the stored row.

        Args:
            columns: names of columns to take from the source; or column -> a Python value, an Arrow scalar or a
                function that is given the matched pairs (a ``pa.RecordBatch`` with columns named ``source.x`` and
                ``target.x``, a part of them at a time) and returns an Arrow array with one value a row. None takes
                every column that both sides have, but record key and partition columns.
            where: on which pairs; None is all that are left.
        """
        return self._with(Clause(Kind.UPDATE, where, columns))

    def when_matched_delete(self, where: Where | None = None) -> Merge:
        """Delete the stored row. ``where``: on which pairs; None is all that are left."""
        return self._with(Clause(Kind.DELETE, where))

    def when_not_matched_insert(self, where: Where | None = None) -> Merge:
        """Insert the source's row, the columns that the table has.

        Args:
            where: which rows, by source columns; None is all.
        """
        return self._with(Clause(Kind.INSERT, where))

    def execute(self) -> WriteResult:
        """Run it, as one commit; the report tells the rows inserted, updated and deleted.

        Raises:
            InvalidInputError, SchemaMismatchError: a clause or the source cannot be used; nothing was published.
            WriteConflictError, LockTimeoutError: another writer was in the way; a retry is safe.
        """
        return self.run(self.clauses)

    def _with(self, clause: Clause) -> Merge:
        return Merge(self.run, (*self.clauses, clause))


def bind_clauses(
    clauses: Sequence[Clause], source: pa.Schema, table: pa.Schema, config: TableConfig, time_zone: str = "UTC"
) -> tuple[BoundClause, ...]:
    """Check clauses against both sides.

    Args:
        source: the source's columns, those of the table's names with the table's types.
        table: the table's columns.
        time_zone: of texts and naive times in conditions.

    Raises:
        InvalidInputError: no clause at all, one that is never reached, or a condition that cannot be answered.
        SchemaMismatchError: an update of columns that cannot be set or are not there.
    """
    if not clauses:
        raise InvalidInputError("the merge has no clause; add when_matched_update(), when_matched_delete() or another")
    sides = {
        "source": read_schema(source),
        "target": pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *read_schema(table)]),
    }
    bound: list[BoundClause] = []
    closed: dict[bool, Kind] = {}
    for clause in clauses:
        inserts = clause.kind is Kind.INSERT
        if inserts in closed:
            raise InvalidInputError(
                f"{clause.kind.value} is never reached: {closed[inserts].value} before it has no condition; give that "
                "one a where, or put it last"
            )
        if clause.where is None:
            closed[inserts] = clause.kind
        seen = {"source": sides["source"]} if inserts else sides
        where = Always(True) if clause.where is None else _condition(clause.where, seen, sides, time_zone)
        assigned = _assignments(clause, source, table, config) if clause.kind is Kind.UPDATE else ()
        bound.append(BoundClause(clause.kind, where, assigned))
    return tuple(bound)


def looked_at(clauses: Collection[BoundClause], side: str, every: Sequence[str]) -> tuple[str, ...]:
    """Columns of one side that the clauses look at, in order; all of them where a function may look at any.

    Args:
        side: `SOURCE` or `TARGET`.
        every: the side's columns.
    """
    names: set[str] = set()
    for clause in clauses:
        names |= columns_of(clause.where)
        for each in clause.assignments:
            if isinstance(each.value, _FromSource):
                names.add(SOURCE + each.value.column)
            elif callable(each.value):
                return tuple(every)
    return tuple(name for name in every if side + name in names)


def _assignments(clause: Clause, source: pa.Schema, table: pa.Schema, config: TableConfig) -> tuple[Assignment, ...]:
    columns, given = clause.columns, set(source.names)
    if isinstance(columns, Mapping):
        return plan_assignments(columns, table, config)
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
    found: dict[str, Assignment] = {}
    for name in columns:
        column = settable(name, table, config)
        if column.name not in given:
            raise SchemaMismatchError(
                f"cannot update column {column.name!r}: the source has none of that name"
                f"{nearest(column.name, source.names)}; give {{column: value}}"
            )
        found[column.name] = Assignment(column, _FromSource(column.name))
    return tuple(found.values())


def _condition(
    where: Where, seen: Mapping[str, pa.Schema], sides: Mapping[str, pa.Schema], time_zone: str
) -> Predicate:
    flat = pa.schema([
        pa.field(f"{side}.{column.name}", column.type) for side, schema in seen.items() for column in schema
    ])  # fmt: skip
    if isinstance(where, pc.Expression):
        return bind_expression(where, flat, lambda parts: _column(_by_side(parts, sides), seen, sides))
    if not isinstance(where, str):
        raise refused_where(where)
    return bind(_scoped(parse_where(where, two_columns=True), seen, sides), flat, zone=time_zone)


def _by_side(parts: tuple[str, ...], sides: Mapping[str, pa.Schema]) -> str:
    """``pc.field("source.x")`` means what ``pc.field("source", "x")`` does."""
    side, dot, name = parts[0].partition(".")
    return column_path([side, name, *parts[1:]] if dot and side.lower() in sides else parts)


def _scoped(predicate: Predicate, seen: Mapping[str, pa.Schema], sides: Mapping[str, pa.Schema]) -> Predicate:
    """The same condition over columns named by side."""
    match predicate:
        case And(operands) | Or(operands):
            return type(predicate)(tuple(_scoped(operand, seen, sides) for operand in operands))
        case Not(operand):
            return Not(_scoped(operand, seen, sides))
        case Always() | Computed():
            return predicate
        case ColumnComparison(left, op, right):
            return ColumnComparison(_column(left, seen, sides), op, _column(right, seen, sides))
        case leaf:
            return replace(leaf, column=_column(leaf.column, seen, sides))


def _column(column: str, seen: Mapping[str, pa.Schema], sides: Mapping[str, pa.Schema]) -> str:
    head, *rest = path_parts(column)
    is_named = {side: _has(schema, head) for side, schema in seen.items()}
    side = head.lower()
    if side in sides:
        if any(is_named.values()):
            raise InvalidInputError(
                f"{column!r} is ambiguous in a merge: {head!r} is a column, too; rename the source's, or use a function"
            )
        if side not in seen:
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
    if not _has(seen[side], parts[0]):
        hint = "; write target." + column if side not in column and is_named.get("target") else ""
        raise InvalidInputError(
            f"column {parts[0]!r} is not in the {side}{hint or nearest(parts[0], seen[side].names)}"
        )
    top, *inner = path_parts(resolve(column_path(parts), seen[side])[0])
    return column_path([f"{side}.{top}", *inner])


def _has(schema: pa.Schema, name: str) -> bool:
    return name.lower() in {known.lower() for known in schema.names}
