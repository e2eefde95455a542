"""Rows of a global index: each goes to the files that hold its key, wherever they are, or to its own partition.

Source: Hudi's ``HoodieIndexUtils.tagGlobalLocationBackToRecords`` and ``mergeForPartitionUpdatesIfNeeded``. A row
that changes its partition is deleted where it was and inserted, merged with what was stored, where it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.conform import conform
from lakeformat.codec.gather import gather
from lakeformat.files.base_file import ROW_GROUP_ROWS
from lakeformat.index.deleted_rows import one_place_each
from lakeformat.index.port import Ints, Tagged, in_key_order
from lakeformat.keys.record_keys import field_column
from lakeformat.merge import MergeRule, stored_wins
from lakeformat.model.files import FileSlice
from lakeformat.model.record import IS_DELETED, PARTITION_PATH, RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.write.decide.job import WriteJob
from lakeformat.write.rows.delete_marker import deleted_rows_of
from lakeformat.write.rows.prepare import split_by_partition
from lakeformat.write.rows.slice_rows import slice_batches

__all__ = ["SpreadSettings", "own_partitions", "spread"]

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class SpreadSettings:
    """How rows of a global index find their partition.

    Attributes:
        schema: the table's columns after this write.
        rule: who wins; decides whether a stored row stays where it is.
        partition_fields: the columns that make the partition path.
        moves: whether a row goes to the partition it names; else to where its key is.
    """

    schema: pa.Schema
    rule: MergeRule
    partition_fields: tuple[str, ...]
    moves: bool

    @classmethod
    def of(cls, job: WriteJob, schema: pa.Schema, *, may_move: bool) -> SpreadSettings:
        """Those of a write, in a table with this schema."""
        moves = may_move and job.index_settings.update_partition
        return cls(schema, job.rule, job.config.partition_fields, moves)


def own_partitions(rows: pa.Table) -> Mapping[str, pa.Table]:
    """Rows of all partitions, by the partition path they carry."""
    return split_by_partition(rows, _paths(rows))


def spread(
    storage: Storage, snapshot: Snapshot, rows: pa.Table, tagged: Tagged, settings: SpreadSettings
) -> tuple[pa.Table, Mapping[str, Tagged]]:
    """The rows to write, and partition path -> which of them go where in it.

    Memory: a few integers a row. Where a row moves and the rule looks at stored rows, the key and ordering column
    of these, or all their columns if the rule makes a row of both.

    Args:
        snapshot: the table.
        rows: combined rows of all partitions, each with its partition path; without that column none is new.
        tagged: exact locations in the whole table.
    """
    owners = [piece.group.partition_path for piece in tagged.searched]
    has_paths = PARTITION_PATH in rows.schema.names
    if not has_paths:
        names = sorted({*owners})
        own = np.full(rows.num_rows, -1)
    else:
        paths = _paths(rows)
        names = sorted({*owners, *paths.dictionary.to_pylist()})
        code_of = {name: code for code, name in enumerate(names)}
        own = np.array([code_of[path] for path in paths.dictionary.to_pylist()], np.int64)[
            paths.indices.to_numpy(zero_copy_only=False)
        ]
    file_codes = np.searchsorted(names, owners) if owners else np.empty(0, np.int64)
    tagged = _without_gone(tagged, file_codes[tagged.files] == own[tagged.keys], has_paths=has_paths)
    codes = file_codes[tagged.files]
    leaving = np.zeros(len(tagged.keys), bool)
    new = tagged.new if has_paths else tagged.new[:0]
    if settings.moves and has_paths:
        leaving = (codes != own[tagged.keys]) & _may_move(rows, settings)[tagged.keys]
        rows, leaving = _merged(storage, snapshot, rows, tagged, leaving, settings)
        moved = np.setdiff1d(tagged.keys[leaving], tagged.keys[~leaving])
        new = np.concatenate([new, moved])
        new = new[in_key_order(rows.column(RECORD_KEY).take(pa.array(new)))]
    return rows, _by_partition(names, tagged, codes, leaving, new, own[new])


def _paths(rows: pa.Table) -> pa.DictionaryArray:
    encoded = rows.column(PARTITION_PATH).dictionary_encode()
    found: pa.DictionaryArray = encoded.unify_dictionaries().combine_chunks()
    return found


def _may_move(rows: pa.Table, settings: SpreadSettings) -> Bools:
    """Rows that would take their partition with them: no deletes, and none whose merged row keeps the stored one."""
    may: Bools = ~deleted_rows_of(rows)
    rule = settings.rule
    for name in settings.partition_fields:
        if rule.columns is not None and not {name, name.partition(".")[0]} & rule.columns:
            return np.zeros(rows.num_rows, bool)
        if rule.fills_nulls:
            may &= np.asarray(pc.is_valid(field_column(rows, name, "partition")))
    return may


def _without_gone(tagged: Tagged, is_own: Bools, *, has_paths: bool) -> Tagged:
    """Without the slices whose log files have deleted the row, if it is not deleted from its own partition alone.

    There a new version goes to where the old one stands, so that no index finds the key in two places.
    """
    if tagged.gone is None:
        return tagged
    mine = np.flatnonzero(~tagged.gone | is_own)
    kept = np.zeros(len(tagged.keys), bool)
    kept[mine[one_place_each(tagged.keys[mine], tagged.gone[mine])]] = True
    left = np.setdiff1d(tagged.keys, tagged.keys[kept])
    new = np.concatenate([tagged.new, left]) if has_paths else tagged.new
    return replace(tagged, keys=tagged.keys[kept], files=tagged.files[kept], new=new, gone=None, base_rows=None)


def _merged(
    storage: Storage, snapshot: Snapshot, rows: pa.Table, tagged: Tagged, leaving: Bools, settings: SpreadSettings
) -> tuple[pa.Table, Bools]:
    """The rows, those that move merged with what is stored, and the pairs that leave their file after all.

    A stored row that is newer stays: its file gets the incoming row as any other, and the merge there decides.
    """
    rule = settings.rule
    makes_rows = rule.makes_rows or rule.columns is not None
    if not leaving.any() or not (rule.stored_may_win or makes_rows):
        return rows, leaving
    columns = settings.schema if makes_rows else _only(settings.schema, rule.ordering)
    at, stored = _stored_rows(storage, snapshot, rows, tagged, leaving, columns)
    if rule.stored_may_win and rule.ordering:
        incoming = field_column(rows, rule.ordering, "ordering").take(pa.array(at)).combine_chunks()
        newer = stored_wins(field_column(stored, rule.ordering, "ordering").combine_chunks(), incoming)
        leaving = leaving & ~np.isin(tagged.keys, at[newer])
        at, stored = at[~newer], stored.filter(pa.array(~newer))
    if not makes_rows or not len(at):
        return rows, leaving
    _, first = np.unique(at, return_index=True)
    return _replaced(rows, at[first], gather(stored, first), settings), leaving


def _only(schema: pa.Schema, column: str | None) -> pa.Schema:
    top = (column or "").partition(".")[0]
    return pa.schema([field for field in schema if field.name in {column, top}])


def _replaced(rows: pa.Table, at: Ints, stored: pa.Table, settings: SpreadSettings) -> pa.Table:
    """The rows, in all of the table's columns, those at ``at`` merged with the stored ones."""
    rule, schema = settings.rule, settings.schema
    optional = pa.schema([field.with_nullable(True) for field in schema])
    whole = conform(rows, optional)
    incoming, before = gather(whole, at), conform(stored, optional)
    if rule.columns is not None:
        taken = {name: (incoming if name in rule.columns else before).column(name) for name in schema.names}
        made = pa.table(taken, schema=optional)
    else:
        made, _ = rule.made(before, incoming, np.zeros(len(at), bool))
    place = np.arange(rows.num_rows)
    place[at] = rows.num_rows + np.arange(len(at))
    merged = gather(pa.concat_tables([whole, made]), place)
    beside = set(rows.schema.names).difference(schema.names)
    for name in (PARTITION_PATH, IS_DELETED, RECORD_KEY):
        if name in beside:
            merged = merged.add_column(0, rows.schema.field(name), rows.column(name))
    return merged


def _stored_rows(
    storage: Storage, snapshot: Snapshot, rows: pa.Table, tagged: Tagged, leaving: Bools, columns: pa.Schema
) -> tuple[Ints, pa.Table]:
    """What is stored under the keys of the pairs that leave: position of the incoming row, and the stored row."""
    keys = rows.column(RECORD_KEY)
    files = np.unique(tagged.files[leaving]).tolist()

    def one(file: int) -> tuple[Ints, pa.Table]:
        wanted = tagged.keys[leaving & (tagged.files == file)]
        return _rows_of(storage, snapshot, tagged.searched[file], keys.take(pa.array(wanted)), wanted, columns)

    with ThreadPoolExecutor(max(1, pa.cpu_count())) as pool:
        found = list(pool.map(one, files))
    return np.concatenate([at for at, _ in found]), pa.concat_tables([table for _, table in found])


def _rows_of(
    storage: Storage, snapshot: Snapshot, piece: FileSlice, keys: pa.ChunkedArray, positions: Ints, columns: pa.Schema
) -> tuple[Ints, pa.Table]:
    optional = pa.schema([field.with_nullable(True) for field in columns])
    at, parts = [np.empty(0, np.int64)], [optional.empty_table()]
    for batch in slice_batches(storage, snapshot, piece, optional, ROW_GROUP_ROWS):
        found = pc.index_in(batch.column(RECORD_KEY), value_set=keys)
        hit = pc.is_valid(found)
        at.append(positions[np.asarray(found.drop_null()).astype(np.int64)])
        parts.append(pa.Table.from_batches([conform(batch.filter(hit), optional)]))
    return np.concatenate(at), pa.concat_tables(parts)


def _by_partition(
    names: Sequence[str], tagged: Tagged, codes: Ints, leaving: Bools, new: Ints, new_codes: Ints
) -> Mapping[str, Tagged]:
    """Pairs and new rows by partition, files counted within each."""
    slices: dict[str, list[FileSlice]] = {name: [] for name in names}
    within = np.empty(len(tagged.searched), np.int64)
    for at, piece in enumerate(tagged.searched):
        within[at] = len(slices[piece.group.partition_path])
        slices[piece.group.partition_path].append(piece)
    spread_out = {}
    for code, name in enumerate(names):
        mine, fresh = codes == code, new[new_codes == code]
        if mine.any() or len(fresh):
            spread_out[name] = Tagged(
                tagged.keys[mine],
                within[tagged.files[mine]],
                fresh,
                searched=tuple(slices[name]),
                leaving=leaving[mine],
            )
    return spread_out
