"""``update``, ``delete`` and ``merge`` as duckdb computes them: on a copy of the table's rows, which is then compared
with the rows as they were. What differs is what the statement has changed; it is merged by key.

duckdb numbers the rows of a table. A number stays with its row when the row is updated, unless a nested column is set:
such a row is deleted and inserted, and its key brings the two together again.

Memory: duckdb keeps the copy twice; what is too much for memory goes to a temporary folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.errors import InvalidInputError, SchemaMismatchError
from lakeformat.model.record import RECORD_KEY
from lakeformat.model.table_config import TableConfig
from lakeformat.sql_statements.duckdb_session import DuckDBSession, quoted
from lakeformat.write.statements.assign import fit_to_column
from lakeformat.write.statements.clauses import Clause, Kind
from lakeformat.write.statements.merge_into import STORED_KEY

__all__ = ["Changes", "Copy", "copy_rows", "find_changes", "fitted_rows", "run_change"]

_DOES: Final = "lakeformat_does"
_DELETED, _UPDATED, _INSERTED = 0, 1, 2
_ROW: Final = "lakeformat_row"
_COUNT: Final = "lakeformat_count"
_STORED: Final = "lakeformat.stored"
_GONE: Final = "lakeformat.gone"
_FRESH: Final = "lakeformat.fresh"
_PAIRED: Final = "lakeformat.paired"
_CHANGED: Final = "lakeformat.changed"
_MOST_MICROS: Final = 2**63 - 1
_MOST_DAYS: Final = 2**31 - 1


@dataclass(frozen=True)
class Copy:
    """The copy of a table in duckdb, and the rows as they were beside it.

    Attributes:
        name: the copy's, quoted.
        columns: those that it has.
        fixed: columns of the record key and of the partition path.
        key: those of `fixed` that identify a row; none in a table without a record key, where generated keys do.
        rows: how many there are.
    """

    session: DuckDBSession
    name: str
    columns: pa.Schema
    fixed: tuple[str, ...]
    key: tuple[str, ...]
    rows: int

    @property
    def old_names(self) -> list[str]:
        """Names for the columns as they were."""
        return [f"lakeformat_was_{at}" for at in range(len(self.columns))]

    @property
    def stored_key(self) -> list[str]:
        """The name of the generated key, in tables without a record key."""
        return [] if self.key else [STORED_KEY]


@dataclass(frozen=True)
class Changes:
    """The rows that change, and the clauses of a merge by key that do to them what the statement did."""

    rows: pa.RecordBatchReader
    clauses: tuple[Clause, ...]


def copy_rows(
    session: DuckDBSession, name: str, rows: str, columns: pa.Schema, config: TableConfig, *, anywhere: bool
) -> Copy:
    """Copy the rows that duckdb knows by a name; without a record key `RECORD_KEY` is among their columns.

    Args:
        name: of the copy.
        anywhere: a key alone identifies a row, whatever its partition.

    Raises:
        InvalidInputError: two columns differ by the case of their letters alone, or the names of the copy's own
            columns are those of the table's.
    """
    _check_names(columns)
    record = {field.partition(".")[0] for field in config.record_fields}
    partitions = {field.partition(".")[0] for field in config.partition_fields}
    fixed = tuple(each for each in columns.names if each in record | partitions)
    identity = tuple(each for each in fixed if each in record or not anywhere) if record else ()
    copied = quoted(name)
    chosen = [*columns.names, *([] if record else [RECORD_KEY])]
    session.run(f"create table {copied} as select {', '.join(map(quoted, chosen))} from {rows}")
    session.run("create schema lakeformat")
    session.run(f"create table {_STORED} as select rowid as {_ROW}, * from {copied}")
    if not record:
        session.run(f"alter table {copied} drop column {quoted(RECORD_KEY)}")
    return Copy(session, copied, columns, fixed, identity, session.number(f"select count(*) from {_STORED}"))


def _check_names(columns: pa.Schema) -> None:
    seen: dict[str, str] = {}
    for name in columns.names:
        if name.lower() == "rowid" or name.lower().startswith("lakeformat_"):
            raise InvalidInputError(
                f"column {name!r} has a name that duckdb or lakeformat uses for row numbers; "
                "use the verbs of lakeformat.Table"
            )
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise InvalidInputError(
                f"columns {other!r} and {name!r} differ by the case of their letters alone, which duckdb does not "
                "tell apart; use the verbs of lakeformat.Table"
            )


def run_change(copy: Copy, text: str, *, matches: str | None) -> None:
    """Run the statement on the copy, in a transaction: until it ends, the rows keep their numbers.

    Args:
        matches: the verb, of a statement that brings rows of the table and of a source together; else None.

    Raises:
        InvalidInputError: it cannot be computed, or changes a row more than once: which of the changes is it to be?
    """
    session = copy.session
    session.run("begin")
    if not copy.key or matches is None:
        session.run(text)
        return
    count = None
    if any(pa.types.is_nested(field.type) for field in copy.columns):  # duckdb returns a row of theirs once.
        count = session.count(text)
        session.run("rollback")
        session.run("begin")
    keys = ", ".join(map(quoted, copy.key))
    action = "merge_action" if matches == "merge" else "'UPDATE'"
    answer = session.rows(f"{text}\nreturning {action} as lakeformat_action, {keys}")
    session.give("lakeformat_answer", answer)
    doubled = session.rows(
        f"select {keys} from lakeformat_answer group by {keys} "
        "having count(*) > 1 and bool_or(lakeformat_action <> 'DELETE') limit 1"
    )
    if doubled.num_rows or count not in {None, answer.num_rows}:
        if doubled.num_rows:
            _check_stored_once(copy, "lakeformat_answer")
        which = f", {_shown(doubled)}," if doubled.num_rows else ""
        raise InvalidInputError(
            f"the statement changes a row{which} more than once; match each row with one row of the source"
        )


def find_changes(copy: Copy, does: str) -> Changes:
    """Compare the copy with the rows as they were.

    Args:
        does: the statement's verb.

    Raises:
        SchemaMismatchError: a column of the key or of the partition path was set.
        InvalidInputError: a key that is there already was inserted, or the table has a changed row's key twice.
    """
    session = copy.session
    session.run("set TimeZone = 'UTC'")
    _compare(copy, does)
    found = set(session.rows(f"select distinct {_DOES} from {_CHANGED}").column(0).to_pylist())
    if does == "update" and copy.key and found - {_UPDATED}:
        raise _set_key(copy.fixed)
    _check_keys(copy)
    set_here = _set_columns(copy) if _UPDATED in found else ()
    if moved := [name for name in set_here if name in copy.fixed]:
        raise _set_key(moved)
    columns = copy.columns
    if found <= {_DELETED}:
        columns = pa.schema([field for field in columns if field.name in copy.fixed])
    names = [_DOES, *copy.stored_key, *columns.names]
    that = "true" if set_here else f"{_DOES} <> {_UPDATED}"
    rows = session.stream(f"select {', '.join(map(quoted, names))} from {_CHANGED} where {that}")
    schema = pa.schema([(_DOES, pa.int32()), *((name, pa.string()) for name in copy.stored_key), *columns])
    return Changes(fitted_rows(rows, schema), _clauses(found, set_here))


def _compare(copy: Copy, does: str) -> None:
    """Make the table of changed rows: what becomes of each, its number, its columns now, and as they were."""
    names, run = list(map(quoted, copy.columns.names)), copy.session.run
    old, now = (", ".join(f"{side}.{name}" for name in names) for side in "st")
    key = "" if copy.key else f", s.{quoted(RECORD_KEY)} as {STORED_KEY}"
    new = f", concat('{uuid4().int}_0_', t.rowid) as {STORED_KEY}"  # Looks as keys that writes generate.
    run(
        f"create table {_GONE} as select {_ROW}, {old}{key} from {_STORED} s "
        f"anti join {copy.name} t on t.rowid = s.{_ROW}"
    )
    run(
        f"create table {_FRESH} as select t.rowid as {_ROW}, {now}{'' if copy.key else new} from {copy.name} t "
        f"where t.rowid >= {copy.rows}"
    )
    was = [f"s.{name} as {was}" for name, was in zip(names, copy.old_names, strict=True)]
    pairs = zip(names, copy.columns, strict=True)
    differs = " or ".join(_differs(f"s.{name}", f"t.{name}", field.type) for name, field in pairs)
    run(
        f"create table {_CHANGED} as select {_UPDATED} as {_DOES}, {', '.join([f'{_ROW}, {now}{key}', *was])} "
        f"from {_STORED} s join {copy.name} t on t.rowid = s.{_ROW} where {'false' if does == 'delete' else differs}"
    )
    _pair(copy)
    for rows, code in ((_GONE, _DELETED), (_FRESH, _INSERTED)):
        run(f"insert into {_CHANGED} by name select {code} as {_DOES}, * from {rows}")


def _pair(copy: Copy) -> None:
    """Bring deleted and inserted rows of one key together, as updates."""
    session = copy.session
    counts = f"select (select count(*) from {_GONE}) * (select count(*) from {_FRESH})"
    if not copy.key or not session.number(counts):
        return
    same = _same(copy.key, "g", "f")
    session.run(
        f"create table {_PAIRED} as select g.{_ROW} as g, f.{_ROW} as f from {_GONE} g join {_FRESH} f on {same}"
    )
    before = [f"g.{quoted(name)} as {was}" for name, was in zip(copy.columns.names, copy.old_names, strict=True)]
    session.run(
        f"insert into {_CHANGED} by name select {_UPDATED} as {_DOES}, {', '.join(['f.*', *before])} "
        f"from {_PAIRED} p join {_GONE} g on g.{_ROW} = p.g join {_FRESH} f on f.{_ROW} = p.f"
    )
    session.run(f"delete from {_GONE} where {_ROW} in (select g from {_PAIRED})")
    session.run(f"delete from {_FRESH} where {_ROW} in (select f from {_PAIRED})")


def _same(key: Sequence[str], left: str, right: str) -> str:
    return " and ".join(f"{left}.{quoted(name)} is not distinct from {right}.{quoted(name)}" for name in key)


def _differs(old: str, new: str, kind: pa.DataType) -> str:
    """Write the condition that a value is another one; -0.0 is another than 0.0."""
    plain = f"{old} is distinct from {new}"
    if pa.types.is_floating(kind):
        return f"({plain} or coalesce(signbit({old}) <> signbit({new}), false))"
    if pa.types.is_nested(kind):
        return f"({plain} or cast({old} as varchar) is distinct from cast({new} as varchar))"
    return f"({plain})"


def _set_columns(copy: Copy) -> tuple[str, ...]:
    """Return the columns that an updated row has another value in."""
    tests = [
        f"coalesce(bool_or({_differs(was, quoted(field.name), field.type)}), false)"
        for was, field in zip(copy.old_names, copy.columns, strict=True)
    ]
    found = copy.session.rows(f"select {', '.join(tests)} from {_CHANGED} where {_DOES} = {_UPDATED}")
    return tuple(name for name, column in zip(copy.columns.names, found.columns, strict=True) if column[0].as_py())


def _check_stored_once(copy: Copy, changed: str) -> None:
    """Check that the table had each of the changed keys once.

    Args:
        changed: a table in duckdb that has the columns of the key.
    """
    keys, same = ", ".join(map(quoted, copy.key)), _same(copy.key, "s", "c")
    twice = copy.session.rows(
        f"select {keys} from (select {keys} from {_STORED} s semi join {changed} c on {same}) "
        f"group by {keys} having count(*) > 1 limit 1"
    )
    if twice.num_rows:
        raise InvalidInputError(
            f"the table has the key {_shown(twice)} more than once, and the statement changes a row of it; keep one "
            "row of each key first (lakeformat dedupe), or delete that key and upsert the row that is right"
        )


def _check_keys(copy: Copy) -> None:
    """Check that each changed row is the only one of its key, before the statement and after it."""
    if not copy.key:
        return
    _check_stored_once(copy, _CHANGED)
    keys, session = ", ".join(map(quoted, copy.key)), copy.session
    same = _same(copy.key, "s", "c")
    new = f"(select {keys} from {_CHANGED} where {_DOES} = {_INSERTED})"
    again = session.rows(
        f"select {keys} from {new} c semi join {_STORED} s on {same} union all "
        f"select {keys} from {new} group by {keys} having count(*) > 1 limit 1"
    )
    if again.num_rows:
        raise InvalidInputError(
            f"the statement inserts a row with the key {_shown(again)}, which another row has; match that row, or "
            "leave this one out"
        )


def _shown(rows: pa.Table) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in rows.slice(0, 1).to_pylist()[0].items())


def _set_key(names: Sequence[str]) -> SchemaMismatchError:
    said = ", ".join(map(repr, names))
    return SchemaMismatchError(f"column {said} says where a row lies and cannot be set; delete, then insert")


def fitted_rows(rows: pa.RecordBatchReader, schema: pa.Schema) -> pa.RecordBatchReader:
    """Give the rows the table's types; a value that does not fit is refused by name.

    Raises:
        SchemaMismatchError: while the rows are read.
    """
    optional = [field.with_nullable(True) for field in schema]
    batches = (
        pa.RecordBatch.from_arrays(list(map(_finite, batch.columns, optional)), schema=pa.schema(optional))
        for batch in rows
    )
    return pa.RecordBatchReader.from_batches(pa.schema(optional), batches)


def _finite(values: pa.Array, field: pa.Field) -> pa.Array:
    """Fit values to a column. The infinite dates and times of duckdb are refused: nothing else knows them."""
    if any(pc.any(pc.equal(pc.abs(numbers), most)).as_py() for numbers, most in _temporal(values)):
        raise SchemaMismatchError(
            f"column {field.name!r} would hold 'infinity', a date or time that only duckdb knows; set it to null or to "
            "another one"
        )
    return fit_to_column(values, field)


def _temporal(values: pa.Array) -> Iterator[tuple[pa.Array, int]]:
    """Return the dates and times within an array as numbers, and which of these duckdb takes for infinity."""
    kind = values.type
    if pa.types.is_struct(kind):
        for part in values.flatten():
            yield from _temporal(part)
    elif pa.types.is_map(kind):
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        yield from _temporal(values.items.slice(first, last - first))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _temporal(values.flatten())
    elif pa.types.is_timestamp(kind):
        yield values.cast(pa.int64()), _MOST_MICROS
    elif pa.types.is_date32(kind):
        yield values.cast(pa.int32()), _MOST_DAYS


def _clauses(found: set[int], set_here: Sequence[str]) -> tuple[Clause, ...]:
    does = pc.field("source", _DOES)
    clauses = [Clause(Kind.DELETE, does == _DELETED)]
    if set_here:
        clauses.append(Clause(Kind.UPDATE, does == _UPDATED, list(set_here)))
    if _INSERTED in found:
        clauses.append(Clause(Kind.INSERT, pc.field(_DOES) == _INSERTED))
    return tuple(clauses)
