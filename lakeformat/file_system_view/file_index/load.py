"""Loading a snapshot of the table: from the file index if the index is proved complete, else by listing the folders."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa

from lakeformat.concurrency import run_all
from lakeformat.errors import CorruptTableError, InstantNotAvailableError, StorageError
from lakeformat.file_system_view.file_index.replay import (
    IndexChanges,
    files_of_commit,
    find_missing_commits,
    replaced_group_keys,
)
from lakeformat.file_system_view.file_index.shards import IndexedFiles
from lakeformat.file_system_view.file_index.stored import (
    FOLDER,
    CoveredTimeline,
    IndexManifest,
    IndexName,
    bounds_schema,
    file_table,
    is_held,
    read_delta,
    read_index_manifest,
)
from lakeformat.file_system_view.live_files import ListedFiles
from lakeformat.file_system_view.schema_history import has_column_ids
from lakeformat.file_system_view.snapshot import Snapshot, check_instant_available, list_snapshot, table_schema
from lakeformat.file_system_view.table_listing import FILE_INDEX
from lakeformat.files.missing_files import CleanedFileError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import Action, Instant, State
from lakeformat.model.table_config import TableConfig, TableType
from lakeformat.storage.port import FileInfo
from lakeformat.timeline.lost_commits import check_no_commit_is_skipped
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import NOW, TableState, Timeline

__all__ = [
    "find_deltas",
    "find_replayed_commits",
    "load_index_changes",
    "load_snapshot",
    "rolled_back_times",
    "undone_times",
]

_LOG: Final = logging.getLogger("lakeformat.file_index")
#: Number of times that the timeline is read if files are archived, cleaned or undone meanwhile. A file that looks
#: damaged is read twice.
_TRIES: Final = 5
#: Maximum number of deltas that are read at once.
_THREADS: Final = 8
#: Names of the actions whose instants never complete after a rollback. Compactions and clusterings are not among them:
#: after a rollback their plan may run again and complete.
_UNDONE_FOR_GOOD: Final = frozenset({Action.COMMIT.value, Action.DELTA_COMMIT.value})


def load_snapshot(
    store: TimelineStore,
    state: TableState = NOW,
    *,
    needed_times: frozenset[str] | None = None,
    config: TableConfig | None = None,
    timeline: Timeline | None = None,
    use_index: bool = True,
    use_metadata_table: bool = False,
) -> Snapshot:
    """Load a state of the table.

    Args:
        needed_times: times of the commits whose rows are needed; None for all. The files of other commits need not
            exist.
        timeline: the result of `TableContext.timeline`; if None, the timeline is loaded in this call.
        use_index: whether the file index may replace the listing of every folder. With the index, a file that is
            missing or cut short is noticed only when it is opened.
        use_metadata_table: whether the metadata table may replace this listing, too, with the same effect. It is never
            used if commits are hidden: its compactions cannot be undone.

    Raises:
        TableNotFoundError, UnsupportedTableError, CorruptTableError: the table does not exist, cannot be read by
            lakeformat, or has damaged settings.
        InstantNotAvailableError: the cleaner has removed files of the instant.
    """
    config = config or store.config()
    config.check_readable(store.storage.location)
    tries = 1 if timeline is not None else _TRIES
    while True:
        tries -= 1
        try:
            return _load(store, config, state, needed_times, timeline, use_index, use_metadata_table)
        except (FileNotFoundError, CorruptTableError) as error:
            if not tries:
                raise
            if isinstance(error, CorruptTableError) and not isinstance(error, CleanedFileError):
                tries = min(tries, 1)
            _LOG.info(
                "%s: archived, moved, cleaned or undone while the timeline was read; reading the timeline again", error
            )
            config = store.config()


def _load(
    store: TimelineStore,
    config: TableConfig,
    state: TableState,
    needed_times: frozenset[str] | None,
    timeline: Timeline | None,
    use_index: bool,
    use_metadata_table: bool,
) -> Snapshot:
    as_of, hidden_times = state.as_of, state.hidden_times
    # Load the timeline before any listing, so that the listing contains every file of its commits.
    loaded = timeline or store.load(config.archive_folder if use_index else None)
    if not hidden_times:
        check_no_commit_is_skipped(store, state.cut(loaded))
    whole = loaded.with_pending(hidden_times)
    if as_of is not None:
        check_instant_available(store, whole, as_of)
    # If the state that is read lies in the past, its files may be cleaned. Only a listing shows this.
    ends_in_past = needed_times is not None and bool(hidden_times)
    use_index = use_index and config.table_type is TableType.COPY_ON_WRITE and not ends_in_past
    indexed = _load_indexed(store, config, whole, as_of) if use_index else None
    return indexed or list_snapshot(
        store,
        config,
        whole,
        as_of,
        is_time_travel=bool(hidden_times),
        needed_times=needed_times,
        use_metadata_table=use_metadata_table and not hidden_times,
    )


def _load_indexed(store: TimelineStore, config: TableConfig, whole: Timeline, as_of: str | None) -> Snapshot | None:
    try:
        entries = store.storage.list_at_once(FOLDER)  # On a disk it looks only at the few files that are asked for.
    except StorageError as error:
        _LOG.warning("the file index cannot be listed and is not used: %s", error)
        return None
    if not entries or (as_of is not None and _may_be_cleaned(store, whole, as_of)):
        return None
    timeline = whole if as_of is None else whole.as_of(as_of)
    if has_column_ids(store, timeline):
        return None
    chosen = _choose_manifest(store, entries, whole, as_of)
    if chosen is None:
        return None
    manifest, missing = chosen
    schema = table_schema(store, config, timeline.commits, ())
    changes = schema and load_index_changes(
        store, timeline, manifest.covered.commits, missing, find_deltas(entries), schema
    )
    if schema is None or changes is None:
        return None

    def list_live() -> ListedFiles:
        try:
            live = list_snapshot(store, config, whole, as_of).live
        except FileNotFoundError:
            live = list_snapshot(_ArchiveReadingStore(store, whole), config, whole, as_of, is_time_travel=True).live
        assert isinstance(live, ListedFiles)  # noqa: S101  Listing a copy-on-write table returns this type.
        return live

    live = IndexedFiles(store.storage, manifest, changes, bounds_schema(schema), list_live)
    return Snapshot(config, whole, timeline.commits[-1].time, schema, live, source=FILE_INDEX)


class _ArchiveReadingStore(TimelineStore):
    """A timeline store that can still read the commits of an earlier timeline after they have been archived."""

    def __init__(self, store: TimelineStore, whole: Timeline) -> None:
        super().__init__(store.storage)
        archive = store.read_archived(min(whole.commit_times, default=""))
        gone = [instant for instant in archive.completed_in("") if instant.time in whole.commit_times]
        self._archived = {instant.time: metadata for instant, metadata in archive.commits(gone)}

    def read_commit(self, instant: Instant) -> CommitMetadata:
        """Read the metadata of a commit, archived or not. Raise `InstantNotAvailableError` if it was rolled back."""
        if instant.time in self._archived:
            return self._archived[instant.time]
        try:
            return super().read_commit(instant)
        except FileNotFoundError:
            raise InstantNotAvailableError(
                f"commit {instant.time} of {self.storage.location} has been taken back since it was read; read the "
                "table again"
            ) from None


def _may_be_cleaned(store: TimelineStore, whole: Timeline, as_of: str) -> bool:
    """Tell whether files of an instant may have been cleaned away. If so, the folders must be listed to find out."""
    for clean in whole.of_action(Action.CLEAN):
        if clean.time > as_of:
            metadata = store.read_clean(clean) if clean.state is State.COMPLETED else None
            if metadata is None or not metadata.earliest_commit_to_retain or metadata.earliest_commit_to_retain > as_of:
                return True
    return False


def _choose_manifest(
    store: TimelineStore, entries: Sequence[FileInfo], whole: Timeline, as_of: str | None
) -> tuple[IndexManifest, tuple[Instant, ...]] | None:
    """Return the newest usable index manifest, and the commits that must be replayed to bring it up to date.

    Return None if no manifest can be brought up to date.
    """
    names = [(entry, name) for entry in entries if (name := IndexName.parse(entry.name)) is not None]
    manifests = [(name.instant_time, entry.modified_ms, entry.path) for entry, name in names if name.kind == "manifest"]
    for instant_time, _, path in sorted(manifests, reverse=True):
        if as_of is not None and instant_time > as_of:
            continue
        manifest = read_index_manifest(store.storage, path)
        if manifest is not None and _has_shards(manifest, entries):
            missing = find_replayed_commits(store, manifest.covered, whole, as_of)
            if missing is not None:
                return manifest, missing
    return None


def _has_shards(manifest: IndexManifest, entries: Sequence[FileInfo]) -> bool:
    """Tell whether all shard files of a manifest exist with their full size. If not, the manifest is not used."""
    there = {entry.path: entry for entry in entries}
    paths, sizes = (manifest.shards.column(name).to_pylist() for name in ("path", "stored_bytes"))
    return all(
        path in there and there[path].size_bytes == size_bytes for path, size_bytes in zip(paths, sizes, strict=True)
    )


def find_replayed_commits(
    store: TimelineStore, covered: CoveredTimeline, whole: Timeline, as_of: str | None = None
) -> tuple[Instant, ...] | None:
    """Return the commits that must be replayed to bring an index snapshot up to date, as `find_missing_commits`."""
    return find_missing_commits(
        covered,
        whole,
        as_of,
        rolled_back=lambda: rolled_back_times(store, whole),
        is_on_timeline=lambda instant: store.info(instant) is not None,
    )


def undone_times(store: TimelineStore, instants: Iterable[Instant]) -> frozenset[str]:
    """Return the times of the writes that the rollbacks and restores among these instants undo."""
    times: set[str] = set()
    for undo in instants:
        if undo.action is Action.ROLLBACK:
            plan = store.read_rollback_plan(undo)
            times.update([plan.instant_time] if plan else [])
        elif undo.action is Action.RESTORE:
            restore = store.read_restore_plan(undo)
            times.update(restore.times if restore else [])
    return frozenset(times)


def rolled_back_times(store: TimelineStore, timeline: Timeline) -> frozenset[str]:
    """Return the times of the commits that were rolled back and can never complete, from the timeline's rollbacks.

    Clusterings and compactions are not among these commits: their plan may run again after a rollback.
    """
    times = set()
    for rollback in timeline.of_action(Action.ROLLBACK):
        plan = store.read_rollback_plan(rollback) if rollback.state is State.COMPLETED else None
        if plan is not None and plan.action in _UNDONE_FOR_GOOD:
            times.add(plan.instant_time)
    return frozenset(times)


def find_deltas(entries: Sequence[FileInfo]) -> Mapping[str, list[str]]:
    """Return a mapping of instant time to the paths of the commit's delta files in the index."""
    paths_by_time: dict[str, list[str]] = {}
    for entry in entries:
        name = IndexName.parse(entry.name)
        if name is not None and name.kind == "delta":
            paths_by_time.setdefault(name.instant_time, []).append(entry.path)
    return paths_by_time


def load_index_changes(
    store: TimelineStore,
    timeline: Timeline,
    covered: frozenset[str],
    missing: Sequence[Instant],
    deltas: Mapping[str, Sequence[str]],
    schema: pa.Schema,
) -> IndexChanges | None:
    """Return the file changes of the commits to replay: from their delta files or, if there are none, their metadata.

    Args:
        timeline: the timeline up to the wanted instant.
        covered: times of the commits that the index snapshot covers. The file groups that they replaced stay hidden,
            even if a replayed commit wrote into one of them.
        missing: the commits to replay.
        deltas: the result of `find_deltas`.
        schema: the table's columns.

    Returns:
        the changes; None if the metadata of a commit does not name its files.
    """
    tables: list[pa.Table] = []
    replaced: set[FileGroupId] = set()
    others = False

    def measure(path: str) -> int | None:
        info = store.storage.info(path)
        return info.size_bytes if info else None

    def read(instant: Instant) -> tuple[pa.Table, frozenset[FileGroupId]] | None:
        paths = deltas.get(instant.time, ())
        return next((delta for path in paths if (delta := read_delta(store.storage, path))), None)

    # Threads wait for storage. A delta in memory needs none.
    held = {
        commit.time for commit in missing if any(is_held(store.storage, path) for path in deltas.get(commit.time, ()))
    }
    distant = [instant for instant in missing if instant.time not in held]
    fetched = dict(zip((commit.time for commit in distant), run_all(read, distant, threads=_THREADS), strict=True))
    for instant in missing:
        stored = fetched[instant.time] if instant.time in fetched else read(instant)
        if stored is not None:
            tables.append(stored[0])
            replaced |= stored[1]
            continue
        others = True
        metadata = store.read_commit(instant)
        files = files_of_commit(metadata, measure)
        if files is None:
            return None
        tables.append(file_table([(file, None) for file in files], (), bounds_schema(schema)))
        replaced |= {*metadata.replaced_groups}
    if others:
        for instant in timeline.commits:
            if instant.time in covered and instant.action is Action.REPLACE_COMMIT:
                metadata = store.read_commit(instant)
                replaced |= {*metadata.replaced_groups}
    return IndexChanges(tuple(tables), replaced_group_keys(replaced))
