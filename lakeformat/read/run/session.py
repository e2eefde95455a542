"""The plan of a read: pruning by names and the file index, reading of the needed footers, and splits.

Updates and deletes with a condition use the plan too: `find_matches` finds the slices that they rewrite. Parquet
statistics do not count NaN, so only the file index can prove that a float column of a file holds no NaN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.concurrency import thread_pool
from lakeformat.display import html_rows
from lakeformat.errors import CorruptTableError
from lakeformat.file_system_view.folder_values import (
    find_folder_proven_files,
    find_folder_proven_logs,
    reading_key_settings,
)
from lakeformat.file_system_view.live_files import FILE_COLUMNS, Portion, file_objects, log_slice_flags
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.footer_bounds import row_group_bounds
from lakeformat.files.footers import group_bytes, read_metadata
from lakeformat.files.slice_reader import SliceSelection, inspect_slice
from lakeformat.files.slice_skipping import Skipping
from lakeformat.model.files import BaseFile, FileGroupId, FileSlice
from lakeformat.predicate import Always, ColumnBounds, Predicate, columns_of, may_match, path_parts
from lakeformat.public import public
from lakeformat.read.plan import FilePart, Part, SlicePart, Split, pack_splits, prune_by_name
from lakeformat.read.query import ReadQuery, readable_schema
from lakeformat.read.run.batches import read_split
from lakeformat.read.run.indexed_groups import find_indexed_groups
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["UNCUT", "Matches", "ReadPlan", "find_matches", "nan_free_columns", "plan_read", "prove_folder_values"]


def nan_free_columns(bounds: Mapping[str, ColumnBounds], files: npt.NDArray[np.int64]) -> list[tuple[str, ...]]:
    """Return for each of some files the paths of the float columns that are known to contain no NaN in the file.

    Args:
        bounds: mapping of column path to bounds with an entry per file.
        files: row numbers of the files in ``bounds``.
    """
    flags = [(path, of.nan_free[files]) for path, of in bounds.items() if kind_of(of.minimum.type) is Kind.FLOAT]
    if not flags:
        return [()] * len(files)
    # Files with equal flags share one tuple, which saves memory.
    names_of: dict[tuple[bool, ...], tuple[str, ...]] = {}
    columns = []
    for row in zip(*(column.tolist() for _, column in flags), strict=True):
        if row not in names_of:
            names_of[row] = tuple(path for (path, _), flag in zip(flags, row, strict=True) if flag)
        columns.append(names_of[row])
    return columns


Flags = npt.NDArray[np.bool_]

#: Maximum number of files without bounds in the index whose footers the plan opens. If there are more, the tasks prune
#: the row groups of these files.
_MOST_FOOTERS: Final = 1024
#: A secondary index is asked only if more files than this are left: a look-up opens files of the metadata table.
_FEW_FILES: Final = 4
#: Number of footers that are read together and kept in memory at a time.
_FOOTERS_AT_A_TIME: Final = 256
#: Minimum bytes to read per split when splits are made smaller to reach the requested number of splits.
_SMALL_SPLIT_BYTES: Final = 4 << 20
#: Lower limit of the estimated share of a file's bytes that the read columns take.
_LEAST_SHARE: Final = 1 / 64


@public
@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The files, row groups and bytes that a read touches after each pruning step. Bytes are compressed.

    Attributes:
        splits: the parts to read.
        files, bytes: the live file slices and their size, before pruning.
        files_after_names, bytes_after_names: those left after pruning by partition values and names.
        files_after_stats, bytes_after_stats: those left after pruning by statistics.
        bytes_after: bytes of the row groups to read, and of the log files that are merged with them.
        row_groups, row_groups_after: row groups before and after pruning, of the base files whose footers were opened,
            including those with log files; None if no footer was opened.
        source: where the names of the files come from: ``file index``, ``metadata table`` or ``folders``; and for how
            many files it has the bounds of the filter's columns.
    """

    splits: tuple[Split, ...]
    files: int
    files_after_names: int
    files_after_stats: int
    bytes: int
    bytes_after_names: int
    bytes_after_stats: int
    bytes_after: int
    row_groups: int | None
    row_groups_after: int | None
    source: str

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the files and bytes that each pruning step leaves."""
        steps = [
            ("all files", self.files, self.bytes),
            ("by name: partition values", self.files_after_names, self.bytes_after_names),
            ("by statistics", self.files_after_stats, self.bytes_after_stats),
        ]
        if self.row_groups is not None:
            steps.append((f"row groups, of {self.row_groups:,}", self.row_groups_after or 0, self.bytes_after))
        return html_rows(("left", "count", "bytes"), steps, caption="what a read touches")

    def describe(self) -> str:
        """Return the numbers as a few lines of text."""
        lines = [
            f"files      {self.files:>10,}  {self.bytes:>15,} bytes",
            f"  by name  {self.files_after_names:>10,}  {self.bytes_after_names:>15,} bytes, after partition values",
            f"  by stats {self.files_after_stats:>10,}  {self.bytes_after_stats:>15,} bytes, after skipping",
        ]
        if self.row_groups is not None:
            lines.append(
                f"row groups {self.row_groups_after:>10,}  {self.bytes_after:>15,} bytes, of {self.row_groups:,} groups"
            )
        lines.append(f"listed from the {self.source}")
        return "\n".join(lines)


def plan_read(
    storage: Storage,
    snapshot: Snapshot,
    query: ReadQuery,
    *,
    split_bytes: int,
    at_least: int = 1,
    count_row_groups: bool = False,
) -> ReadPlan:
    """Choose the files, and the row groups of large files, and cut them into splits.

    Files are left out by partition values and names, then by the bounds in the file index. Footers are opened for files
    larger than a split. If at most `_MOST_FOOTERS` files have no bounds in the index, their footers are opened too. The
    tasks open the footers of all other files.

    Memory: some 150 bytes per file for names, sizes and the bounds of the filter's columns, for all files in those
    shards of the file index that may hold a match; one object per chosen file.

    Args:
        split_bytes: bytes of the read columns in each split.
        at_least: requested number of splits. Splits are made smaller to reach it, but not below a few megabytes.
        count_row_groups: whether to open all footers, for exact numbers of row groups.

    Raises:
        CorruptTableError: a needed footer is damaged; the message names the file.
    """
    filtered = query.skipping and not isinstance(query.predicate, Always)
    candidates = _find_candidates(storage, snapshot, query, filtered=filtered)
    files = file_objects(candidates.files)
    total = sum(file.size_bytes for file in files) + sum(piece.size_bytes for piece in candidates.slices)
    share = 1.0
    if files and (_limit_splits(total, at_least) > 1 or total > split_bytes):
        share = _estimate_share(storage, files[0], snapshot, query)
    split_bytes, at_least = int(split_bytes / share), _limit_splits(int(total * share), at_least)
    few_new = filtered and sum(not indexed for indexed in candidates.in_index) <= _MOST_FOOTERS
    sized = zip(files, candidates.in_index, strict=True)
    opened = [count_row_groups or file.size_bytes > split_bytes or (few_new and not indexed) for file, indexed in sized]
    whole = candidates.whole_parts(files, snapshot)
    counted_parts = [(file, part) for file, part, flag in zip(files, whole, opened, strict=True) if flag]
    by_groups, seen, groups_left = _prune_row_groups(storage, counted_parts, snapshot, query, filtered=filtered)
    in_order = iter(by_groups)
    slices = _prune_slices(storage, candidates.slices, snapshot, query, filtered=filtered, exact=count_row_groups)
    mine = [next(in_order) if flag else [part] for part, flag in zip(whole, opened, strict=True)]
    parts: list[Part] = [*slices.parts, *(part for some in mine for part in some)]
    left_over: list[Part | BaseFile] = [*slices.parts, *(file for file, some in zip(files, mine, strict=True) if some)]
    counted = counted_parts or slices.row_groups
    return ReadPlan(
        splits=pack_splits(parts, split_bytes, at_least),
        files=snapshot.live.count,
        files_after_names=candidates.files_by_name,
        files_after_stats=len(left_over),
        bytes=snapshot.live.size_bytes,
        bytes_after_names=candidates.bytes_by_name,
        bytes_after_stats=sum(part.size_bytes for part in left_over),
        bytes_after=sum(part.size_bytes for part in parts) - slices.skipped_bytes,
        row_groups=seen + slices.row_groups if counted else None,
        row_groups_after=groups_left + slices.row_groups_left if counted else None,
        source=f"{snapshot.source}{candidates.describe_bounds()}",
    )


def _limit_splits(size_bytes: int, most: int) -> int:
    """Limit the wanted number of splits so that each has at least `_SMALL_SPLIT_BYTES` to read."""
    return max(1, min(most, size_bytes // _SMALL_SPLIT_BYTES))


def _estimate_share(storage: Storage, sample: BaseFile, snapshot: Snapshot, query: ReadQuery) -> float:
    """Estimate, from one footer, the share of the table's bytes that the read columns take."""
    names = set(query.file_columns())
    if names.issuperset(readable_schema(snapshot.columns(storage.location), meta_columns=True).names):
        return 1.0
    footer = read_metadata(storage, sample)
    sizes = Counter[str]()
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for chunk in map(group.column, range(group.num_columns)):
            sizes[chunk.path_in_schema.partition(".")[0]] += chunk.total_compressed_size
    read = sum(size for name, size in sizes.items() if name in names)
    return max(_LEAST_SHARE, read / max(1, sizes.total()))


@dataclass
class _Candidates:
    """The files that may contain a matching row, judged by partition paths, file names and the file index.

    Attributes:
        files: the base files without log files, as a table with `FILE_COLUMNS`.
        in_index: for each file, whether the index has bounds of the filter's columns.
        nan_free: for each file, the paths of the filter's float columns that contain no NaN in it.
        slices: slices with log files.
        files_by_name, bytes_by_name: number of slices, and their bytes, after pruning by name.
        files_with_bounds: number of files for which all bounds of the filter's columns are known.
    """

    files: pa.Table = field(default_factory=FILE_COLUMNS.empty_table)
    in_index: list[bool] = field(default_factory=list)
    nan_free: list[tuple[str, ...]] = field(default_factory=list)
    slices: list[FileSlice] = field(default_factory=list)
    files_by_name: int = 0
    bytes_by_name: int = 0
    files_with_bounds: int = 0

    def whole_parts(self, files: Sequence[BaseFile], snapshot: Snapshot) -> list[FilePart]:
        """Return a part for each of `files`, which are given as objects, that covers the whole file."""
        counts = self.files["rows"].to_pylist()
        return [
            FilePart(file.path, file.size_bytes, nan_free=free, shape=snapshot.shape(file), rows=rows)
            for file, free, rows in zip(files, self.nan_free, counts, strict=True)
        ]

    def keep_groups(self, groups: Collection[FileGroupId] | None) -> None:
        """Leave out the files of all other file groups than these; None keeps all."""
        if groups is None:
            return
        paths, names = (self.files[name].to_pylist() for name in ("partition_path", "name"))
        ids = (name.partition("_")[0] for name in names)
        flags = [FileGroupId(path, file_id) in groups for path, file_id in zip(paths, ids, strict=True)]
        self.files = self.files.filter(pa.array(flags, pa.bool_()))
        self.in_index = [has_bounds for has_bounds, flag in zip(self.in_index, flags, strict=True) if flag]
        self.nan_free = [free for free, flag in zip(self.nan_free, flags, strict=True) if flag]
        self.slices = [piece for piece in self.slices if piece.group in groups]

    def describe_bounds(self) -> str:
        """Return the number of files with bounds as text; empty if there are none."""
        return f"; it has the bounds of {self.files_with_bounds:,} files" if self.files_with_bounds else ""


def _find_candidates(storage: Storage, snapshot: Snapshot, query: ReadQuery, *, filtered: bool) -> _Candidates:
    kept = _Candidates()
    if not filtered:
        kept.files_by_name, kept.bytes_by_name = snapshot.live.count, snapshot.live.size_bytes
    nothing = isinstance(query.predicate, Always) and not query.predicate.value
    if snapshot.schema is None or nothing:
        return kept
    if not filtered:
        portions = list(snapshot.live.portions())
        tables = [portion.files.filter(pa.array(~log_slice_flags(portion))) for portion in portions]
        kept.files = pa.concat_tables([kept.files, *tables])
        kept.in_index, kept.nan_free = [True] * kept.files.num_rows, [()] * kept.files.num_rows
        kept.slices = [piece for portion in portions for piece in portion.slices or () if piece is not None]
        return kept
    full = readable_schema(snapshot.schema, meta_columns=True)
    keys = reading_key_settings(snapshot.config)
    columns = query.filter_paths
    tables = [kept.files]
    for portion in snapshot.live.portions(columns, query.predicate):
        flags, doubted = prune_by_name(
            portion.files,
            query.predicate,
            columns,
            keys,
            full,
            portion.bounds,
            meta_columns=not snapshot.config.has_virtual_keys,
            trusts_folders=snapshot.config.drops_partition_columns,
        )
        merged = log_slice_flags(portion)
        if doubted.any():
            flags[np.flatnonzero(doubted)[~_find_folder_proven(storage, snapshot, portion, doubted, merged)]] = True
        kept.files_by_name += int(flags.sum())
        kept.bytes_by_name += int(portion.files.column("size_bytes").to_numpy()[flags].sum())
        flags &= may_match(query.predicate, portion.bounds, portion.files.column("rows").combine_chunks())
        has_bounds = np.full(len(flags), all(column in portion.bounds for column in columns))
        for column in portion.bounds.values():
            has_bounds &= np.asarray(pc.is_valid(column.null_count))
        kept.files_with_bounds += int(has_bounds.sum()) if columns else 0
        kept.slices += [piece for piece, flag in zip(portion.slices or (), flags, strict=False) if flag and piece]
        flags &= ~merged
        tables.append(portion.files.filter(pa.array(flags)))
        kept.in_index += has_bounds[flags].tolist()
        kept.nan_free += nan_free_columns(portion.bounds, np.flatnonzero(flags))
    kept.files = pa.concat_tables(tables)
    if query.asks_indexes and len(kept.in_index) + len(kept.slices) > _FEW_FILES:
        kept.keep_groups(find_indexed_groups(storage, snapshot, query.predicate))
    return kept


def _find_folder_proven(storage: Storage, snapshot: Snapshot, portion: Portion, doubted: Flags, merged: Flags) -> Flags:
    """Return a flag for each slice whose `doubted` flag is set: whether its rows provably match their folder.

    A row matches its folder if it has the partition values in the folder's name.
    """
    alone = file_objects(portion.files.filter(pa.array(doubted & ~merged)))
    pieces = {
        number: piece for number, piece in enumerate(portion.slices or ()) if piece is not None and doubted[number]
    }
    for position, base in zip(np.flatnonzero(doubted & ~merged).tolist(), alone, strict=True):
        pieces[position] = FileSlice(base.group, base.name.instant_time, base)
    return prove_folder_values(storage, snapshot.timeline, [pieces[place] for place in sorted(pieces)])


def _prune_row_groups(
    storage: Storage,
    files: Sequence[tuple[BaseFile, FilePart]],
    snapshot: Snapshot,
    query: ReadQuery,
    *,
    filtered: bool,
) -> tuple[list[list[FilePart]], int, int]:
    """Prune the row groups of files by the statistics in their footers.

    Return for each file one part per row group that may match, then the number of row groups before the pruning, and
    the number after it.

    Args:
        files: each file, with a part that covers the whole file.
    """
    if not files or snapshot.schema is None:
        return [], 0, 0
    columns = query.filter_paths if filtered else ()
    full = readable_schema(snapshot.schema, meta_columns=True)
    kept_parts: list[list[FilePart]] = []
    seen = groups_left = 0
    with thread_pool(max(2, pa.cpu_count())) as pool:
        for start in range(0, len(files), _FOOTERS_AT_A_TIME):
            some = files[start : start + _FOOTERS_AT_A_TIME]
            footers = list(pool.map(lambda pair: read_metadata(storage, pair[0]), some))
            bounds, rows, owner = row_group_bounds(footers, columns, full, [part.nan_free for _, part in some])
            flags = may_match(query.predicate, bounds, rows) if filtered else np.ones(len(rows), bool)
            without_statistics = frozenset[str]().union(*(part.columns_without_statistics for _, part in some))
            if filtered and without_statistics:
                usable = {path: of for path, of in bounds.items() if path_parts(path)[0] not in without_statistics}
                shaped = np.array([part.shape is not None for _, part in some])[owner]
                flags = np.where(shaped, may_match(query.predicate, usable, rows), flags)
            seen, groups_left = seen + len(flags), groups_left + int(flags.sum())
            for number, (_, part) in enumerate(some):
                keep = np.flatnonzero(flags[owner == number]).tolist()
                footer = footers[number]
                kept_parts.append([
                    replace(part, size_bytes=group_bytes(footer, n), row_groups=(n,), rows=footer.row_group(n).num_rows)
                    for n in keep
                ])  # fmt: skip
    return kept_parts, seen, groups_left


@dataclass(frozen=True, slots=True)
class _PrunedSlices:
    """The slices with log files that must be read.

    Attributes:
        parts: these slices.
        row_groups, row_groups_left: row groups before and after pruning, of base files whose footers were opened.
        skipped_bytes: bytes of the row groups that need not be read.
    """

    parts: Sequence[SlicePart]
    row_groups: int = 0
    row_groups_left: int = 0
    skipped_bytes: int = 0


def _prune_slices(
    storage: Storage,
    slices: Sequence[FileSlice],
    snapshot: Snapshot,
    query: ReadQuery,
    *,
    filtered: bool,
    exact: bool,
) -> _PrunedSlices:
    """Return the slices with log files that may match the filter.

    If there are more than `_MOST_FOOTERS` slices, return all of them unchecked, unless ``exact`` is true.
    """
    parts = [SlicePart(piece, snapshot.merge_rules(piece)) for piece in slices]
    if not filtered or snapshot.schema is None or (len(slices) > _MOST_FOOTERS and not exact):
        return _PrunedSlices(parts)
    skipping = Skipping(query.predicate, readable_schema(snapshot.schema, meta_columns=True))
    columns = sorted(columns_of(query.predicate))

    def inspect_part(part: SlicePart) -> SliceSelection:
        return inspect_slice(storage, part.slice, part.merging, columns, skipping, exact=exact)

    with thread_pool(max(2, pa.cpu_count())) as pool:
        slices_left = list(pool.map(inspect_part, parts))
    kept = [(part, of) for part, of in zip(parts, slices_left, strict=True) if of.kept_groups is not None]
    return _PrunedSlices(
        [part for part, _ in kept],
        sum(of.row_groups for of in slices_left),
        sum(len(of.kept_groups or ()) for _, of in kept),
        sum(part.size_bytes - of.size_bytes for part, of in kept),
    )


#: A value of ``split_bytes`` with which each file is one part.
UNCUT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Matches:
    """The live file slices that contain a matching row.

    Attributes:
        counts: mapping of pruning step to the number of slices left after it.
    """

    slices: Sequence[FileSlice]
    counts: Mapping[str, int]


def find_matches(storage: Storage, snapshot: Snapshot, predicate: Predicate, *, skipping: bool = True) -> Matches:
    """Find the live slices with a matching row. Prune as reads do, then read each slice up to its first match.

    Memory: per thread, the filter's columns of one batch.

    Args:
        predicate: the condition, bound to the meta columns and the table's columns as readers see them.
        skipping: whether names and statistics may rule out files and row groups.

    Raises:
        CorruptTableError: a file is damaged; the message names the file.
    """
    if snapshot.schema is None:
        return Matches((), {"files": 0})
    table = snapshot.schema
    full = readable_schema(table, meta_columns=True)
    columns = columns_of(predicate)
    query = ReadQuery(pa.schema([field for field in full if field.name in columns]), predicate, skipping)
    plan = plan_read(storage, snapshot, query, split_bytes=UNCUT)
    parts = [part for split in plan.splits for part in split.parts]

    def matches(split: Split) -> bool:
        return next(read_split(storage, split, query, table), None) is not None

    if predicate != Always(True):
        with thread_pool(max(1, pa.cpu_count())) as pool:
            flags = list(pool.map(matches, [Split((part,)) for part in parts]))
        parts = [part for part, flag in zip(parts, flags, strict=True) if flag]
    paths = {part.path for part in parts}
    folders = {path.rpartition("/")[0] for path in paths}
    slices = tuple(s for folder in sorted(folders) for s in snapshot.slices[folder] if _path_of(s) in paths)
    counts = {
        "files": plan.files,
        "after_names": plan.files_after_names,
        "after_stats": plan.files_after_stats,
        "with_matches": len(slices),
    }
    return Matches(slices, counts)


def _path_of(piece: FileSlice) -> str:
    """Return the path that identifies a slice in a read plan: its base file's, else its first log file's."""
    return (piece.base or piece.logs[0]).path


def prove_folder_values(storage: Storage, timeline: Timeline, slices: Sequence[FileSlice]) -> npt.NDArray[np.bool_]:
    """Return a flag per slice: whether commits prove that its rows have the partition values of their folder.

    For a log file, this is proven only if exactly one commit wrote to it, and the file still has the size that this
    commit recorded. Otherwise another write may have appended rows with other partition values.
    """
    store = TimelineStore(storage)
    store.load()
    instants = {piece.base_instant for piece in slices}
    since = min((piece.base_instant for piece in slices if piece.logs), default=None)
    own: set[str] = set()
    logs: dict[str, int | None] = {}
    for instant in timeline.commits:
        logged = since is not None and instant.time >= since
        if instant.time in instants or logged:
            with suppress(FileNotFoundError, CorruptTableError):  # An archived or damaged commit proves nothing.
                metadata = store.read_commit(instant)
                own |= find_folder_proven_files(metadata)
                logs |= {
                    path: None if path in logs else size for path, size in find_folder_proven_logs(metadata).items()
                }
    return np.array(
        [
            (piece.base is None or piece.base.path in own)
            and all(logs.get(log.path) == log.size_bytes for log in piece.logs)
            for piece in slices
        ],
        np.bool_,
    )
