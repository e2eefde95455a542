"""Clustering without sort columns: row groups of several files are copied into one new base file, byte for byte.

The rows keep their stored order. Small row groups, and those that cannot be copied, are encoded together. A copied row
group belongs to the new file that gets more than half of it. So the row count of a new file differs from that of an
even division by at most half a row group at each end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np
import pyarrow as pa

from lakeformat.files.base_file import ROW_GROUP_ROWS, FileSettings, FilterAndRange, make_growable_filter
from lakeformat.files.footers import group_bytes, open_base, open_parquet, read_metadata, row_batches
from lakeformat.files.splice.thrift_tree import SpliceError
from lakeformat.files.spliced_base_file import SplicedBaseFileWriter
from lakeformat.model.files import BaseFile
from lakeformat.services.cluster.group_source import GroupSource, SliceToCluster
from lakeformat.services.cluster.rewrite import FileMaker, RowGroupCutter, rows_per_file
from lakeformat.services.cluster.settings import RewriteSettings
from lakeformat.storage.port import Storage
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.write.handles.row_group_copies import (
    LEAST_SHARE,
    choose_copies,
    find_groups,
    flag_sizes,
    list_copy_steps,
    take_copy_step,
)
from lakeformat.write.workload.buckets import split_evenly

__all__ = ["join_files"]

#: If there are several new files, a row group with more than this share of a file's rows is encoded again.
_MOST_SHARE: Final = 1 / 8


@dataclass(frozen=True, slots=True)
class _StoredFile:
    """An old base file.

    Attributes:
        rows, sizes: rows and compressed bytes of its row groups.
        large, small: flags of its row groups; see `flag_sizes`.
    """

    one: SliceToCluster
    base: BaseFile
    rows: tuple[int, ...]
    sizes: tuple[int, ...]
    large: tuple[bool, ...]
    small: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A row group that is copied, or a run of row groups that are encoded.

    Attributes:
        number: position of its first row group in the group of files.
        groups: old files, and the numbers of row groups in them.
        rows: row count; in the plan of a new file, the rows that this file gets.
        has_page_index: whether a row group is copied with page indexes.
    """

    is_copied: bool
    number: int
    groups: tuple[tuple[_StoredFile, tuple[int, ...]], ...]
    rows: int
    has_page_index: bool = False


def join_files(storage: Storage, settings: RewriteSettings, number: str, source: GroupSource) -> Iterator[WrittenFile]:
    """Write new files with the rows of a group in their stored order. Copy row groups where that is possible.

    Memory: a row group, and the key filter of one new file.
    """
    pieces: Sequence[_Piece] = ()
    rows_of_file = int(source.rows * settings.files.max_file_bytes / max(source.stored_bytes, 1))
    if settings.copies_groups and source.takes_all and all(piece.merging is None for piece in source.slices):
        most = source.rows if source.rows <= rows_of_file else int(rows_of_file * _MOST_SHARE)
        pieces = _plan_pieces(storage, [*_describe(storage, source, settings.files)], settings.files, most)
    if not pieces:
        yield from _encode_all(storage, settings, number, source)
        return
    joiner = _Joiner(FileMaker(storage, settings, source.partition_path, number, source.encoded), source)
    for file_number, own in enumerate(_divide(pieces, split_evenly(source.rows, max(rows_of_file, 1)))):
        yield joiner.write(file_number, own)


def _encode_all(storage: Storage, settings: RewriteSettings, number: str, source: GroupSource) -> Iterator[WrittenFile]:
    """Write new files with the rows in their stored order. Memory: a row group."""
    tables = (
        pa.Table.from_batches([batch]) for piece in source.slices for batch in source.batches(piece, threads=False)
    )
    first = next(tables)
    per_file = rows_per_file(first, np.arange(first.num_rows), source.stored_bytes, settings)
    maker = FileMaker(storage, settings, source.partition_path, number, source.encoded)

    def all_tables() -> Iterator[pa.Table]:
        yield first
        yield from tables

    yield from maker.stream(all_tables(), source.rows, per_file)


def _describe(storage: Storage, source: GroupSource, settings: FileSettings) -> Iterator[_StoredFile]:
    for piece in source.slices:
        if (base := piece.file_slice.base) is not None:
            metadata = read_metadata(storage, base)
            numbers = range(metadata.num_row_groups)
            large, small = flag_sizes(metadata, settings)
            yield _StoredFile(
                piece,
                base,
                tuple(metadata.row_group(group).num_rows for group in numbers),
                tuple(group_bytes(metadata, group) for group in numbers),
                tuple(large),
                tuple(small),
            )


def _plan_pieces(
    storage: Storage, files: Sequence[_StoredFile], settings: FileSettings, most_rows: int
) -> list[_Piece]:
    """Choose the row groups that are copied. Return all row groups in their order; nothing if none is worth a copy.

    Args:
        most_rows: row groups with more rows are encoded.
    """
    places = [(file_number, group) for file_number, file in enumerate(files) for group in range(len(file.rows))]
    small = [files[file_number].small[group] for file_number, group in places]
    fits = [
        not files[file_number].large[group] and 0 < files[file_number].rows[group] <= most_rows
        for file_number, group in places
    ]
    page_indexes: dict[int, bool] = {}
    refused: set[int] = set()
    while True:
        encoded = [not good or file_number in refused for good, (file_number, _) in zip(fits, places, strict=True)]
        copied = choose_copies(encoded, small)
        chosen = [place for place, is_copied in zip(places, copied, strict=True) if is_copied]
        groups_of = {at: [group for _, group in own] for at, own in groupby(chosen, key=itemgetter(0))}
        unknown = [file_number for file_number in groups_of if file_number not in page_indexes]
        if not unknown:
            break
        for number in unknown:
            page_index = _check(storage, files[number], groups_of[number], settings)
            if page_index is None:
                refused.add(number)
            else:
                page_indexes[number] = page_index
    total = sum(sum(file.sizes) for file in files)
    if not chosen or sum(files[file_number].sizes[group] for file_number, group in chosen) < LEAST_SHARE * total:
        return []
    return [*_make_pieces(files, places, frozenset(chosen), page_indexes)]


def _make_pieces(
    files: Sequence[_StoredFile],
    places: Sequence[tuple[int, int]],
    copied: Collection[tuple[int, int]],
    page_indexes: Mapping[int, bool],
) -> Iterator[_Piece]:
    """Yield all row groups of the files as pieces.

    Args:
        places: the row groups as numbers of the file and of the row group, in their order.
        copied: those that are copied.
        page_indexes: for each file of which row groups are copied, whether they have page indexes.
    """
    for is_copied, run in groupby(enumerate(places), key=lambda place: place[1] in copied):
        listed = [*run]
        if is_copied:
            for number, (file_number, group) in listed:
                yield _Piece(
                    True,
                    number,
                    ((files[file_number], (group,)),),
                    files[file_number].rows[group],
                    page_indexes[file_number],
                )
            continue
        by_file = groupby((place for _, place in listed), key=itemgetter(0))
        groups = tuple((files[at], tuple(group for _, group in own)) for at, own in by_file)
        rows = sum(file.rows[group] for file, own in groups for group in own)
        yield _Piece(False, listed[0][0], groups, rows)


def _check(storage: Storage, file: _StoredFile, group_numbers: Sequence[int], settings: FileSettings) -> bool | None:
    """Tell whether row groups of a file have page indexes; None if they cannot be copied."""
    metadata = read_metadata(storage, file.base)
    with open_base(storage, file.base) as opened:
        try:
            groups = find_groups(lambda: opened, metadata, group_numbers, settings)
        except SpliceError:
            return None
    return all(group.has_page_index for group in groups.values())


def _divide(pieces: Sequence[_Piece], counts: Sequence[int]) -> Iterator[list[_Piece]]:
    """Divide the pieces among new files with about these row counts. Runs that are encoded may be cut."""
    ends = np.cumsum(counts).tolist()
    files: list[list[_Piece]] = [[] for _ in ends]
    number = done = 0
    for piece in pieces:
        remaining = piece.rows
        while remaining:
            middle = done + remaining / 2 if piece.is_copied else done
            while number < len(ends) - 1 and (middle > ends[number] or (done >= ends[number] and not piece.is_copied)):
                number += 1
            rows = remaining if piece.is_copied or number == len(ends) - 1 else min(remaining, ends[number] - done)
            files[number].append(replace(piece, rows=rows))
            done, remaining = done + rows, remaining - rows
    yield from (file for file in files if file)


class _Joiner:
    """Writes the new files of one group."""

    def __init__(self, maker: FileMaker, source: GroupSource) -> None:
        self._maker, self._source = maker, source
        self._cutters: dict[int, RowGroupCutter] = {}

    def write(self, at: int, pieces: Sequence[_Piece]) -> WrittenFile:
        """Write one base file; ``at`` is its number within the group."""
        copied = [piece for piece in pieces if piece.is_copied]
        if not copied:
            return self._maker.write(at, (table for piece in pieces for table in self._tables(piece)))
        settings, rows = self._maker.settings.files, sum(piece.rows for piece in pieces)
        make = partial(
            SplicedBaseFileWriter,
            inherited=FilterAndRange(make_growable_filter(rows, settings.fpp)),
            encoded=self._maker.encoded,
            page_index=all(piece.has_page_index for piece in copied),
        )
        return self._maker.write_with(at, make, partial(self._fill, pieces))

    def _fill(self, pieces: Sequence[_Piece], writer: SplicedBaseFileWriter) -> None:
        """Copy and encode the pieces, and close the file."""
        for file, run in groupby(pieces, key=lambda piece: piece.groups[0][0].base if piece.is_copied else None):
            if file is None:
                for table in (table for piece in run for table in self._tables(piece)):
                    writer.write(table)
            else:
                self._copy(file, [group for piece in run for group in piece.groups[0][1]], writer)
        writer.close()

    def _copy(self, file: BaseFile, groups: Sequence[int], writer: SplicedBaseFileWriter) -> None:
        """Copy row groups of a file. Their keys are read for the key filter of the new file."""
        storage, settings = self._maker.storage, self._maker.settings.files
        where, columns = f"{storage.location}/{file.path}", writer.counted_columns(reads_keys=True)
        with (
            open_base(storage, file) as read,
            open_parquet(read, where) as parquet,
            open_base(storage, file) as copied,
        ):
            stored, most = find_groups(lambda: copied, parquet.metadata, groups, settings), settings.row_group_bytes
            for group in groups:
                batches = row_batches(
                    parquet, where, ROW_GROUP_ROWS, columns=columns, row_groups=[group], threads=False, most_bytes=most
                )
                for step in list_copy_steps(group, batches):
                    take_copy_step(writer, step, parquet.metadata, stored, reads_keys=True)

    def _tables(self, piece: _Piece) -> Iterator[pa.Table]:
        """Yield the next rows of a run of row groups that are encoded."""
        if piece.number not in self._cutters:
            batches = (
                pa.Table.from_batches([batch])
                for file, groups in piece.groups
                for batch in self._source.batches(file.one, threads=False, row_groups=groups)
            )
            self._cutters[piece.number] = RowGroupCutter(batches, self._maker.settings.files.row_group_bytes)
        return self._cutters[piece.number].take(piece.rows)
