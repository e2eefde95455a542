"""Which buckets of a write become log files, and where these stand (Hudi: ``BaseSparkDeltaCommitActionExecutor``).

Rows for a file slice are appended to it, new ones open file groups with a base file. New rows may also go into a small
slice that has no log files: its base file is written anew, so that an index which looks into base files finds them.
A table of buckets needs no such care: all its rows are appended, and its groups begin with a log file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from lakeformat.files.open_slice import SliceMerging
from lakeformat.model.files import FileGroupId, FileSlice, LogFileName
from lakeformat.write.place.buckets import Bucket, LogPlace

__all__ = ["Appending", "log_name"]

#: Hudi's ``hoodie.merge.small.file.group.candidates.limit`` by default: base files of a partition that take new rows.
_TOPPED_UP: Final = 1
#: Bytes of a base file up to which it is written anew for any new row; larger ones for at least such a share of theirs.
_ALWAYS_SMALL: Final = 1 << 20
_GROWTH: Final = 16


def log_name(place: LogPlace, file_id: str, instant_time: str, write_token: str) -> LogFileName:
    """The name of the log file that a commit adds to a slice."""
    return LogFileName(file_id, place.named_after or instant_time, place.version, write_token)


@dataclass(frozen=True)
class Appending:
    """How one write treats the slices of a table.

    Attributes:
        is_on: whether the table takes log files at all.
        has_buckets: whether the key decides the file group.
        opens_logs: whether new file groups begin with a log file.
        by_commit: whether log files are named by the commit that writes them, as from table version 8 on.
        compacting: file groups for which a pending compaction has opened a new slice -> its instant.
        looks: whether stored rows are looked at before anything is appended.
        orders: whether an ordering column decides between versions, so that an old one may outlive its delete.
        fills: whether readers fill nulls of the newer version from the older one, also if that one was deleted.
        upserting: paths of log files that delete nothing, as their commits say.
        merging: how a slice's files become rows.
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
        """Slices that take no new rows, of those that a table's copy-on-write twin would top up.

        Args:
            small_bytes: smaller base files may be topped up.
            added_bytes: of the new rows, about: a file that is many times larger is not written anew for them.
        """
        if not self.is_on or self.has_buckets:
            return frozenset()
        plain = [each for each in slices if each.base is not None and not each.logs]
        limit = min(small_bytes, max(_ALWAYS_SMALL, _GROWTH * added_bytes))
        small = [each for each in plain if each.size_bytes < limit and each.group not in self.compacting]
        small.sort(key=lambda each: (each.size_bytes, each.group))
        return frozenset({each.group for each in slices} - {each.group for each in small[:_TOPPED_UP]})

    def placed(self, buckets: Iterable[Bucket], slices: Sequence[FileSlice]) -> tuple[Bucket, ...]:
        """The buckets of one partition, each with the place of its log file if it gets one."""
        if not self.is_on:
            return tuple(buckets)
        of_group = {each.group.file_id: each for each in slices}
        return tuple(self._placed(bucket, of_group.get(bucket.file_id)) for bucket in buckets)

    def _placed(self, bucket: Bucket, piece: FileSlice | None) -> Bucket:
        if not (self.opens_logs if piece is None else self.appends_to(piece, inserts=bucket.inserts)):
            return bucket
        return replace(bucket, onto=self.place(piece))

    def appends_to(self, piece: FileSlice, *, inserts: int) -> bool:
        """Whether rows for a slice are appended; else its base file, and it has no others, takes them and new rows."""
        return self.is_on and (self.has_buckets or not inserts or bool(piece.logs))

    def place(self, piece: FileSlice | None) -> LogPlace:
        """Where the next log file of a slice stands; of a group that is not there yet, the first."""
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
