"""Buckets of step 5: which rows go into which file group (Hudi: ``UpsertPartitioner``), and how large files get.

File sizes: a sample of the rows is encoded and measured. Hudi takes a row's size from ``averageBytesPerRecord`` of
earlier commits, or from ``hoodie.copyonwrite.record.size.estimate``. Both values are wrong for rows that are wider or
narrower than the earlier rows. Here the writer of base files writes a sample of the new rows to memory, with the meta
columns, bloom filter, footer, codec and dictionaries of a real file. Memory: the rows of half a row group, and the same
rows encoded.

Tables with log files (Hudi: ``BaseSparkDeltaCommitActionExecutor``):

- Updates and deletes are appended to the file slice that holds their keys.
- New rows go into base files, so that an index that reads only base files finds them. They open new file groups, or go
  into a small slice without log files. The base file of this slice is then rewritten, with its updates and deletes.
- With a bucket index, all rows are appended, and new file groups begin with a log file.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.arrow.gather import gather
from lakeformat.config.resolve import Options
from lakeformat.files.base_file import ROW_GROUP_ROWS, BaseFileWriter, FileSettings, stamp_rows
from lakeformat.files.open_slice import SliceMergeRules
from lakeformat.index.bucket import FIXED_FILE_ID
from lakeformat.index.port import PartitionBuckets, Tagged
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, FileSlice, LogFile, LogFileName
from lakeformat.model.operation import Operation
from lakeformat.timeline.timeline_layout import layout_of
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.workload.small_files import SmallFile, choose_files_to_fill, fills_all_small_files

__all__ = [
    "AppendRules",
    "Bucket",
    "FileSizing",
    "InsertShare",
    "LogPlace",
    "assign_to_buckets",
    "assign_to_files",
    "derive_file_id",
    "encoded_bytes",
    "file_sizing",
    "files_to_fill",
    "log_name",
    "make_bucket_id",
    "make_buckets",
    "max_encoded_bytes",
    "may_append_beside",
    "measure_row_bytes",
    "number_shares",
    "slices_by_bucket",
    "split_evenly",
    "spread_inserts",
    "tail_bytes",
]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FileSizing:
    """The target sizes of files.

    Attributes:
        row_bytes: bytes that one more row adds to a file.
        max_file_bytes: maximum size of a file.
        small_file_bytes: existing files of fewer bytes take inserts.
        empty_bytes: bytes of a file without rows: footer and schema.
        rows_per_new_file: the number of rows of each new file, if the user sets it; None derives it from the sizes.
        fills_all: whether all small files take inserts, as in Hudi; if not, `choose_files_to_fill` chooses.
        most_filled: in a table with log files, the maximum number of small files that take inserts.
    """

    row_bytes: float
    max_file_bytes: int
    small_file_bytes: int
    empty_bytes: int = 0
    rows_per_new_file: int | None = None
    fills_all: bool = True
    most_filled: int = 1

    def rows_that_fit(self, size_bytes: int) -> int:
        """Return how many more rows fit into a file of this size."""
        return max(0, int((self.max_file_bytes - size_bytes) / self.row_bytes))

    @property
    def rows_of_new_file(self) -> int:
        """Return how many rows go into a new file: at least one, even if a row is larger than a file may be."""
        return self.rows_per_new_file or max(1, self.rows_that_fit(self.empty_bytes))


@dataclass(frozen=True, slots=True)
class InsertShare:
    """A number of inserts that go into one file: an existing small file, or a new file if ``small`` is None."""

    small: SmallFile | None
    rows: int


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The log file that a write creates for a bucket's rows: one more of a file slice, or the first of a new slice.

    Attributes:
        named_after: the instant in the log file's name; None for the commit's instant.
        version: the version number in the log file's name.
        opened_at: the instant that opened the slice; None if this commit opens it.
        file_slice: the slice; None if this commit opens it.
        merging: the rules by which readers merge the slice's files; None if the write does not read stored rows.
        deleting_logs: the slice's log files that may delete rows.
        is_compacting: whether a pending compaction will write the slice's base file.
    """

    named_after: str | None = None
    version: int = 1
    opened_at: str | None = None
    file_slice: FileSlice | None = None
    merging: SliceMergeRules | None = None
    deleting_logs: tuple[LogFile, ...] = ()
    is_compacting: bool = False

    @property
    def base_name(self) -> str:
        """Return the bare name of the slice's base file; "" if it has none."""
        return (
            str(self.file_slice.base.name) if self.file_slice is not None and self.file_slice.base is not None else ""
        )

    @property
    def log_names(self) -> tuple[str, ...]:
        """Return the bare names of the log files that the slice has before this write."""
        return tuple(str(log.name) for log in self.file_slice.logs) if self.file_slice is not None else ()


@dataclass(frozen=True)
class AppendRules:
    """The rules by which one write appends rows to log files or rewrites base files.

    Attributes:
        takes_logs: whether the table takes log files at all.
        has_buckets: whether a bucket index decides the file group.
        opens_logs: whether new file groups begin with a log file.
        by_commit: whether a log file's name holds the instant of the commit that writes it, as from table version 8 on.
        compaction_instants: for each file group in a pending compaction, the instant of the compaction, which has
            opened a new slice.
        reads_stored: whether stored rows are read before anything is appended.
        orders_versions: whether readers choose between the versions of a row by an ordering column. If so, a deleted
            version may win over a later one.
        fills_nulls: whether readers fill nulls of the newer version from the older one, even if the older one was
            deleted.
        upserting: paths of log files that contain no deletes, according to the write stats of their commits.
        merging_of: function that returns the rules by which readers merge the files of a slice.
    """

    takes_logs: bool = False
    has_buckets: bool = False
    opens_logs: bool = False
    by_commit: bool = False
    compaction_instants: Mapping[FileGroupId, str] = field(default_factory=dict)
    reads_stored: bool = False
    orders_versions: bool = False
    fills_nulls: bool = False
    upserting: frozenset[str] = frozenset()
    merging_of: Callable[[FileSlice], SliceMergeRules] | None = None

    def closed_groups(self, slices: Sequence[FileSlice]) -> frozenset[FileGroupId]:
        """Return the file groups that take no new rows.

        If the table takes log files, only slices take new rows that have none, and are in no pending compaction. If it
        takes none, or has a bucket index, no file group is returned.
        """
        if not self.takes_logs or self.has_buckets:
            return frozenset()
        return frozenset(
            piece.group
            for piece in slices
            if piece.base is None or piece.logs or piece.group in self.compaction_instants
        )

    def appends_to(self, piece: FileSlice, *, inserts: int) -> bool:
        """Tell whether a bucket's rows are appended to a log file of the slice. If not, its base file is rewritten.

        Args:
            inserts: number of new rows in the bucket.
        """
        return self.takes_logs and (self.has_buckets or not inserts or bool(piece.logs))

    def place(self, piece: FileSlice | None) -> LogPlace:
        """Return the log file that this write creates for a slice or for a new file group.

        Args:
            piece: the slice; None for a new file group.
        """
        if piece is None:
            return LogPlace()
        compacting = self.compaction_instants.get(piece.group, "")
        outlived = self.orders_versions or self.fills_nulls
        deleting = tuple(log for log in piece.logs if log.path not in self.upserting) if outlived else ()
        merging = self.merging_of(piece) if self.merging_of is not None and (self.reads_stored or deleting) else None
        if self.by_commit:
            return LogPlace(None, 1, piece.base_instant, piece, merging, deleting, bool(compacting))
        after = max(piece.base_instant, compacting)
        own = [log.name for log in piece.logs if log.name.instant_time == after]
        version = max((name.version for name in own), default=0) + 1
        return LogPlace(after, version, after, piece, merging, deleting, bool(compacting))


_NO_APPENDS: Final = AppendRules()
#: Estimated work of one row to write, in bytes of a base file. The rows are not measured, because the base file
#: dominates the cost of a merge.
_ROW_WORK: Final = 1024

_NO_ROWS: Final[Ints] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Bucket:
    """A file group to which a write brings rows: first as numbers of rows, later with the rows.

    Attributes:
        base: base file of the slice that takes the rows; None for a slice without one, and for a new file group.
        updates: the number of rows whose keys may be in the slice.
        inserts: the number of the other rows; an estimate as long as the rows are not known.
        log_place: the log file to which the rows are appended; None if they go into a base file.
        rows: positions of the bucket's rows among the partition's rows. The updates come first.
        moved_rows: the number of rows that move to another partition; they come first, and are deletes in this bucket.
        base_rows: for each update the row's position in the base file, -1 if unknown; None if no position is known.
    """

    partition_path: str
    file_id: str
    base: BaseFile | None
    updates: int = 0
    inserts: int = 0
    log_place: LogPlace | None = None
    rows: Ints = field(default_factory=lambda: _NO_ROWS)
    moved_rows: int = 0
    base_rows: Ints | None = None

    @property
    def opened_at(self) -> str | None:
        """Return the instant that opened the file slice to which the rows go; None if the bucket opens it itself."""
        if self.log_place is not None:
            return self.log_place.opened_at
        return self.base.name.instant_time if self.base is not None else None

    @property
    def file_name(self) -> str:
        """Return the ``_hoodie_file_name`` of stored rows: the base file's name, or without base file the file id."""
        return str(self.base.name) if self.base is not None else self.file_id

    @property
    def weight(self) -> int:
        """Return the estimated work to write the bucket, in bytes."""
        size = self.base.size_bytes if self.base is not None else 0
        return size + (self.updates + self.inserts) * _ROW_WORK

    def with_rows(self, updates: Ints, inserts: Ints, *, moved_rows: int = 0, base_rows: Ints | None = None) -> Bucket:
        """Return the bucket with its rows.

        Args:
            updates: positions of the rows whose keys may be in the slice, those that move to another partition first.
            inserts: positions of the other rows.
        """
        given = replace(self, updates=len(updates), inserts=len(inserts), moved_rows=moved_rows, base_rows=base_rows)
        return replace(given, rows=np.concatenate([updates, inserts]))


def spread_inserts(rows: int, small_files: Sequence[SmallFile], sizing: FileSizing) -> tuple[InsertShare, ...]:
    """Divide a number of inserts over small files, smallest first, and the remaining inserts over new file groups."""
    shares: list[InsertShare] = []
    for small in sorted(small_files, key=lambda file: (file.size_bytes, file.file_id)):
        taken = min(rows, sizing.rows_that_fit(small.size_bytes))
        if taken:
            shares.append(InsertShare(small, taken))
            rows -= taken
    return (*shares, *(InsertShare(None, n) for n in split_evenly(rows, sizing.rows_of_new_file)))


def files_to_fill(
    slices: Sequence[FileSlice],
    rows: int,
    sizing: FileSizing,
    closed_groups: frozenset[FileGroupId],
    append_rules: AppendRules = _NO_APPENDS,
    updated: Collection[int] = (),
) -> Sequence[SmallFile]:
    """Return the small file slices of a partition that take its ``rows`` inserts, before new files do.

    Args:
        closed_groups: file groups that take no inserts.
        append_rules: the rules by which rows are appended to slices.
        updated: positions of the slices that the write updates.
    """
    closed_groups |= append_rules.closed_groups(slices)
    small: Sequence[SmallFile] = [
        SmallFile(number, piece.group.file_id, piece.size_bytes)
        for number, piece in enumerate(slices)
        if piece.size_bytes < sizing.small_file_bytes and piece.group not in closed_groups
    ]
    if not sizing.fills_all:
        sizes = [piece.size_bytes for piece in slices]
        rewritten = () if append_rules.takes_logs else updated
        small = choose_files_to_fill(sizes, small, rows * sizing.row_bytes, sizing.max_file_bytes, rewritten)
    if append_rules.takes_logs:
        small = sorted(small, key=lambda file: (file.size_bytes, file.file_id))[: sizing.most_filled]
    return small


def split_evenly(rows: int, most: int) -> list[int]:
    """Divide a number of rows into nearly equal numbers. None of the returned numbers exceeds ``most``."""
    parts = -(-rows // most)
    return [rows // parts + (part < rows % parts) for part in range(parts)]


def number_shares(shares: Sequence[InsertShare], slices: int) -> list[int]:
    """Return for each share the number of its file: the position of its slice, or from ``slices`` on for new files."""
    new = count(slices)
    return [next(new) if share.small is None else share.small.at for share in shares]


def make_buckets(
    partition_path: str,
    slices: Mapping[int, FileSlice],
    updates: Mapping[int, int],
    inserts: Mapping[int, int],
    append_rules: AppendRules,
    file_id_of: Callable[[int], str],
) -> Mapping[int, Bucket]:
    """Return the buckets of one partition by their ascending numbers, with the numbers of their rows.

    The numbers are those of a bucket index, or positions of slices, continued for new files.

    Args:
        slices: the live file slices by number.
        updates, inserts: the numbers of rows of each bucket.
        file_id_of: makes the file id of a new file group from the bucket's number.
    """
    buckets: dict[int, Bucket] = {}
    for number in sorted({*updates, *inserts}):
        piece, added = slices.get(number), inserts.get(number, 0)
        file_id = file_id_of(number) if piece is None else piece.group.file_id
        appends = append_rules.opens_logs if piece is None else append_rules.appends_to(piece, inserts=added)
        log_place = append_rules.place(piece) if appends else None
        base = None if piece is None else piece.base
        buckets[number] = Bucket(partition_path, file_id, base, updates.get(number, 0), added, log_place)
    return buckets


def assign_to_files(
    partition_path: str,
    files: Sequence[FileSlice],
    tagged: Tagged,
    sizing: FileSizing,
    next_file_id: Callable[[], str],
    *,
    append_rules: AppendRules = _NO_APPENDS,
    closed_groups: frozenset[FileGroupId] = frozenset(),
) -> tuple[Bucket, ...]:
    """Return the buckets of one partition with their rows: one per existing file that takes rows, and one per new file.

    Args:
        tagged: what the index found for the partition's rows in ``files``. New keys fill small files first, then new
            files. Each file gets consecutive rows, so that key ranges stay narrow.
        closed_groups: file groups that take no inserts.
    """
    rows, is_leaving, inserted = tagged.keys, tagged.is_leaving, len(tagged.new)
    order = np.arange(len(rows)) if is_leaving is None else np.argsort(~is_leaving, kind="stable")
    entries = _group_by_owner(order, tagged.files[order])
    small = files_to_fill(files, inserted, sizing, closed_groups, append_rules, entries)
    shares = spread_inserts(inserted, small, sizing)
    parts = np.split(tagged.new, np.cumsum([share.rows for share in shares[:-1]], dtype=np.int64))
    inserts = dict(zip(number_shares(shares, len(files)), parts, strict=False))
    sizes = _lengths(entries), _lengths(inserts)
    planned = make_buckets(partition_path, dict(enumerate(files)), *sizes, append_rules, lambda _: next_file_id())
    buckets: list[Bucket] = []
    for number, bucket in planned.items():
        places = entries.get(number, _NO_ROWS)
        moved = 0 if is_leaving is None else int(is_leaving[places].sum())
        rows_of_base = None if tagged.base_rows is None else tagged.base_rows[places]
        buckets.append(
            bucket.with_rows(rows[places], inserts.get(number, _NO_ROWS), moved_rows=moved, base_rows=rows_of_base)
        )
    return tuple(buckets)


def assign_to_buckets(
    partition_path: str,
    files: Sequence[FileSlice],
    tagged: Tagged,
    buckets: PartitionBuckets,
    file_id_of: Callable[[int], str],
    *,
    append_rules: AppendRules = _NO_APPENDS,
) -> tuple[Bucket, ...]:
    """Return the buckets of one partition with their rows, by the rows' bucket numbers.

    Args:
        files: the live slices of the partition; at most one per bucket number.
        tagged: what the index found for the partition's rows in ``files``, with the bucket of each new row.
        buckets: the partition's buckets.
        file_id_of: makes the file id of a new file group from its bucket number.
    """
    slices = slices_by_bucket(files, buckets)
    number_of = np.fromiter((buckets.bucket_of(piece.group.file_id) or 0 for piece in files), np.int64)
    new_buckets = _NO_ROWS if tagged.new_buckets is None else tagged.new_buckets
    updates, inserts = _group_by_owner(tagged.keys, number_of[tagged.files]), _group_by_owner(tagged.new, new_buckets)
    sizes = _lengths(updates), _lengths(inserts)
    planned = make_buckets(partition_path, slices, *sizes, append_rules, file_id_of)
    return tuple(
        bucket.with_rows(updates.get(number, _NO_ROWS), inserts.get(number, _NO_ROWS))
        for number, bucket in planned.items()
    )


def slices_by_bucket(slices: Sequence[FileSlice], buckets: PartitionBuckets) -> Mapping[int, FileSlice]:
    """Return the file slices of a partition by the numbers of their buckets, without those that belong to no bucket."""
    numbered = ((buckets.bucket_of(piece.group.file_id), piece) for piece in slices)
    return {number: piece for number, piece in numbered if number is not None}


def may_append_beside(job: WriteJob) -> bool:
    """Tell whether several writers may append to a file group at once.

    They may with a bucket index, where no key is looked up. In timeline layout 1 they would use the same version number
    for their log files.
    """
    layout = layout_of(job.config)
    by_commit = layout is not None and layout.has_completion_times
    return job.config.takes_logs and job.index_settings.has_buckets and by_commit


def make_bucket_id(job: WriteJob, buckets: PartitionBuckets, bucket: int, file_id: str) -> str:
    """Return the file id of a bucket's first file group: a fixed id if writers do not block each other.

    Args:
        buckets: the partition's buckets.
        file_id: a file id that no other write uses.
    """
    is_fixed = job.options.lock.is_non_blocking and may_append_beside(job)
    return buckets.new_file_id(bucket, FIXED_FILE_ID if is_fixed else file_id)


def _group_by_owner(rows: Ints, owners: Ints) -> dict[int, Ints]:
    """Group rows by their owner (the number of a file or bucket). The rows of an owner keep their order."""
    order = np.argsort(owners, kind="stable")
    ascending = owners[order]
    starts = np.flatnonzero(np.diff(ascending, prepend=-1))
    return dict(zip(ascending[starts].tolist(), np.split(rows[order], starts[1:]), strict=False))


def _lengths(grouped: Mapping[int, Ints]) -> dict[int, int]:
    return {number: len(rows) for number, rows in grouped.items()}


#: Bits that are set in the hash from which a file id is made, so that the id begins with a letter (a, b, e or f).
_LETTER_FIRST: Final = 0xA << 124


def derive_file_id(write_id: str, task: int, index: int) -> str:
    """Return a file id that depends only on the arguments, so that a repeated task writes to the same file groups.

    The id begins with a letter. If it began with eight digits, `lakeformat.index.bucket.bucket_of` would read them as
    the number of a bucket.

    >>> derive_file_id("w", 0, 1) == derive_file_id("w", 0, 1)
    True
    """
    digest = mmh3.hash128(f"{write_id}/{task}/{index}".encode(), signed=False)
    return f"{uuid.UUID(int=digest | _LETTER_FIRST)}-0"


_NAME: Final = BaseFileName("00000000-0000-0000-0000-000000000000-0", "0-0-0", "20000101000000000")
#: Number of samples to encode if each has fewer than `_MOST_ROWS` rows. The largest measured row size is used.
_RUNS: Final = 3
#: Maximum number of rows in an encoded sample; more rows hardly change the result.
_MOST_ROWS: Final = ROW_GROUP_ROWS // 2
#: Minimum number of rows in an encoded sample; a shorter sample does not represent the other rows.
_LEAST_ROWS: Final = 64
#: Upper bound of the bytes that a row adds to a file besides its columns: meta columns, bloom filter, Parquet levels.
_META_BYTES: Final = 128
#: Upper bound of the bytes of a column's footer entries.
_COLUMN_BYTES: Final = 1024


def file_sizing(options: Options, row_bytes: float, empty_bytes: int = 0) -> FileSizing:
    """Return the target file sizes from the options and the measured sizes.

    Args:
        row_bytes: bytes of one more row in a file.
        empty_bytes: bytes of a file without rows.
    """
    per_file = None
    if not options.write.auto_split:
        per_file = options.write.split_rows
    write = options.write
    most, small, filled = write.file_bytes, write.small_bytes, write.most_filled
    return FileSizing(row_bytes, most, small, empty_bytes, per_file, fills_all_small_files(options), filled)


def encoded_bytes(rows: pa.Table, files: FileSettings) -> int:
    """Return the size in bytes of a base file with exactly these prepared rows.

    Columns that the rows lack are filled with nulls, even required columns.
    """
    files = replace(files, schema=pa.schema([field.with_nullable(True) for field in files.schema]))
    sink = pa.BufferOutputStream()
    with BaseFileWriter(sink, "", _NAME, files) as writer:
        if rows.num_rows:
            writer.write(stamp_rows(rows, files.schema, _NAME.instant_time, 0, 0))
        writer.close()
        return writer.size_bytes


def max_encoded_bytes(rows: pa.Table, count: int, columns: int) -> float:
    """Estimate, without encoding, the maximum size in bytes of a file with ``count`` rows like the given ones."""
    share = count / max(rows.num_rows, 1)
    return float(2 * rows.nbytes * share + _META_BYTES * count + _COLUMN_BYTES * columns)


def measure_row_bytes(rows: pa.Table, new: npt.NDArray[np.int64], files: FileSettings) -> float:
    """Return the average bytes that one row adds to a file of the target size; footer and schema are not counted.

    Savings by dictionaries and codecs depend on the number of rows. So as many rows are encoded as a file will hold,
    but at most half a row group.

    Args:
        rows: prepared rows of one partition.
        new: positions of the rows to insert, in the order in which they will be written; at least one.
    """
    empty = encoded_bytes(rows.slice(0, 0), files)
    most = max(1, min(_MOST_ROWS, int(files.row_group_bytes // 2 * rows.num_rows // max(rows.nbytes, 1))))
    run = min(len(new), most)
    while True:
        last = len(new) - run
        starts = [last // 2] if run == most else np.unique(np.linspace(0, last, _RUNS, dtype=np.int64)).tolist()
        sizes = [encoded_bytes(gather(rows, new[start : start + run]), files) for start in starts]
        row_bytes = max(1.0, (max(sizes) - empty) / run)
        fitting = math.ceil(files.max_file_bytes / row_bytes)
        if fitting >= run or run <= min(_LEAST_ROWS, most):
            return row_bytes
        run = min(max(fitting, _LEAST_ROWS), most)


#: Maximum bytes of the last rows of a partition that a task sends to the driver instead of writing a small file. The
#: limit is low, because the driver gets such rows from every task.
_DRIVER_BYTES: Final = 8 << 20


def tail_bytes(job: WriteJob, *, tasks: bool) -> int:
    """Return the size in Arrow bytes below which a direct write leaves the last rows of a partition to the driver.

    The driver packs these rows into files when the write is published. If the limit is 0, a task writes its last rows
    to a file of its own. The first of these rules that applies gives the limit:

    1. If a layout has ordered the rows, the limit is 0.
    2. For an ``insert``, the limit is ``hoodie.parquet.small.file.limit``, because the driver fills the table's small
       files. So it is for rows that are combined: few rows then go straight into their partition.
    3. If several tasks write, the limit is the same option, but at most 8 MiB. The driver packs the last rows of all
       tasks together.
    4. Otherwise the limit is 0, because there are no rows of other tasks to pack.

    Args:
        tasks: whether several tasks write the rows.
    """
    small = job.options.write.small_bytes
    if job.layout is not None:
        return 0
    if job.operation is Operation.INSERT or job.needs_combining:
        return small
    return min(small, _DRIVER_BYTES) if tasks else 0


def log_name(place: LogPlace, file_id: str, instant_time: str, write_token: str) -> LogFileName:
    """Return the name of the log file that a commit adds to a slice."""
    return LogFileName(file_id, place.named_after or instant_time, place.version, write_token)
