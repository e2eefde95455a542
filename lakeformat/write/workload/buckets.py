"""Buckets of step 5: which rows go into which file group (Hudi: ``UpsertPartitioner``), and how large files get.

File sizes: a sample of the rows is encoded and measured. Hudi takes ``averageBytesPerRecord`` from earlier commits, or
``hoodie.copyonwrite.record.size.estimate``. Neither fits rows that are wider or narrower than the earlier ones. Here
the writer of base files writes a run of the new rows into memory, with the meta columns, filter, footer, codec and
dictionaries of a real file. Memory: the rows of half a row group, and the same rows encoded.

Log files (Hudi: ``BaseSparkDeltaCommitActionExecutor``): rows for a file slice are appended to it; new rows open file
groups with a base file. New rows may also go into a small slice without log files. Then its base file is rewritten, so
that an index that reads base files finds the rows. In a table with a bucket index all rows are appended, and new file
groups begin with a log file.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from lakeformat.index.bucket import bucket_file_id, bucket_of
from lakeformat.model.files import BaseFile, BaseFileName, FileGroupId, FileSlice, LogFile, LogFileName
from lakeformat.model.operation import Operation
from lakeformat.write.plan.job import WriteJob

__all__ = [
    "AppendRules",
    "Bucket",
    "BucketLoad",
    "FileSizing",
    "InsertShare",
    "LogPlace",
    "SmallFile",
    "assign_to_buckets",
    "assign_to_files",
    "derive_file_id",
    "encoded_bytes",
    "file_sizing",
    "log_name",
    "max_encoded_bytes",
    "measure_row_bytes",
    "opening_instant",
    "split_evenly",
    "spread_inserts",
    "tail_bytes",
]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SmallFile:
    """A file group that may take inserts. ``at`` is its position among the partition's files."""

    at: int
    file_id: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileSizing:
    """The target sizes of files.

    Attributes:
        row_bytes: measured bytes of one more row.
        max_file_bytes: the size limit of a file.
        small_file_bytes: smaller files take inserts.
        empty_bytes: bytes of a file without rows: footer and schema.
        rows_per_new_file: a fixed number of rows for new files, if the user sets one.
    """

    row_bytes: float
    max_file_bytes: int
    small_file_bytes: int
    empty_bytes: int = 0
    rows_per_new_file: int | None = None

    def rows_that_fit(self, size_bytes: int) -> int:
        """Return how many more rows fit into a file of this size."""
        return max(0, int((self.max_file_bytes - size_bytes) / self.row_bytes))

    @property
    def rows_of_new_file(self) -> int:
        """Return how many rows a new file takes: at least one, even if a row is larger than a file may be."""
        return self.rows_per_new_file or max(1, self.rows_that_fit(self.empty_bytes))


@dataclass(frozen=True, slots=True)
class InsertShare:
    """Some inserts for one file: a small one, or a new one (``small`` is None)."""

    small: SmallFile | None
    rows: int


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The place where a bucket's rows are appended: the next log file of a file slice, or the first of a new slice.

    Attributes:
        named_after: the instant in the log file's name; None for the commit's instant.
        version: the version number in the log file's name.
        opened_at: the instant that opened the slice; None if this commit opens it.
        file_slice: the slice; None if this commit opens it.
        merging: how the slice's files are merged into rows; None if the write does not read stored rows.
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
        """Return the bare names of the slice's present log files."""
        return tuple(str(log.name) for log in self.file_slice.logs) if self.file_slice is not None else ()


class BucketLoad(Protocol):
    """The numbers of a bucket that go into the workload profile. Counts are in rows."""

    @property
    def partition_path(self) -> str:
        """Return the partition path of the file group."""

    @property
    def file_id(self) -> str:
        """Return the id of the file group."""

    @property
    def opened_at(self) -> str | None:
        """Return the instant that opened the slice which takes the rows; None for a new file group."""

    @property
    def updates(self) -> int:
        """Return the number of rows that may be in the base file."""

    @property
    def inserts(self) -> int:
        """Return the number of rows that no file holds."""


@dataclass(frozen=True)
class Bucket:
    """Work for one file group.

    Attributes:
        base: base file of the slice that takes the rows; None for a slice without one, and for a new file group.
        rows: positions of its rows among the partition's rows; the first ``lookups`` rows may be in the base file.
        lookups: the number of rows that may be in the base file.
        moved_rows: the number of rows that move to another partition; they come first, and are deletes in this bucket.
        log_place: where the rows are appended; None writes a base file.
        base_rows: for each of the first ``lookups`` rows its row number in the base file, -1 if unknown; None if no
            number is known.
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
        """Return the instant that opened the slice which takes the rows; None for a new file group."""
        return opening_instant(self.base, self.log_place)

    @property
    def file_name(self) -> str:
        """Return what the meta column for file names holds in stored rows of the slice: the base file's name, else the
        file id.
        """
        return str(self.base.name) if self.base is not None else self.file_id

    @property
    def updates(self) -> int:
        """Return the number of rows that may be in the base file."""
        return self.lookups

    @property
    def inserts(self) -> int:
        """Return the number of rows that no file holds."""
        return len(self.rows) - self.lookups


def opening_instant(base: BaseFile | None, log_place: LogPlace | None) -> str | None:
    """Return the instant that opened the slice which a bucket goes into; None if the bucket opens the slice."""
    if log_place is not None:
        return log_place.opened_at
    return base.name.instant_time if base is not None else None


def spread_inserts(rows: int, small_files: Sequence[SmallFile], sizing: FileSizing) -> tuple[InsertShare, ...]:
    """Divide inserts over small files, smallest first, and over new file groups for the remaining rows."""
    shares: list[InsertShare] = []
    for small in sorted(small_files, key=lambda file: (file.size_bytes, file.file_id)):
        taken = min(rows, sizing.rows_that_fit(small.size_bytes))
        if taken:
            shares.append(InsertShare(small, taken))
            rows -= taken
    return (*shares, *(InsertShare(None, n) for n in split_evenly(rows, sizing.rows_of_new_file)))


def split_evenly(rows: int, most: int) -> list[int]:
    """Return parts of nearly equal size that add up to ``rows``; no part exceeds ``most``."""
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
) -> tuple[Bucket, ...]:
    """Make one bucket per file that holds keys; small files also take inserts. Make buckets of new files for the other
    inserts.

    Args:
        located: (row, file) pairs from tagging.
        new: rows that no file holds, in key order. Each file gets consecutive rows, so that key ranges stay narrow.
        closed_groups: file groups that take no inserts.
        is_leaving: for each pair whether the row moves to another partition; None if no row moves.
        base_rows: for each pair the number of the row in the base file; see `Tagged`.
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
    small = [
        SmallFile(at, piece.group.file_id, piece.size_bytes)
        for at, piece in enumerate(files)
        if piece.size_bytes < sizing.small_file_bytes and piece.group not in closed_groups
    ]
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
    next_file_id: Callable[[], str],
) -> tuple[Bucket, ...]:
    """Make the buckets of a table with a bucket index (Hudi: ``SparkBucketIndexPartitioner``). File sizes are not used.

    Args:
        files: the live slices, at most one per bucket.
        located, new: as for `assign_to_files`.
        new_buckets: the bucket number of each new row.
    """
    file_at = {bucket_of(piece.group.file_id): at for at, piece in enumerate(files)}
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
        Bucket(partition_path, bucket_file_id(bucket, next_file_id()), None, added, 0)
        for bucket, added in inserts.items()
    ]
    return (*update_buckets, *insert_buckets)


def _group_by_owner(rows: Ints, owners: Ints) -> dict[int, Ints]:
    """Group the rows: owner -> its rows, in order."""
    order = np.argsort(owners, kind="stable")
    known, starts = np.unique(owners[order], return_index=True)
    return dict(zip(known.tolist(), np.split(rows[order], starts[1:]), strict=True)) if len(rows) else {}


#: Bits that make the first digit of an id one of a, b, e and f.
_LETTER_FIRST: Final = 0xA << 124


def derive_file_id(write_id: str, task: int, index: int) -> str:
    """Return the same file id for the same work, so that a repeated task uses the same file names.

    The id begins with a letter. If it began with eight digits, it would name a bucket's file
    (`lakeformat.index.bucket.bucket_of`).

    >>> derive_file_id("w", 0, 1) == derive_file_id("w", 0, 1)
    True
    """
    digest = mmh3.hash128(f"{write_id}/{task}/{index}".encode(), signed=False)
    return f"{uuid.UUID(int=digest | _LETTER_FIRST)}-0"


_NAME: Final = BaseFileName("00000000-0000-0000-0000-000000000000-0", "0-0-0", "20000101000000000")
#: Number of runs measured if runs are short; the widest run counts.
_RUNS: Final = 3
#: Most rows in a measured run; more rows hardly change the result.
_MOST_ROWS: Final = ROW_GROUP_ROWS // 2
#: Least rows in a measured run; a shorter run does not represent the other rows.
_LEAST_ROWS: Final = 64
#: Upper bound of the bytes of a row's meta columns, filter and levels, without the key.
_META_BYTES: Final = 128
#: Upper bound of the bytes of a column's footer entries.
_COLUMN_BYTES: Final = 1024


def file_sizing(options: Options, row_bytes: float, empty_bytes: int = 0) -> FileSizing:
    """Return the target sizes by which inserts are divided over files.

    Args:
        row_bytes: bytes of one more row in a file.
        empty_bytes: bytes of a file without rows.
    """
    per_file = None
    if not options.write.auto_split:
        per_file = options.write.split_rows
    most, small = options.write.file_bytes, options.write.small_bytes
    return FileSizing(row_bytes, most, small, empty_bytes, per_file)


def encoded_bytes(rows: pa.Table, files: FileSettings) -> int:
    """Return the size in bytes of a base file with exactly these prepared rows. Columns that the rows lack are null,
    even required ones.
    """
    files = replace(files, schema=pa.schema([field.with_nullable(True) for field in files.schema]))
    sink = pa.BufferOutputStream()
    with BaseFileWriter(sink, "", _NAME, files) as writer:
        if rows.num_rows:
            writer.write(stamp_rows(rows, files.schema, _NAME.instant_time, 0, 0))
        writer.close()
        return writer.size_bytes


def max_encoded_bytes(rows: pa.Table, count: int, columns: int) -> float:
    """Return an upper bound of the bytes that ``count`` of these rows take in a file, without encoding them."""
    share = count / max(rows.num_rows, 1)
    return float(2 * rows.nbytes * share + _META_BYTES * count + _COLUMN_BYTES * columns)


def measure_row_bytes(rows: pa.Table, new: npt.NDArray[np.int64], files: FileSettings) -> float:
    """Return the bytes of one more row in a file of the target size, without the constant bytes of a file.

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


#: Limit, in bytes, for the remaining rows of a task that are packed with the remaining rows of other tasks. Only the
#: driver packs them, so it must not get many rows.
_DRIVER_BYTES: Final = 8 << 20


def tail_bytes(job: WriteJob, *, tasks: bool) -> int:
    """Return the limit for remaining rows, in bytes of Arrow. Smaller remainders are packed when the write is
    published.

    If a layout has ordered the rows, or if a single task writes and the operation is not ``insert``, the limit is 0:
    the remainder becomes a file. An ``insert`` fills the table's small files, so its limit is
    ``hoodie.parquet.small.file.limit``. Other operations can only pack remainders of several tasks; their limit is the
    same option, but at most 8 MiB.

    Args:
        tasks: whether several tasks write the rows.
    """
    small = job.options.write.small_bytes
    if job.layout is not None:
        return 0
    if job.operation is Operation.INSERT:
        return small
    return min(small, _DRIVER_BYTES) if tasks else 0


#: Default of Hudi's ``hoodie.merge.small.file.group.candidates.limit``: base files of a partition that take new rows.
_FILES_TO_FILL: Final = 1
#: A base file up to this many bytes is rewritten for any new row. A larger one is rewritten if it has at most `_GROWTH`
#: times the bytes of the new rows.
_ALWAYS_SMALL: Final = 1 << 20
_GROWTH: Final = 16


def log_name(place: LogPlace, file_id: str, instant_time: str, write_token: str) -> LogFileName:
    """Return the name of the log file that a commit adds to a slice."""
    return LogFileName(file_id, place.named_after or instant_time, place.version, write_token)


@dataclass(frozen=True)
class AppendRules:
    """How one write treats the slices of a table.

    Attributes:
        takes_logs: whether the table takes log files at all.
        has_buckets: whether a bucket index decides the file group.
        opens_logs: whether new file groups begin with a log file.
        by_commit: whether log files are named by the commit that writes them, as from table version 8 on.
        compaction_instants: file groups for which a pending compaction has opened a new slice -> the compaction's
            instant.
        reads_stored: whether stored rows are read before anything is appended.
        orders_versions: whether an ordering column decides between versions, so that an old version may outlive its
            delete.
        fills_nulls: whether readers fill nulls of the newer version from the older one, even if the older one was
            deleted.
        upserting: paths of log files that delete nothing, according to their commits.
        merging_of: returns how a slice's files are merged into rows.
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

    def closed_groups(
        self, slices: Sequence[FileSlice], small_bytes: int, added_bytes: float
    ) -> frozenset[FileGroupId]:
        """Return the slices that take no new rows.

        At most `_FILES_TO_FILL` small slices without log files take new rows; all other slices are closed. If nothing
        is appended, or the table has a bucket index, no slice is closed.

        Args:
            small_bytes: smaller base files may take new rows.
            added_bytes: estimated bytes of the new rows. A base file that is many times larger is not rewritten for
                them.
        """
        if not self.takes_logs or self.has_buckets:
            return frozenset()
        plain = [each for each in slices if each.base is not None and not each.logs]
        limit = min(small_bytes, max(_ALWAYS_SMALL, _GROWTH * added_bytes))
        small = [each for each in plain if each.size_bytes < limit and each.group not in self.compaction_instants]
        small.sort(key=lambda each: (each.size_bytes, each.group))
        return frozenset({each.group for each in slices} - {each.group for each in small[:_FILES_TO_FILL]})

    def place_buckets(self, buckets: Iterable[Bucket], slices: Sequence[FileSlice]) -> tuple[Bucket, ...]:
        """Return the buckets of one partition; those that append rows have the place of their log file."""
        if not self.takes_logs:
            return tuple(buckets)
        of_group = {each.group.file_id: each for each in slices}
        return tuple(self._with_place(bucket, of_group.get(bucket.file_id)) for bucket in buckets)

    def _with_place(self, bucket: Bucket, piece: FileSlice | None) -> Bucket:
        if not (self.opens_logs if piece is None else self.appends_to(piece, inserts=bucket.inserts)):
            return bucket
        return replace(bucket, log_place=self.place(piece))

    def appends_to(self, piece: FileSlice, *, inserts: int) -> bool:
        """Tell whether rows for a slice are appended to it.

        If not, the slice has no log files, and its base file is rewritten.
        """
        return self.takes_logs and (self.has_buckets or not inserts or bool(piece.logs))

    def place(self, piece: FileSlice | None) -> LogPlace:
        """Return the place of the slice's next log file; for a new file group (None) the place of its first."""
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
