"""Which row groups of a base file a merge or a compaction copies byte for byte, and which are encoded again.

A row group is copied if its statistics prove that the merge changes no row of it, and if the copied bytes are what the
merge would write: the same columns, a codec that the write may use, a writer whose files are understood. Of the other
row groups, those columns are read first that tell which rows change. Anything unclear means that all row groups are
encoded again. A small row group is encoded together with a neighbour that is encoded again and not smaller. So small
row groups stay few: beside a large one, or each smaller than the one before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.files.base_file import ROW_GROUP_ROWS, BaseFileWriter, FileSettings, FilterAndRange
from lakeformat.files.footers import group_bytes
from lakeformat.files.splice.stored_groups import (
    ParquetFooter,
    StoredGroup,
    find_stored_groups,
    is_same_schema,
    read_footer,
)
from lakeformat.files.splice.thrift_tree import SpliceError
from lakeformat.files.spliced_base_file import SplicedBaseFileWriter, make_footer
from lakeformat.index.stored_keys import column_number, overlapping_groups
from lakeformat.model.files import BaseFileName
from lakeformat.model.record import RECORD_KEY

__all__ = [
    "LEAST_SHARE",
    "Copied",
    "CopyStep",
    "Counted",
    "RowGroupCopies",
    "Treatment",
    "choose_copies",
    "find_groups",
    "find_groups_of_rows",
    "find_touched_groups",
    "flag_sizes",
    "is_worthwhile",
    "list_copy_steps",
    "open_writer",
    "plan_copies",
    "take_copy_step",
]

#: A row group with this many bytes, decompressed, is not small, even if it has few rows.
_ENOUGH_BYTES: Final = 8 << 20
#: All row groups of a smaller file are encoded again: reading and writing its footer byte for byte costs more.
_LEAST_BYTES: Final = 16 << 10
#: Row groups are copied only if they have at least this share of all bytes.
LEAST_SHARE: Final = 1 / 16
#: Number of keys that are compared with a row group's range before all others.
_FIRST_KEYS: Final = 1024
#: Writers whose footers and statistics mean the same as those of the Parquet writer here.
_KNOWN_WRITER: Final = re.compile(r"parquet-cpp-arrow version (\d+)\.|parquet-mr version 1\.(\d+)\.")
_LEAST_ARROW, _LEAST_MR = 8, 11
#: Arrow's names of Parquet's codecs, where they differ.
_CODECS: Final = {"NONE": "UNCOMPRESSED"}


class Treatment(Enum):
    """What a merge does with a row group: copy it, look at its rows first, or encode it again."""

    COPY = "copy"
    EXAMINE = "examine"
    ENCODE = "encode"


@dataclass(frozen=True)
class RowGroupCopies:
    """What a merge does with the row groups of a base file.

    Attributes:
        count: number of all row groups of the file.
        stored: the row groups that may be copied, by number.
        untouched: numbers of those that are copied, because no row touches them. In the others the rows are looked up
            first. Such a row group is copied, too, if no row of it changes. Otherwise, those of its column chunks are
            copied whose values do not change.
    """

    count: int
    stored: Mapping[int, StoredGroup] = field(default_factory=dict)
    untouched: frozenset[int] = frozenset()

    @property
    def page_index(self) -> bool:
        """Tell whether all row groups that may be copied have a page index."""
        return all(group.has_page_index for group in self.stored.values())

    @property
    def rows(self) -> int:
        """Return the number of rows of the untouched row groups."""
        return sum(self.stored[group].rows for group in self.untouched)

    @property
    def bytes(self) -> int:
        """Return the number of bytes of the untouched row groups."""
        return sum(self.stored[group].size for group in self.untouched)

    def choose(self, at: int) -> Treatment:
        """Return what is done with a row group, by its number."""
        if at in self.untouched:
            return Treatment.COPY
        return Treatment.EXAMINE if at in self.stored else Treatment.ENCODE


@dataclass(frozen=True, slots=True)
class Counted:
    """Values of a row group that is copied next, of the columns that the writer must know."""

    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Copied:
    """A row group, by its number, that is copied."""

    at: int


#: A step of the copy of a row group. One thread reads the values, and another may take the steps.
CopyStep: TypeAlias = Counted | Copied


def list_copy_steps(at: int, counted: Iterable[pa.RecordBatch]) -> Iterator[CopyStep]:
    """Yield the steps that copy a row group.

    Args:
        counted: its values of the columns that `SplicedBaseFileWriter.counted_columns` names.
    """
    yield from map(Counted, counted)
    yield Copied(at)


def take_copy_step(
    writer: SplicedBaseFileWriter,
    step: CopyStep,
    metadata: pq.FileMetaData,
    stored: Mapping[int, StoredGroup],
    *,
    reads_keys: bool,
) -> None:
    """Take a step that copies a row group.

    Args:
        metadata: the footer of the file that has the row group.
        stored: the row groups that may be copied, by number.
        reads_keys: whether keys must be added to the bloom filter and the key range.
    """
    match step:
        case Counted(batch):
            writer.count_copied(pa.Table.from_batches([batch]), reads_keys=reads_keys)
        case Copied(group_number):
            writer.copy_group(metadata, group_number, stored[group_number])


def plan_copies(
    open_source: Callable[[], Any],
    metadata: pq.FileMetaData,
    touched: Sequence[bool],
    settings: FileSettings,
    *,
    appended: int,
    examines: bool = True,
) -> RowGroupCopies:
    """Choose the row groups of a base file that a merge copies, and prepare them.

    Args:
        open_source: opens the base file, which stays open until the row groups are copied.
        touched: for each row group, whether the merge may change one of its rows.
        appended: the number of rows that the merge adds after the last row group.
        examines: whether row groups that are touched are looked at before they are encoded.
    """
    count = metadata.num_row_groups
    oversized, small = flag_sizes(metadata, settings)
    rewritten = [must or other for must, other in zip(touched, oversized, strict=True)]
    rows = [metadata.row_group(group).num_rows for group in range(count)]
    copied = np.flatnonzero(choose_copies(rewritten, small, rows, appended=appended)).tolist()
    examined = [
        group for group in range(count) if examines and touched[group] and not oversized[group] and not small[group]
    ]
    sizes = [group_bytes(metadata, group) for group in range(count)]
    usable = [*copied, *examined]
    if sum(sizes) < _LEAST_BYTES or sum(sizes[group] for group in usable) < LEAST_SHARE * sum(sizes):
        return RowGroupCopies(count)
    try:
        stored = find_groups(open_source, metadata, usable, settings)
    except SpliceError:
        return RowGroupCopies(count)
    return RowGroupCopies(count, stored, frozenset(copied))


def flag_sizes(metadata: pq.FileMetaData, settings: FileSettings) -> tuple[list[bool], list[bool]]:
    """Tell for each row group whether it is larger than a new one may be, and whether it is small."""
    rows = min(settings.row_group_rows, ROW_GROUP_ROWS)
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    oversized = [group.num_rows > rows or group.total_byte_size > settings.row_group_bytes for group in groups]
    small = [group.num_rows < rows // 2 and group.total_byte_size < _ENOUGH_BYTES for group in groups]
    return oversized, small


def find_groups(
    open_source: Callable[[], Any], metadata: pq.FileMetaData, wanted: Sequence[int], settings: FileSettings
) -> Mapping[int, StoredGroup]:
    """Prepare the copies of row groups of a base file.

    Args:
        open_source: opens the base file, which stays open until the row groups are copied.
        wanted: the numbers of the row groups.

    Raises:
        SpliceError: copies would not be like row groups that the write makes.
    """
    source = open_source()
    footer = read_footer(source)
    _check_file(footer, metadata, wanted, settings)
    return find_stored_groups(source, footer, wanted)


def is_worthwhile(group: StoredGroup, changed: Collection[str]) -> bool:
    """Tell whether a large enough part of a row group is in the columns that do not change.

    Args:
        changed: names of the columns whose values change.
    """
    same = sum(chunk.plain_bytes for chunk in group.chunks if chunk.path.partition(".")[0] not in changed)
    return same >= LEAST_SHARE * sum(chunk.plain_bytes for chunk in group.chunks)


def find_touched_groups(metadata: pq.FileMetaData, keys: pa.ChunkedArray) -> list[bool]:
    """Tell for each row group whether it may hold one of the keys, by the statistics of the record key column."""
    column = column_number(metadata, RECORD_KEY)
    if column == metadata.num_columns or keys.null_count:
        return [True] * metadata.num_row_groups
    binary = keys.cast(pa.binary())  # Parquet orders texts by their bytes.
    touched = frozenset(overlapping_groups(metadata, column, partial(_has_key, binary)))
    return [group in touched for group in range(metadata.num_row_groups)]


def find_groups_of_rows(metadata: pq.FileMetaData, row_numbers: npt.NDArray[np.int64]) -> list[bool]:
    """Tell for each row group whether it holds one of the rows with these numbers in the file."""
    ends = np.cumsum([metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)])
    flags = np.zeros(metadata.num_row_groups, bool)
    flags[np.searchsorted(ends, row_numbers, side="right")] = True
    return [bool(flag) for flag in flags]


def open_writer(
    sink: Any,
    partition_path: str,
    name: BaseFileName,
    settings: FileSettings,
    known: FilterAndRange,
    copies: RowGroupCopies,
    encoded: Collection[str] = (),
) -> BaseFileWriter:
    """Make the writer of a base file into which row groups may be copied. Arguments as in `BaseFileWriter`."""
    if not copies.stored:
        return BaseFileWriter(sink, partition_path, name, settings, known, encoded)
    return SplicedBaseFileWriter(sink, partition_path, name, settings, known, encoded, page_index=copies.page_index)


def _has_key(keys: pa.ChunkedArray, low: bytes, high: bytes) -> bool:
    """Tell whether a key lies between two bounds. Most often one of the first keys tells."""
    for part in (keys.slice(0, _FIRST_KEYS), keys.slice(_FIRST_KEYS)):
        above = pc.greater_equal(part, pa.scalar(low, pa.binary()))
        if len(part) and pc.any(pc.and_(above, pc.less_equal(part, pa.scalar(high, pa.binary())))).as_py():
            return True
    return False


def choose_copies(
    rewritten: Sequence[bool], small: Sequence[bool], rows: Sequence[int] | None = None, *, appended: int = 0
) -> list[bool]:
    """Tell for each row group whether it is copied.

    A small row group is encoded again together with a neighbour that is encoded and has at least as many rows. Of two
    small neighbours, both are encoded again unless the second has fewer rows. So a file that grows by small appends
    encodes each row a logarithmic number of times, and ends with few small row groups, each smaller than the last.

    Args:
        rewritten: for each row group, whether it must be encoded again.
        small: for each row group, whether it should grow when its neighbours are encoded again.
        rows: for each row group, its number of rows; None to join all small neighbours.
        appended: the number of rows that are added after the last row group.
    """
    runs: list[_Run] = []
    for group, (must, little) in enumerate(zip(rewritten, small, strict=True)):
        _push(runs, _Run(1, rows[group] if rows is not None else 0, must, little))
    if appended:
        _push(runs, _Run(0, appended if rows is not None else 0, is_encoded=True, is_small=False))
    return [not run.is_encoded for run in runs for _ in range(run.groups)]


@dataclass(frozen=True, slots=True)
class _Run:
    """Row groups that stand side by side: one that is copied, or any number of those that are encoded again."""

    groups: int
    rows: int
    is_encoded: bool
    is_small: bool

    def joins(self, later: _Run) -> bool:
        """Tell whether this run and the next one are encoded again together."""
        if self.is_encoded and later.is_encoded:
            return True
        if self.is_encoded:
            return later.is_small and later.rows <= self.rows
        return self.is_small and (later.is_encoded or later.is_small) and self.rows <= later.rows


def _push(runs: list[_Run], run: _Run) -> None:
    """Add a run after the others, and join runs as long as the last two belong together."""
    while runs and runs[-1].joins(run):
        last = runs.pop()
        run = _Run(last.groups + run.groups, last.rows + run.rows, is_encoded=True, is_small=False)
    runs.append(run)


def _check_file(
    footer: ParquetFooter, metadata: pq.FileMetaData, groups: Sequence[int], settings: FileSettings
) -> None:
    """Check that copied row groups would be like those that the write makes.

    Raises:
        SpliceError: they would not.
    """
    writer = _KNOWN_WRITER.match(footer.created_by)
    if writer is None or not (int(writer[1] or 0) >= _LEAST_ARROW or int(writer[2] or 0) >= _LEAST_MR):
        raise SpliceError(f"the writer {footer.created_by!r} is not known")
    if not is_same_schema(footer.tree, make_footer(settings).tree):
        raise SpliceError("the file has other columns than the table, or stores them otherwise")
    name = settings.codec.upper()
    allowed = {_CODECS.get(name, name), "UNCOMPRESSED"} if settings.skips_compression else {_CODECS.get(name, name)}
    for number in groups:
        group = metadata.row_group(number)
        if not {group.column(leaf).compression for leaf in range(group.num_columns)} <= allowed:
            raise SpliceError("the file has another codec than the write")
