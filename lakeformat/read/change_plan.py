"""What the commits of a range changed, file group by file group: the slice before each commit, and the one after it.

Both are put together as a snapshot's are, from what lies in the partitions that the range touches; nothing needs to
have been logged. A slice that lacks a file which a commit names has been cleaned away, and the range is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import pyarrow as pa

from lakeformat.config.resolve import Options
from lakeformat.errors import InstantNotAvailableError
from lakeformat.index.bucket import bucket_of
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import BaseFile, FileGroupId, FileSlice, LogFile, LogFileName, join_path
from lakeformat.model.instant import Instant
from lakeformat.model.table_config import ChangeLogging, TableConfig
from lakeformat.read.incremental import Bounds, check_rows_tell, unhollowed
from lakeformat.read.splits import FilePart, Part, SlicePart
from lakeformat.read.undone import tell_undone
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.file_groups import list_partitions, visible_files
from lakeformat.table_state.live import ListedFiles
from lakeformat.table_state.schema_history import schema_versions
from lakeformat.table_state.slices import slices_of
from lakeformat.table_state.snapshot import Names, Snapshot, log_positions, table_schema
from lakeformat.timeline.timeline import Timeline

__all__ = ["ChangePlan", "GroupChange", "meetings", "plan_changes"]

#: Modes whose change data holds images; the third, OP_KEY_ONLY, tells nothing that the slices do not.
LOGGED_MODES: Final = frozenset({ChangeLogging.DATA_BEFORE_AFTER, ChangeLogging.DATA_BEFORE})
_MOST_BUCKETS: Final = 100_000
#: Operations (in capitals) that make no new rows.
_NO_NEW_ROWS: Final = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT"})


@dataclass(frozen=True, slots=True)
class GroupChange:
    """What one commit did to one file group. Picklable.

    Attributes:
        instant_time: the commit's: rows that it wrote hold it.
        partition_path: of the file group.
        before: the group's slice before the commit; None where there was none, or no row of it matters.
        after: the slice afterwards; None where the commit hid the group.
        inserts_only: whether the commit says that it only added rows.
        logged: files of change data that hold the images before, or both (`LOGGED_MODES`).
        appended: the log files, if it wrote nothing else: only rows of their keys may have changed.
        lost: which slice is not there any more, so that the change data is all there is; "" for none.
        may_delete, may_insert: False where the commit's statistics say that it took out no row, or added none.
        bucket: number of the file group in a table of buckets.
    """

    instant_time: str
    partition_path: str
    before: Part | None
    after: Part | None
    inserts_only: bool = False
    logged: tuple[LogFile, ...] = ()
    lost: str = ""
    appended: tuple[LogFile, ...] = ()
    may_delete: bool = True
    may_insert: bool = True
    bucket: int | None = None

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(part.size_bytes for part in (self.before, self.after) if part is not None)

    @property
    def grown(self) -> SlicePart | None:
        """The slice afterwards, if it is the one before and what was appended."""
        before, after = self.before, self.after
        if not self.appended or before is None or not isinstance(after, SlicePart):
            return None
        mine, base = {log.path for log in self.appended}, after.slice.base
        logs = () if isinstance(before, FilePart) else before.slice.logs
        is_same = base is not None if isinstance(before, FilePart) else before.slice.base == base
        is_same = is_same and (base is None or base.path == before.path)
        others = ({log.path for log in some} - mine for some in (logs, after.slice.logs))
        return after if is_same and next(others) == next(others) else None


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """A range of changes.

    Attributes:
        since, until: see `lakeformat.read.changes.Changes`.
        schema: the table's columns of today; None if nobody has ever said.
        changes: by commit, in the order in which these completed.
    """

    since: str
    until: str
    schema: pa.Schema | None
    changes: tuple[GroupChange, ...]

    @property
    def table(self) -> pa.Schema:
        """The same; no columns if nobody has ever said."""
        return pa.schema([]) if self.schema is None else self.schema

    def by_commit(self) -> Iterator[tuple[GroupChange, ...]]:
        """Yield what each commit did, in order."""
        for _, changes in groupby(self.changes, key=lambda change: change.instant_time):
            yield tuple(changes)

    def packed(self, most_bytes: int) -> list[tuple[tuple[GroupChange, ...], ...]]:
        """Cut the changes, in order, into portions of up to so many bytes, or of one item.

        An item is the change of one file group, or the changes of one commit that may delete a key in one group and
        insert it into another: these are read together.
        """
        portions: list[list[tuple[GroupChange, ...]]] = []
        size = 0
        for commit in self.by_commit():
            for item in _items(commit):
                more = sum(change.size_bytes for change in item)
                if not portions or size + more > most_bytes:
                    portions.append([])
                    size = 0
                portions[-1].append(item)
                size += more
        return [tuple(portion) for portion in portions]


def meetings(changes: Sequence[GroupChange]) -> list[tuple[GroupChange, ...]]:
    """Return the sets of a commit's changes in which one may delete a key that another one inserts.

    Any two groups may share a key, but for different buckets of one partition.
    """
    concerned = [change for change in changes if change.may_delete or change.may_insert]
    partitions = {change.partition_path for change in concerned}
    apart = len(partitions) == 1 and all(change.bucket is not None for change in concerned)
    sets: dict[int | None, list[GroupChange]] = {}
    for change in concerned:
        sets.setdefault(change.bucket if apart else None, []).append(change)
    return [tuple(some) for some in sets.values() if len(some) > 1 and _meet(some)]


def _meet(changes: Sequence[GroupChange]) -> bool:
    return any(change.may_delete for change in changes) and any(change.may_insert for change in changes)


def _items(commit: Sequence[GroupChange]) -> Iterator[tuple[GroupChange, ...]]:
    """Yield the changes of a commit that are read together, then the others one by one."""
    together = meetings(commit)
    yield from together
    read = {id(change) for some in together for change in some}
    yield from ((change,) for change in commit if id(change) not in read)


def plan_changes(
    engine: Engine,
    options: Options,
    config: TableConfig,
    bounds: Bounds,
    *,
    as_of: str | None = None,
    unseen: frozenset[str] = frozenset(),
) -> ChangePlan:
    """Find the slices. Lists the timeline, and the partitions that the range's commits touched.

    Memory: names of the files of these partitions.

    Args:
        as_of, unseen: what is known of the table; see `Engine.snapshot`.

    Raises:
        InstantNotAvailableError: commits of the range have been archived, or files cleaned away.
        UnsupportedTableError: the table cannot be read so.
    """
    config.check_readable(engine.storage.location)
    check_rows_tell(config, engine.storage.location)

    def known() -> Timeline:
        whole = engine.timeline(config).without(unseen)
        return unhollowed(engine, options, whole if as_of is None else whole.as_of(as_of))[0]

    try:
        return _planned(engine, config, known(), bounds)
    except FileNotFoundError:  # Archived while the timeline was read.
        return _planned(engine, config, known(), bounds)


def _planned(engine: Engine, config: TableConfig, whole: Timeline, bounds: Bounds) -> ChangePlan:
    inside = whole.completed_in(bounds.since, bounds.until)
    _check_reach(engine, whole, bounds)
    tell_undone(engine.store, whole, bounds.since)
    commits = _Commits(engine, whole)
    writes = [i for i in inside if not commits[i.time].compacted and commits[i.time].operation not in _NO_NEW_ROWS]
    range_ = _Range(engine, config, whole, commits, {i.time: commits[i.time] for i in writes})
    until = inside[-1].completed_at if inside else bounds.since
    changes = tuple(change for instant in writes for change in range_.changes_of(instant))
    return ChangePlan(bounds.since, max(until, bounds.since), range_.schema, changes)


def _check_reach(engine: Engine, whole: Timeline, bounds: Bounds) -> None:
    first = min((i.completed_at for i in whole.commits), default=None)
    if first is None or bounds.since >= first:
        return
    archived = engine.store.archived().completed_in(bounds.since, bounds.until)
    gone = [instant.completed_at for instant in archived if whole.completion_time(instant.time) is None]
    if gone:
        raise InstantNotAvailableError(
            f"changes of {engine.storage.location} after {bounds.since or 'its first commit'} are wanted, and commits "
            f"up to {gone[-1]} have been archived; begin at {gone[-1]} or later"
        )


class _Commits(dict[str, CommitMetadata]):
    """Instant time -> what the commit says, read as it is asked for."""

    def __init__(self, engine: Engine, whole: Timeline) -> None:
        super().__init__()
        self._store, self._instants = engine.store, {instant.time: instant for instant in whole.commits}

    def __missing__(self, time: str) -> CommitMetadata:
        self[time] = found = self._store.commit(self._instants[time])
        return found


class _Range:
    """The slices of the groups that a range touches, at each of its commits."""

    def __init__(
        self,
        engine: Engine,
        config: TableConfig,
        whole: Timeline,
        commits: _Commits,
        wanted: Mapping[str, CommitMetadata],
    ) -> None:
        self._engine, self._config, self._whole, self._commits = engine, config, whole, commits
        self._order = whole.completed_in("")
        self._named = Names(commits)
        touched = {group for metadata in wanted.values() for group in _touched(metadata)}
        listing = list_partitions(engine.storage, sorted({group.partition_path for group in touched}))
        self._bases: dict[FileGroupId, list[BaseFile]] = {}
        self._logs: dict[FileGroupId, list[LogFile]] = {}
        for base in listing.bases:
            if base.group in touched:
                self._bases.setdefault(base.group, []).append(base)
        for log in listing.logs:
            if log.group in touched:
                self._logs.setdefault(log.group, []).append(log)
        self._paths = {file.path for file in (*listing.bases, *listing.logs)}
        store, location = engine.store, engine.storage.location
        self.schema = table_schema(store, config, whole.commits, ())
        said = [(i.time, commits[i.time]) for i in whole.commits] if wanted else []
        self._versions = schema_versions(engine.storage, said, location)

    def changes_of(self, instant: Instant) -> Iterator[GroupChange]:
        """What one commit did, by file group."""
        metadata = self._commits[instant.time]
        groups = _touched(metadata)
        at = self._order.index(instant)
        before = self._slices(groups, frozenset(i.time for i in self._order[at:]))
        after = self._slices(groups, frozenset(i.time for i in self._order[at + 1 :]))
        hidden = {FileGroupId(path, id_) for path, ids in metadata.replaced.items() for id_ in ids}
        stats: dict[FileGroupId, list[WriteStat]] = {}
        for stat in metadata.all_stats():
            stats.setdefault(FileGroupId(stat.partition_path, stat.file_id), []).append(stat)
        for group in groups:
            if group in hidden:
                old = before.part(group)
                if old is None:
                    raise self._gone(join_path(group.partition_path, group.file_id), instant)
                bucket = _bucket(group.file_id)
                yield GroupChange(instant.time, group.partition_path, old, None, may_insert=False, bucket=bucket)
                continue
            mine = [stat for stat in stats[group] if stat.path]
            if not mine:
                continue
            logged = self._logged(mine)
            lost = self._lost(mine, before.slices.get(group))
            if lost and not logged:
                raise self._gone(lost, instant)
            only = all(stat.is_base and not stat.num_updates and not stat.num_deletes for stat in mine)
            if self._config.change_logging is ChangeLogging.DATA_BEFORE and not lost:
                logged = ()  # The rows after are found by key, which does not tell rows with one key apart.
            said = str(self._gone(lost, instant)) if lost else ""
            new = after.part(group) if all(stat.path in self._paths for stat in mine) else None
            old, appended = before.part(group), self._appended(group, mine)
            # Keys of a table of buckets are looked up in no file, so that all rows of a log file may be new.
            bucket = _bucket(group.file_id)
            counts_inserts = bool(old) and not (appended and bucket is not None)
            yield GroupChange(
                instant.time,
                group.partition_path,
                old,
                new,
                only,
                logged,
                said,
                appended,
                may_delete=bool(old or lost) and any(stat.num_deletes for stat in mine),
                may_insert=not counts_inserts or any(stat.num_inserts for stat in mine),
                bucket=bucket,
            )

    def _slices(self, groups: Sequence[FileGroupId], hidden: frozenset[str]) -> _At:
        """The groups' slices where some commits have not happened."""
        timeline = self._whole.without(hidden)
        bases = [base for group in groups for base in self._bases.get(group, ())]
        logs = [log for group in groups for log in self._logs.get(group, ())]
        shown = visible_files(bases, timeline, frozenset(), self._named)
        counts_from = log_positions(self._engine.store, timeline, logs) if logs else lambda _: None
        slices = slices_of(shown, logs, (), counts_from)
        newest = max(timeline.commit_times, default=None)
        snapshot = Snapshot(self._config, timeline, newest, self.schema, ListedFiles(()), self._versions)
        return _At(snapshot, {each.group: each for each in slices})

    def _logged(self, stats: Sequence[WriteStat]) -> tuple[LogFile, ...]:
        """The change data of a group that tells images, if it tells all that a commit did to it."""
        config = self._config
        if config.change_logging not in LOGGED_MODES or config.drops_partition_columns or self._versions:
            return ()
        if not all(stat.cdc_stats for stat in stats):
            return ()
        named = [
            (stat.partition_path, path.rpartition("/")[2], size) for stat in stats for path, size in stat.cdc_stats
        ]
        found = [(partition, LogFileName.match(name), size) for partition, name, size in named]
        return tuple(LogFile(partition, name, size) for partition, name, size in found if name is not None)

    def _appended(self, group: FileGroupId, stats: Sequence[WriteStat]) -> tuple[LogFile, ...]:
        """The log files that a commit wrote to a group, where it wrote no base file."""
        paths = {stat.path for stat in stats}
        found = tuple(log for log in self._logs.get(group, ()) if log.path in paths)
        return found if len(found) == len(paths) else ()

    def _lost(self, stats: Sequence[WriteStat], before: FileSlice | None) -> str:
        """What of that which the statistics name is not there."""
        for stat in stats:
            others = [name for name in (stat.base_name, *stat.log_names) if name and not name.endswith(".cdc")]
            for path in (stat.path, *(join_path(stat.partition_path, name) for name in others)):
                if path not in self._paths:
                    return path
            known = "" if before is None else before.base_instant
            if stat.is_base and stat.prev_commit is not None and known < stat.prev_commit:
                return f"the version of {stat.prev_commit} before {stat.path}"
        return ""

    def _gone(self, what: str, instant: Instant) -> InstantNotAvailableError:
        return InstantNotAvailableError(
            f"{what} of {self._engine.storage.location}, which commit {instant.time} changed, has been cleaned away; "
            f"begin at {instant.completed_at} or later, or keep more history (hoodie.cleaner.commits.retained)"
        )


@dataclass(frozen=True)
class _At:
    """Slices at a point of the timeline, and how they are read."""

    snapshot: Snapshot
    slices: Mapping[FileGroupId, FileSlice]

    def part(self, group: FileGroupId) -> Part | None:
        piece = self.slices.get(group)
        if piece is None:
            return None
        if piece.logs or piece.base is None:
            return SlicePart(piece, self.snapshot.merging(piece))
        return FilePart(piece.base.path, piece.base.size_bytes, shape=self.snapshot.shape(piece.base))


def _bucket(file_id: str) -> int | None:
    """Return the bucket in a file id. A random id that begins with eight digits is hardly ever so small a number."""
    found = bucket_of(file_id)
    return found if found is not None and found < _MOST_BUCKETS else None


def _touched(metadata: CommitMetadata) -> tuple[FileGroupId, ...]:
    """The groups that a commit wrote or hid; those that it only wrote change data of are among them."""
    written = {FileGroupId(stat.partition_path, stat.file_id) for stat in metadata.all_stats()}
    hidden = {FileGroupId(path, id_) for path, ids in metadata.replaced.items() for id_ in ids}
    return tuple(sorted(written | hidden))
