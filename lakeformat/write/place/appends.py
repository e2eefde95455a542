"""Which buckets of a write become log files, and what these files are called (Hudi:
``BaseSparkDeltaCommitActionExecutor``).

Rows for a file slice are appended to it; new rows open file groups with a base file. New rows may also go into a small
slice without log files. Then its base file is rewritten, so that an index that reads base files finds the rows. In a
table with a bucket index all rows are appended, and new file groups begin with a log file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from lakeformat.files.open_slice import SliceMerging
from lakeformat.model.files import FileGroupId, FileSlice, LogFileName
from lakeformat.write.place.buckets import Bucket, LogPlace

__all__ = ["Appending", "log_name"]

#: Default of Hudi's ``hoodie.merge.small.file.group.candidates.limit``: base files of a partition that take new rows.
_TOPPED_UP: Final = 1
#: A base file up to this many bytes is rewritten for any new row. A larger one is rewritten if it has at most `_GROWTH`
#: times the bytes of the new rows.
_ALWAYS_SMALL: Final = 1 << 20
_GROWTH: Final = 16


def log_name(place: LogPlace, file_id: str, instant_time: str, write_token: str) -> LogFileName:
    """Return the name of the log file that a commit adds to a slice."""
    return LogFileName(file_id, place.named_after or instant_time, place.version, write_token)


@dataclass(frozen=True)
class Appending:
    """How one write treats the slices of a table.

    Attributes:
        is_on: whether the table takes log files at all.
        has_buckets: whether a bucket index decides the file group.
        opens_logs: whether new file groups begin with a log file.
        by_commit: whether log files are named by the commit that writes them, as from table version 8 on.
        compacting: file groups for which a pending compaction has opened a new slice -> the compaction's instant.
        looks: whether stored rows are read before anything is appended.
        orders: whether an ordering column decides between versions, so that an old version may outlive its delete.
        fills: whether readers fill nulls of the newer version from the older one, even if the older one was deleted.
        upserting: paths of log files that delete nothing, according to their commits.
        merging: returns how a slice's files are merged into rows.
    """

    is_on: bool = False
    has_buckets: bool = False
    opens_logs: bool = False
    by_commit: bool = False
    compacting: Mapping[FileGroupId, str] = field(default_factory=dict)
    looks: bool = False
    orders: bool = False
    fills: bool = False
    upserting: frozenset[str] = frozenset()
    merging: Callable[[FileSlice], SliceMerging] | None = None

    def closed(self, slices: Sequence[FileSlice], small_bytes: int, added_bytes: float) -> frozenset[FileGroupId]:
        """Return the slices that take no new rows.

        At most `_TOPPED_UP` small slices without log files take new rows; all other slices are closed. If nothing is
        appended, or the table has a bucket index, no slice is closed.

        Args:
            small_bytes: smaller base files may take new rows.
            added_bytes: estimated bytes of the new rows. A base file that is many times larger is not rewritten for
                them.
        """
        if not self.is_on or self.has_buckets:
            return frozenset()
        plain = [each for each in slices if each.base is not None and not each.logs]
        limit = min(small_bytes, max(_ALWAYS_SMALL, _GROWTH * added_bytes))
        small = [each for each in plain if each.size_bytes < limit and each.group not in self.compacting]
        small.sort(key=lambda each: (each.size_bytes, each.group))
        return frozenset({each.group for each in slices} - {each.group for each in small[:_TOPPED_UP]})

    def placed(self, buckets: Iterable[Bucket], slices: Sequence[FileSlice]) -> tuple[Bucket, ...]:
        """Return the buckets of one partition; those that append rows have the place of their log file."""
        if not self.is_on:
            return tuple(buckets)
        of_group = {each.group.file_id: each for each in slices}
        return tuple(self._with_place(bucket, of_group.get(bucket.file_id)) for bucket in buckets)

    def _with_place(self, bucket: Bucket, piece: FileSlice | None) -> Bucket:
        if not (self.opens_logs if piece is None else self.appends_to(piece, inserts=bucket.inserts)):
            return bucket
        return replace(bucket, onto=self.place(piece))

    def appends_to(self, piece: FileSlice, *, inserts: int) -> bool:
        """Tell whether rows for a slice are appended. If not, its base file is rewritten; the slice has no log files
        then.
        """
        return self.is_on and (self.has_buckets or not inserts or bool(piece.logs))

    def place(self, piece: FileSlice | None) -> LogPlace:
        """Return the place of the slice's next log file; for a new file group (None) the place of its first."""
        if piece is None:
            return LogPlace()
        compacting = self.compacting.get(piece.group, "")
        outlived = self.orders or self.fills
        deleting = tuple(log for log in piece.logs if log.path not in self.upserting) if outlived else ()
        merging = self.merging(piece) if self.merging is not None and (self.looks or deleting) else None
        if self.by_commit:
            return LogPlace(None, 1, piece.base_instant, piece, merging, deleting, bool(compacting))
        after = max(piece.base_instant, compacting)
        own = [log.name for log in piece.logs if log.name.instant_time == after]
        version = max((name.version for name in own), default=0) + 1
        return LogPlace(after, version, after, piece, merging, deleting, bool(compacting))
