"""Running of ``update``, ``delete`` and ``merge`` with duckdb.

duckdb runs the statement on a copy of the table's rows. The copy is then compared with the old rows, and the rows that
differ are merged into the lakeformat table by key. Old and new rows are matched by duckdb's row numbers. A row keeps
its number when it is updated, except if a nested column is set: then duckdb deletes the row and inserts a new one, and
the two are matched by key.

Memory: two copies of the rows in duckdb. Data that does not fit into memory goes to a temporary folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind as ArrowKind
from lakeformat.arrow.kinds import kind_of
from lakeformat.errors import InvalidInputError, SchemaMismatchError
from lakeformat.model.record import RECORD_KEY
from lakeformat.model.table_config import TableConfig
from lakeformat.sql_statements.duckdb_session import DuckDBSession, quote_name
from lakeformat.write.statements.assign import fit_to_column
from lakeformat.write.statements.clauses import Clause, Kind
from lakeformat.write.statements.merge_into import STORED_KEY

__all__ = ["Changes", "TableCopy", "find_changes", "fit_rows", "make_copy", "run_change"]

_ACTION: Final = "lakeformat_does"
_DELETED, _UPDATED, _INSERTED = 0, 1, 2
_ROW: Final = "lakeformat_row"
_COUNT: Final = "lakeformat_count"
_STORED: Final = "lakeformat.stored"
_DELETED_ROWS: Final = "lakeformat.gone"
_NEW_ROWS: Final = "lakeformat.fresh"
_PAIRED: Final = "lakeformat.paired"
_CHANGED: Final = "lakeformat.changed"
_MOST_MICROS: Final = 2**63 - 1
_MOST_DAYS: Final = 2**31 - 1


@dataclass(frozen=True)
class TableCopy:
    """A copy of a table's rows in duckdb, on which a statement runs. The old rows are in another duckdb table.

    Attributes:
        name: quoted name of the copy in duckdb.
        columns: the columns of the copy.
        session: the duckdb connection.
        fixed: names of the columns of the record key and of the partition path, which a statement must not set.
        key: names of the columns in ``fixed`` that identify a row; empty for a table without a record key, whose rows
            are identified by generated keys.
        rows: number of rows before the statement.
    """

    session: DuckDBSession
    name: str
    columns: pa.Schema
    fixed: tuple[str, ...]
    key: tuple[str, ...]
    rows: int

    @property
    def old_names(self) -> list[str]:
        """Return for each column the name under which the duckdb table of changed rows has its old value."""
        return [f"lakeformat_was_{number}" for number in range(len(self.columns))]

    @property
    def stored_key(self) -> list[str]:
        """Return the name of the column of generated keys, in a list; [] if the table has a record key."""
        return [] if self.key else [STORED_KEY]


@dataclass(frozen=True)
class Changes:
    """The changed rows, and the clauses of a merge by key that change the lakeformat table as the statement does."""

    rows: pa.RecordBatchReader
    clauses: tuple[Clause, ...]


def make_copy(
    session: DuckDBSession, name: str, rows: str, columns: pa.Schema, config: TableConfig, *, is_global: bool
) -> TableCopy:
    """Copy a table's rows into duckdb for the statement, and a second time to keep the old rows.

    Args:
        name: name of the copy in duckdb.
        rows: name under which the rows are registered in duckdb. If the table has no record key, `RECORD_KEY` must be
            one of their columns.
        columns: the columns to copy.
        is_global: whether the record key identifies a row in the whole table, not only in its partition.

    Raises:
        InvalidInputError: if two columns differ only in letter case, or if a column has a name that the copy needs.
    """
    _check_names(columns)
    record = {field.partition(".")[0] for field in config.record_fields}
    partitions = {field.partition(".")[0] for field in config.partition_fields}
    fixed = tuple(name for name in columns.names if name in record | partitions)
    identity = tuple(name for name in fixed if name in record or not is_global) if record else ()
    copy_name = quote_name(name)
    chosen = [*columns.names, *([] if record else [RECORD_KEY])]
    session.run(f"create table {copy_name} as select {', '.join(map(quote_name, chosen))} from {rows}")
    session.run("create schema lakeformat")
    session.run(f"create table {_STORED} as select rowid as {_ROW}, * from {copy_name}")
    if not record:
        session.run(f"alter table {copy_name} drop column {quote_name(RECORD_KEY)}")
    return TableCopy(
        session, copy_name, columns, fixed, identity, session.read_number(f"select count(*) from {_STORED}")
    )


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


def run_change(copy: TableCopy, text: str, *, match_verb: str | None) -> None:
    """Run the statement on the copy. Its transaction stays open, because rows keep their numbers only until its end.

    Args:
        match_verb: the verb of a statement that matches rows of the table with those of a source; None for others.

    Raises:
        InvalidInputError: if the statement cannot be computed, or if it changes a row more than once, so that its
            result is ambiguous.
    """
    session = copy.session
    session.run("begin")
    if not copy.key or match_verb is None:
        session.run(text)
        return
    count = None
    # If a column is nested, ``returning`` lists a row only once, even if the statement changes it twice. Therefore the
    # statement first runs without ``returning``, which counts every change, and is rolled back. If this count differs
    # from the number of rows that ``returning`` lists, the statement changes a row twice.
    if any(kind_of(field.type).is_nested for field in copy.columns):
        count = session.run_and_count(text)
        session.run("rollback")
        session.run("begin")
    keys = ", ".join(map(quote_name, copy.key))
    action = "merge_action" if match_verb == "merge" else "'UPDATE'"
    answer = session.read_all(f"{text}\nreturning {action} as lakeformat_action, {keys}")
    session.register("lakeformat_answer", answer)
    repeated = session.read_all(
        f"select {keys} from lakeformat_answer group by {keys} "
        "having count(*) > 1 and bool_or(lakeformat_action <> 'DELETE') limit 1"
    )
    if repeated.num_rows or count not in {None, answer.num_rows}:
        if repeated.num_rows:
            _check_stored_once(copy, "lakeformat_answer")
        which = f", {_quote_row(repeated)}," if repeated.num_rows else ""
        raise InvalidInputError(
            f"the statement changes a row{which} more than once; match each row with one row of the source"
        )


def find_changes(copy: TableCopy, verb: str) -> Changes:
    """Compare the copy with the old rows. Return the changed rows, and the clauses of a merge that applies them.

    Args:
        verb: ``update``, ``delete`` or ``merge``.

    Raises:
        SchemaMismatchError: if a column of the key or of the partition path was set.
        InvalidInputError: if a key that exists was inserted, or if the table has several rows with a changed row's key.
    """
    session = copy.session
    session.run("set TimeZone = 'UTC'")
    _make_changed_table(copy, verb)
    actions = set(session.read_all(f"select distinct {_ACTION} from {_CHANGED}").column(0).to_pylist())
    if verb == "update" and copy.key and actions - {_UPDATED}:
        raise _key_set_error(copy.fixed)
    _check_keys(copy)
    updated_columns = _updated_columns(copy) if _UPDATED in actions else ()
    if moved := [name for name in updated_columns if name in copy.fixed]:
        raise _key_set_error(moved)
    columns = copy.columns
    if actions <= {_DELETED}:
        columns = pa.schema([field for field in columns if field.name in copy.fixed])
    names = [_ACTION, *copy.stored_key, *columns.names]
    condition = "true" if updated_columns else f"{_ACTION} <> {_UPDATED}"
    rows = session.stream(f"select {', '.join(map(quote_name, names))} from {_CHANGED} where {condition}")
    schema = pa.schema([(_ACTION, pa.int32()), *((name, pa.string()) for name in copy.stored_key), *columns])
    return Changes(fit_rows(rows, schema), _make_clauses(actions, updated_columns))


def _make_changed_table(copy: TableCopy, verb: str) -> None:
    """Create the duckdb table of changed rows, whose columns are action, row number, new values and old values."""
    names, run = list(map(quote_name, copy.columns.names)), copy.session.run
    old, now = (", ".join(f"{side}.{name}" for name in names) for side in "st")
    key = "" if copy.key else f", s.{quote_name(RECORD_KEY)} as {STORED_KEY}"
    # The generated keys of new rows have the same form as the keys that lakeformat's writes generate.
    new = f", concat('{uuid4().int}_0_', t.rowid) as {STORED_KEY}"
    run(
        f"create table {_DELETED_ROWS} as select {_ROW}, {old}{key} from {_STORED} s "
        f"anti join {copy.name} t on t.rowid = s.{_ROW}"
    )
    run(
        f"create table {_NEW_ROWS} as select t.rowid as {_ROW}, {now}{'' if copy.key else new} from {copy.name} t "
        f"where t.rowid >= {copy.rows}"
    )
    was = [f"s.{name} as {was}" for name, was in zip(names, copy.old_names, strict=True)]
    pairs = zip(names, copy.columns, strict=True)
    differs = " or ".join(_differs_condition(f"s.{name}", f"t.{name}", field.type) for name, field in pairs)
    run(
        f"create table {_CHANGED} as select {_UPDATED} as {_ACTION}, {', '.join([f'{_ROW}, {now}{key}', *was])} "
        f"from {_STORED} s join {copy.name} t on t.rowid = s.{_ROW} where {'false' if verb == 'delete' else differs}"
    )
    _pair_by_key(copy)
    for rows, code in ((_DELETED_ROWS, _DELETED), (_NEW_ROWS, _INSERTED)):
        run(f"insert into {_CHANGED} by name select {code} as {_ACTION}, * from {rows}")


def _pair_by_key(copy: TableCopy) -> None:
    """Replace each pair of a deleted and an inserted row with the same key by one updated row."""
    session = copy.session
    counts = f"select (select count(*) from {_DELETED_ROWS}) * (select count(*) from {_NEW_ROWS})"
    if not copy.key or not session.read_number(counts):
        return
    same = _same_key_condition(copy.key, "g", "f")
    session.run(
        f"create table {_PAIRED} as select g.{_ROW} as g, f.{_ROW} as f "
        f"from {_DELETED_ROWS} g join {_NEW_ROWS} f on {same}"
    )
    before = [f"g.{quote_name(name)} as {was}" for name, was in zip(copy.columns.names, copy.old_names, strict=True)]
    session.run(
        f"insert into {_CHANGED} by name select {_UPDATED} as {_ACTION}, {', '.join(['f.*', *before])} "
        f"from {_PAIRED} p join {_DELETED_ROWS} g on g.{_ROW} = p.g join {_NEW_ROWS} f on f.{_ROW} = p.f"
    )
    session.run(f"delete from {_DELETED_ROWS} where {_ROW} in (select g from {_PAIRED})")
    session.run(f"delete from {_NEW_ROWS} where {_ROW} in (select f from {_PAIRED})")


def _same_key_condition(key: Sequence[str], left: str, right: str) -> str:
    return " and ".join(f"{left}.{quote_name(name)} is not distinct from {right}.{quote_name(name)}" for name in key)


def _differs_condition(old: str, new: str, kind: pa.DataType) -> str:
    """Return a SQL condition that is true if a value has changed. -0.0 counts as different from 0.0."""
    plain = f"{old} is distinct from {new}"
    if kind_of(kind) is ArrowKind.FLOAT:
        return f"({plain} or coalesce(signbit({old}) <> signbit({new}), false))"
    if kind_of(kind).is_nested:
        return f"({plain} or cast({old} as varchar) is distinct from cast({new} as varchar))"
    return f"({plain})"


def _updated_columns(copy: TableCopy) -> tuple[str, ...]:
    """Return the names of the columns in which any updated row has a new value."""
    tests = [
        f"coalesce(bool_or({_differs_condition(was, quote_name(field.name), field.type)}), false)"
        for was, field in zip(copy.old_names, copy.columns, strict=True)
    ]
    changed_flags = copy.session.read_all(f"select {', '.join(tests)} from {_CHANGED} where {_ACTION} = {_UPDATED}")
    return tuple(
        name for name, column in zip(copy.columns.names, changed_flags.columns, strict=True) if column[0].as_py()
    )


def _check_stored_once(copy: TableCopy, changed: str) -> None:
    """Raise an error if, before the statement, the table had several rows with the key of a changed row.

    Args:
        changed: name of a duckdb table with the changed keys.
    """
    keys, same = ", ".join(map(quote_name, copy.key)), _same_key_condition(copy.key, "s", "c")
    twice = copy.session.read_all(
        f"select {keys} from (select {keys} from {_STORED} s semi join {changed} c on {same}) "
        f"group by {keys} having count(*) > 1 limit 1"
    )
    if twice.num_rows:
        raise InvalidInputError(
            f"the table has the key {_quote_row(twice)} more than once, and the statement changes a row of it; keep "
            "one row of each key first (lakeformat dedupe), or delete that key and upsert the row that is right"
        )


def _check_keys(copy: TableCopy) -> None:
    """Raise an error if several old rows have a changed row's key, or if an inserted row's key is not new."""
    if not copy.key:
        return
    _check_stored_once(copy, _CHANGED)
    keys, session = ", ".join(map(quote_name, copy.key)), copy.session
    same = _same_key_condition(copy.key, "s", "c")
    new = f"(select {keys} from {_CHANGED} where {_ACTION} = {_INSERTED})"
    again = session.read_all(
        f"select {keys} from {new} c semi join {_STORED} s on {same} union all "
        f"select {keys} from {new} group by {keys} having count(*) > 1 limit 1"
    )
    if again.num_rows:
        raise InvalidInputError(
            f"the statement inserts a row with the key {_quote_row(again)}, which another row has; match that row, or "
            "leave this one out"
        )


def _quote_row(rows: pa.Table) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in rows.slice(0, 1).to_pylist()[0].items())


def _key_set_error(names: Sequence[str]) -> SchemaMismatchError:
    columns = ", ".join(map(repr, names))
    return SchemaMismatchError(f"column {columns} says where a row lies and cannot be set; delete, then insert")


def fit_rows(rows: pa.RecordBatchReader, schema: pa.Schema) -> pa.RecordBatchReader:
    """Convert the rows to the table's types.

    Raises:
        SchemaMismatchError: while the rows are read, if a value does not fit; the message names the column.
    """
    optional = [field.with_nullable(True) for field in schema]
    batches = (
        pa.RecordBatch.from_arrays(list(map(_fit_finite, batch.columns, optional)), schema=pa.schema(optional))
        for batch in rows
    )
    return pa.RecordBatchReader.from_batches(pa.schema(optional), batches)


def _fit_finite(values: pa.Array, field: pa.Field) -> pa.Array:
    """Convert values to a column's type. Raise an error for infinite dates and times, which only duckdb supports."""
    if any(pc.any(pc.equal(pc.abs(numbers), most)).as_py() for numbers, most in _each_temporal(values)):
        raise SchemaMismatchError(
            f"column {field.name!r} would hold 'infinity', a date or time that only duckdb knows; set it to null or to "
            "another one"
        )
    return fit_to_column(values, field)


def _each_temporal(values: pa.Array) -> Iterator[tuple[pa.Array, int]]:
    """Yield each array of dates or times, nested ones too, as integers, with the integer that is infinity in duckdb."""
    kind = values.type
    if kind_of(kind) is ArrowKind.STRUCT:
        for part in values.flatten():
            yield from _each_temporal(part)
    elif kind_of(kind) is ArrowKind.MAP:
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        yield from _each_temporal(values.items.slice(first, last - first))
    elif kind_of(kind) is ArrowKind.LIST:
        yield from _each_temporal(values.flatten())
    elif kind_of(kind) is ArrowKind.TIMESTAMP:
        yield values.cast(pa.int64()), _MOST_MICROS
    elif kind_of(kind) is ArrowKind.DATE:
        yield values.cast(pa.int32()), _MOST_DAYS


def _make_clauses(actions: set[int], updated_columns: Sequence[str]) -> tuple[Clause, ...]:
    action = pc.field("source", _ACTION)
    clauses = [Clause(Kind.DELETE, action == _DELETED)]
    if updated_columns:
        clauses.append(Clause(Kind.UPDATE, action == _UPDATED, list(updated_columns)))
    if _INSERTED in actions:
        clauses.append(Clause(Kind.INSERT, pc.field(_ACTION) == _INSERTED))
    return tuple(clauses)
