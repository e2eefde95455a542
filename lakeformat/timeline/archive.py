"""The archive: instants that have left the active timeline, in both layouts.

Hudi: ``ArchivedTimelineV1`` and ``V2``, ``TimelineArchiverV1``, ``LSMTimelineWriter``.

Reading: the completion times of all archived instants are read at once, as columns. The metadata of a commit is read on
request. Read the active timeline first and the archive second. Instants are written to the archive before they leave
the active timeline, so in this order no instant is missing in both.

`lakeformat.timeline.archive_writer` writes it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.arrow.listing_file import open_listing
from lakeformat.codec.timeline_files.archive import (
    read_archive,
)
from lakeformat.codec.timeline_files.commit import decode_commit, decode_json
from lakeformat.errors import CorruptTableError, LakeformatError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import COMMIT_ACTIONS, Action, Instant, State
from lakeformat.storage.port import FileInfo, Storage, check_path

__all__ = [
    "COLUMNS",
    "LOG_NAME",
    "MANIFEST_NAME",
    "VERSION_NAME",
    "ArchivedTimeline",
    "Manifest",
    "find_version_damage",
    "is_number",
    "open_history",
    "read_archive_logs",
    "read_history_file",
    "read_lsm_history",
    "read_manifest",
]

_LOG: Final = logging.getLogger("lakeformat.timeline")
#: Pattern of the names of manifests; group 1 is the number.
MANIFEST_NAME: Final = re.compile(r"manifest_(\d+)")
#: Name of the file that contains the number of the newest manifest.
VERSION_NAME: Final = "_version_"
_BACK: Final = "restore the folder from a copy"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The newest manifest: the list of the valid history files.

    Attributes:
        number: Number of the manifest; -1 if there is none.
        files: Entries of the manifest, each with ``fileName`` and ``fileLen``.
    """

    number: int
    files: Sequence[Mapping[str, Any]]

    @property
    def names(self) -> list[str]:
        """Return the names of the history files."""
        return [str(file["fileName"]) for file in self.files]


def read_manifest(storage: Storage, folder: str) -> Manifest:
    """Read the manifest with the greatest number, and check that its files exist with the stored sizes.

    Raises:
        CorruptTableError: The manifest is damaged, ``_version_`` names a missing manifest, or a file's size differs
            from the manifest's.
        FileNotFoundError: A file is missing. A writer may have merged files meanwhile, so read again.
    """
    # Read `_version_` before the listing. In the other order, another process could add a manifest in between, and its
    # number would look like that of a missing manifest.
    text = _read_version(storage, folder)
    version = int(text) if is_number(text) else None
    entries = {entry.name: entry for entry in storage.list(folder)}
    newest = max((int(match[1]) for name in entries if (match := MANIFEST_NAME.fullmatch(name))), default=-1)
    where = f"{storage.location}/{folder}"
    if version is not None and version > newest:
        there = f"manifest_{newest} is the newest one that is there" if newest >= 0 else "no manifest is there"
        raise CorruptTableError(
            f"{where}/{VERSION_NAME} names manifest_{version}, which is missing; {there}: the archive is damaged, "
            f"{_BACK}"
        )
    if newest < 0:
        return Manifest(-1, ())
    if damage := _check_version(text, newest):
        _LOG.warning("%s/%s %s; manifest_%d is newer and is read: %s", where, VERSION_NAME, damage, newest, _BACK)
    try:
        return _decode_manifest(storage, folder, newest, entries)
    except CorruptTableError:
        if version != newest - 1:
            raise
        return _decode_manifest(storage, folder, version, entries)  # Another process may be writing the newest.


def find_version_damage(storage: Storage, folder: str) -> str:
    """Return a description of harmless damage to ``_version_``; "" if the file is valid or missing."""
    return _check_version(_read_version(storage, folder), read_manifest(storage, folder).number)


def _check_version(text: bytes, newest: int) -> str:
    if not text or newest < 0:
        return ""
    if not is_number(text):
        return "holds no number and is damaged"
    return f"says {int(text)} and is damaged" if int(text) < newest - 1 else ""


def is_number(text: bytes) -> bool:
    """Tell whether the content of a version file is a number."""
    return text.isdigit() and len(text) < 10


def _read_version(storage: Storage, folder: str) -> bytes:
    """Read ``_version_``. Return b"" if it is missing: Hudi deletes it for a moment whenever it changes the archive."""
    try:
        return storage.read(f"{folder}/{VERSION_NAME}").strip()
    except FileNotFoundError:
        return b""


def _decode_manifest(storage: Storage, folder: str, number: int, entries: Mapping[str, FileInfo]) -> Manifest:
    where = f"{storage.location}/{folder}/manifest_{number}"
    document = decode_json(storage.read(f"{folder}/manifest_{number}"), name=where)
    files = document.get("files")
    if not isinstance(files, list) or not all(isinstance(file, dict) and file.get("fileName") for file in files):
        raise CorruptTableError(f"{where} is not a manifest; {_BACK}")
    manifest = Manifest(number, files)
    if len(set(manifest.names)) < len(files):
        raise CorruptTableError(f"{where} names a file twice; {_BACK}")
    for file, name in zip(files, manifest.names, strict=True):
        if name not in entries:
            raise FileNotFoundError(f"{folder}/{name}")
        if file.get("fileLen") != entries[name].size_bytes:
            size = f"has {entries[name].size_bytes} bytes, not {file.get('fileLen')}"
            raise CorruptTableError(f"{storage.location}/{folder}/{name} {size} as manifest_{number} says; {_BACK}")
    return manifest


#: Columns of `ArchivedTimeline.columns`. The completion time is null in layout 1; ``file`` is an index
#: into `ArchivedTimeline.files`.
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
#: Pattern of the names of layout 1's archive files; group 1 is the number.
LOG_NAME: Final = re.compile(r"\.commits_\.archive\.(\d+)(_.*)?")

#: Columns of a history file that tell the instant; none of their values is missing.
_INSTANT: Final = ("instantTime", "completionTime", "action")

#: A function that reads the commits with given instant times from one file of the archive.
_ReadCommits = Callable[[Storage, str, Collection[str]], Iterator[tuple[str, CommitMetadata]]]


@dataclass(frozen=True)
class ArchivedTimeline:
    """The completed instants of an archive.

    Attributes:
        columns: A table of schema `COLUMNS` with a row per instant, sorted by time.
        files: Paths of the archive's files.
        read_commits: Reads the commits with given instant times from one of these files.
    """

    storage: Storage
    columns: pa.Table
    files: tuple[str, ...]
    read_commits: _ReadCommits

    def completion_times(self, times: Iterable[str]) -> dict[str, str]:
        """Return a mapping of instant time to completion time for the given times that are archived commits.

        In layout 1 the completion time is the instant time.
        """
        return {instant.time: instant.completed_at for instant in self._instants(self._select_times(times))}

    def completed_in(self, after: str, until: str | None = None) -> tuple[Instant, ...]:
        """Return the commits completed after ``after``, up to and including ``until``, ordered by completion time.

        Bounds are completion times in layout 2 and instant times in layout 1. ``until=None`` means no upper bound.
        """
        when = pc.coalesce(self.columns.column("completion_time"), self.columns.column("time"))
        chosen = pc.greater(when, after)
        if until is not None:
            chosen = pc.and_(chosen, pc.less_equal(when, until))
        return tuple(sorted(self._instants(chosen), key=lambda i: (i.completed_at, i.time)))

    def of_actions(self, actions: Iterable[Action]) -> list[Instant]:
        """Return the instants with the given actions, sorted by time. The actions must not be commit actions."""
        names = pa.array([action.value for action in actions])
        rows = self.columns.filter(pc.is_in(self.columns.column("action"), names))
        pairs = zip(rows.column("time").to_pylist(), rows.column("action").to_pylist(), strict=True)
        return [Instant(time, Action(name), State.COMPLETED) for time, name in pairs]

    def commits(self, instants: Collection[Instant]) -> Iterator[tuple[Instant, CommitMetadata]]:
        """Yield the given commits with their metadata, in the order of the archive's files. Each file is read once.

        Memory: one block of an archive file; in layout 2 one row group.

        Raises:
            CorruptTableError: A commit is not readable, or not in the archive.
        """
        pending = {instant.time: instant for instant in instants}
        rows = self.columns.filter(self._is_commit(self._select_times(pending)))
        for number in sorted(set(rows.column("file").to_pylist())):
            times = rows.filter(pc.equal(rows.column("file"), number)).column("time").to_pylist()
            for time, metadata in self.read_commits(self.storage, self.files[number], times):
                yield pending.pop(time), metadata
        if pending:
            raise CorruptTableError(f"the archive of {self.storage.location} has no commit {min(pending)}; restore it")

    def _select_times(self, times: Iterable[str]) -> pa.ChunkedArray:
        return pc.is_in(self.columns.column("time"), pa.array(times, pa.string()))

    def _is_commit(self, chosen: pa.ChunkedArray) -> pa.ChunkedArray:
        return pc.and_(chosen, pc.is_in(self.columns.column("action"), _COMMITS))

    def _instants(self, chosen: pa.ChunkedArray) -> list[Instant]:
        rows = self.columns.filter(self._is_commit(chosen))
        columns = (rows.column(name).to_pylist() for name in ("time", "action", "completion_time"))
        return [Instant(time, Action(name), State.COMPLETED, end) for time, name, end in zip(*columns, strict=True)]


def _make_timeline(storage: Storage, tables: list[pa.Table], files: list[str], read: _ReadCommits) -> ArchivedTimeline:
    """Make the archived timeline, with one row per instant.

    A crash may have left the same instant in two archive files; its rows become one row.
    """
    rows = pa.concat_tables([COLUMNS.empty_table(), *tables]).group_by(["time", "action"], use_threads=False)
    once = rows.aggregate([("completion_time", "max"), ("file", "max")]).rename_columns(
        ["time", "action", "completion_time", "file"]
    )
    columns = once.select(COLUMNS.names).cast(COLUMNS).sort_by([("time", "ascending"), ("action", "ascending")])
    return ArchivedTimeline(storage, columns, tuple(files), read)


# --- layout 1: log files --------------------------------------------------------------------------------


def read_archive_logs(storage: Storage, folder: str, since: str = "") -> ArchivedTimeline:
    """Read the archive of layout 1, file by file and block by block.

    Args:
        since: An instant time. Commits from this time on are returned; the result may contain older commits, too.
            Commits are archived oldest first, so files are read from the highest number down, until a file contains
            only older commits. "" reads all files.
    """
    # A writer may merge files and delete them after we have listed them; then the archive is read again.
    return _retry_once(_read_archive_logs, storage, folder, since)


def _read_archive_logs(storage: Storage, folder: str, since: str) -> ArchivedTimeline:
    listed = [(int(m[1]), entry.path) for entry in storage.list(folder) if (m := LOG_NAME.fullmatch(entry.name))]
    tables: list[pa.Table] = []
    files: list[str] = []
    for _, path in sorted(listed, reverse=True):
        with storage.open_input(path) as source:
            entries = [(e.time, e.action) for e in read_archive(source, name=_full_name(storage, path))]
        times, actions = (pa.array([entry[place] for entry in entries], pa.string()) for place in (0, 1))
        numbers = pa.array([-len(files)] * len(entries), pa.int32())
        tables.append(pa.table([times, pa.nulls(len(entries), pa.string()), actions, numbers], schema=COLUMNS))
        files.append(path)
        if max((time for time, action in entries if action in _COMMIT_NAMES), default=since) < since:
            break
    last = len(files) - 1  # The files were read newest first; the column ``file`` counts from the oldest.
    tables = [
        table.set_column(3, COLUMNS.field("file"), pc.add(table.column("file"), pa.scalar(last, pa.int32())))
        for table in tables
    ]
    return _make_timeline(storage, tables, files[::-1], _read_log_commits)


def _read_log_commits(storage: Storage, path: str, times: Collection[str]) -> Iterator[tuple[str, CommitMetadata]]:
    times_left = set(times)
    with storage.open_input(path) as source:
        for entry in read_archive(source, name=_full_name(storage, path), with_commits=True):
            if entry.time in times_left and entry.action in _COMMIT_NAMES:
                times_left.discard(entry.time)
                yield entry.time, entry.commit()


# --- layout 2: an LSM tree of Parquet files -------------------------------------------------------------


def read_lsm_history(storage: Storage, folder: str, since: str = "") -> ArchivedTimeline:
    """Read the archive of layout 2: times and actions of the instants in the newest manifest's files.

    Args:
        since: Read only the files that may contain commits from this instant time on. The result may contain older
            commits, too. "" reads all files.

    Raises:
        CorruptTableError: A file of the archive is damaged or missing, so that instants would be missing in the result.
    """
    # A writer may merge files and delete them after we have read the manifest; then the archive is read again.
    return _retry_once(_read_history, storage, folder, since)


def _read_history(storage: Storage, folder: str, since: str) -> ArchivedTimeline:
    names = read_manifest(storage, folder).names
    files = [check_path(f"{folder}/{name}") for name in names if _greatest_time(name) >= since]
    tables = []
    for number, path in enumerate(files):
        rows = read_history_file(storage, path, _INSTANT)
        columns = [column.cast(pa.string()) for column in rows.columns]
        tables.append(pa.table([*columns, pa.array([number] * rows.num_rows, pa.int32())], schema=COLUMNS))
    return _make_timeline(storage, tables, files, _read_history_commits)


def read_history_file(storage: Storage, path: str, columns: Sequence[str]) -> pa.Table:
    """Read columns of a history file.

    Raises:
        CorruptTableError: The file is not readable, the rows are not as many as the footer says in both places, or the
            time or the action of an instant is missing.
    """
    with open_history(storage, path) as file:
        rows, footer = file.read(columns=columns).select(columns), file.metadata
    nulls = sum(rows.column(name).null_count for name in columns if name in _INSTANT)
    counts = {
        rows.num_rows,
        footer.num_rows,
        sum(footer.row_group(group).num_rows for group in range(footer.num_row_groups)),
    }
    if nulls or len(counts) > 1:
        name = _full_name(storage, path)
        raise CorruptTableError(f"{name} does not hold all the instants of its footer; restore it from a copy")
    return rows


def _greatest_time(name: str) -> str:
    """Return the greatest instant time in a history file, parsed from the file's name.

    If the name does not contain the time, as after an upgrade, return "~", which sorts after every time.
    """
    parts = name.split("_")
    return parts[1] if len(parts) == 3 and parts[0] <= parts[1] else "~"


def _read_history_commits(storage: Storage, path: str, times: Collection[str]) -> Iterator[tuple[str, CommitMetadata]]:
    times_left, seen = pa.array(times, pa.string()), set[str]()
    with open_history(storage, path) as file:
        for group in range(file.num_row_groups):
            keys = file.read_row_group(group, columns=["instantTime", "action"])
            hits = pc.and_(pc.is_in(keys.column(0), times_left), pc.is_in(keys.column(1), _COMMITS))
            if not pc.any(hits).as_py():
                continue
            rows = file.read_row_group(group, columns=["instantTime", "metadata"]).filter(hits)
            for time, data in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                if time not in seen:  # Earlier releases, and Hudi, keep an instant that was archived twice.
                    seen.add(time)
                    yield time, decode_commit(data or b"", name=f"{_full_name(storage, path)} (instant {time})")


@contextmanager
def open_history(storage: Storage, path: str) -> Iterator[pq.ParquetFile]:
    """Open a history file. Errors of reading in the block become `CorruptTableError`, except errors of the storage."""
    with storage.open_input(path) as source:
        try:
            yield open_listing(source, source.size())
        except LakeformatError:
            raise
        except (pa.ArrowException, OSError, LookupError, ValueError) as error:
            name, reason = _full_name(storage, path), str(error)[:300]
            raise CorruptTableError(f"{name} is not a readable history: {reason}; restore it from a copy") from None


def _retry_once(
    read: Callable[[Storage, str, str], ArchivedTimeline], storage: Storage, folder: str, since: str
) -> ArchivedTimeline:
    """Read the archive. If a file is missing, because a writer merged files meanwhile, read again once.

    Raises:
        CorruptTableError: A file is missing in the second try, too.
    """
    with suppress(FileNotFoundError):
        return read(storage, folder, since)
    try:
        return read(storage, folder, since)
    except FileNotFoundError as error:
        raise CorruptTableError(
            f"a file of the archive of {storage.location} is missing: {error}; restore it from a copy"
        ) from None


def _full_name(storage: Storage, path: str) -> str:
    return f"{storage.location}/{path}"
