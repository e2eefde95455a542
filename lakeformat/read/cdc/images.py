"""Change data: rows before and after each commit, found by joining the file slices before and after by record key.

A row was written by a commit if the row has the commit's time. If the slice before the commit has the row's key, the
row is an update, else an insert. If only the slice before the commit has a row's key, the row was deleted. If a partial
update loses the merge and only fills fields of the stored row, the row keeps its commit time. Such a change cannot be
recognized and is not reported.

A replica can apply the changes in the order in which they are returned. File groups are read one after the other, so
the insert of a key may be read before the delete of its old row in another group. If the replica applied them in this
order, it would lose the key. So `order_images` puts the deletes of a commit first. If a key is deleted from one group
and inserted into another, both changes become one update, even if the partition of the key changes. A delete is matched
first with an insert in the same partition. If a key has several rows, they are matched one by one, in row order.

Memory: the changed rows of one file group at a time, and in special cases:

- If rows were deleted or there are log files, all keys of the file group and their commit times are held too.
- If the commit only appended log blocks to the file group, only the rows of the keys in these blocks are held, before
  and after the commit. Each slice is read once.
- If the commit deletes from one file group and changes others, the changed rows of all these groups are held, up to
  64 MB (`image_order`). If there are more, they are written to a temporary folder, split by key, and read back one part
  at a time. All changes of a key are in the same part, so the deletes of a key still come before its inserts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from lakeformat.arrow.conform import conform, reader_schema
from lakeformat.arrow.result_table import first_rows, preview, preview_html, to_frame
from lakeformat.config.resolve import Options
from lakeformat.errors import InstantNotAvailableError, InvalidInputError, nearest
from lakeformat.file_system_view.context import TableContext
from lakeformat.files.footers import open_parquet
from lakeformat.files.log_reader import decode_blocks, read_blocks, read_change_data
from lakeformat.files.missing_files import missing_file_error
from lakeformat.files.skeletons import open_rows
from lakeformat.files.slice_reader import read_around_append
from lakeformat.merge.order import pair_keys
from lakeformat.merge.versions import LogDeletes
from lakeformat.model.instant import Moment
from lakeformat.model.record import COMMIT_TIME, META_COLUMNS, RECORD_KEY
from lakeformat.predicate import (
    Always,
    And,
    Comparison,
    Predicate,
    Where,
    bind,
    bind_where,
    columns_of,
    mask,
    path_parts,
)
from lakeformat.public import public
from lakeformat.read.cdc.image_order import KEY, PARTITION, order_images
from lakeformat.read.cdc.plan import ChangePlan, GroupChange, find_shared_key_sets, plan_changes
from lakeformat.read.incremental import parse_range_bounds
from lakeformat.read.plan import FilePart, Part, SlicePart, Split
from lakeformat.read.query import ReadQuery, readable_schema
from lakeformat.read.run.batches import read_split
from lakeformat.storage.port import Storage

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ChangeImages", "change_images", "image_columns", "image_schema", "read_changes"]

Ints = npt.NDArray[np.int64]

#: Name of the record key column in Hudi's CDC log files.
_LOGGED_KEY: Final = "record_key"
_ALL: Final = Always(True)
_META: Final = pa.schema([(name, pa.string()) for name in META_COLUMNS])


def image_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of changes: ``op`` (``i``, ``u`` or ``d``), ``ts_ms``, and the row ``before`` and ``after``.

    ``ts_ms`` is the commit's instant time as text, ``yyyyMMddHHmmssSSS``. The name is Hudi's; the value is not a
    number of milliseconds.
    """
    image = pa.struct(list(columns))
    return pa.schema([("op", pa.string()), ("ts_ms", pa.string()), ("before", image), ("after", image)])


@public
@dataclass(frozen=True)
class ChangeImages:
    """Every change that the commits of a range made: op, ts_ms, before and after.

    ``op`` is ``i``, ``u`` or ``d``. ``ts_ms`` is the commit's instant time as text; the name is Hudi's.
    Commits are in the order in which they completed. Within a commit the deletes come first, and a key that exists
    before and after it is one update, even if its partition changes. So a replica that applies the changes in this
    order, by key, equals the table. Nothing is read before a method that returns changes is called.
    """

    storage: Storage
    plan: ChangePlan
    options: Options

    @property
    def since(self) -> str:
        """Return the exclusive start of the range."""
        return self.plan.since

    @property
    def until(self) -> str:
        """Return the last commit of the range, for the next call's ``since``; ``since`` if the range is empty."""
        return self.plan.until

    def __repr__(self) -> str:
        return preview(self._head, lambda: first_rows(self.to_batches()))

    def _repr_html_(self) -> str:
        return preview_html(self._head, lambda: first_rows(self.to_batches()))

    @property
    def _head(self) -> str:
        return f"ChangeImages(since={self.since!r}, until={self.until!r})"

    def to_batches(self, columns: Sequence[str] | None = None, *, where: Where | None = None) -> pa.RecordBatchReader:
        """Return the changes as a stream of Arrow batches.

        Examples:
            >>> table.changes("000", images=True).to_arrow(where="flight_id = 7").num_rows  # who changed this row?
            1

        Args:
            columns: columns of ``before`` and ``after``; by default all of the table's without the meta columns.
            where: only changes whose row matches before or after; a condition as in `lakeformat.Table.read`.

        Raises:
            InvalidInputError: the table does not have a column, or the condition cannot be answered exactly.
            InstantNotAvailableError, CorruptTableError: while batches are read, a file is missing or damaged.
        """
        table, shown = self.plan.table, image_columns(self.plan, columns)
        full = readable_schema(table, meta_columns=True)
        condition = _ALL if where is None else bind_where(where, full, self.options.read.time_zone or "UTC")
        more = {path_parts(path)[0] for path in columns_of(condition)}.difference(shown.names)
        asked = pa.schema([*shown, *(field for field in full if field.name in more)])
        commits = self.plan.by_commit()
        batches = (batch for commit in commits for batch in read_changes(self.storage, commit, table, asked))
        if where is not None:
            batches = (_choose(batch, condition, image_schema(shown)) for batch in batches)
        return pa.RecordBatchReader.from_batches(image_schema(shown), batches)

    def to_arrow(self, columns: Sequence[str] | None = None, *, where: Where | None = None) -> pa.Table:
        """Return the changes as an Arrow table, in memory. Arguments and errors as in `to_batches`."""
        return self.to_batches(columns, where=where).read_all()

    def to_pandas(self, columns: Sequence[str] | None = None, *, where: Where | None = None) -> pd.DataFrame:
        """Return the changes as a pandas frame. Arguments and errors as in `to_batches`."""
        frame: pd.DataFrame = to_frame(self.to_arrow(columns, where=where))
        return frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the changes as a capsule of the Arrow PyCapsule protocol."""
        return self.to_batches().__arrow_c_stream__(requested_schema)


def _choose(images: pa.RecordBatch, condition: Predicate, schema: pa.Schema) -> pa.RecordBatch:
    """Return the changes whose row matches before or after, with the columns of a schema."""
    conditions = [
        pc.and_(
            rows.is_valid(),
            mask(condition, pa.RecordBatch.from_arrays(rows.flatten(), schema=pa.schema(list(rows.type)))),
        )
        for rows in (images.column("before"), images.column("after"))
    ]
    return conform(images.filter(pc.or_(*conditions)), schema)


def image_columns(plan: ChangePlan, columns: Sequence[str] | None) -> pa.Schema:
    """Return the columns of ``before`` and ``after``: the named ones, by default all without the meta columns.

    Raises:
        InvalidInputError: the table does not have a column.
    """
    full = readable_schema(plan.table, meta_columns=True)
    names = set(full.names)
    for name in columns or ():
        if name not in names:
            raise InvalidInputError(
                f"unknown column {name!r}{nearest(name, full.names)}; the table has {', '.join(full.names)}"
            )
    return reader_schema(plan.table) if columns is None else pa.schema([full.field(name) for name in columns])


def change_images(
    context: TableContext, options: Options, *, since: Moment | None = None, until: Moment | None = None
) -> ChangeImages:
    """Return the changes of a range. Arguments and errors as in `lakeformat.Table.changes`."""
    config = context.store.config()
    since, until = options.read.begin if since is None else since, options.read.end if until is None else until
    plan = plan_changes(context, options, config, parse_range_bounds(since, until, config))
    return ChangeImages(context.storage, plan, options)


def read_changes(
    storage: Storage, changes: Sequence[GroupChange], table: pa.Schema, columns: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of one commit in some file groups, with the schema of `image_schema`.

    Args:
        changes: changes of one commit. If one file group may delete a key that another file group inserts, the changes
            of both groups must be included. Otherwise the delete and the insert could not become one update.
        table: the table's columns.
        columns: columns of ``before`` and ``after``.
    """
    names = image_schema(columns).names
    met = {
        id(change) for some in find_shared_key_sets(changes) for change in some
    }  # Compare by identity, because comparing by value is slow for many changes.
    # If a file group was replaced, and no other file group may insert its keys, all its changes are deletes without a
    # matching insert. They are yielded first, batch by batch, so they are never collected in memory.
    gone = [
        change for change in changes if change.after is None and not change.change_data_logs and id(change) not in met
    ]
    all_go = {id(change) for change in gone}
    rest = [change for change in changes if id(change) not in all_go]
    mixed = [change for change in rest if id(change) in met or change.may_delete]
    others = [change for change in rest if not (id(change) in met or change.may_delete)]

    def yield_images(group_changes: Sequence[GroupChange]) -> Iterator[pa.RecordBatch]:
        for change in group_changes:
            yield from _group_images(storage, change, table, columns, by_slices=id(change) in met)

    ordered = (
        order_images(yield_images(mixed), _keyed_schema(columns))
        if len(mixed) > 1 or any(of.change_data_logs for of in mixed)
        else None
    )
    for batch in chain(yield_images(gone), yield_images(mixed) if ordered is None else ordered, yield_images(others)):
        yield batch.select(names)


def _keyed_schema(columns: pa.Schema) -> pa.Schema:
    """Return the schema of changes, preceded by the record key and partition path of the row."""
    return pa.schema([pa.field(KEY, pa.string()), pa.field(PARTITION, pa.string()), *image_schema(columns)])


def _group_images(
    storage: Storage, change: GroupChange, table: pa.Schema, columns: pa.Schema, *, by_slices: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the changes of one commit in one file group. Deletes come first, except if Hudi's CDC log files are read.

    The CDC log files of the commit are usable if they contain the changed rows and ``columns`` has no Hudi meta column.
    If they are usable, the changes come from them, unless ``by_slices`` is set. Otherwise the file slices before and
    after the commit are compared.

    Args:
        by_slices: True to compare the file slices even if there are usable CDC log files, because these may lack record
            keys: without keys, a delete cannot be matched with an insert into another file group. Exception: if a file
            of the slices is missing, usable CDC log files are read all the same.

    Raises:
        InstantNotAvailableError: a file of the slices is missing, and there are no usable CDC log files.
    """
    rows, shaped = _SliceRows(storage, table, columns), _ImageBuilder(change, columns)
    use_log = change.change_data_logs and not set(columns.names).intersection(META_COLUMNS)
    if use_log and (change.missing_message or not by_slices):
        yield from _read_change_data(storage, rows, shaped, change)
    elif change.missing_message:
        raise InstantNotAvailableError(change.missing_message)
    elif change.after is None:
        if change.before is not None:
            yield from (shaped.make_deletes(batch) for batch in rows.read_batches(change.before))
    elif change.before is None:
        yield from shaped.make_inserts(rows.read_table(change.after, _commit_time_predicate(change.instant_time)))
    elif (images := _compare_by_counts(rows, change, change.before, change.after)) is not None:
        old, written = images
        yield from shaped.make_changes(old, written)
    elif change.appended_logs:
        touched, schema, grown = rows.read_appended_keys(change), rows.with_times, change.grown_slice
        if grown is None:
            old, new = (rows.read_matching(part, touched, schema) for part in (change.before, change.after))
        else:
            old, new = rows.read_around_append(grown, touched, change.instant_time)
        news, gone = _compare_versions(change.instant_time, old, new)
        yield from (shaped.make_deletes(batch) for batch in _select_keys(old, gone).to_batches())
        yield from shaped.make_changes(_select_keys(old, news), _select_keys(new, news))
    else:
        old, new = rows.read_versions(change.before), rows.read_versions(change.after)
        news, gone = _compare_versions(change.instant_time, old, new)
        yield from (shaped.make_deletes(batch) for batch in rows.read_matching(change.before, gone).to_batches())
        yield from shaped.make_changes(rows.read_matching(change.before, news), rows.read_matching(change.after, news))


def _read_change_data(
    storage: Storage, rows: _SliceRows, shaped: _ImageBuilder, change: GroupChange
) -> Iterator[pa.RecordBatch]:
    """Yield the changes in the CDC log files of a commit.

    If the CDC log files have no column ``after``, the rows after the commit are read from the file slice.
    """
    for log in change.change_data_logs:
        for batch in read_change_data(storage, log):
            ops = batch.column("op")
            if "after" not in batch.column_names:
                if change.after is None:
                    raise InstantNotAvailableError(change.missing_message)
                keys = batch.column(_LOGGED_KEY).combine_chunks()
                rows_read = rows.read_matching(change.after, keys.filter(pc.not_equal(ops, "d").combine_chunks()))
                positions = pc.index_in(keys, value_set=_record_keys(rows_read))
                after = rows_read.take(positions)
            else:
                after = rows.to_rows(batch.column("after"))
            before = rows.to_rows(batch.column("before"))
            yield from shaped.make_updates(before.filter(pc.equal(ops, "u")), after.filter(pc.equal(ops, "u")))
            yield from shaped.make_inserts(after.filter(pc.equal(ops, "i")))
            yield from (shaped.make_deletes(batch) for batch in before.filter(pc.equal(ops, "d")).to_batches())


def _compare_by_counts(
    rows: _SliceRows, change: GroupChange, before: Part, after: Part
) -> tuple[pa.Table, pa.Table] | None:
    """Return the rows that a commit wrote, before and after it; None if the commit may have deleted rows.

    The row counts in the footers decide: if the count grew by exactly the number of inserted rows, the commit deleted
    no row. If a slice has log files, or a key has several rows, the result is None too.
    """
    if not isinstance(before, FilePart) or not isinstance(after, FilePart):
        return None
    written = rows.read_table(after, _commit_time_predicate(change.instant_time))
    came = rows.count_rows(after) - rows.count_rows(before)
    if change.inserts_only and came == written.num_rows:
        return rows.read_table(before, Always(False)), written
    keys = _record_keys(written)
    old = rows.read_matching(before, keys)
    if _has_repeated_keys(keys) or _has_repeated_keys(_record_keys(old)):
        return None
    inserted = pc.sum(pc.invert(pc.is_in(keys, value_set=_record_keys(old)))).as_py() or 0
    return (old, written) if came == inserted else None


def _compare_versions(instant_time: str, old: pa.Table, new: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Return the keys of rows that are new or have changed, and the keys of rows that do not exist any more.

    A row has changed if its commit time differs between ``old`` and ``new``, or is that of the commit. The commit time
    may also become older: if the commit deletes a row, an older record of the same key may appear again.
    """
    if _has_repeated_keys(_record_keys(old)) or _has_repeated_keys(_record_keys(new)):
        return _compare_repeated_keys(instant_time, old, new)
    keys, times = _record_keys(new), new.column(COMMIT_TIME).combine_chunks()
    positions = pc.index_in(keys, value_set=_record_keys(old))
    was = old.column(COMMIT_TIME).combine_chunks().take(positions)
    same = pc.and_(pc.fill_null(pc.equal(was, times), False), pc.not_equal(times, instant_time))
    gone = pc.invert(pc.is_in(_record_keys(old), value_set=keys))
    return keys.filter(pc.invert(same)), _record_keys(old).filter(gone)


def _compare_repeated_keys(instant_time: str, old: pa.Table, new: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Compare as `_compare_versions` does if several rows have the same key.

    A key has changed if one of its rows has changed. A key does not exist any more if it has no row left.
    """
    before, after = _record_keys(old), _record_keys(new)
    was, now = pair_keys(before, after)
    times = (of.column(COMMIT_TIME).combine_chunks() for of in (old, new))
    own, other = (of.take(pa.array(positions)) for of, positions in zip(times, (was, now), strict=True))
    same = np.asarray(pc.and_(pc.fill_null(pc.equal(own, other), False), pc.not_equal(other, instant_time)))
    left, right = np.ones(len(before), bool), np.ones(len(after), bool)
    left[was[same.astype(bool)]] = right[now[same.astype(bool)]] = False
    changed = pc.unique(pa.concat_arrays([before.filter(pa.array(left)), after.filter(pa.array(right))]))
    is_there = pc.is_in(changed, value_set=after)
    return changed.filter(is_there), changed.filter(pc.invert(is_there))


def _has_repeated_keys(keys: pa.Array) -> bool:
    return bool(pc.count_distinct(keys).as_py() < len(keys))


def _select_keys(rows: pa.Table, keys: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=keys))


def _commit_time_predicate(instant_time: str) -> Predicate:
    return bind(Comparison(COMMIT_TIME, "=", instant_time), _META)


def _record_keys(rows: pa.Table) -> pa.Array:
    return pa.concat_arrays([*rows.column(RECORD_KEY).chunks, pa.array([], pa.string())])


class _SliceRows:
    """A reader of the slices of one file group. It returns the record key, then the columns of the changes."""

    def __init__(self, storage: Storage, table: pa.Schema, columns: pa.Schema) -> None:
        self._storage, self._table = storage, table
        others = (field for field in columns if field.name != RECORD_KEY)
        self._schema = pa.schema([pa.field(RECORD_KEY, pa.string()), *others])

    def read_batches(
        self, part: Part, predicate: Predicate = _ALL, schema: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        query = ReadQuery(schema or self._schema, predicate)
        return read_split(self._storage, Split((part,)), query, self._table)

    def read_table(self, part: Part, predicate: Predicate) -> pa.Table:
        return pa.Table.from_batches(self.read_batches(part, predicate), self._schema)

    def read_matching(self, part: Part, keys: pa.Array, schema: pa.Schema | None = None) -> pa.Table:
        """Return the rows with these keys. Only row groups that may have such a key are read."""
        schema = schema or self._schema
        if not len(keys):
            return schema.empty_table()
        least, most = pc.min_max(keys).values()
        between = And((Comparison(RECORD_KEY, ">=", least.as_py()), Comparison(RECORD_KEY, "<=", most.as_py())))
        batches = self.read_batches(part, bind(between, _META), schema)
        batches_kept = (batch.filter(pc.is_in(batch.column(RECORD_KEY), value_set=keys)) for batch in batches)
        return pa.Table.from_batches(batches_kept, schema)

    def to_rows(self, images: pa.ChunkedArray) -> pa.Table:
        """Convert the struct values in Hudi's CDC log files to rows; a null becomes a row of nulls."""
        chunks = [
            pa.RecordBatch.from_arrays(chunk.flatten(), schema=pa.schema(list(chunk.type))) for chunk in images.chunks
        ]
        empty = pa.schema(list(images.type))
        return conform(pa.Table.from_batches(chunks, empty), self._schema)

    def read_appended_keys(self, change: GroupChange) -> pa.Array:
        """Return the record keys in the log blocks that a commit appended."""
        appended = [pa.array([], pa.string())]
        for log in change.appended_logs:
            blocks = [block for block in read_blocks(self._storage, log) if block.instant_time == change.instant_time]
            data = [block for block in blocks if block.kind.is_data_or_delete]
            for part in decode_blocks(self._storage, data, columns=[RECORD_KEY]):
                keys = part.keys if isinstance(part, LogDeletes) else part.rows.column(RECORD_KEY)
                appended += (
                    [pa.array(keys).cast(pa.string())] if isinstance(keys, pa.Array) else keys.cast(pa.string()).chunks
                )
        return pc.unique(pa.concat_arrays(appended))

    def read_around_append(self, part: SlicePart, keys: pa.Array, instant_time: str) -> tuple[pa.Table, pa.Table]:
        """Return the rows with these keys, and their commit times, before and after a commit appended to the slice."""
        table = readable_schema(self._table, meta_columns=True)
        return read_around_append(
            self._storage, part.slice, part.merging, table, self.with_times, keys=keys, instant_time=instant_time
        )

    @property
    def with_times(self) -> pa.Schema:
        """Return the schema of the changed rows, with the commit time column added if it is not among the columns."""
        has_time = COMMIT_TIME in self._schema.names
        return self._schema if has_time else self._schema.append(pa.field(COMMIT_TIME, pa.string()))

    def read_versions(self, part: Part) -> pa.Table:
        """Return the record key and commit time of each row."""
        schema = pa.schema([pa.field(name, pa.string()) for name in (RECORD_KEY, COMMIT_TIME)])
        return pa.Table.from_batches(self.read_batches(part, schema=schema), schema).combine_chunks()

    def count_rows(self, part: FilePart) -> int:
        """Return the number of rows of a base file, from its footer."""
        where = f"{self._storage.location}/{part.path}"
        try:
            with open_rows(self._storage, part.path) as source, open_parquet(source, where) as parquet:
                return int(parquet.metadata.num_rows)
        except FileNotFoundError:
            raise missing_file_error(self._storage, part.path) from None


class _ImageBuilder:
    """A builder of changes, with the schema of `_keyed_schema`, from rows before and after a commit."""

    def __init__(self, change: GroupChange, columns: pa.Schema) -> None:
        self._time, self._partition = change.instant_time, change.partition_path
        self._schema, self._names = _keyed_schema(columns), columns.names

    def make_deletes(self, before: pa.RecordBatch) -> pa.RecordBatch:
        return self._batch("d", before, None)

    def make_inserts(self, after: pa.Table) -> Iterator[pa.RecordBatch]:
        return (self._batch("i", None, batch) for batch in after.to_batches() if batch.num_rows)

    def make_changes(self, before: pa.Table, after: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield the changes of some keys, given all their rows before and after: deletes, updates, inserts."""
        was, now = pair_keys(_record_keys(before), _record_keys(after))
        left, right = (
            np.setdiff1d(np.arange(of.num_rows), positions) for of, positions in ((before, was), (after, now))
        )
        yield from (self.make_deletes(batch) for batch in before.take(pa.array(left)).to_batches() if batch.num_rows)
        yield from self.make_updates(before.take(pa.array(was)), after.take(pa.array(now)))
        yield from self.make_inserts(after.take(pa.array(right)))

    def make_updates(self, before: pa.Table, after: pa.Table) -> Iterator[pa.RecordBatch]:
        """Yield updates. The rows before and after are in the same order."""
        if after.num_rows:
            (old,), (new,) = (of.combine_chunks().to_batches() for of in (before, after))
            yield self._batch("u", old, new)

    def _batch(self, op: str, before: pa.RecordBatch | None, after: pa.RecordBatch | None) -> pa.RecordBatch:
        rows = before if after is None else after
        assert rows is not None  # noqa: S101  Callers pass ``before``, ``after`` or both.
        count, keys = rows.num_rows, rows.column(RECORD_KEY)
        columns = [keys, *(pa.repeat(text, count) for text in (self._partition, op, self._time))]
        return pa.record_batch(
            [*columns, self._make_image(before, count), self._make_image(after, count)], schema=self._schema
        )

    def _make_image(self, rows: pa.RecordBatch | None, count: int) -> pa.Array:
        field = self._schema.field("after")
        if rows is None:
            return pa.nulls(count, field.type)
        return pa.StructArray.from_arrays([rows.column(name) for name in self._names], fields=list(field.type))
