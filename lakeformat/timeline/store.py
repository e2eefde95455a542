"""The timeline's files: reading them, and creating them in the steps requested, inflight and completed.

Hudi: ``ActiveTimelineV1`` and ``V2``. Only this module reads and writes the files of instants. Their names and
encoding follow a `TimelineLayout`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeAlias

from lakeformat.codec import properties
from lakeformat.codec.timeline_files.clean import (
    CleanMetadata,
    CleanPlan,
    decode_clean,
    decode_clean_plan,
    encode_clean,
)
from lakeformat.codec.timeline_files.commit import decode_commit
from lakeformat.codec.timeline_files.recovery import (
    CompletedRestore,
    RestorePlan,
    RollbackMetadata,
    RollbackPlan,
    SavepointMetadata,
    decode_restore_plan,
    decode_rollback_plan,
    decode_savepoint,
    encode_restore,
    encode_rollback,
    encode_savepoint,
)
from lakeformat.codec.timeline_files.service_plans import (
    RequestedReplace,
    decode_compaction_plan,
    decode_requested_replace,
)
from lakeformat.concurrency import monotonic, tries
from lakeformat.errors import CorruptTableError, StorageError, TableNotFoundError, UnsupportedTableError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import (
    COMMIT_ACTIONS,
    COMPLETES_AS,
    REPLACE_ACTIONS,
    Action,
    Instant,
    State,
    next_instant_time,
)
from lakeformat.model.service_plans import CompactionPlan
from lakeformat.model.table_config import LAYOUT, LOST_PROPERTIES, PROPERTIES_PATH, TableConfig
from lakeformat.storage.port import HOODIE, Clock, FileInfo, OutcomeUnknownError, Storage, check_path
from lakeformat.timeline.archive import ArchivedTimeline, read_archive_logs, read_lsm_history
from lakeformat.timeline.commit_cache import CommitCache, CommitKey
from lakeformat.timeline.path_probe import check_no_commits, describe_path
from lakeformat.timeline.timeline import LastTimeline, Timeline
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2, TimelineLayout, layout_of
from lakeformat.timeline.void_commits import is_void, may_be_void

__all__ = ["MOVED", "STEPS", "Completed", "TimelineStore", "check_step", "put_once"]


#: Maps each action and state to the allowed next states. No state may be skipped (Hudi:
#: ``HoodieActiveTimeline.transitionState``).
STEPS: Final[Mapping[Action, Mapping[State, frozenset[State]]]] = {
    action: {
        State.REQUESTED: frozenset({State.INFLIGHT}),
        State.INFLIGHT: frozenset({State.COMPLETED}),
        State.COMPLETED: frozenset(),
    }
    for action in (
        *COMMIT_ACTIONS,
        Action.COMPACTION,
        Action.CLUSTERING,
        Action.ROLLBACK,
        Action.CLEAN,
        Action.SAVEPOINT,
        Action.RESTORE,
    )
}


def check_step(instant: Instant, to: State) -> Instant:
    """Return the instant in its next state. A completed compaction or clustering gets the action of a commit.

    Raises:
        CorruptTableError: `STEPS` does not allow the step, because another process has changed the timeline.
    """
    if to not in STEPS.get(instant.action, {}).get(instant.state, frozenset()):
        raise CorruptTableError(
            f"instant {instant.time}, a {instant.action.value} {instant.state.name.lower()}, cannot become "
            f"{to.name.lower()}; look at the .hoodie folder"
        )
    action = COMPLETES_AS.get(instant.action, instant.action) if to is State.COMPLETED else instant.action
    return Instant(instant.time, action, to)


#: Seconds to wait before each further try of `put_once`.
_PAUSES: Final = (0.0, 0.1, 0.3)
#: Seconds after which there is no further try: the storage's client itself has retried many times by then.
_PATIENCE_SECONDS: Final = 10.0


def put_once(storage: Storage, path: str, data: bytes) -> None:
    """Create a file, and try again with the same bytes if the storage does not respond.

    A file with the same bytes counts as created by this call, because an earlier try may have created it. After a try
    without a response the file may still appear later, so the outcome is unknown even if the file is missing, or if the
    storage refuses a later try.

    Raises:
        FileExistsError: A different file has this name.
        OutcomeUnknownError: The storage did not respond to a try; the file may appear at any time.
    """
    began = monotonic()
    unanswered: OutcomeUnknownError | None = None
    for is_last in tries(_PAUSES):
        try:
            storage.create(path, data)
            return
        except FileExistsError:
            if unanswered is None:
                if storage.read(path) != data:
                    raise
                return
        except OutcomeUnknownError as error:
            unanswered = error
        except StorageError:
            if unanswered is None:
                raise
        if _has_bytes(storage, path, data):
            return
        if is_last or monotonic() - began > _PATIENCE_SECONDS:
            raise unanswered


def _has_bytes(storage: Storage, path: str, data: bytes) -> bool:
    """Tell whether the file exists with these bytes. Raise ``FileExistsError`` if it has other bytes."""
    try:
        stored = storage.read(path)
    except (FileNotFoundError, StorageError):
        return False
    if stored != data:
        raise FileExistsError(path)
    return True


#: Size of the commit cache in bytes of the commits' files; in memory they need about two thirds of that.
_CACHED_BYTES: Final = 128 << 20
#: Name of a file in the timeline folder of layout 2. It marks that a downgrade to layout 1 is removing
#: the instants of that folder.
MOVED: Final = ".moved"
#: The metadata types that a completed file may contain.
Completed: TypeAlias = CommitMetadata | RollbackMetadata | CleanMetadata | SavepointMetadata | CompletedRestore

_COMMITS: Final = CommitCache(_CACHED_BYTES)
#: Decodes the table's properties. A write reads the same bytes five times.
_decode_properties: Final = lru_cache(maxsize=64)(properties.decode)


class TimelineStore:
    """The timeline of one table on storage. It reads instants and changes their states.

    The object remembers only the storage, the layout and the last listing.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._layout: TimelineLayout | None = None
        self._listed: dict[str, FileInfo] = {}
        self._sound: frozenset[str] = frozenset()
        self._config: TableConfig | None = None
        self._last = LastTimeline()

    def config(self) -> TableConfig:
        """Read the table's properties, or their backup while Hudi rewrites them.

        Raises:
            TableNotFoundError: Neither file exists.
            CorruptTableError: The file is empty or cannot be parsed, or there are commits without it.
        """
        for path in (PROPERTIES_PATH, f"{PROPERTIES_PATH}.backup"):
            with suppress(FileNotFoundError):
                data = self.storage.read(path)
                if data.strip():
                    config = TableConfig(dict(_decode_properties(data, name=f"{self.storage.location}/{path}")))
                    self._layout = layout_of(config)  # Another program may have upgraded the table since.
                    self._config = config
                    return config
        if self.storage.info(PROPERTIES_PATH) is not None:
            raise CorruptTableError(f"{self.storage.location}/{PROPERTIES_PATH} is empty; {LOST_PROPERTIES}")
        check_no_commits(self.storage)
        cure = describe_path(self.storage) or "check the path, or write to it first"
        raise TableNotFoundError(f"no table at {self.storage.location} (there is no {PROPERTIES_PATH}); {cure}")

    @property
    def known_config(self) -> TableConfig:
        """Return the table's properties as they were read last; if they were never read, read them."""
        return self._config or self.config()

    def exists(self) -> bool:
        """Tell whether the table exists: ``hoodie.properties`` or its backup copy does."""
        return any(self.storage.info(path) is not None for path in (PROPERTIES_PATH, f"{PROPERTIES_PATH}.backup"))

    @property
    def layout(self) -> TimelineLayout:
        """Return the layout found by the last listing or read of the properties; if there was none, read them.

        Raises:
            UnsupportedTableError: The table's layout is not supported.
        """
        if self._layout is None:
            config = self.config()
            if self._layout is None:
                raise UnsupportedTableError(
                    f"{self.storage.location}/{PROPERTIES_PATH}: {LAYOUT}={config.get(LAYOUT)} is not supported"
                )
        return self._layout

    def load(self, archive_folder: str | None = None, *, as_stored: bool = False) -> Timeline:
        """Load the active timeline.

        Args:
            archive_folder: Folder of the archive, from whose listing `Timeline.archive` is computed; None to leave it
                None.
            as_stored: Whether to return the commits that an inflight restore undoes as they are stored: completed as
                long as their completed files exist. Only the undo of commits sets this. By default all these commits
                are pending as soon as the restore is inflight. So readers see the table before or after the restore,
                and never a state in which only some of the commits are undone.
        """
        self._listed = self._list_instants()
        if self._may_have_moved():
            layout = self._layout
            self.config()
            self._listed = self._listed if self._layout == layout else self._list_instants()
        archive = None if archive_folder is None else self._archive_mark(archive_folder)
        timeline = self._last.follow(tuple(self._listed), archive, self.layout)
        timeline = timeline.with_voids(self._find_voids(timeline))
        return timeline if as_stored else timeline.with_pending(self._read_undone_times(timeline))

    def peek(self) -> Timeline:
        """List the timeline as it is now, with commits as they are stored. The store does not remember this listing."""
        listed = self.storage.list_at_once(self.layout.folder)
        return Timeline.of_file_names((entry.name for entry in listed if not entry.is_folder), layout=self.layout)

    def _find_voids(self, timeline: Timeline) -> frozenset[str]:
        """Return the times of the void commits. Read only files whose size in the listing is that of a void commit."""
        listed, name_of = self._listed, self.layout.file_name
        new = [commit for commit in timeline.commits if commit.time not in self._sound]
        sized = (commit for commit in new if may_be_void(listed[name_of(commit)].size_bytes))
        voids = frozenset(commit.time for commit in sized if self._is_void(commit))
        if self.storage.has_lock:  # No void commit takes the place of a commit there.
            self._sound = timeline.commit_times - voids
        return voids

    def _is_void(self, commit: Instant) -> bool:
        try:
            return is_void(self.read_commit(commit))
        except (FileNotFoundError, CorruptTableError):  # Archived since, or damaged: its readers report that.
            return False

    def _read_undone_times(self, timeline: Timeline) -> frozenset[str]:
        """Return the times of the instants that inflight restores undo."""
        running = (restore for restore in timeline.of_action(Action.RESTORE) if restore.state is State.INFLIGHT)
        plans = [self.read_restore_plan(restore) for restore in running]
        return frozenset(time for plan in plans if plan is not None for time in plan.times)

    def _list_instants(self) -> dict[str, FileInfo]:
        """List the timeline's folder. Return its entries by name."""
        # Instants are archived from the oldest on. If the listing lacked an archived instant and had an older one, the
        # files of the archived instant would count as files of a write that has not completed.
        listed = self.storage.list_at_once(self._layout.folder if self._layout else HOODIE)
        if self._layout is None:
            self._layout = self._guess_layout(listed)
            listed = listed if self._layout.folder == HOODIE else self.storage.list_at_once(self._layout.folder)
        return {entry.name: entry for entry in listed}

    def _may_have_moved(self) -> bool:
        """Tell whether the listing shows that another program may have changed the table's layout.

        For layout 2 the sign is an empty folder or the file `MOVED`, for layout 1 that layout 2's folder exists.
        """
        if self.layout.has_completion_times:
            return not self._listed or MOVED in self._listed
        return self._name(LAYOUT_2.folder) in self._listed

    def _guess_layout(self, listed: Sequence[FileInfo]) -> TimelineLayout:
        """Return the layout that a listing of ``.hoodie`` shows. If it is ambiguous, read the properties."""
        if any(LAYOUT_1.parse(entry.name) for entry in listed) and not any(e.path == LAYOUT_2.folder for e in listed):
            return LAYOUT_1
        with suppress(TableNotFoundError):
            return self.layout
        return LAYOUT_1

    def has_archive(self, folder: str) -> bool:
        """Tell whether any instant has been archived."""
        return bool(self._archive_mark(folder))

    def _archive_mark(self, folder: str) -> str:
        files = [entry for entry in self.storage.list(check_path(folder)) if self.layout.archive_name in entry.name]
        stamps = "\n".join(sorted(f"{entry.name} {entry.size_bytes}" for entry in files))
        return hashlib.blake2b(stamps.encode(), digest_size=16).hexdigest() if files else ""

    # --- contents of instants -------------------------------------------------------------------------

    def path(self, instant: Instant) -> str:
        """Return the path of an instant's file, relative to the table."""
        return self.layout.path(instant)

    def is_on_timeline(self, path: str) -> bool:
        """Tell whether a file of this path is in the timeline's folder. Read the layout again if it seems not to be."""
        folder = path.rpartition("/")[0]
        if folder != self.layout.folder:
            self.config()
        return folder == self.layout.folder

    def has_file(self, path: str) -> bool:
        """Tell whether the last listing of the timeline's folder contains a file of this path."""
        return self._name(path) in self._listed

    def _name(self, path: str) -> str:
        return path.removeprefix(f"{self.layout.folder}/")

    def info(self, instant: Instant) -> FileInfo | None:
        """Return the size and modification time of an instant's file; None if there is no such file."""
        return self.storage.info(self.path(instant))

    def modified_ms(self, instant: Instant) -> int | None:
        """Return when an instant's file was changed, in milliseconds; None if the last listing does not have it."""
        listed = self._listed.get(self.layout.file_name(instant))
        return None if listed is None else listed.modified_ms

    def age_ms(self, instant: Instant) -> int:
        """Return the age of an instant's file by the storage's clock: compared with the newest file of the listing.

        Return 0 if the last listing does not contain the file.
        """
        modified = self.modified_ms(instant)
        return (
            0 if modified is None else max(e.modified_ms for e in self._listed.values() if not e.is_folder) - modified
        )

    def read(self, instant: Instant) -> bytes:
        """Read the bytes of an instant's file."""
        return self.storage.read(self.path(instant))

    def read_commit(self, instant: Instant) -> CommitMetadata:
        """Return the metadata of a completed commit, from the cache if possible.

        Raises:
            CorruptTableError: The file is empty, partly written or not commit metadata; the message names the file.
        """
        key = self._key(self.layout.file_name(instant))
        cached = _COMMITS.get(key) if key else None
        if cached is None:
            cached = decode_commit(self.read(instant), name=f"{self.storage.location}/{self.path(instant)}")
            if key:
                _COMMITS.put(key, cached)
        return cached

    def _key(self, file_name: str) -> CommitKey | None:
        """Return the key of a commit in the cache; None if the last listing does not have its file."""
        listed = self._listed.get(file_name)
        if listed is None:
            return None
        return CommitKey(self.storage.location, file_name, listed.size_bytes, listed.modified_ms)

    def remember_commit(self, path: str, data: bytes) -> None:
        """Add a commit whose bytes are known to the cache, if the last listing has its file with this size."""
        key = self._key(self._name(path))
        if key is not None and key.size_bytes == len(data) and _COMMITS.get(key) is None:
            _COMMITS.put(key, decode_commit(data, name=f"{self.storage.location}/{path}"))

    def forget(self, instants: Iterable[Instant]) -> None:
        """Remove commits from the cache. Call it after they were removed from the timeline, before the next load."""
        for instant in instants:
            if (key := self._key(self.layout.file_name(instant))) is not None:
                _COMMITS.forget(key)

    def read_requested_replace(self, instant: Instant) -> RequestedReplace | None:
        """Read the plan of a replacecommit or clustering; return None if its file is empty or does not exist."""
        for requested in self.layout.list_requests(instant):
            if requested.action in REPLACE_ACTIONS:
                with suppress(FileNotFoundError):
                    return decode_requested_replace(self.read(requested), name=self.layout.file_name(requested))
        return None

    def read_clustering_groups(self, timeline: Timeline) -> Mapping[FileGroupId, str]:
        """Return a mapping of file group to the instant time of the pending clustering that will replace it."""
        groups: dict[FileGroupId, str] = {}
        for instant in timeline.pending:
            if instant.action in REPLACE_ACTIONS:
                requested = self.read_requested_replace(instant)
                groups.update(dict.fromkeys(requested.file_groups if requested else (), instant.time))
        return groups

    def read_compaction_plan(self, instant: Instant) -> CompactionPlan | None:
        """Read the plan of a pending compaction or log compaction; return None if its file is still empty.

        Raises:
            FileNotFoundError: The instant has changed since the timeline was loaded.
            CorruptTableError: The file is not a plan.
        """
        requested = instant.at(State.REQUESTED)
        data = self.read(requested)
        return decode_compaction_plan(data, name=self.path(requested)) if data else None

    def read_compaction_groups(self, timeline: Timeline) -> Mapping[FileGroupId, str]:
        """Return a mapping of file group to the instant time of the pending compaction that opened a slice in it."""
        groups: dict[FileGroupId, str] = {}
        for instant in timeline.pending:
            if instant.action is Action.COMPACTION and (plan := self.read_compaction_plan(instant)) is not None:
                groups.update((operation.group, instant.time) for operation in plan.operations)
        return groups

    def read_rollback_plan(self, rollback: Instant) -> RollbackPlan | None:
        """Read the plan of a rollback; return None if its file does not exist."""
        requested = rollback.at(State.REQUESTED)
        with suppress(FileNotFoundError):
            return decode_rollback_plan(self.read(requested), name=self.path(requested))
        return None

    def read_restore_plan(self, restore: Instant) -> RestorePlan | None:
        """Read the plan of a restore; return None if its file does not exist or is empty."""
        requested = restore.at(State.REQUESTED)
        with suppress(FileNotFoundError):
            data = self.read(requested)
            return decode_restore_plan(data, name=self.path(requested)) if data else None
        return None

    def read_savepoint(self, instant: Instant) -> SavepointMetadata:
        """Read a completed savepoint."""
        return decode_savepoint(self.read(instant), name=self.path(instant))

    def read_clean(self, instant: Instant) -> CleanMetadata | None:
        """Read the metadata of a completed clean; return None if its file is empty."""
        data = self.read(instant)
        return decode_clean(data, name=self.path(instant)) if data else None

    def read_clean_plan(self, clean: Instant) -> CleanPlan:
        """Read the plan of a clean.

        Raises:
            CorruptTableError: The plan is empty or damaged.
        """
        requested = clean.at(State.REQUESTED)
        return decode_clean_plan(self.read(requested), name=f"{self.storage.location}/{self.path(requested)}")

    def read_archived(self, since: str = "") -> ArchivedTimeline:
        """Read the archived instants. Load the active timeline first, so that no instant is missing in both.

        Args:
            since: Read only the archive files that may contain commits from this instant time on; "" for all files.
        """
        folder = check_path(self.config().archive_folder)
        return (read_lsm_history if self.layout.has_completion_times else read_archive_logs)(
            self.storage, folder, since
        )

    def read_unseen_archived(self, timeline: Timeline, known: frozenset[str]) -> list[tuple[str, CommitMetadata]]:
        """Return (instant time, metadata) of archived commits that are neither in ``known`` nor on the timeline.

        These commits have completed and were archived since the caller loaded ``known``. Commits are archived oldest
        first. So if the oldest known commit is still on the timeline, no newer commit has been archived: the result is
        empty and the archive is not read. A commit with a savepoint stays on the timeline when newer commits are
        archived, so it proves nothing. Therefore the oldest known commit without a savepoint is tested. If all known
        commits have savepoints, the newest one is tested.
        """
        held = {instant.time for instant in timeline.of_action(Action.SAVEPOINT)}
        oldest = min(known - held, default=max(known, default=""))
        if oldest and oldest in timeline.commit_times:
            return []
        archive = self.read_archived(oldest)
        unseen = [i for i in archive.completed_in("") if i.time >= oldest and i.time not in known]
        unseen = [instant for instant in unseen if instant.time not in timeline.commit_times]
        return [(instant.time, metadata) for instant, metadata in archive.commits(unseen)]

    def completion_times(self, timeline: Timeline, times: Collection[str]) -> Mapping[str, str]:
        """Return a mapping of instant time to completion time for the given times that are committed.

        If the layout stores completion times, those of archived commits are read from the archive. A time that is older
        than the timeline and not in the archive is mapped to itself.
        """
        active = {time: end for time in times if (end := timeline.completion_time(time)) is not None}
        older = {time: time for time in times if time not in active and timeline.is_committed(time)}
        if older and timeline.layout.has_completion_times:
            older.update(self.read_archived(min(older)).completion_times(older))
        return {**active, **older}

    # --- the steps of an action -----------------------------------------------------------------------

    def request(self, instant: Instant, data: bytes = b"") -> None:
        """Create the requested file of a new instant. Raise ``FileExistsError`` if the file already exists."""
        self._create(self.path(instant.at(State.REQUESTED)), data)

    def start(self, instant: Instant, profile: CommitMetadata | bytes | None = None) -> Instant:
        """Make a requested instant inflight. Raise ``FileExistsError`` if another process has done it.

        Args:
            instant: The requested instant.
            profile: Content of the inflight file: the workload profile of a write, or bytes; None for an empty file.
        """
        inflight = check_step(instant, State.INFLIGHT)
        data = self.layout.encode_commit(profile) if isinstance(profile, CommitMetadata) else profile or b""
        self._create(self.path(inflight), data)
        return inflight

    def _create(self, path: str, data: bytes) -> None:
        """Create a file. Try again if the storage does not respond; then a file of the same bytes counts as ours."""
        try:
            self.storage.create(path, data)
        except OutcomeUnknownError:
            put_once(self.storage, path, data)

    def complete(self, instant: Instant, metadata: Completed, clock: Clock) -> Instant:
        """Complete an inflight instant, which makes it visible. Call this under the table's lock.

        In layout 1 a second completion fails because its file would have the same name. In layout 2 the name contains
        the completion time, which is chosen here and is later than every time on the timeline.

        Raises:
            FileExistsError: Another process has completed the instant.
            OutcomeUnknownError: The storage does not respond; the completed file may appear at any time.
        """
        done, data = self.encode_completed(instant, metadata, clock)
        put_once(self.storage, self.path(done), data)
        return done

    def encode_completed(
        self, instant: Instant, metadata: Completed, clock: Clock, timeline: Timeline | None = None
    ) -> tuple[Instant, bytes]:
        """Return the completed instant and the bytes of its file. Use the same instant for every try to create it.

        Args:
            timeline: The newest timeline; None loads it.

        Raises:
            FileExistsError: The instant has been completed already.
        """
        done = check_step(instant, State.COMPLETED)
        if self.layout.has_completion_times:
            done = replace(done, completion_time=self._next_completion_time(done, clock, timeline or self.load()))
        return done, self._encode(done, metadata)

    def _encode(self, completed: Instant, metadata: Completed) -> bytes:
        match metadata:
            case CommitMetadata():
                return self.layout.encode_commit(metadata, replace=completed.action is Action.REPLACE_COMMIT)
            case CleanMetadata():
                return encode_clean(metadata)
            case SavepointMetadata():
                return encode_savepoint(metadata)
            case CompletedRestore():
                return encode_restore(metadata)
        return encode_rollback(metadata)

    def _next_completion_time(self, completed: Instant, clock: Clock, timeline: Timeline) -> str:
        config = self.known_config
        for instant in timeline.instants:
            if (instant.time, instant.action, instant.state) == (completed.time, completed.action, completed.state):
                raise FileExistsError(self.path(instant))
        return next_instant_time(clock.now_ms(), max(timeline.last_time or "", completed.time), config.zone)

    def remove(self, instant: Instant) -> None:
        """Remove a completed instant from the timeline. Its pending files are deleted first, so it never looks pending.

        This does not undo a commit: its data files stay valid. To make a commit's rows invisible, use `undo`.
        """
        self.storage.delete(self.path(instant.at(State.REQUESTED)))
        self.storage.delete(self.path(instant.at(State.INFLIGHT)))
        self.storage.delete(self.path(instant))

    def undo(self, commit: Instant) -> None:
        """Make a completed commit pending again, so that its rows are invisible and its files may be deleted."""
        self.storage.delete(self.path(commit))

    def revert(self, instant: Instant) -> None:
        """Make an inflight instant requested again: delete its inflight file. Its plan, the requested file, stays."""
        self.storage.delete(self.path(instant.at(State.INFLIGHT)))

    def erase(self, instant: Instant) -> None:
        """Remove a pending instant from the timeline. Its inflight file is deleted last."""
        self.storage.delete(self.path(instant.at(State.REQUESTED)))
        self.storage.delete(self.path(instant.at(State.INFLIGHT)))
