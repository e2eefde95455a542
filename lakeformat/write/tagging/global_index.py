"""Step 4 for global indexes: each row goes to the file that holds its key in any partition, or to its own partition.

Source: Hudi's ``HoodieIndexUtils.tagGlobalLocationBackToRecords`` and ``mergeForPartitionUpdatesIfNeeded``. If a row
changes its partition, it is deleted from the old one, merged with the stored row, and inserted into the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.conform import conform
from lakeformat.arrow.gather import gather
from lakeformat.arrow.text_order import sort_texts
from lakeformat.concurrency import thread_pool
from lakeformat.files.base_file import ROW_GROUP_ROWS
from lakeformat.index.port import Ints, Tagged
from lakeformat.index.record_index import confirm_places
from lakeformat.index.stored_keys import select_one_place
from lakeformat.keys.record_keys import field_column
from lakeformat.merge import MergeRule, known_values, stored_wins, top_columns
from lakeformat.model.files import FileSlice
from lakeformat.model.record import IS_DELETED, PARTITION_PATH, RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.timeline.write_report import Report
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.incoming import slice_batches
from lakeformat.write.rows.prepare import ANY_PARTITION, deleted_rows_of, split_by_partition
from lakeformat.write.tagging.tagger import (
    InsertFilter,
    PartitionTagger,
    TaggedRows,
    choose_new,
    combine_rows,
    locate_rows,
)

__all__ = ["GlobalTagger", "RoutingSettings", "group_by_partition", "route_to_partitions", "split_by_own_partition"]

Bools = npt.NDArray[np.bool_]
#: A function that yields a slice's rows, with the record key and these columns, in batches of at most so many rows.
SliceReader: TypeAlias = Callable[[FileSlice, pa.Schema, int], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    """Settings that decide which partition a row of a global index goes to.

    Attributes:
        schema: the table's columns after this write.
        rule: the merge rule; it decides whether a newer stored row prevents the move of its key.
        partition_fields: the columns from which the partition path is made.
        follows_input: whether a row goes to its own partition even if its key is stored in another one. If not, it goes
            to the partition where its key is stored.
        trusts_index: whether a key may be missing in the slice that the index names. If the slice is in the row's own
            partition, the merge finds out. If not, its base file is read.
    """

    schema: pa.Schema
    rule: MergeRule
    partition_fields: tuple[str, ...]
    follows_input: bool
    trusts_index: bool = False

    @classmethod
    def of(cls, job: WriteJob, schema: pa.Schema, *, may_move: bool) -> RoutingSettings:
        """Return the settings of a write.

        Args:
            schema: the table's columns after this write.
            may_move: whether rows may move to another partition, if the options also allow it.
        """
        index = job.index_settings
        moves = may_move and index.update_partition
        return cls(schema, job.rule, job.config.partition_fields, moves, may_move and index.trusts_record_index)


@dataclass(frozen=True)
class GlobalTagger(PartitionTagger):
    """The tagger of global indexes, which look for a key in all partitions.

    Attributes:
        schema: the table's columns after this write.
    """

    schema: pa.Schema

    def tag(self, rows: Mapping[str, pa.Table], report: Report) -> TaggedRows:
        """Look up the rows' keys in all partitions, then assign each row to a partition.

        If the operation looks up no keys, each row goes to its own partition.
        """
        rows, winners = combine_rows(self.job, rows, report)
        is_routed = ANY_PARTITION in rows
        if is_routed and not self.job.needs_tagging:
            rows, is_routed = split_by_own_partition(rows[ANY_PARTITION]), False
            winners = dict.fromkeys(rows)
        with report.step("tag") as counted:
            tagged = locate_rows(self, rows, winners, counted)
            if is_routed:
                settings = RoutingSettings.of(self.job, self.schema, may_move=self.insert_filter is None)
                whole, tagged = route_to_partitions(
                    self.storage,
                    self._read_slice,
                    rows[ANY_PARTITION],
                    tagged[ANY_PARTITION],
                    settings,
                    self.insert_filter,
                )
                rows = dict.fromkeys(tagged, whole)
                counted["moved"] = sum(len(np.unique(places.keys[places.is_leaving])) for places in tagged.values())
        return TaggedRows(rows, tagged)

    def _read_slice(self, piece: FileSlice, columns: pa.Schema, most_rows: int) -> Iterator[pa.RecordBatch]:
        merging = self.snapshot.rewriting(piece)
        stored = self.snapshot.columns(self.storage.location)
        return slice_batches(self.storage, piece, merging, stored, columns, most_rows)


def split_by_own_partition(rows: pa.Table) -> Mapping[str, pa.Table]:
    """Divide the rows by their partition path column. Return a mapping of partition path to its rows."""
    return split_by_partition(rows, _partition_paths(rows))


def route_to_partitions(
    storage: Storage,
    read_slice: SliceReader,
    rows: pa.Table,
    tagged: Tagged,
    settings: RoutingSettings,
    insert_filter: InsertFilter | None = None,
) -> tuple[pa.Table, Mapping[str, Tagged]]:
    """Assign rows to partitions. Return all rows, and for each partition path a `Tagged` of the rows written there.

    Memory: a few integers per row. If rows move and the rule compares them with the stored rows, also the key and
    ordering column of those stored rows, or all their columns if the rule combines both rows.

    Args:
        read_slice: function that yields a slice's rows with these columns, in batches of at most so many rows.
        rows: rows of all partitions, one per key. If they have no partition path column (deletes), no row is new.
        tagged: the file slices that hold the rows' keys, in the whole table, without false positives unless the
            settings trust the index.
        insert_filter: function that returns a mask of the rows that may be inserted; None allows all rows.
    """
    owners = [piece.group.partition_path for piece in tagged.searched]
    has_paths = PARTITION_PATH in rows.schema.names
    if not has_paths:
        names = sorted({*owners})
        own = np.full(rows.num_rows, -1)
    else:
        paths = _partition_paths(rows)
        names = sorted({*owners, *paths.dictionary.to_pylist()})
        code_of = {name: code for code, name in enumerate(names)}
        own = np.array([code_of[path] for path in paths.dictionary.to_pylist()], np.int64)[
            paths.indices.to_numpy(zero_copy_only=False)
        ]
    file_codes = np.searchsorted(names, owners) if owners else np.empty(0, np.int64)
    tagged = _drop_deleted(tagged, file_codes[tagged.files] == own[tagged.keys], has_paths=has_paths)
    if settings.trusts_index and has_paths:
        tagged = _drop_false_places(storage, rows, tagged, file_codes[tagged.files] != own[tagged.keys])
    codes = file_codes[tagged.files]
    is_leaving = np.zeros(len(tagged.keys), bool)
    # Only now is it known which rows are new: those of deleted keys are, too.
    new = choose_new(rows, tagged.new if has_paths else tagged.new[:0], insert_filter)
    if settings.follows_input and has_paths:
        is_leaving = (codes != own[tagged.keys]) & _mask_movable(rows, settings)[tagged.keys]
        rows, is_leaving = _merge_moving(read_slice, rows, tagged, is_leaving, settings)
        moved = np.setdiff1d(tagged.keys[is_leaving], tagged.keys[~is_leaving])
        new = np.concatenate([new, moved])
        new = new[sort_texts(rows.column(RECORD_KEY).take(pa.array(new)))]
    return rows, group_by_partition(names, tagged, codes, is_leaving, new, own[new])


def _partition_paths(rows: pa.Table) -> pa.DictionaryArray:
    encoded = rows.column(PARTITION_PATH).dictionary_encode()
    joined: pa.DictionaryArray = encoded.unify_dictionaries().combine_chunks()
    return joined


def _mask_movable(rows: pa.Table, settings: RoutingSettings) -> Bools:
    """Return a mask of the rows that may move to another partition.

    Deletes do not move. If merging keeps the stored value of a partition field, the row does not move either.
    """
    may: Bools = ~deleted_rows_of(rows)
    rule = settings.rule
    for name in settings.partition_fields:
        if rule.columns is not None and not {name, name.partition(".")[0]} & rule.columns:
            return np.zeros(rows.num_rows, bool)
        is_set = known_values(field_column(rows, name, "partition"), rule.partial, rule.unavailable)
        may &= True if is_set is None else is_set
    return may


def _drop_deleted(tagged: Tagged, is_own: Bools, *, has_paths: bool) -> Tagged:
    """Remove from ``tagged`` the locations of rows in slices whose log files have deleted the row.

    If such a slice is in the row's own partition, and no other slice holds the row, the location remains. So the new
    version of the row goes to the slice of the deleted version. In another slice, an index would find the key twice:
    there, and in the slice of the deleted version.

    Args:
        is_own: for each location, whether the slice is in the row's own partition.
        has_paths: whether the rows have a partition path column. If so, rows without a location become new rows.
    """
    if tagged.is_deleted is None:
        return tagged
    candidates = np.flatnonzero(~tagged.is_deleted | is_own)
    is_kept = np.zeros(len(tagged.keys), bool)
    is_kept[candidates[select_one_place(tagged.keys[candidates], tagged.is_deleted[candidates])]] = True
    homeless = np.setdiff1d(tagged.keys, tagged.keys[is_kept])
    new = np.concatenate([tagged.new, homeless]) if has_paths else tagged.new
    return replace(
        tagged, keys=tagged.keys[is_kept], files=tagged.files[is_kept], new=new, is_deleted=None, base_rows=None
    )


def _drop_false_places(storage: Storage, rows: pa.Table, tagged: Tagged, is_foreign: Bools) -> Tagged:
    """Remove from ``tagged`` the locations in other partitions whose base file lacks the key. Its row becomes new."""
    foreign = np.flatnonzero(is_foreign)
    if not len(foreign):
        return tagged
    is_kept = np.ones(len(tagged.keys), bool)
    is_kept[foreign] = confirm_places(
        storage, tagged.searched, rows.column(RECORD_KEY), tagged.keys[foreign], tagged.files[foreign]
    )
    new = np.concatenate([tagged.new, tagged.keys[~is_kept]])
    return replace(tagged, keys=tagged.keys[is_kept], files=tagged.files[is_kept], new=new, base_rows=None)


def _merge_moving(
    read_slice: SliceReader, rows: pa.Table, tagged: Tagged, is_leaving: Bools, settings: RoutingSettings
) -> tuple[pa.Table, Bools]:
    """Merge the rows that move to another partition with their stored rows.

    Return all rows, and a mask of the locations in ``tagged`` from which rows still move. If the stored row is newer,
    the incoming row does not move: it goes to the stored row's slice, where the merge handle keeps the stored row.
    """
    rule = settings.rule
    makes_rows = rule.makes_rows or rule.columns is not None
    if not is_leaving.any() or not (rule.stored_may_win or makes_rows):
        return rows, is_leaving
    columns = settings.schema if makes_rows else _ordering_schema(settings.schema, rule.ordering)
    positions, stored = _read_stored_rows(read_slice, rows, tagged, is_leaving, columns)
    if rule.stored_may_win:
        incoming = rule.ordering_columns(
            rows.select(top_columns(rule.ordering, rows.schema.names)).take(pa.array(positions))
        )
        before = rule.ordering_columns(stored)
        newer = stored_wins(*([column.combine_chunks() for column in columns] for columns in (before, incoming)))
        is_leaving = is_leaving & ~np.isin(tagged.keys, positions[newer])
        positions, stored = positions[~newer], stored.filter(pa.array(~newer))
    if not makes_rows or not len(positions):
        return rows, is_leaving
    _, first = np.unique(positions, return_index=True)
    return _replace_merged(rows, positions[first], gather(stored, first), settings), is_leaving


def _ordering_schema(schema: pa.Schema, fields: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in top_columns(fields, schema.names)])


def _replace_merged(rows: pa.Table, positions: Ints, stored: pa.Table, settings: RoutingSettings) -> pa.Table:
    """Return the rows with all of the table's columns. The rows at ``positions`` are merged with ``stored``."""
    rule, schema = settings.rule, settings.schema
    optional = pa.schema([field.with_nullable(True) for field in schema])
    whole = conform(rows, optional)
    incoming, before = gather(whole, positions), conform(stored, optional)
    if rule.columns is not None:
        chosen = {name: (incoming if name in rule.columns else before).column(name) for name in schema.names}
        merged_rows = pa.table(chosen, schema=optional)
    else:
        merged_rows, _ = rule.make_rows(before, incoming, np.zeros(len(positions), bool))
    place = np.arange(rows.num_rows)
    place[positions] = rows.num_rows + np.arange(len(positions))
    merged = gather(pa.concat_tables([whole, merged_rows]), place)
    extra_columns = set(rows.schema.names).difference(schema.names)
    for name in (PARTITION_PATH, IS_DELETED, RECORD_KEY):
        if name in extra_columns:
            merged = merged.add_column(0, rows.schema.field(name), rows.column(name))
    return merged


def _read_stored_rows(
    read_slice: SliceReader, rows: pa.Table, tagged: Tagged, is_leaving: Bools, columns: pa.Schema
) -> tuple[Ints, pa.Table]:
    """Read the stored versions of rows that move. Return positions of incoming rows, and the stored row of each."""
    keys = rows.column(RECORD_KEY)
    files = np.unique(tagged.files[is_leaving]).tolist()

    def read_file(file: int) -> tuple[Ints, pa.Table]:
        leaving = tagged.keys[is_leaving & (tagged.files == file)]
        return _read_rows(read_slice, tagged.searched[file], keys.take(pa.array(leaving)), leaving, columns)

    with thread_pool(max(1, pa.cpu_count())) as pool:
        parts = list(pool.map(read_file, files))
    return np.concatenate([positions for positions, _ in parts]), pa.concat_tables([table for _, table in parts])


def _read_rows(
    read_slice: SliceReader, piece: FileSlice, keys: pa.ChunkedArray, positions: Ints, columns: pa.Schema
) -> tuple[Ints, pa.Table]:
    optional = pa.schema([field.with_nullable(True) for field in columns])
    positions_of, parts = [np.empty(0, np.int64)], [optional.empty_table()]
    for batch in read_slice(piece, optional, ROW_GROUP_ROWS):
        matches = pc.index_in(batch.column(RECORD_KEY), value_set=keys)
        hit = pc.is_valid(matches)
        positions_of.append(positions[np.asarray(matches.drop_null()).astype(np.int64)])
        parts.append(pa.Table.from_batches([conform(batch.filter(hit), optional)]))
    return np.concatenate(positions_of), pa.concat_tables(parts)


def group_by_partition(
    names: Sequence[str], tagged: Tagged, codes: Ints, is_leaving: Bools, new: Ints, new_codes: Ints
) -> Mapping[str, Tagged]:
    """Divide the located and the new rows by partition. Slices are numbered again from 0 in each partition.

    Args:
        names: the partition paths, in ascending order. Rows have them as positions in ``names``.
        codes: for each location in ``tagged`` the partition of its slice.
        is_leaving: for each location whether the row moves to another partition.
        new: positions of the new rows.
        new_codes: the partition of each new row.
    """
    slices: dict[str, list[FileSlice]] = {name: [] for name in names}
    within = np.empty(len(tagged.searched), np.int64)
    for number, piece in enumerate(tagged.searched):
        within[number] = len(slices[piece.group.partition_path])
        slices[piece.group.partition_path].append(piece)
    locations = {}
    for code, name in enumerate(names):
        is_in_partition, new_rows = codes == code, new[new_codes == code]
        if is_in_partition.any() or len(new_rows):
            locations[name] = Tagged(
                tagged.keys[is_in_partition],
                within[tagged.files[is_in_partition]],
                new_rows,
                searched=tuple(slices[name]),
                is_leaving=is_leaving[is_in_partition],
            )
    return locations
