"""The plan of a range of changes: for each commit and file group, the file slices before and after the commit.

Both slices are built as in a snapshot, from the files in the partitions that the range touches. So the table need not
have Hudi's CDC log files. If a slice lacks a file that a commit names, the file has been cleaned away. The range is
then refused, except if CDC log files contain the changed rows of the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import pyarrow as pa

from lakeformat.config.resolve import Options
from lakeformat.errors import InstantNotAvailableError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.file_groups import list_partitions, visible_files
from lakeformat.file_system_view.live_files import ListedFiles
from lakeformat.file_system_view.schema_history import read_schemas
from lakeformat.file_system_view.slices import build_slices
from lakeformat.file_system_view.snapshot import FileNames, Snapshot, make_latest_base, table_schema
from lakeformat.index.bucket import bucket_of
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import BaseFile, FileGroupId, FileSlice, LogFile, LogFileName, join_path
from lakeformat.model.hashing_metadata import MOST_BUCKETS
from lakeformat.model.instant import Instant
from lakeformat.model.table_config import ChangeLogging, TableConfig
from lakeformat.read.incremental import RangeBounds, check_commit_times, cut_before_hollow, warn_of_undone_commits
from lakeformat.read.plan import FilePart, Part, SlicePart
from lakeformat.timeline.timeline import NOW, TableState, Timeline

__all__ = ["ChangePlan", "GroupChange", "find_shared_key_sets", "plan_changes"]

#: Modes of ``hoodie.table.cdc.supplemental.logging.mode`` whose CDC log files contain rows. In the third mode,
#: OP_KEY_ONLY, CDC log files hold only keys and operations, so the file slices are read instead.
LOGGED_MODES: Final = frozenset({ChangeLogging.DATA_BEFORE_AFTER, ChangeLogging.DATA_BEFORE})
#: Operations that only rewrite existing rows.
_NO_NEW_ROWS: Final = frozenset({"CLUSTER", "COMPACT", "LOG_COMPACT"})


@dataclass(frozen=True, slots=True)
class GroupChange:
    """The change of one file group by one commit. Picklable.

    Attributes:
        instant_time: instant time of the commit, which is the commit time of the rows that it wrote.
        partition_path: partition of the file group.
        before: the slice before the commit; None if there was none.
        after: the slice after the commit; None if the commit replaced the group, or a file of the slice is missing.
        inserts_only: whether the commit's write stats say that it wrote only base files and only added rows.
        change_data_logs: Hudi's CDC log files if they contain the changed rows (`LOGGED_MODES`), else ().
        missing_message: error message if a file of the slices does not exist any more, else "". If there is a message,
            only the CDC log files can be read.
        appended_logs: the log files that the commit wrote, if it wrote only log files, else (). Only rows of the keys
            in these log files may have changed.
        may_delete: False if the commit's write stats say that it deleted no row.
        may_insert: False if the commit's write stats say that it added no row.
        bucket: bucket number of the file group; None if its file id does not start with a bucket number.
    """

    instant_time: str
    partition_path: str
    before: Part | None
    after: Part | None
    inserts_only: bool = False
    change_data_logs: tuple[LogFile, ...] = ()
    missing_message: str = ""
    appended_logs: tuple[LogFile, ...] = ()
    may_delete: bool = True
    may_insert: bool = True
    bucket: int | None = None

    @property
    def size_bytes(self) -> int:
        """Return the total size of both slices in bytes."""
        return sum(part.size_bytes for part in (self.before, self.after) if part is not None)

    @property
    def grown_slice(self) -> SlicePart | None:
        """Return the slice after the commit if it is the slice before plus the appended log files, else None."""
        before, after = self.before, self.after
        if not self.appended_logs or before is None or not isinstance(after, SlicePart):
            return None
        written, base = {log.path for log in self.appended_logs}, after.slice.base
        logs = () if isinstance(before, FilePart) else before.slice.logs
        is_same = base is not None if isinstance(before, FilePart) else before.slice.base == base
        is_same = is_same and (base is None or base.path == before.path)
        others = ({log.path for log in some} - written for some in (logs, after.slice.logs))
        return after if is_same and next(others) == next(others) else None


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The changes of a range.

    Attributes:
        since, until: exclusive start and inclusive end of the range: completion times in timeline layout 2, instant
            times in layout 1.
        schema: the table's present columns; None if they are not known.
        changes: the changes by commit, in the order in which the commits completed.
    """

    since: str
    until: str
    schema: pa.Schema | None
    changes: tuple[GroupChange, ...]

    @property
    def table(self) -> pa.Schema:
        """Return the table's present columns; an empty schema if they are not known."""
        return pa.schema([]) if self.schema is None else self.schema

    def by_commit(self) -> Iterator[tuple[GroupChange, ...]]:
        """Yield for each commit, in order, the tuple of its changes."""
        for _, changes in groupby(self.changes, key=lambda change: change.instant_time):
            yield tuple(changes)

    def pack(self, most_bytes: int) -> list[tuple[tuple[GroupChange, ...], ...]]:
        """Group the changes, in order, into portions of about equal size, for tasks that read them in parallel.

        Return for each portion its items. An item is the change of one file group. If a commit may delete a key in one
        file group and insert it into another, the changes of these file groups are one item: they are read together.

        Args:
            most_bytes: maximum size of the slices of a portion. Only a single item may be larger.
        """
        portions: list[list[tuple[GroupChange, ...]]] = []
        size = 0
        for commit in self.by_commit():
            for item in _group_items(commit):
                more = sum(change.size_bytes for change in item)
                if not portions or size + more > most_bytes:
                    portions.append([])
                    size = 0
                portions[-1].append(item)
                size += more
        return [tuple(portion) for portion in portions]


def find_shared_key_sets(changes: Sequence[GroupChange]) -> list[tuple[GroupChange, ...]]:
    """Return the sets of a commit's changes in which a key may be deleted from one file group and added to another.

    The changes of a set must be read together. Otherwise the delete and the insert of such a key could not become one
    update. If all changes are in one partition and all file groups have bucket numbers, only file groups of the same
    bucket may have the same key. Otherwise any two file groups may. Changes that are in no set can be read alone.
    """
    concerned = [change for change in changes if change.may_delete or change.may_insert]
    partitions = {change.partition_path for change in concerned}
    apart = len(partitions) == 1 and all(change.bucket is not None for change in concerned)
    sets: dict[int | None, list[GroupChange]] = {}
    for change in concerned:
        sets.setdefault(change.bucket if apart else None, []).append(change)
    return [tuple(group) for group in sets.values() if len(group) > 1 and _may_share_key(group)]


def _may_share_key(changes: Sequence[GroupChange]) -> bool:
    return any(change.may_delete for change in changes) and any(change.may_insert for change in changes)


def _group_items(commit: Sequence[GroupChange]) -> Iterator[tuple[GroupChange, ...]]:
    """Yield the sets of changes that must be read together, then the remaining changes of the commit one by one."""
    together = find_shared_key_sets(commit)
    yield from together
    read = {id(change) for key_set in together for change in key_set}
    yield from ((change,) for change in commit if id(change) not in read)


def plan_changes(
    context: TableContext,
    options: Options,
    config: TableConfig,
    bounds: RangeBounds,
    state: TableState = NOW,
) -> ChangePlan:
    """Find the slices before and after each commit of a range.

    This lists the timeline, and the partitions that the commits of the range touched. Memory: the names of all files in
    these partitions.

    Args:
        state: the state of the table that the range ends in at the latest.

    Raises:
        InstantNotAvailableError: commits of the range have been archived, or files cleaned away.
        UnsupportedTableError: the table has no changes that can be read.
    """
    config.check_readable(context.storage.location)
    check_commit_times(config, context.storage.location)

    def load_timeline() -> Timeline:
        return cut_before_hollow(context, options, state.cut(context.timeline(config)))[0]

    try:
        return _plan(context, config, load_timeline(), bounds)
    except FileNotFoundError:  # An instant was archived meanwhile, so plan again with the present timeline.
        return _plan(context, config, load_timeline(), bounds)


def _plan(context: TableContext, config: TableConfig, whole: Timeline, bounds: RangeBounds) -> ChangePlan:
    inside = whole.completed_in(bounds.since, bounds.until)
    _check_reach(context, whole, bounds)
    warn_of_undone_commits(context.store, whole, bounds.since)
    commits = _Commits(context, whole)
    writes = [i for i in inside if not commits[i.time].compacted and commits[i.time].operation not in _NO_NEW_ROWS]
    range_ = _RangeSlices(context, config, whole, commits, {i.time: commits[i.time] for i in writes})
    until = inside[-1].completed_at if inside else bounds.since
    changes = tuple(change for instant in writes for change in range_.changes_of(instant))
    return ChangePlan(bounds.since, max(until, bounds.since), range_.schema, changes)


def _check_reach(context: TableContext, whole: Timeline, bounds: RangeBounds) -> None:
    first = min((i.completed_at for i in whole.commits), default=None)
    if first is None or bounds.since >= first:
        return
    archived = context.store.read_archived().completed_in(bounds.since, bounds.until)
    gone = [instant.completed_at for instant in archived if whole.completion_time(instant.time) is None]
    if gone:
        raise InstantNotAvailableError(
            f"changes of {context.storage.location} after {bounds.since or 'its first commit'} were requested, but "
            f"commits up to {gone[-1]} have been archived; begin at {gone[-1]} or later"
        )


class _Commits(dict[str, CommitMetadata]):
    """A mapping of instant time to the metadata of the commit, which is read at the first look-up."""

    def __init__(self, context: TableContext, whole: Timeline) -> None:
        super().__init__()
        self._store, self._instants = context.store, {instant.time: instant for instant in whole.commits}

    def __missing__(self, time: str) -> CommitMetadata:
        self[time] = commit = self._store.read_commit(self._instants[time])
        return commit


class _RangeSlices:
    """The file slices, before and after each commit of a range, of the file groups that the range touches."""

    def __init__(
        self,
        context: TableContext,
        config: TableConfig,
        whole: Timeline,
        commits: _Commits,
        read_commits: Mapping[str, CommitMetadata],
    ) -> None:
        self._context, self._config, self._whole, self._commits = context, config, whole, commits
        self._order = whole.completed_in("")
        self._file_names = FileNames(commits)
        touched = {group for metadata in read_commits.values() for group in _touched_groups(metadata)}
        listing = list_partitions(context.storage, sorted({group.partition_path for group in touched}))
        self._bases: dict[FileGroupId, list[BaseFile]] = {}
        self._logs: dict[FileGroupId, list[LogFile]] = {}
        for base in listing.bases:
            if base.group in touched:
                self._bases.setdefault(base.group, []).append(base)
        for log in listing.logs:
            if log.group in touched:
                self._logs.setdefault(log.group, []).append(log)
        self._paths = {file.path for file in (*listing.bases, *listing.logs)}
        store, location = context.store, context.storage.location
        self.schema = table_schema(store, config, whole.commits, ())
        history = [(i.time, commits[i.time]) for i in whole.commits] if read_commits else []
        self._schemas = read_schemas(context.storage, history, location)

    def changes_of(self, instant: Instant) -> Iterator[GroupChange]:
        """Yield the changes of one commit, one per file group."""
        metadata = self._commits[instant.time]
        groups = _touched_groups(metadata)
        number = self._order.index(instant)
        before = self._slices(groups, frozenset(i.time for i in self._order[number:]))
        after = self._slices(groups, frozenset(i.time for i in self._order[number + 1 :]))
        hidden = {*metadata.replaced_groups}
        stats: dict[FileGroupId, list[WriteStat]] = {}
        for stat in metadata.all_stats():
            stats.setdefault(stat.group, []).append(stat)
        for group in groups:
            if group in hidden:
                old = before.part(group)
                if old is None:
                    raise self._gone_error(join_path(group.partition_path, group.file_id), instant)
                bucket = _find_bucket(group.file_id)
                yield GroupChange(instant.time, group.partition_path, old, None, may_insert=False, bucket=bucket)
                continue
            written = [stat for stat in stats[group] if stat.path]
            if not written:
                continue
            logged = self._find_change_data(written)
            missing = self._find_missing(written, before.slices.get(group))
            if missing and not logged:
                raise self._gone_error(missing, instant)
            inserts_only = all(stat.is_base and not stat.num_updates and not stat.num_deletes for stat in written)
            if self._config.change_logging is ChangeLogging.DATA_BEFORE and not missing:
                logged = ()  # Without rows after, a row must be found by key, which is not unique: use the slices.
            message = str(self._gone_error(missing, instant)) if missing else ""
            new = after.part(group) if all(stat.path in self._paths for stat in written) else None
            old, appended = before.part(group), self._find_appended_logs(group, written)
            # Writers of bucket tables do not look up keys, so their insert counts are not used: any row in a log file
            # may be new.
            bucket = _find_bucket(group.file_id)
            counts_inserts = bool(old) and not (appended and bucket is not None)
            yield GroupChange(
                instant.time,
                group.partition_path,
                old,
                new,
                inserts_only,
                logged,
                message,
                appended,
                may_delete=bool(old or missing) and any(stat.num_deletes for stat in written),
                may_insert=not counts_inserts or any(stat.num_inserts for stat in written),
                bucket=bucket,
            )

    def _slices(self, groups: Sequence[FileGroupId], hidden: frozenset[str]) -> _SlicesAt:
        """Return the newest slices of the file groups, without the files of the commits at the ``hidden`` times."""
        timeline = self._whole.with_pending(hidden)
        bases = [base for group in groups for base in self._bases.get(group, ())]
        logs = [log for group in groups for log in self._logs.get(group, ())]
        shown = visible_files(bases, timeline, frozenset(), self._file_names)
        latest_base = make_latest_base(self._context.store, timeline, logs) if logs else lambda _: None
        slices = build_slices(shown, logs, (), latest_base)
        newest = max(timeline.commit_times, default=None)
        snapshot = Snapshot(self._config, timeline, newest, self.schema, ListedFiles(()), self._schemas)
        return _SlicesAt(snapshot, {piece.group: piece for piece in slices})

    def _find_change_data(self, stats: Sequence[WriteStat]) -> tuple[LogFile, ...]:
        """Return the CDC log files that a commit wrote for a file group; () unless they contain all changed rows."""
        config = self._config
        if config.change_logging not in LOGGED_MODES or config.drops_partition_columns or self._schemas:
            return ()
        if not all(stat.cdc_stats for stat in stats):
            return ()
        named = [
            (stat.partition_path, path.rpartition("/")[2], size) for stat in stats for path, size in stat.cdc_stats
        ]
        parsed = [(partition, LogFileName.match(name), size) for partition, name, size in named]
        return tuple(LogFile(partition, name, size) for partition, name, size in parsed if name is not None)

    def _find_appended_logs(self, group: FileGroupId, stats: Sequence[WriteStat]) -> tuple[LogFile, ...]:
        """Return the log files that a commit wrote to a file group; () if it wrote a base file too."""
        paths = {stat.path for stat in stats}
        appended = tuple(log for log in self._logs.get(group, ()) if log.path in paths)
        return appended if len(appended) == len(paths) else ()

    def _find_missing(self, stats: Sequence[WriteStat], before: FileSlice | None) -> str:
        """Describe the first file that the write stats name but that does not exist any more; "" if all files exist."""
        for stat in stats:
            others = [name for name in (stat.base_name, *stat.log_names) if name and not name.endswith(".cdc")]
            for path in (stat.path, *(join_path(stat.partition_path, name) for name in others)):
                if path not in self._paths:
                    return path
            base_instant = "" if before is None else before.base_instant
            if stat.is_base and stat.prev_commit is not None and base_instant < stat.prev_commit:
                return f"the version of {stat.prev_commit} before {stat.path}"
        return ""

    def _gone_error(self, what: str, instant: Instant) -> InstantNotAvailableError:
        return InstantNotAvailableError(
            f"{what} of {self._context.storage.location}, which commit {instant.time} changed, has been cleaned away; "
            f"begin at {instant.completed_at} or later, or keep more history (hoodie.cleaner.commits.retained)"
        )


@dataclass(frozen=True)
class _SlicesAt:
    """The file slices at a point of the timeline, and the snapshot whose schema and merge rules apply to them."""

    snapshot: Snapshot
    slices: Mapping[FileGroupId, FileSlice]

    def part(self, group: FileGroupId) -> Part | None:
        piece = self.slices.get(group)
        if piece is None:
            return None
        if piece.logs or piece.base is None:
            return SlicePart(piece, self.snapshot.merge_rules(piece))
        return FilePart(piece.base.path, piece.base.size_bytes, shape=self.snapshot.shape(piece.base))


def _find_bucket(file_id: str) -> int | None:
    """Return the bucket number at the start of a file id; None if there is none.

    If the number is at least `MOST_BUCKETS`, return None too: the file id is then taken to be a random one that begins
    with digits.
    """
    bucket = bucket_of(file_id)
    return bucket if bucket is not None and bucket < MOST_BUCKETS else None


def _touched_groups(metadata: CommitMetadata) -> tuple[FileGroupId, ...]:
    """Return the file groups that a commit wrote or replaced, including those for which it wrote only CDC log files."""
    return tuple(sorted({*(stat.group for stat in metadata.all_stats()), *metadata.replaced_groups}))
