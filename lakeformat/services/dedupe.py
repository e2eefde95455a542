"""Removal of surplus rows: rows for which the same partition has a newer row with the same record key.

One commit rewrites the file groups with surplus rows. The commit is a clustering: it replaces file groups, and the
remaining rows stay unchanged. Therefore the code that locks, undoes and checks a clustering is used. Duplicates are
searched before the lock is taken. If another writer has changed the file groups since, nothing is published.

Memory: the keys of one partition, the rows of duplicate keys, and a row group.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError, UnsupportedTableError, WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.hashing_rings import uses_consistent_hashing
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.merge.order import key_codes, last_of_each, ordering_columns, ordering_ranks
from lakeformat.model.files import FileGroupId, FileSlice
from lakeformat.model.record import COMMIT_TIME, RECORD_KEY
from lakeformat.model.service_plans import ClusteringPlan
from lakeformat.model.table_config import MergeMode
from lakeformat.public import OneLine, public
from lakeformat.services.cluster.group_source import GroupSource, SliceToCluster, open_group
from lakeformat.services.cluster.local_rewriter import Group
from lakeformat.services.cluster.plan import EXECUTION_CLASS, clustering_group
from lakeformat.services.cluster.rewrite import FileMaker
from lakeformat.services.cluster.run import ClusterRequest, ClusterSession, index_binds_rows, make_cluster_request
from lakeformat.services.cluster.settings import RewriteSettings
from lakeformat.services.scheduled_service import list_planned_groups
from lakeformat.timeline.history import DEDUPE
from lakeformat.transaction.commit.hooks import Hooks
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.rows.arrow_pool import reuse_memory

__all__ = ["DUPLICATES", "DedupeResult", "DedupeSession", "find_duplicate_keys", "mark_newest", "ranking_fields"]


def find_duplicate_keys(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the distinct keys that occur more than once."""
    counts = pa.table({"key": keys}).group_by("key").aggregate([("key", "count")])
    return counts.filter(pc.greater(counts.column("key_count"), 1)).column("key")


def ranking_fields(ordering_fields: Sequence[str], *, by_event_time: bool) -> tuple[str, ...]:
    """Return the fields that decide which of the rows with one key is the newest, most important first.

    Args:
        by_event_time: whether the table's merge mode lets the greatest ordering value win; else the latest commit wins.
    """
    return (*ordering_fields, COMMIT_TIME) if by_event_time else (COMMIT_TIME, *ordering_fields)


def mark_newest(rows: pa.Table, fields: Sequence[str], sequence: str = "") -> npt.NDArray[np.bool_]:
    """Return a boolean for each row: whether the row is the newest one with its record key.

    Null is older than every value. If rows are equal in all fields, the last one is the newest.

    Args:
        rows: table with the record key column and ``fields``; a field of a struct is named by its dotted path.
        fields: fields that decide which row is the newest, most important first (`ranking_fields`).
        sequence: the one of them that holds texts ``file.position``, which are compared as two numbers; "" for none.
    """
    kept = np.ones(rows.num_rows, bool)
    codes = key_codes(rows.column(RECORD_KEY))
    if codes is not None:
        ranks = ordering_ranks([ordering_columns(rows, [name], is_sequence=name == sequence)[0] for name in fields])
        winners = last_of_each(codes, np.arange(rows.num_rows), ranks)
        kept[:] = False
        kept[winners[winners >= 0]] = True
    return kept


Ints = npt.NDArray[np.int64]
_LOG: Final = logging.getLogger("lakeformat.services")
#: Schema of `DedupeResult.duplicates`: one row for each row whose key occurs more than once in its partition.
DUPLICATES: Final = pa.schema(
    [
        pa.field("partition_path", pa.string()),
        pa.field("record_key", pa.string()),
        pa.field("commit_time", pa.string()),
        pa.field("path", pa.string()),
        pa.field("kept", pa.bool_()),
    ]
)


@public
@dataclass(frozen=True, slots=True, repr=False)
class DedupeResult(OneLine):
    """Rows that a dedupe removed, or would remove.

    Attributes:
        instant_time: instant time of the commit; "" if there was nothing to do, and for a dry run.
        duplicates: one row for each row of a duplicate key: partition, key, commit, file, and whether the row stays.
    """

    instant_time: str
    duplicates: pa.Table

    @property
    def keys(self) -> int:
        """Return how many keys occur more than once."""
        return int(pc.sum(self.duplicates.column("kept"), min_count=0).as_py())

    @property
    def rows(self) -> int:
        """Return how many rows were removed, or would be."""
        return int(self.duplicates.num_rows) - self.keys

    def __str__(self) -> str:
        if not self.duplicates.num_rows:
            return "dedupe: no key comes twice"
        head = f"dedupe {self.instant_time}" if self.instant_time else "dedupe (dry run)"
        return f"{head}: {self.rows:,} surplus rows of {self.keys:,} keys"


@dataclass(frozen=True)
class _Duplicates:
    """Result of a search for duplicates.

    Attributes:
        duplicates: all rows of duplicate keys, in the schema `DUPLICATES`.
        slices: file slices with surplus rows.
        surplus: maps the file group of each of these slices to the positions of its surplus rows, counted in the order
            in which `GroupSource.batches` yields the rows.
    """

    duplicates: pa.Table = field(default_factory=DUPLICATES.empty_table)
    slices: tuple[FileSlice, ...] = ()
    surplus: Mapping[FileGroupId, Ints] = field(default_factory=dict)


class DedupeSession:
    """Finds rows with the same key in the same partition, and removes all except the newest."""

    def __init__(self, context: TableContext, options: Options) -> None:
        self.context, self.options = context, options

    def dry_run(self) -> DedupeResult:
        """Return the duplicates without changing anything."""
        return DedupeResult("", self._find().duplicates)

    def run(self) -> DedupeResult:
        """Remove the surplus rows. Return all rows of duplicate keys, removed or not."""
        search = self._find()
        if not search.slices:
            return DedupeResult("", search.duplicates)
        session = _DedupeCommit(self.context, self.options, search)
        with reuse_memory():
            done = session.cluster(make_cluster_request(self.options, by=()))
        result = DedupeResult(done.instant_time, search.duplicates)
        _LOG.info("%s: %s", self.context.storage.location, result)
        return result

    def _find(self) -> _Duplicates:
        snapshot, location = self.context.writable_snapshot(), self.context.storage.location
        config = snapshot.config
        if not config.record_fields:
            raise InvalidInputError(f"{location} has no record key: each of its rows has a key of its own")
        if not snapshot.slices:
            return _Duplicates()
        settings = config.merge_settings
        by_event_time = config.merge_mode in {MergeMode.EVENT_TIME, MergeMode.POSTGRES, MergeMode.MYSQL}
        fields = ranking_fields(settings.ordering_fields, by_event_time=by_event_time)
        sequence = settings.ordering_fields[0] if settings.is_sequence else ""
        schema = snapshot.columns(location)
        tables: list[pa.Table] = [DUPLICATES.empty_table()]
        slices: list[FileSlice] = []
        surplus: dict[FileGroupId, Ints] = {}
        for path, pieces in snapshot.slices.items():
            ones = [SliceToCluster(piece, snapshot.rewriting(piece)) for piece in pieces]
            source = open_group(self.context.storage, path, ones, schema)
            for piece, rows, lost in _find_surplus(source, fields, sequence):
                tables.append(rows)
                if len(lost):
                    slices.append(piece)
                    surplus[piece.group] = lost
        storage = self.context.storage
        if slices and (index_binds_rows(storage, self.options, snapshot) or uses_consistent_hashing(storage)):
            raise UnsupportedTableError(
                f"{location} is a table of buckets, whose file groups cannot be replaced; delete() the keys and "
                f"upsert() the rows that are right: {_key_text(pa.concat_tables(tables))}"
            )
        return _Duplicates(pa.concat_tables(tables), tuple(slices), surplus)


def _key_text(duplicates: pa.Table) -> str:
    """Return a text with up to three of the duplicate keys and the number of the others, for an error message."""
    keys = pc.unique(duplicates.column("record_key")).to_pylist()
    return ", ".join(map(repr, keys[:3])) + (f" and {len(keys) - 3:,} more" if len(keys) > 3 else "")


def _find_surplus(
    source: GroupSource, fields: Sequence[str], sequence: str
) -> Iterator[tuple[FileSlice, pa.Table, Ints]]:
    """Yield each file slice of the group that has rows with duplicate keys.

    With each slice come a table of these rows in the schema `DUPLICATES`, and the positions of the surplus rows in
    the order in which `GroupSource.batches` yields the rows of the slice.
    """
    keys = [
        pa.chunked_array([b.column(0) for b in source.keys(source_piece)], pa.string())
        for source_piece in source.slices
    ]
    doubled = find_duplicate_keys(pa.chunked_array([chunk for column in keys for chunk in column.chunks], pa.string()))
    if not len(doubled):
        return
    copies = [
        (one, *_read_rows(source, one, doubled, fields))
        for one, column in zip(source.slices, keys, strict=True)
        if pc.any(pc.is_in(column, doubled), min_count=0).as_py()
    ]
    kept = mark_newest(pa.concat_tables([rows for _, rows, _ in copies]), fields, sequence)
    start = 0
    for piece, rows, positions in copies:
        keeps = kept[start : start + rows.num_rows]
        start += rows.num_rows
        files = piece.file_slice.files
        report = pa.table(
            [
                pa.repeat(source.partition_path, rows.num_rows),
                rows.column(RECORD_KEY),
                rows.column(COMMIT_TIME),
                pa.repeat(files[0].path, rows.num_rows),
                pa.array(keeps),
            ],
            schema=DUPLICATES,
        )
        yield piece.file_slice, report, positions[~keeps]


def _read_rows(
    source: GroupSource, piece: SliceToCluster, doubled: pa.ChunkedArray, fields: Sequence[str]
) -> tuple[pa.Table, Ints]:
    """Read the rows of a slice whose key is in ``doubled``.

    Return a table with their keys, commit times and ordering fields, and the positions of these rows in the order in
    which `GroupSource.batches` yields the rows of the slice.
    """
    names = list(dict.fromkeys([RECORD_KEY, COMMIT_TIME, *(_top(source.schema, field) for field in fields)]))
    tables: list[pa.Table] = []
    positions: list[Ints] = []
    start = 0
    for batch in source.batches(piece, threads=False, encoded=frozenset()):
        hit = np.flatnonzero(np.asarray(pc.is_in(_decode(batch.column(RECORD_KEY)), doubled)))
        rows = pa.table({name: _decode(batch.column(name)) for name in names})
        tables.append(rows.take(pa.array(hit)))
        positions.append(hit + start)
        start += batch.num_rows
    return pa.concat_tables(tables), np.concatenate(positions)


def _top(schema: pa.Schema, path: str) -> str:
    return path if path in schema.names else path.partition(".")[0]


def _decode(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if kind_of(column.type) is Kind.DICTIONARY else column


class _DedupeCommit(ClusterSession):
    """A clustering that rewrites the file groups with surplus rows, without these rows."""

    def __init__(self, context: TableContext, options: Options, duplicates: _Duplicates) -> None:
        super().__init__(context, options, self._rewrite_without_surplus, Hooks().with_verb(DEDUPE))
        self._found = duplicates

    def plan(self, snapshot: Snapshot, request: ClusterRequest) -> ClusteringPlan | None:
        """Return a plan that rewrites each file group with surplus rows.

        Raises:
            WriteConflictError: another writer has changed one of the file groups, or a pending plan includes it.
        """
        location = self.context.storage.location
        live = {piece.group: piece for piece in snapshot.each_slice()}
        closed = list_planned_groups(self.context.store, snapshot.timeline)
        for piece in self._found.slices:
            if live.get(piece.group) != piece:
                raise WriteConflictError(f"{location}: {piece.files[0].path} has changed meanwhile; run dedupe again")
            if piece.group in closed:
                raise WriteConflictError(
                    f"{location}: a pending clustering or compaction has {piece.files[0].path}; run or cancel it first"
                )
        groups = tuple(clustering_group([piece], request.limits, location) for piece in self._found.slices)
        return ClusteringPlan(groups, EXECUTION_CLASS)

    def _rewrite_without_surplus(
        self, context: TableContext, groups: Sequence[Group], settings: RewriteSettings
    ) -> list[WrittenFile]:
        self.session.transaction.report.rows["deleted"] = sum(map(len, self._found.surplus.values()))
        written: list[WrittenFile] = []
        for number, group in enumerate(groups):
            source = open_group(context.storage, group.partition_path, group.slices, settings.files.schema)
            surplus = self._found.surplus[group.slices[0].file_slice.group]
            rows = source.rows - len(surplus)
            maker = FileMaker(context.storage, settings, group.partition_path, str(number), frozenset())
            written += maker.stream(_remaining_rows(source, surplus), rows, max(rows, 1))
        return written


def _remaining_rows(source: GroupSource, surplus: Ints) -> Iterator[pa.Table]:
    """Yield the rows of the only slice of ``source``, except the rows at the positions ``surplus``."""
    start = 0
    for batch in source.batches(source.slices[0], threads=False, encoded=frozenset()):
        positions = surplus[(surplus >= start) & (surplus < start + batch.num_rows)] - start
        start += batch.num_rows
        mask = np.ones(batch.num_rows, bool)
        mask[positions] = False
        if mask.any():
            yield pa.Table.from_batches([batch.filter(pa.array(mask)) if len(positions) else batch])
