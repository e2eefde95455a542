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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.arrow.gather import gather
from lakeformat.config.resolve import Options
from lakeformat.files.base_file import ROW_GROUP_ROWS, BaseFileWriter, FileSettings, stamp_rows
from lakeformat.files.open_slice import SliceMergeRules
from lakeformat.index.bucket import FIXED_FILE_ID
from lakeformat.index.port import PartitionBuckets
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, FileSlice, LogFile, LogFileName
from lakeformat.model.operation import Operation
from lakeformat.timeline.timeline_layout import layout_of
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.workload.small_files import SmallFile, choose_files_to_fill, fills_all_small_files

__all__ = [
    "AppendRules",
    "Bucket",
    "BucketLoad",
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
    "max_encoded_bytes",
    "may_append_beside",
    "measure_row_bytes",
    "opening_instant",
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


class BucketLoad(Protocol):
    """The part of a bucket that the workload profile records: its file group and its numbers of rows."""

    @property
    def partition_path(self) -> str:
        """Return the partition path of the file group."""

    @property
    def file_id(self) -> str:
        """Return the id of the file group."""

    @property
    def opened_at(self) -> str | None:
        """Return the instant that opened the file slice to which the rows go; None for a new file group."""

    @property
    def updates(self) -> int:
        """Return the number of the bucket's rows whose keys may be in its base file."""

    @property
    def inserts(self) -> int:
        """Return the number of the bucket's rows whose keys are in no file."""


@dataclass(frozen=True)
class Bucket:
    """The rows that a write brings to one file group.

    Attributes:
        base: base file of the slice that takes the rows; None for a slice without one, and for a new file group.
        rows: positions of the bucket's rows among the partition's rows. Rows that may be in the base file come first.
        lookups: the number of rows whose keys may be in the base file.
        moved_rows: the number of rows that move to another partition; they come first, and are deletes in this bucket.
        log_place: the log file to which the rows are appended; None if they go into a base file.
        base_rows: for each of the first ``lookups`` rows its position in the base file, -1 if unknown; None if no
            position is known.
    """

    partition_path: str
    file_id: str
    base: BaseFile | None
    rows: Ints
    lookups: int
    moved_rows: int = 0
    log_place: LogPlace | None = None
    base_rows: Ints | None = None

    @property
    def opened_at(self) -> str | None:
        """Return the instant that opened the file slice to which the rows go; None for a new file group."""
        return opening_instant(self.base, self.log_place)

    @property
    def file_name(self) -> str:
        """Return the ``_hoodie_file_name`` of stored rows: the base file's name, or without base file the file id."""
        return str(self.base.name) if self.base is not None else self.file_id

    @property
    def updates(self) -> int:
        """Return the number of the bucket's rows whose keys may be in its base file."""
        return self.lookups

    @property
    def inserts(self) -> int:
        """Return the number of the bucket's rows whose keys are in no file."""
        return len(self.rows) - self.lookups


def opening_instant(base: BaseFile | None, log_place: LogPlace | None) -> str | None:
    """Return the instant that opened the file slice of a bucket; None if the bucket opens the slice itself."""
    if log_place is not None:
        return log_place.opened_at
    return base.name.instant_time if base is not None else None


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
    append_rules: AppendRules | None = None,
    updated: Collection[int] = (),
) -> Sequence[SmallFile]:
    """Return the small file slices of a partition that take its ``rows`` inserts, before new files do.

    Args:
        closed_groups: file groups that take no inserts.
        append_rules: the rules by which rows are appended to slices; None if the table takes no log files.
        updated: positions of the slices that the write updates.
    """
    takes_logs = append_rules is not None and append_rules.takes_logs
    closed_groups |= append_rules.closed_groups(slices) if append_rules is not None else frozenset()
    small: Sequence[SmallFile] = [
        SmallFile(at, piece.group.file_id, piece.size_bytes)
        for at, piece in enumerate(slices)
        if piece.size_bytes < sizing.small_file_bytes and piece.group not in closed_groups
    ]
    if not sizing.fills_all:
        sizes = [piece.size_bytes for piece in slices]
        rewritten = () if takes_logs else updated
        small = choose_files_to_fill(sizes, small, rows * sizing.row_bytes, sizing.max_file_bytes, rewritten)
    if takes_logs:
        small = sorted(small, key=lambda file: (file.size_bytes, file.file_id))[: sizing.most_filled]
    return small


def split_evenly(rows: int, most: int) -> list[int]:
    """Divide a number of rows into nearly equal numbers. None of the returned numbers exceeds ``most``."""
    parts = -(-rows // most)
    return [rows // parts + (part < rows % parts) for part in range(parts)]


def assign_to_files(
    partition_path: str,
    files: Sequence[FileSlice],
    located: tuple[Ints, Ints],
    new: Ints,
    sizing: FileSizing,
    next_file_id: Callable[[], str],
    *,
    closed_groups: frozenset[FileGroupId] = frozenset(),
    is_leaving: npt.NDArray[np.bool_] | None = None,
    base_rows: Ints | None = None,
    append_rules: AppendRules | None = None,
) -> tuple[Bucket, ...]:
    """Return the buckets of one partition: one per existing file that takes rows, and one per new file.

    Args:
        located: two arrays: positions of rows, and positions in ``files`` of slices that may hold their keys.
        new: positions of the rows whose keys no file holds, in key order. They fill small files first, then new
            files. Each file gets consecutive rows, so that key ranges stay narrow.
        closed_groups: file groups that take no inserts.
        is_leaving: for each entry of ``located``, whether the row moves to another partition; None if no row moves.
        base_rows: for each entry of ``located``, the row's position in the base file, or -1; None if none is known.
        append_rules: the rules by which rows are appended to slices; None if the table takes no log files.
    """
    rows, owners = located
    if is_leaving is None:
        order = np.argsort(owners, kind="stable")
        left = np.zeros(len(files), np.int64)
    else:
        order = np.lexsort((~is_leaving, owners))
        left = np.bincount(owners[is_leaving], minlength=len(files))
    bounds = np.searchsorted(owners[order], np.arange(len(files) + 1))
    updates = {at: rows[order[bounds[at] : bounds[at + 1]]] for at in range(len(files)) if bounds[at] < bounds[at + 1]}
    small = files_to_fill(files, len(new), sizing, closed_groups, append_rules, updates)
    inserts: dict[int, Ints] = {}
    insert_buckets: list[Bucket] = []
    start = 0
    for share in spread_inserts(len(new), small, sizing):
        part = new[start : start + share.rows]
        start += share.rows
        if share.small is None:
            insert_buckets.append(Bucket(partition_path, next_file_id(), None, part, 0))
        else:
            inserts[share.small.at] = part
    none = np.empty(0, np.int64)
    update_buckets = (
        Bucket(
            partition_path,
            files[at].group.file_id,
            files[at].base,
            np.concatenate([updates.get(at, none), inserts.get(at, none)]),
            len(updates.get(at, none)),
            int(left[at]),
            base_rows=None if base_rows is None else base_rows[order[bounds[at] : bounds[at + 1]]],
        )
        for at in sorted({*updates, *inserts})
    )
    return (*update_buckets, *insert_buckets)


def assign_to_buckets(
    partition_path: str,
    files: Sequence[FileSlice],
    located: tuple[Ints, Ints],
    new: Ints,
    new_buckets: Ints,
    buckets: PartitionBuckets,
    file_id_of: Callable[[PartitionBuckets, int], str],
) -> tuple[Bucket, ...]:
    """Return the buckets of one partition by the rows' bucket numbers (Hudi: ``SparkBucketIndexPartitioner``).

    Args:
        files: the partition's live file slices, at most one per bucket number.
        located: two arrays of equal length: positions of rows, and positions in ``files`` of slices that may hold
            their keys.
        new: positions of the rows whose keys no file holds.
        new_buckets: the bucket number of each new row.
        buckets: the partition's buckets.
        file_id_of: makes the file id of a new file group from the partition's buckets and its bucket number.
    """
    file_at = {buckets.bucket_of(piece.group.file_id): at for at, piece in enumerate(files)}
    rows, owners = located
    lookups = _group_by_owner(rows, owners)
    inserts = _group_by_owner(new, new_buckets)
    none = np.empty(0, np.int64)
    update_buckets = []
    for bucket, at in sorted(file_at.items(), key=lambda item: item[1]):
        found, added = lookups.get(at, none), inserts.pop(bucket, none) if bucket is not None else none
        if len(found) or len(added):
            piece = files[at]
            taken = np.concatenate([found, added])
            update_buckets.append(Bucket(partition_path, piece.group.file_id, piece.base, taken, len(found)))
    insert_buckets = [
        Bucket(partition_path, file_id_of(buckets, bucket), None, added, 0) for bucket, added in inserts.items()
    ]
    return (*update_buckets, *insert_buckets)


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
    known, starts = np.unique(owners[order], return_index=True)
    return dict(zip(known.tolist(), np.split(rows[order], starts[1:]), strict=True)) if len(rows) else {}


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

    def place_buckets(self, buckets: Iterable[Bucket], slices: Sequence[FileSlice]) -> tuple[Bucket, ...]:
        """Return the partition's buckets. Those whose rows are appended to a log file have ``log_place`` set."""
        if not self.takes_logs:
            return tuple(buckets)
        of_group = {each.group.file_id: each for each in slices}
        return tuple(self._with_place(bucket, of_group.get(bucket.file_id)) for bucket in buckets)

    def _with_place(self, bucket: Bucket, piece: FileSlice | None) -> Bucket:
        if not (self.opens_logs if piece is None else self.appends_to(piece, inserts=bucket.inserts)):
            return bucket
        return replace(bucket, log_place=self.place(piece))

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
