"""Merge a source into the table by record key, with clauses (Hudi: SQL ``MERGE INTO``).

A source row is matched if the table holds its key, in its partition unless the index is global. The first clause
whose condition holds decides; rows that no clause takes stay as they are, or are not inserted. The clauses decide
alone: the event-time rule does not come in, and a source that has a key twice is refused.

Memory: the source, plus per thread one row group of a base file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.conform import conform, read_schema
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError, SchemaMismatchError, UnsupportedTableError
from lakeformat.files.base_file import ROW_GROUP_ROWS, stamped
from lakeformat.keys.seqnos import seqnos
from lakeformat.merge import MergeRule
from lakeformat.model.commit import WriteStat
from lakeformat.model.operation import Operation
from lakeformat.model.record import COMMIT_SEQNO, PARTITION_PATH, RECORD_KEY
from lakeformat.predicate import Always, mask
from lakeformat.read.view import TableView
from lakeformat.storage.port import Ids
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.hooks import check_hooks
from lakeformat.transaction.publish import Outcome
from lakeformat.transaction.result import WriteResult
from lakeformat.write.decide.indexing import with_bucket_index
from lakeformat.write.decide.job import WriteJob, check_unpartitioned, spelt_columns
from lakeformat.write.decide.table_settings import key_settings, probe_keys
from lakeformat.write.make.handles import HandleSettings
from lakeformat.write.make.put_rows import drop_rows, replace_rows
from lakeformat.write.place.buckets import Bucket
from lakeformat.write.place.duplicates import repeated_keys
from lakeformat.write.place.new_key_check import late_check
from lakeformat.write.place.profile import false_positives, plan_buckets, workload_profile
from lakeformat.write.rows.delete_marker import deleted_rows_of
from lakeformat.write.rows.incoming import Incoming
from lakeformat.write.rows.prepare import PrepareSettings
from lakeformat.write.rows.schema import check_key_types, evolve, incoming_schema
from lakeformat.write.session import WriteSession
from lakeformat.write.statements.assign import Assignment, check_type
from lakeformat.write.statements.clauses import SOURCE, TARGET, BoundClause, Clause, Kind, bind_clauses, looked_at
from lakeformat.write.statements.rewrite import check_columns, readable, with_names

__all__ = ["STORED_KEY", "MergePlan", "check_distinct", "merge_into", "plan_merge"]

#: A column of the source that says the stored record key of each row, where the table's keys are generated.
STORED_KEY: Final = "lakeformat_stored_key"

Flags: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MergePlan:
    """One merge, decided.

    Attributes:
        schema: the table's columns when it was decided.
        matched: what becomes of stored rows, in order.
        unmatched: which source rows are inserted.
        source_columns, target_columns: what conditions and functions look at.
        anywhere: the key alone identifies a row, whatever its partition.
        exact: each source row must change one row of the table, no more and no less.
    """

    schema: pa.Schema
    matched: tuple[BoundClause, ...]
    unmatched: tuple[BoundClause, ...]
    source_columns: tuple[str, ...]
    target_columns: tuple[str, ...]
    anywhere: bool = False
    exact: bool = False

    @property
    def changes_every_match(self) -> bool:
        """Whether no stored row that a source row matches stays as it is."""
        return any(clause.where == Always(True) for clause in self.matched)

    def source(self, rows: pa.Table) -> pa.Table:
        """The source's side of what clauses look at; the record key is always there."""
        chosen = rows.select([RECORD_KEY, *self.source_columns])
        read: pa.Table = conform(chosen, read_schema(chosen.schema))
        return read.rename_columns([SOURCE + name for name in read.schema.names])

    def insertable(self, rows: pa.Table) -> Flags:
        """Which source rows are inserted if their keys are new."""
        chosen = np.zeros(rows.num_rows, bool)
        if self.unmatched and rows.num_rows:
            scope = self.source(rows)
            for clause in self.unmatched:
                chosen |= _holds(clause, scope)
            chosen &= ~deleted_rows_of(rows)
        return chosen


def plan_merge(
    store: TimelineStore,
    snapshot: Snapshot,
    options: Options,
    source: pa.Schema,
    clauses: Sequence[Clause],
    ids: Ids,
    *,
    exact: bool = False,
) -> tuple[WriteJob, MergePlan]:
    """Decide a merge, refusing here whatever columns and settings alone can tell.

    Args:
        source: the source's columns, as they come. Those the table has must fit its types; others are for
            conditions and functions. With `STORED_KEY` among them, rows of a table without a record key are
            matched by that; those to insert need one there that no other row has.
        exact: see `MergePlan`.

    Raises:
        InvalidInputError, SchemaMismatchError, UnsupportedTableError: with the reason; nothing was written.
    """
    config, location = snapshot.config, store.storage.location
    table = snapshot.columns(location)
    if not config.record_fields and STORED_KEY not in source.names:
        raise UnsupportedTableError(f"{location} has no record key to merge by; use update and delete with a condition")
    if not config.partition_fields:
        check_unpartitioned(snapshot, location)
    check_hooks(options, table)
    keys = probe_keys(store.storage, snapshot.each_file(), key_settings(config, options), options)
    if keys.generated:
        keys = replace(keys, record_fields=(STORED_KEY,), single_key_prefixed=False)
    else:
        check_key_types(table, source, spelt_columns(keys))
    columns = _as_table(incoming_schema(source), table)
    bound = bind_clauses(clauses, columns, table, config, options.read.time_zone or "UTC")
    matched = tuple(clause for clause in bound if clause.kind is not Kind.INSERT)
    unmatched = tuple(clause for clause in bound if clause.kind is Kind.INSERT)
    if unmatched:
        stored = set(table.names)
        shared = pa.schema([field for field in columns if field.name in stored])
        evolve(table, shared, fill_missing=options.write.fill_missing)
        options = with_bucket_index(store.storage, snapshot, options)
    names_partitions = {field.name.partition(".")[0] for field in keys.partition_fields}.issubset(source.names)
    anywhere = options.write.index.startswith("GLOBAL_")
    search_all = not (names_partitions or unmatched)
    prepare = PrepareSettings(columns, keys, MergeRule(), search_all=search_all, whole=anywhere)
    job = WriteJob(Operation.UPSERT, config, options, prepare, combine=False, write_id=ids.token())
    source_columns = looked_at(bound, SOURCE, columns.names)
    target_columns = looked_at(bound, TARGET, readable(table).names)
    return job, MergePlan(table, matched, unmatched, source_columns, target_columns, anywhere, exact)


def _as_table(source: pa.Schema, table: pa.Schema) -> pa.Schema:
    """The source's columns, those of the table's names with the table's types."""
    fields = []
    names = {name.lower(): name for name in table.names}
    for field in source:
        known = names.get(field.name.lower())
        if known and known != field.name:
            raise SchemaMismatchError(f"column {field.name!r} of the source is {known!r} in the table; rename it")
        if known:
            stored = table.field(field.name)
            check_type(field.type, stored)
            if pa.types.is_float64(field.type) and pa.types.is_float32(stored.type):
                raise SchemaMismatchError(
                    f"column {field.name!r} is double in the source and float in the table; convert it"
                )
            field = stored  # noqa: PLW2901
        fields.append(field)
    return pa.schema(fields)


def check_distinct(rows: Mapping[str, pa.Table], *, anywhere: bool, engine: Engine, seen: Snapshot | None) -> None:
    """Refuse a source that has a key twice: which of the rows would it be?

    Args:
        rows: partition path -> prepared rows.
        anywhere: a key must not be in two partitions either.
        seen: the table that the rows were computed from; None if they are the user's own.

    Raises:
        InvalidInputError: with such a key, and whether the source or the table has it more than once.
    """
    columns = [table.column(RECORD_KEY) for table in rows.values()]
    if anywhere and columns:
        columns = [pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())]
    for keys in columns:
        doubled = repeated_keys(keys)
        if len(doubled):
            key = doubled[0].as_py()
            if seen is not None:
                _check_stored_once(engine, seen, key)
            raise InvalidInputError(
                f"the source has {len(doubled)} key(s) more than once, e.g. {key!r}; a merge needs each "
                "once, so keep one row per key"
            )


def _check_stored_once(engine: Engine, seen: Snapshot, key: str) -> None:
    """Refuse a key that the table itself has more than once, so that its rows cannot be told apart."""
    stored = TableView(engine.storage, seen).to_arrow([PARTITION_PATH], where=pc.field(RECORD_KEY) == key)
    if stored.num_rows > 1:
        paths = sorted({path for path in stored.column(0).to_pylist() if path})
        where = f" in partition{'s' * (len(paths) > 1)} {', '.join(map(repr, paths))}" if paths else ""
        raise InvalidInputError(
            f"the table {engine.storage.location} has the key {key!r} {stored.num_rows} times{where}, so a statement "
            "cannot tell its rows apart; keep one row of each key first (lakeformat dedupe), or delete that key and "
            "upsert the row that is right"
        )


def merge_into(
    session: WriteSession,
    plan: MergePlan,
    rows: Mapping[str, pa.Table],
    arrived: int,
    seen: Snapshot | None = None,
) -> WriteResult:
    """Carry a merge out, as one commit.

    Args:
        rows: partition path -> prepared rows of the source, each key once.
        arrived: rows of the source, for the report.
        seen: what of the table the source was made from; nothing may have touched the same files since.

    Raises:
        InvalidInputError: a function gives what its column cannot hold; nothing was published.
        WriteConflictError, LockTimeoutError: another writer was in the way; a retry is safe.
    """
    return session.transaction.retried_under_lock(lambda: _attempt(session, plan, rows, arrived, seen))


def _attempt(
    session: WriteSession, plan: MergePlan, rows: Mapping[str, pa.Table], arrived: int, seen: Snapshot | None
) -> WriteResult:
    snapshot = session.engine.snapshot()
    if (skipped := session.transaction.skipped(snapshot)) is not None:
        return skipped
    check_columns(snapshot, plan.schema)
    job: WriteJob = session.job
    commit = session.transaction.begin((seen or snapshot).timeline.commit_times)
    with session.transaction.running(commit):
        session.transaction.report.rows["incoming"] = arrived
        buckets = plan_buckets(
            session.storage, job, rows, snapshot, plan.schema, session.transaction.report, insertable=plan.insertable
        )
        profile = workload_profile(job.operation, buckets.buckets, ())
        commit = session.transaction.inflight(commit, profile, snapshot, is_certain=plan.changes_every_match)
        handles = replace(
            HandleSettings.of(job, commit.time, plan.schema),
            merger=lambda bucket, source, task, settings: _Clauses(plan, bucket, source, task, settings),
        )
        with session.transaction.report.step("write") as counted:
            written = session.handle(buckets, handles)
            counted.update(buckets=len(buckets.buckets), **false_positives(job, written))
        if plan.exact:
            _check_changed(arrived, [each.stat for each in written])
        check = late_check(session.storage, job, buckets)
        outcome = Outcome(schema=plan.schema, written=written, snapshot=snapshot, check_new_keys=check)
        session.transaction.publish(commit, outcome)
    return session.transaction.closed(commit)


def _no_match(key: str) -> InvalidInputError:
    return InvalidInputError(
        f"the statement inserts a row with the key {key!r}, which another row has, or would give a row of that key "
        "another key or partition; match rows by their keys, or delete, then insert"
    )


def _check_changed(arrived: int, stats: Sequence[WriteStat]) -> None:
    """Refuse a merge that a row of the source has changed nothing by, or more than one row."""
    changed = sum(stat.num_inserts + stat.num_updates + stat.num_deletes for stat in stats)
    if changed != arrived:
        raise InvalidInputError(
            f"{arrived} rows were to change and {changed} would: the table has a key of theirs more than once; keep "
            "one row of each key first"
        )


def _holds(clause: BoundClause, scope: pa.Table) -> Flags:
    flags: Flags = np.asarray(mask(clause.where, scope)).astype(bool)
    return flags


class _Clauses:
    """The merger of a merge: applies the clauses to the pairs of one base file's rows and the bucket's."""

    def __init__(
        self,
        plan: MergePlan,
        bucket: Bucket,
        source: pa.Table,
        task: int,
        settings: HandleSettings,
    ) -> None:
        self.plan, self.bucket, self.task, self.settings = plan, bucket, task, settings
        self.updates = self.deletes = 0
        self._rows = Incoming(source, bucket.rows, settings.files.row_group_bytes)
        self._keys = self._rows.column(RECORD_KEY, bucket.lookups)
        self._found = np.zeros(len(bucket.rows), bool)
        wanted = {RECORD_KEY, *plan.target_columns}
        self._target = pa.schema([field for field in readable(plan.schema) if field.name in wanted])

    @property
    def missed(self) -> int:
        return len(self._keys) - int(self._found[: len(self._keys)].sum())

    def apply(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        matches = pc.index_in(batch.column(RECORD_KEY), value_set=self._keys)
        clauses = (clause.assignments for clause in self.plan.matched)
        widest = max((sum(each.literal_bytes for each in assigned) for assigned in clauses), default=0)
        most_rows = max(1, self.settings.files.row_group_bytes // max(widest, 1))
        for part, found in self._rows.parts(batch, matches):
            for start in range(0, part.num_rows, most_rows):
                yield self._applied(part.slice(start, most_rows), found.slice(start, most_rows))

    def _applied(self, batch: pa.RecordBatch, matches: pa.Array) -> pa.Table:
        table = pa.Table.from_batches([batch])
        hit = np.flatnonzero(np.asarray(pc.is_valid(matches)))
        if not len(hit):
            return table
        rows = np.asarray(matches.drop_null()).astype(np.int64)
        self._found[rows] = True
        pairs = self._pairs(batch, hit, rows)
        is_open = np.ones(len(hit), bool)
        dropped = np.zeros(batch.num_rows, bool)
        for clause in self.plan.matched:
            chosen = is_open & _holds(clause, pairs)
            if not chosen.any():
                continue
            is_open &= ~chosen
            if clause.kind is Kind.DELETE:
                dropped[hit[chosen]] = True
            else:
                table = self._updated(table, hit[chosen], pairs.filter(pa.array(chosen)), clause.assignments)
        if self.plan.exact and is_open.any():
            raise _no_match(pairs[SOURCE + RECORD_KEY].filter(pa.array(is_open))[0].as_py())
        self.deletes += int(dropped.sum())
        return drop_rows(table, dropped)

    def _pairs(self, batch: pa.RecordBatch, hit: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> pa.Table:
        """What clauses look at, one row a match."""
        stored = pa.table(with_names(batch.take(pa.array(hit)), self.bucket, self._target))
        pairs = self.plan.source(self._rows.taken(rows))
        names = [*pairs.schema.names, *(TARGET + name for name in stored.schema.names)]
        return pa.table([*pairs.columns, *stored.columns], names)

    def _updated(
        self,
        table: pa.Table,
        at: npt.NDArray[np.int64],
        pairs: pa.Table,
        assignments: Sequence[Assignment],
    ) -> pa.Table:
        changed = np.zeros(table.num_rows, bool)
        changed[at] = True
        columns = {COMMIT_SEQNO: seqnos(self.settings.instant_time, self.task, self.updates, len(at))}
        self.updates += len(at)
        (batch,) = pairs.combine_chunks().to_batches()
        columns.update({each.field.name: each.values(batch) for each in assignments})
        return replace_rows(table, changed, pa.table(columns), self.settings.instant_time)

    def rest(self) -> Iterator[pa.Table]:
        schema, time = self.settings.files.schema, self.settings.instant_time
        first = self.updates
        for part in self._rows.runs(np.flatnonzero(~self._found), ROW_GROUP_ROWS):
            left = self._rows.taken(part)
            inserted = left.filter(pa.array(self.plan.insertable(left)))
            yield stamped(inserted, schema, time, self.task, first)
            first += inserted.num_rows
