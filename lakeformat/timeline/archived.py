"""Instants that have left the active timeline, in both layouts (Hudi: ``ArchivedTimelineV1`` and ``V2``).

When each completed is known at once, as columns; what a commit did is read when it is asked for. Read the archive after
the active timeline: instants are written to it before they leave.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.codec.archive_log import read_archive
from lakeformat.codec.commit_file import decode_commit
from lakeformat.errors import CorruptTableError, LakeformatError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import COMMIT_ACTIONS, Action, Instant, State
from lakeformat.storage.port import Storage, check_path
from lakeformat.timeline.manifest import read_manifest

__all__ = [
    "COLUMNS",
    "LOG_NAME",
    "ArchivedTimeline",
    "open_history",
    "read_archive_logs",
    "read_lsm_history",
]

#: Of each completed instant; the completion time is null in layout 1, ``file`` counts in `ArchivedTimeline.files`.
COLUMNS: Final = pa.schema(
    [
        pa.field("time", pa.string()),
        pa.field("completion_time", pa.string()),
        pa.field("action", pa.string()),
        pa.field("file", pa.int32()),
    ]
)
_COMMIT_NAMES: Final = frozenset(action.value for action in COMMIT_ACTIONS)
_COMMITS: Final = pa.array(sorted(_COMMIT_NAMES))
#: Names of the files of layout 1's archive; each has its number.
LOG_NAME: Final = re.compile(r"\.commits_\.archive\.(\d+)(_.*)?")

#: Reads the commits of some instant times from one file of the archive.
_ReadCommits = Callable[[Storage, str, Collection[str]], Iterator[tuple[str, CommitMetadata]]]


@dataclass(frozen=True)
class ArchivedTimeline:
    """The completed instants of an archive.

    Attributes:
        columns: `COLUMNS`, a row per instant, by time.
        files: paths of the archive's files.
    """

    storage: Storage
    columns: pa.Table
    files: tuple[str, ...]
    read_commits: _ReadCommits

    def completion_times(self, times: Iterable[str]) -> dict[str, str]:
        """Instant time -> when that commit completed (in layout 1 the same), of those that are here."""
        return {instant.time: instant.completed_at for instant in self._instants(self._of_times(times))}

    def completed_in(self, after: str, until: str | None = None) -> tuple[Instant, ...]:
        """Commits completed in (after, until], in that order; see `Timeline.completed_in`."""
        when = pc.coalesce(self.columns.column("completion_time"), self.columns.column("time"))
        wanted = pc.greater(when, after)
        if until is not None:
            wanted = pc.and_(wanted, pc.less_equal(when, until))
        return tuple(sorted(self._instants(wanted), key=lambda i: (i.completed_at, i.time)))

    def of_actions(self, actions: Iterable[Action]) -> list[Instant]:
        """The instants of some actions that are not commits, by time."""
        names = pa.array([action.value for action in actions])
        rows = self.columns.filter(pc.is_in(self.columns.column("action"), names))
        pairs = zip(rows.column("time").to_pylist(), rows.column("action").to_pylist(), strict=True)
        return [Instant(time, Action(name), State.COMPLETED) for time, name in pairs]

    def commits(self, instants: Collection[Instant]) -> Iterator[tuple[Instant, CommitMetadata]]:
        """Each of these commits with its metadata. A file of the archive is read once, so their order is its.

        Memory: a block of the archive, in layout 2 a row group.

        Raises:
            CorruptTableError: a commit is not readable, or not in the archive.
        """
        asked = {instant.time: instant for instant in instants}
        rows = self.columns.filter(self._is_commit(self._of_times(asked)))
        for number in sorted(set(rows.column("file").to_pylist())):
            times = rows.filter(pc.equal(rows.column("file"), number)).column("time").to_pylist()
            for time, metadata in self.read_commits(self.storage, self.files[number], times):
                yield asked.pop(time), metadata
        if asked:
            raise CorruptTableError(f"the archive of {self.storage.location} has no commit {min(asked)}; restore it")

    def _of_times(self, times: Iterable[str]) -> pa.ChunkedArray:
        return pc.is_in(self.columns.column("time"), pa.array(times, pa.string()))

    def _is_commit(self, wanted: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.and_(wanted, pc.is_in(self.columns.column("action"), _COMMITS))

    def _instants(self, wanted: pa.ChunkedArray) -> list[Instant]:
        rows = self.columns.filter(self._is_commit(wanted))
        columns = (rows.column(name).to_pylist() for name in ("time", "action", "completion_time"))
        return [Instant(time, Action(name), State.COMPLETED, end) for time, name, end in zip(*columns, strict=True)]


def _archived(storage: Storage, tables: list[pa.Table], files: list[str], read: _ReadCommits) -> ArchivedTimeline:
    """Each instant once: an archiver that died may have written one twice."""
    rows = pa.concat_tables([COLUMNS.empty_table(), *tables]).group_by(["time", "action"], use_threads=False)
    once = rows.aggregate([("completion_time", "max"), ("file", "max")]).rename_columns(
        ["time", "action", "completion_time", "file"]
    )
    columns = once.select(COLUMNS.names).cast(COLUMNS).sort_by([("time", "ascending"), ("action", "ascending")])
    return ArchivedTimeline(storage, columns, tuple(files), read)


# --- layout 1: log files --------------------------------------------------------------------------------


def read_archive_logs(storage: Storage, folder: str, since: str = "") -> ArchivedTimeline:
    """The archive of layout 1. One file after the other is read, a block at a time.

    Args:
        since: commits from this time on are wanted, which the files of the highest numbers hold: commits are archived
            oldest first. Others may be among them.
    """
    return _read_again(_archive_logs, storage, folder, since)  # Small files may be put together meanwhile.


def _archive_logs(storage: Storage, folder: str, since: str) -> ArchivedTimeline:
    found = [(int(match[1]), entry.path) for entry in storage.list(folder) if (match := LOG_NAME.fullmatch(entry.name))]
    tables: list[pa.Table] = []
    files: list[str] = []
    for _, path in sorted(found, reverse=True):
        with storage.open_input(path) as source:
            entries = [(e.time, e.action) for e in read_archive(source, name=_named(storage, path))]
        times, actions = (pa.array([entry[at] for entry in entries], pa.string()) for at in (0, 1))
        numbers = pa.array([-len(files)] * len(entries), pa.int32())
        tables.append(pa.table([times, pa.nulls(len(entries), pa.string()), actions, numbers], schema=COLUMNS))
        files.append(path)
        if since and max((time for time, action in entries if action in _COMMIT_NAMES), default=since) < since:
            break
    last = len(files) - 1  # Numbers count from the oldest file.
    tables = [
        table.set_column(3, COLUMNS.field("file"), pc.add(table.column("file"), pa.scalar(last, pa.int32())))
        for table in tables
    ]
    return _archived(storage, tables, files[::-1], _log_commits)


def _log_commits(storage: Storage, path: str, times: Collection[str]) -> Iterator[tuple[str, CommitMetadata]]:
    wanted = set(times)
    with storage.open_input(path) as source:
        for entry in read_archive(source, name=_named(storage, path), with_commits=True):
            if entry.time in wanted and entry.action in _COMMIT_NAMES:
                wanted.discard(entry.time)
                yield entry.time, entry.commit()


# --- layout 2: an LSM tree of Parquet files -------------------------------------------------------------


def read_lsm_history(storage: Storage, folder: str, since: str = "") -> ArchivedTimeline:
    """The history of layout 2: what its newest manifest names. Only three columns are read.

    Args:
        since: commits from this time on are wanted; others may be among them.

    Raises:
        CorruptTableError: a file of the archive is damaged or missing, so that instants would not be known.
    """
    return _read_again(_history, storage, folder, since)  # Files may be put together, and their sources deleted.


def _history(storage: Storage, folder: str, since: str) -> ArchivedTimeline:
    names = read_manifest(storage, folder).names
    files = [check_path(f"{folder}/{name}") for name in names if not since or _greatest(name) >= since]
    tables = []
    for number, path in enumerate(files):
        with open_history(storage, path) as file:
            rows = file.read(columns=["instantTime", "completionTime", "action"])
            _check_instants(rows, file, _named(storage, path))
        columns = [rows.column(name).cast(pa.string()) for name in ("instantTime", "completionTime", "action")]
        tables.append(pa.table([*columns, pa.array([number] * rows.num_rows, pa.int32())], schema=COLUMNS))
    return _archived(storage, tables, files, _history_commits)


def _check_instants(rows: pa.Table, file: pq.ParquetFile, name: str) -> None:
    """Refuse a file that gives fewer instants than its footer says, or instants without a time."""
    nulls = sum(column.null_count for column in rows.columns)
    if nulls or rows.num_rows != sum(file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)):
        raise CorruptTableError(f"{name} does not hold all the instants of its footer; restore it from a copy")


def _greatest(name: str) -> str:
    """The greatest instant time that a file may hold, by its name; "~" of a name that does not tell (upgrades)."""
    parts = name.split("_")
    return parts[1] if len(parts) == 3 and parts[0] <= parts[1] else "~"


def _history_commits(storage: Storage, path: str, times: Collection[str]) -> Iterator[tuple[str, CommitMetadata]]:
    wanted = pa.array(times, pa.string())
    with open_history(storage, path) as file:
        for group in range(file.num_row_groups):
            keys = file.read_row_group(group, columns=["instantTime", "action"])
            hits = pc.and_(pc.is_in(keys.column(0), wanted), pc.is_in(keys.column(1), _COMMITS))
            if not pc.any(hits).as_py():
                continue
            found = file.read_row_group(group, columns=["instantTime", "metadata"]).filter(hits)
            for time, data in zip(*(column.to_pylist() for column in found.columns), strict=True):
                yield time, decode_commit(data or b"", name=f"{_named(storage, path)} (instant {time})")


@contextmanager
def open_history(storage: Storage, path: str) -> Iterator[pq.ParquetFile]:
    """Open a history file; what goes wrong while it is read is damage, but not what the storage itself says."""
    with storage.open_input(path) as source:
        try:
            yield pq.ParquetFile(source, page_checksum_verification=True)
        except LakeformatError:
            raise
        except (pa.ArrowException, OSError, LookupError, ValueError) as error:
            name, reason = _named(storage, path), str(error)[:300]
            raise CorruptTableError(f"{name} is not a readable history: {reason}; restore it from a copy") from None


def _read_again(
    read: Callable[[Storage, str, str], ArchivedTimeline], storage: Storage, folder: str, since: str
) -> ArchivedTimeline:
    """Read once more where a file has gone meanwhile. One that is missing then, too, is lost."""
    with suppress(FileNotFoundError):
        return read(storage, folder, since)
    try:
        return read(storage, folder, since)
    except FileNotFoundError as error:
        raise CorruptTableError(
            f"a file of the archive of {storage.location} is missing: {error}; restore it from a copy"
        ) from None


def _named(storage: Storage, path: str) -> str:
    return f"{storage.location}/{path}"
