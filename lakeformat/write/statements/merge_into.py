"""Merge a source into the table by record key, with clauses (Hudi: SQL ``MERGE INTO``).

A source row is matched if the table has a row with its key, in the same partition unless the index is global. The first
clause whose condition is true decides. If no clause applies to a row, the stored row does not change, and the source
row is not inserted. Only the clauses decide: the event-time rule is not applied, and a source that has a key twice is
refused.

Memory: the source, plus per thread one row group of a base file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.conform import conform, reader_schema
from lakeformat.codec.stored_types import without_operation
from lakeformat.config.resolve import Options
from lakeformat.config.write_options import BAD_ROWS
from lakeformat.errors import InvalidInputError, SchemaMismatchError, UnsupportedTableError, WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.base_file import ROW_GROUP_ROWS, stamp_rows
from lakeformat.keys.record_keys import make_seqnos
from lakeformat.merge import MergeRule
from lakeformat.merge.order import key_codes
from lakeformat.model.commit import WriteStat
from lakeformat.model.operation import Operation
from lakeformat.model.record import COMMIT_SEQNO, PARTITION_PATH, RECORD_KEY
from lakeformat.predicate import Always, mask
from lakeformat.read.run.view import TableView
from lakeformat.storage.port import Ids, Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.commit.hooks import check_hooks
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order.outcome import Outcome
from lakeformat.transaction.order.written_file import count_copies
from lakeformat.write.handles.base_file_handles import HandleSettings, KeyFinder, drop_rows, replace_rows
from lakeformat.write.intake import probe_keys, with_bucket_index
from lakeformat.write.plan.job import WriteJob, check_unpartitioned, columns_stored_as_text
from lakeformat.write.plan.table_settings import key_settings
from lakeformat.write.rows.bad_rows import BadRows
from lakeformat.write.rows.faults import Reason
from lakeformat.write.rows.prepare import PrepareSettings, deleted_rows_of
from lakeformat.write.rows.schema import check_key_types, evolve, incoming_schema
from lakeformat.write.session import WriteSession
from lakeformat.write.statements.assign import Assignment, check_type
from lakeformat.write.statements.clauses import SOURCE, TARGET, BoundClause, Clause, Kind, bind_clauses, columns_used
from lakeformat.write.statements.rewrite import check_columns, convert_for_readers, reader_columns
from lakeformat.write.tagging.key_checks import make_commit_check
from lakeformat.write.tagging.steps import plan_buckets
from lakeformat.write.tagging.tagger import find_repeated_keys
from lakeformat.write.workload.buckets import Bucket
from lakeformat.write.workload.profile import count_false_positives, workload_profile

__all__ = [
    "STORED_KEY",
    "MergePlan",
    "check_distinct",
    "known_commits",
    "merge_into",
    "plan_merge",
    "repeated_keys_error",
    "take_out_repeats",
]

#: Name of a source column with the stored record key of each row, for tables whose record keys are generated.
STORED_KEY: Final = "lakeformat_stored_key"

Flags: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MergePlan:
    """One planned merge.

    Attributes:
        schema: the table's columns when it was planned.
        matched: the clauses for matched rows, in order.
        unmatched: the clauses that select source rows to insert.
        source_columns: the source's columns that conditions and functions use.
        target_columns: the stored row's columns that conditions and functions use.
        is_global: whether the key alone identifies a row, whatever its partition.
        requires_one_match: whether each source row must change exactly one row of the table.
    """

    schema: pa.Schema
    matched: tuple[BoundClause, ...]
    unmatched: tuple[BoundClause, ...]
    source_columns: tuple[str, ...]
    target_columns: tuple[str, ...]
    is_global: bool = False
    requires_one_match: bool = False

    @property
    def changes_every_match(self) -> bool:
        """Tell whether every matched row is updated or deleted, because a clause for matched rows has no condition."""
        return any(clause.where == Always(True) for clause in self.matched)

    def source(self, rows: pa.Table) -> pa.Table:
        """Return the record key and the source's columns that clauses use, with names of the form ``source.x``."""
        chosen = rows.select([RECORD_KEY, *self.source_columns])
        read: pa.Table = conform(chosen, reader_schema(chosen.schema))
        return read.rename_columns([SOURCE + name for name in read.schema.names])

    def filter_inserts(self, rows: pa.Table) -> Flags:
        """Return a mask of the source rows that an insert clause selects; they are inserted if their keys are new."""
        is_inserted = np.zeros(rows.num_rows, bool)
        if self.unmatched and rows.num_rows:
            scope = self.source(rows)
            for clause in self.unmatched:
                is_inserted |= _mask_matches(clause, scope)
            is_inserted &= ~deleted_rows_of(rows)
        return is_inserted

    def set_merger(self, handles: HandleSettings) -> HandleSettings:
        """Return the settings of the write handles with the merger that applies the clauses."""
        return replace(handles, make_merger=partial(_ClauseMerger, self))

    def check_changed(self, input_rows: int, stats: Sequence[WriteStat]) -> None:
        """Refuse a merge in which a source row has changed no row, or more than one, if each must change one.

        Args:
            input_rows: number of source rows, without those that are put aside.
        """
        changed = sum(stat.num_inserts + stat.num_updates + stat.num_deletes for stat in stats)
        if self.requires_one_match and changed != input_rows:
            raise InvalidInputError(
                f"the statement selects {input_rows} rows but would change {changed}: the table has a key of these "
                "rows more than once; keep one row of each key first"
            )


def known_commits(
    storage: Storage, plan: MergePlan, snapshot: Snapshot, source_snapshot: Snapshot | None
) -> frozenset[str]:
    """Return the commits that the merge starts from; a later one that has changed the same files is a conflict.

    Args:
        snapshot: the table's present state.
        source_snapshot: the snapshot from which the source was computed; None if the user supplied the rows.

    Raises:
        WriteConflictError: if the table's columns have changed since the plan, or a commit of ``source_snapshot`` has
            been undone.
    """
    check_columns(snapshot, plan.schema)
    times = (source_snapshot or snapshot).timeline.commit_times
    undone = [time for time in times if not snapshot.timeline.is_committed(time)]
    if undone:
        raise WriteConflictError(
            f"commit {min(undone)} of {storage.location} was undone after the rows had been computed from it; "
            "run the statement again"
        )
    return times


def plan_merge(
    store: TimelineStore,
    snapshot: Snapshot,
    options: Options,
    source: pa.Schema,
    clauses: Sequence[Clause],
    ids: Ids,
    *,
    requires_one_match: bool = False,
) -> tuple[WriteJob, MergePlan]:
    """Plan a merge. Refuse a merge that its columns or settings do not allow, before rows are read.

    Args:
        source: the source's columns, before any conversion. Columns that the table has must fit its types; others are
            used in conditions and functions. If `STORED_KEY` is among them, rows of a table without a record key are
            matched by it; rows to insert need a value there that no other row has.
        requires_one_match: whether each source row must change exactly one row of the table.

    Raises:
        InvalidInputError, SchemaMismatchError, UnsupportedTableError: if the merge is not allowed. Nothing was
            written.
    """
    config, location = snapshot.config, store.storage.location
    table = snapshot.columns(location)
    if not config.record_fields and STORED_KEY not in source.names:
        raise UnsupportedTableError(f"{location} has no record key to merge by; use update and delete with a condition")
    if not config.partition_fields:
        check_unpartitioned(snapshot, location)
    check_hooks(options, table)
    keys = probe_keys(store.storage, snapshot, key_settings(config, options), options)
    if keys.generates_keys:
        keys = replace(keys, record_fields=(STORED_KEY,), single_key_prefixed=False)
    else:
        check_key_types(table, source, columns_stored_as_text(keys))
    columns = _with_table_types(incoming_schema(source), table)
    bound = bind_clauses(clauses, columns, table, config, options.read.time_zone or "UTC")
    matched = tuple(clause for clause in bound if clause.kind is not Kind.INSERT)
    unmatched = tuple(clause for clause in bound if clause.kind is Kind.INSERT)
    if unmatched:
        stored = set(table.names)
        shared = pa.schema([field for field in columns if field.name in stored])
        evolve(without_operation(table), shared, fill_missing=options.write.fill_missing)
        options = with_bucket_index(store.storage, snapshot, options)
    names_partitions = {field.name.partition(".")[0] for field in keys.partition_fields}.issubset(source.names)
    anywhere = options.write.index.is_global
    search_all = not (names_partitions or unmatched)
    hints = not options.is_set(BAD_ROWS)
    prepare = PrepareSettings(columns, keys, MergeRule(), search_all, is_global=anywhere, names_aside=hints)
    job = WriteJob(
        Operation.UPSERT,
        config,
        options,
        prepare,
        needs_combining=False,
        write_id=ids.token(),
        versions=snapshot.versions,
    )
    source_columns = columns_used(bound, SOURCE, columns.names)
    target_columns = columns_used(bound, TARGET, reader_columns(table).names)
    return job, MergePlan(table, matched, unmatched, source_columns, target_columns, anywhere, requires_one_match)


def _with_table_types(source: pa.Schema, table: pa.Schema) -> pa.Schema:
    """Return the source's columns; those that the table also has get the table's types."""
    fields = []
    names = {name.lower(): name for name in table.names}
    for field in source:
        table_name = names.get(field.name.lower())
        if table_name and table_name != field.name:
            raise SchemaMismatchError(f"column {field.name!r} of the source is {table_name!r} in the table; rename it")
        if table_name:
            stored = table.field(field.name)
            check_type(field.type, stored)
            if (field.type, stored.type) == (pa.float64(), pa.float32()):
                raise SchemaMismatchError(
                    f"column {field.name!r} is double in the source and float in the table; convert it"
                )
            field = stored  # noqa: PLW2901
        fields.append(field)
    return pa.schema(fields)


def check_distinct(
    rows: Mapping[str, pa.Table], *, is_global: bool, context: TableContext, source_snapshot: Snapshot | None
) -> None:
    """Refuse a source that has a key twice, because it is undefined which of the rows would apply.

    Args:
        rows: for each partition path, its prepared rows.
        is_global: whether a key in two partitions is refused, too.
        source_snapshot: the snapshot from which the rows were computed; None if the user supplied the rows.

    Raises:
        InvalidInputError: if the source has a key twice. The message names the key, and says whether the table has it
            twice, too.
    """
    columns = [table.column(RECORD_KEY) for table in rows.values()]
    if is_global and columns:
        columns = [pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())]
    for keys in columns:
        repeated = find_repeated_keys(keys)
        if len(repeated):
            raise repeated_keys_error(len(repeated), repeated[0].as_py(), context, source_snapshot)


def take_out_repeats(rows: Mapping[str, pa.Table], bad_rows: BadRows, key: str) -> Mapping[str, pa.Table]:
    """Collect all source rows whose keys come more than once. Return the other rows.

    Args:
        rows: for each partition path, its prepared rows.
        key: names of the key columns.
    """
    kept = dict(rows)
    for path, table in rows.items():
        codes = key_codes(table.column(RECORD_KEY))
        if codes is not None:
            is_repeated = np.bincount(codes)[codes] > 1
            repeats = table.filter(pa.array(is_repeated))
            message = "the record key comes more than once in the source, so it is undefined which row applies"
            bad_rows.add_duplicates(repeats, Reason.REPEATED_KEY, key, message)
            kept[path] = table.filter(pa.array(~is_repeated))
    return {path: table for path, table in kept.items() if table.num_rows}


def repeated_keys_error(
    count: int, key: str, context: TableContext, source_snapshot: Snapshot | None
) -> InvalidInputError:
    """Return the error for a source that has keys more than once.

    Args:
        count: the number of these keys.
        key: one of them.
        source_snapshot: the snapshot from which the rows were computed; None if the user supplied the rows.

    Raises:
        InvalidInputError: if the rows were computed from a table that has the key twice.
    """
    if source_snapshot is not None:
        _check_stored_once(context, source_snapshot, key)
    return InvalidInputError(
        f"the source has {count} key(s) more than once, e.g. {key!r}; a merge needs each once, so keep one row per key"
    )


def _check_stored_once(context: TableContext, source_snapshot: Snapshot, key: str) -> None:
    """Raise an error if the table itself has the key more than once, because its rows cannot be distinguished."""
    stored = TableView(context.storage, source_snapshot).to_arrow([PARTITION_PATH], where=pc.field(RECORD_KEY) == key)
    if stored.num_rows > 1:
        paths = sorted({path for path in stored.column(0).to_pylist() if path})
        where = f" in partition{'s' * (len(paths) > 1)} {', '.join(map(repr, paths))}" if paths else ""
        raise InvalidInputError(
            f"the table {context.storage.location} has the key {key!r} {stored.num_rows} times{where}, so a statement "
            "cannot tell its rows apart; keep one row of each key first (lakeformat dedupe), or delete that key and "
            "upsert the row that is right"
        )


def merge_into(
    session: WriteSession,
    plan: MergePlan,
    rows: Mapping[str, pa.Table],
    input_rows: int,
    source_snapshot: Snapshot | None = None,
) -> WriteResult:
    """Run a planned merge as one commit.

    Args:
        rows: for each partition path, prepared rows of the source, each key once.
        input_rows: number of source rows, for the report.
        source_snapshot: the snapshot from which the source was computed; a commit that has changed the same files since
            then is a conflict. None if the user supplied the rows.

    Raises:
        InvalidInputError: if a function returns values that its column cannot hold. Nothing was published.
        WriteConflictError, LockTimeoutError: if another writer interfered. A retry is safe.
    """
    if source_snapshot is not None:  # A retry would start from the same rows, and meet the same conflict.
        return _attempt(session, plan, rows, input_rows, source_snapshot)
    return session.transaction.retry(lambda: _attempt(session, plan, rows, input_rows, None))


def _attempt(
    session: WriteSession,
    plan: MergePlan,
    rows: Mapping[str, pa.Table],
    input_rows: int,
    source_snapshot: Snapshot | None,
) -> WriteResult:
    snapshot = session.context.snapshot()
    if (skipped := session.transaction.skip_known_batch(snapshot)) is not None:
        return skipped
    job: WriteJob = session.job
    times = known_commits(session.storage, plan, snapshot, source_snapshot)
    with session.transaction.run_unlocked(times, snapshot.timeline) as begun:
        session.transaction.report.rows["incoming"] = input_rows
        plan_of_buckets = plan_buckets(
            session.storage,
            job,
            rows,
            snapshot,
            plan.schema,
            session.transaction.report,
            insert_filter=plan.filter_inserts,
        )
        profile = workload_profile(job.operation, plan_of_buckets.buckets, ())
        commit = session.transaction.move_to_inflight(begun, profile, snapshot, is_certain=plan.changes_every_match)
        handles = plan.set_merger(HandleSettings.of(job, commit.time, plan.schema))
        with session.transaction.report.step("write") as counted:
            written = session.write_buckets(plan_of_buckets, handles)
            counts = {**count_false_positives(job, written), **count_copies(written)}
            counted.update(buckets=len(plan_of_buckets.buckets), **counts)
        plan.check_changed(input_rows - session.count_bad_rows(), [file.stat for file in written])
        check = make_commit_check(session.storage, job, plan_of_buckets)
        outcome = Outcome(schema=plan.schema, written=written, snapshot=snapshot, check_new_keys=check)
        session.transaction.publish(commit, outcome)
    return session.transaction.close(commit)


def _no_match_error(key: str) -> InvalidInputError:
    return InvalidInputError(
        f"the statement inserts a row with the key {key!r}, which another row has, or would give a row of that key "
        "another key or partition; match rows by their keys, or delete, then insert"
    )


def _mask_matches(clause: BoundClause, scope: pa.Table) -> Flags:
    flags: Flags = np.asarray(mask(clause.where, scope)).astype(bool)
    return flags


class _ClauseMerger(KeyFinder):
    """The merger of MERGE: it applies the clauses to pairs of a stored row and the source row with its key."""

    def __init__(
        self,
        plan: MergePlan,
        bucket: Bucket,
        source: pa.Table,
        task: int,
        settings: HandleSettings,
    ) -> None:
        super().__init__(bucket, source, settings)
        self.plan, self.bucket, self.task, self.settings = plan, bucket, task, settings
        self.updates = self.deletes = 0
        names = {RECORD_KEY, *plan.target_columns}
        self._target = pa.schema([field for field in reader_columns(plan.schema) if field.name in names])

    def apply(self, batch: pa.RecordBatch, found: pa.Array | None) -> Iterator[pa.Table]:
        if found is None:
            yield pa.Table.from_batches([batch])
            return
        clauses = (clause.assignments for clause in self.plan.matched)
        widest = max((sum(assignment.literal_bytes for assignment in assigned) for assigned in clauses), default=0)
        most_rows = max(1, self.settings.files.row_group_bytes // max(widest, 1))
        for part, matches in self.incoming.split_batch(batch, found):
            for start in range(0, part.num_rows, most_rows):
                yield self._apply_part(part.slice(start, most_rows), matches.slice(start, most_rows))

    def _apply_part(self, batch: pa.RecordBatch, matches: pa.Array) -> pa.Table:
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
            chosen = is_open & _mask_matches(clause, pairs)
            if not chosen.any():
                continue
            is_open &= ~chosen
            if clause.kind is Kind.DELETE:
                dropped[hit[chosen]] = True
            else:
                table = self._update_rows(table, hit[chosen], pairs.filter(pa.array(chosen)), clause.assignments)
        if self.plan.requires_one_match and is_open.any():
            raise _no_match_error(pairs[SOURCE + RECORD_KEY].filter(pa.array(is_open))[0].as_py())
        self.deletes += int(dropped.sum())
        return drop_rows(table, dropped)

    def _pairs(self, batch: pa.RecordBatch, hit: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> pa.Table:
        """Return one row per pair of stored row and source row, with the columns of both that clauses use.

        Args:
            hit: positions of the matched stored rows in the batch.
            rows: positions of their source rows.
        """
        stored = pa.table(convert_for_readers(batch.take(pa.array(hit)), self.bucket, self._target))
        pairs = self.plan.source(self.incoming.take(rows))
        names = [*pairs.schema.names, *(TARGET + name for name in stored.schema.names)]
        return pa.table([*pairs.columns, *stored.columns], names)

    def _update_rows(
        self,
        table: pa.Table,
        positions: npt.NDArray[np.int64],
        pairs: pa.Table,
        assignments: Sequence[Assignment],
    ) -> pa.Table:
        changed = np.zeros(table.num_rows, bool)
        changed[positions] = True
        columns = {COMMIT_SEQNO: make_seqnos(self.settings.instant_time, self.task, self.updates, len(positions))}
        self.updates += len(positions)
        (batch,) = pairs.combine_chunks().to_batches()
        columns.update({assignment.field.name: assignment.values(batch) for assignment in assignments})
        return replace_rows(table, changed, pa.table(columns), self.settings.instant_time)

    def emit_inserts(self) -> Iterator[pa.Table]:
        schema, time = self.settings.files.schema, self.settings.instant_time
        first = self.updates
        for part in self.incoming.split_into_runs(np.flatnonzero(~self._found), ROW_GROUP_ROWS):
            unmatched = self.incoming.take(part)
            inserted = unmatched.filter(pa.array(self.plan.filter_inserts(unmatched)))
            yield stamp_rows(inserted, schema, time, self.task, first)
            first += inserted.num_rows
