"""Expiry of partitions (Hudi: ``SparkPartitionTTLActionExecutor``): a delete_partition commit removes old partitions.

Expired partitions are searched without the lock, and again under it, because a partition that was written to meanwhile
must stay. The commit deletes no files; later cleans do, except files that retained commits and savepoints need. A
partition expires by the rules of Hudi's ``KeepByTimeStrategy`` and ``KeepByCreationTimeStrategy``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.properties import decode
from lakeformat.config.resolve import Options
from lakeformat.config.retention_options import AgeStart, Expiry
from lakeformat.config.stream_options import BATCH_APP, BATCH_ID
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.files import PARTITION_MARKER, FileSlice, join_path
from lakeformat.model.instant import format_instant_time
from lakeformat.public import OneLine, public
from lakeformat.write.intake import plan_job
from lakeformat.write.session import WriteSession

__all__ = ["ExpireResult", "ExpireSession", "ExpiredPartition", "choose_expired", "expires_at"]

_MILLIS: Final = 17


def expires_at(instant_time: str, days: int) -> str:
    """Return the last instant time at which a partition whose age counts from ``instant_time`` has not yet expired.

    If ``instant_time`` is not a date, return "~", which is later than every instant time.

    >>> expires_at("20260101120000000", 2)
    '20260103120000000'
    """
    with suppress(ValueError, OverflowError):
        whole = instant_time.ljust(_MILLIS, "9")  # Like Hudi, extend old times without milliseconds by 999.
        moment = datetime.strptime(whole[:14], "%Y%m%d%H%M%S") + timedelta(days=days)
        return f"{moment:%Y%m%d%H%M%S}{whole[14:]}"
    return "~"


def choose_expired(times: Mapping[str, str], expiry: Expiry, now: str) -> tuple[str, ...]:
    """Return the partitions that have expired, oldest first, at most ``expiry.most_partitions``.

    Args:
        times: maps partition path to the instant time from which the partition's age counts.
        now: the current time as an instant time.
    """
    if expiry.days < 1:
        return ()
    asked = set(expiry.partitions) or times.keys()
    old = sorted((time, path) for path, time in times.items() if path in asked and now > expires_at(time, expiry.days))
    return tuple(path for _, path in old[: expiry.most_partitions])


_OPERATION: Final = "hoodie.datasource.write.operation"
_PARTITIONS_TO_DELETE: Final = "hoodie.datasource.write.partitions.to.delete"
#: Key in a partition's marker file. Its value is the instant time of the commit that created the folder.
_CREATED: Final = "commitTime"


@public
@dataclass(frozen=True, slots=True)
class ExpiredPartition:
    """Partition that has expired.

    Attributes:
        path: partition path.
        since: instant time from which the partition's age is counted.
        files: number of live files.
        size_bytes: bytes of the live files.
    """

    path: str
    since: str
    files: int
    size_bytes: int


@public
@dataclass(frozen=True, slots=True, repr=False)
class ExpireResult(OneLine):
    """Partitions that an expiry deleted, or would delete.

    Attributes:
        instant_time: instant time of the commit; "" if there was nothing to do, and for a dry run.
        partitions: the partitions, oldest first.
        skipped: why no partition was deleted; "" otherwise.
    """

    instant_time: str
    partitions: tuple[ExpiredPartition, ...] = ()
    skipped: str = ""

    @property
    def size_bytes(self) -> int:
        """Return the size of all these partitions in bytes."""
        return sum(partition.size_bytes for partition in self.partitions)

    def __str__(self) -> str:
        if self.skipped:
            return f"expiry: {self.skipped}"
        head = f"expiry {self.instant_time}" if self.instant_time else "expiry (dry run)"
        return f"{head}: {len(self.partitions):,} partitions, {self.size_bytes:,} bytes"


class ExpireSession:
    """Finds and deletes the expired partitions of one table."""

    def __init__(self, context: TableContext, options: Options, expiry: Expiry) -> None:
        self.context, self.expiry = context, expiry
        # Drop the batch id of the preceding write. With it, this commit would be skipped as a repeat of that batch.
        self.options = options.with_values(**{BATCH_APP: None, BATCH_ID: None})

    def dry_run(self) -> ExpireResult:
        """Return what `run` would delete now. Changes nothing and does not take the lock."""
        expired_partitions, why = self._find_expired(self.context.snapshot())
        return ExpireResult("", expired_partitions, "" if expired_partitions else why)

    def run(self) -> ExpireResult:
        """Delete the partitions that have expired, in one commit.

        Raises:
            UnsupportedTableError: the table cannot be written.
            WriteConflictError: another writer changed the same partitions meanwhile; a retry is safe.
        """
        snapshot = self.context.snapshot()
        expired_partitions, why = self._find_expired(snapshot)
        if not expired_partitions:
            return ExpireResult("", (), why)
        paths = tuple(partition.path for partition in expired_partitions)
        options = self.options.with_values(**{_OPERATION: "delete_partition", _PARTITIONS_TO_DELETE: paths})
        job = plan_job(self.context.store, snapshot, options, pa.schema([]), self.context.ids)
        remaining: tuple[ExpiredPartition, ...] = ()
        before = frozenset(paths)

        def choose_remaining(now: Snapshot) -> frozenset[str]:
            nonlocal remaining
            remaining = tuple(partition for partition in self._find_expired(now)[0] if partition.path in before)
            return frozenset(partition.path for partition in remaining)

        result = WriteSession(self.context, job).run_delete_partitions(choose_remaining, 0)
        return ExpireResult("" if result.skipped else result.instant_time, remaining, result.skipped)

    def _find_expired(self, snapshot: Snapshot) -> tuple[tuple[ExpiredPartition, ...], str]:
        """Find the expired partitions. Return them and ""; if there are none, return () and the reason."""
        config = snapshot.config
        if not config.partition_fields:
            return (), "the table has no partitions"
        if self.expiry.days < 1:
            return (), "no partition expires; set hoodie.partition.ttl.strategy.days.retain"
        now = format_instant_time(self.context.clock.now_ms(), config.zone)
        closed = {group.partition_path for group in self.context.store.read_clustering_groups(snapshot.timeline)}
        live = {partition.path: partition for partition in _partitions(snapshot) if partition.path not in closed}
        age_from: Callable[[ExpiredPartition], str] = partial(self._last_write_time, snapshot, now)
        if self.expiry.strategy is AgeStart.CREATION:
            age_from = self._creation_time
        times = {path: age_from(partition) for path, partition in live.items()}
        expired_paths = choose_expired({path: time for path, time in times.items() if time}, self.expiry, now)
        expired = (live[path] for path in expired_paths)
        done = tuple(
            ExpiredPartition(partition.path, times[partition.path], partition.files, partition.size_bytes)
            for partition in expired
        )
        return done, "" if done else "no partition has expired"

    def _creation_time(self, partition: ExpiredPartition) -> str:
        """Return the instant time in a partition's marker file; "" if there is none: then it never expires."""
        path = join_path(partition.path, PARTITION_MARKER)
        if self.context.storage.info(path) is None:
            return ""
        return decode(self.context.storage.read(path), name=path).get(_CREATED, "")

    def _last_write_time(self, snapshot: Snapshot, now: str, partition: ExpiredPartition) -> str:
        """Return the instant time of the newest write to a partition, or a time that is late enough to rule out expiry.

        Log files are searched only if the base files alone would let the partition expire. Hudi never searches them, so
        it deletes a partition whose newest rows are all in log files. Up to table version 6, the name of a log file
        contains the instant time of its base file, not of its writer. In these versions, the modification time of the
        log file is used.
        """
        time = partition.since
        if snapshot.live.has_logs and now > expires_at(time, self.expiry.days):
            for piece in snapshot.slices.get(partition.path, ()):
                time = max(time, *(self._write_times(snapshot, piece)))
        return time

    def _write_times(self, snapshot: Snapshot, piece: FileSlice) -> Iterator[str]:
        yield piece.base_instant
        for log in piece.logs:
            yield log.name.instant_time
            if not snapshot.config.traits.names_log_writers and (entry := self.context.storage.info(log.path)):
                yield format_instant_time(entry.modified_ms, snapshot.config.zone)


def _partitions(snapshot: Snapshot) -> Iterator[ExpiredPartition]:
    """Yield every partition that has live files, expired or not; ``since`` is the newest instant of its base files."""
    tables = [
        portion.files.select(["partition_path", "instant_time", "size_bytes"]) for portion in snapshot.live.portions()
    ]
    if not tables:
        return
    grouped = pa.concat_tables(tables).group_by("partition_path")
    by_partition = grouped.aggregate([("instant_time", "max"), ("size_bytes", "sum"), ("partition_path", "count")])
    newest = pc.fill_null(by_partition.column("instant_time_max"), "")
    columns = (
        by_partition.column("partition_path"),
        newest,
        by_partition.column("partition_path_count"),
        by_partition.column("size_bytes_sum"),
    )
    for path, since, files, size_bytes in zip(*(column.to_pylist() for column in columns), strict=True):
        yield ExpiredPartition(path, since, files, size_bytes)
