"""The timeline's files: loading, decoding, and the three steps of an action (Hudi: ``ActiveTimelineV1`` and ``V2``).

The one place that knows where an instant's files stand and what they hold; its `TimelineLayout` has the rules.

Completed commits in memory.

Which step may follow which, as a table (Hudi: ``HoodieActiveTimeline.transitionState``).

Put a file under a name once, also where the storage's answer is lost.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

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
    Restored,
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
from lakeformat.model.table_config import LAYOUT, PROPERTIES_PATH, TableConfig
from lakeformat.storage.port import HOODIE, Clock, FileInfo, OutcomeUnknownError, Storage, check_path
from lakeformat.timeline.archive import ArchivedTimeline, read_archive_logs, read_lsm_history
from lakeformat.timeline.path_probe import what_stands
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2, TimelineLayout, layout_of

__all__ = ["MOVED", "STEPS", "CommitCache", "CommitKey", "Completed", "TimelineStore", "check_step", "put_once"]


class CommitKey(NamedTuple):
    """A completed file as a listing shows it: another one of the same name differs in size or time."""

    location: str
    file_name: str
    size_bytes: int
    modified_ms: int


class CommitCache:
    """Completed commits never change, so each is read once a process. Safe for threads.

    Those asked for longest ago go first. One that is larger than all may be together is not kept.

    Args:
        most_bytes: of the commits' files together.
    """

    def __init__(self, most_bytes: int) -> None:
        self._entries: OrderedDict[CommitKey, CommitMetadata] = OrderedDict()
        self._most_bytes, self._bytes = most_bytes, 0
        self._guard = threading.Lock()

    def get(self, key: CommitKey) -> CommitMetadata | None:
        """The commit, if it is kept."""
        with self._guard:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, key: CommitKey, metadata: CommitMetadata) -> None:
        """Keep a commit."""
        with self._guard:
            if key not in self._entries and key.size_bytes <= self._most_bytes:
                self._entries[key] = metadata
                self._bytes += key.size_bytes
            while self._bytes > self._most_bytes:
                self._bytes -= self._entries.popitem(last=False)[0].size_bytes

    def forget(self, key: CommitKey) -> None:
        """Keep a commit no longer."""
        with self._guard:
            if self._entries.pop(key, None) is not None:
                self._bytes -= key.size_bytes


#: From a state to the states it may lead to. Nothing is ever skipped.
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
    """The instant in its next state; a plan completes as what it stands for.

    Raises:
        CorruptTableError: the step is not in `STEPS`: somebody changed the timeline under us.
    """
    if to not in STEPS.get(instant.action, {}).get(instant.state, frozenset()):
        raise CorruptTableError(
            f"instant {instant.time}, a {instant.action.value} {instant.state.name.lower()}, cannot become "
            f"{to.name.lower()}; look at the .hoodie folder"
        )
    action = COMPLETES_AS.get(instant.action, instant.action) if to is State.COMPLETED else instant.action
    return Instant(instant.time, action, to)


#: Seconds between tries. No further try is made once the tries have taken so long: clients try many times by themselves
#: before they say that no answer came.
_PAUSES: Final = (0.0, 0.1, 0.3)
_PATIENCE_SECONDS: Final = 10.0


def put_once(storage: Storage, path: str, data: bytes) -> None:
    """Put a file if there is none, and again with the same bytes while no answer comes.

    A file of the same bytes is ours, whatever the storage says: it may be the echo of an earlier try. One that is not
    there after a try without an answer may still come, so it is never taken for failed.

    Raises:
        FileExistsError: another file has the name.
        OutcomeUnknownError: no try was answered; the file may come at any time.
    """
    began = time.monotonic()
    for pause in (*_PAUSES, None):
        try:
            storage.create(path, data)
            return
        except FileExistsError:
            if storage.read(path) != data:
                raise
            return
        except OutcomeUnknownError:
            if _holds(storage, path, data):
                return
            if pause is None or time.monotonic() - began > _PATIENCE_SECONDS:
                raise
        time.sleep(pause)


def _holds(storage: Storage, path: str, data: bytes) -> bool:
    """Whether the file is there. Raises ``FileExistsError`` if it is another's."""
    try:
        found = storage.read(path)
    except (FileNotFoundError, StorageError):
        return False
    if found != data:
        raise FileExistsError(path)
    return True


#: Commits kept, in bytes of their files; in memory they take about two thirds of that.
_CACHED_BYTES: Final = 128 << 20
#: A file beside instants of layout 2 that are taken away, the table having moved to layout 1.
MOVED: Final = ".moved"
#: What completes an instant.
Completed: TypeAlias = CommitMetadata | RollbackMetadata | CleanMetadata | SavepointMetadata | Restored

_COMMITS: Final = CommitCache(_CACHED_BYTES)


class TimelineStore:
    """Reads and moves instants of one table. Holds no state but the storage, the layout, and the last listing."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._layout: TimelineLayout | None = None
        self._stamps: dict[str, tuple[int, int]] = {}
        self._last: tuple[tuple[tuple[str, ...], str | None, TimelineLayout], Timeline] | None = None

    def config(self) -> TableConfig:
        """The table's properties; the backup stands in while Hudi rewrites them.

        Raises:
            TableNotFoundError: neither file is there.
            CorruptTableError: the file cannot be read as properties.
        """
        for path in (PROPERTIES_PATH, f"{PROPERTIES_PATH}.backup"):
            try:
                data = self.storage.read(path)
            except FileNotFoundError:
                continue
            if data.strip():
                config = TableConfig(properties.decode(data, name=f"{self.storage.location}/{path}"))
                self._layout = layout_of(config)  # Anew each time: another program may have upgraded the table.
                return config
        if self.storage.info(PROPERTIES_PATH) is not None:
            raise CorruptTableError(f"{self.storage.location}/{PROPERTIES_PATH} is empty; restore it from a copy")
        cure = what_stands(self.storage) or "check the path, or write to it first"
        raise TableNotFoundError(f"no table at {self.storage.location} (there is no {PROPERTIES_PATH}); {cure}")

    def exists(self) -> bool:
        """Whether there is a table: its properties, or the backup that stands in for them."""
        return any(self.storage.info(path) is not None for path in (PROPERTIES_PATH, f"{PROPERTIES_PATH}.backup"))

    @property
    def layout(self) -> TimelineLayout:
        """How instants lie on storage, as properties or listing told last; else the properties are read.

        Raises:
            UnsupportedTableError: the table's layout is not known.
        """
        if self._layout is None:
            config = self.config()
            if self._layout is None:
                raise UnsupportedTableError(
                    f"{self.storage.location}/{PROPERTIES_PATH}: {LAYOUT}={config.get(LAYOUT)} is not supported"
                )
        return self._layout

    def load(self, archive_folder: str | None = None, *, as_stored: bool = False) -> Timeline:
        """The active timeline as it stands now.

        Args:
            archive_folder: listed afterwards for the mark of the archive; None leaves it out.
            as_stored: with the commits that a running restore has not undone yet. To all but that restore they stand
                as pending, from its second step on: so everybody sees the table before it, or after it.
        """
        found = self._listed()
        if self._may_have_moved(found):
            looked_at = self._layout
            self.config()
            found = found if self._layout == looked_at else self._listed()
        entries = [entry for entry in found if not entry.is_folder]
        self._stamps = {entry.name: (entry.size_bytes, entry.modified_ms) for entry in entries}
        archive = None if archive_folder is None else self._archive_mark(archive_folder)
        timeline = self._of_names(tuple(self._stamps), archive)
        return timeline if as_stored else timeline.without(self._being_undone(timeline))

    def _of_names(self, names: tuple[str, ...], archive: str | None) -> Timeline:
        """What file names say; one write looks at them often, and mostly finds what it found before."""
        found = (names, archive, self.layout)
        if self._last is None or self._last[0] != found:
            self._last = (found, Timeline.of_file_names(*found))
        return self._last[1]

    def _being_undone(self, timeline: Timeline) -> frozenset[str]:
        """Times of the instants that running restores undo."""
        running = (restore for restore in timeline.of_action(Action.RESTORE) if restore.state is State.INFLIGHT)
        plans = [self.restore_plan(restore) for restore in running]
        return frozenset(time for plan in plans if plan is not None for time in plan.times)

    def _listed(self) -> Sequence[FileInfo]:
        found = self.storage.list(self._layout.folder if self._layout else HOODIE)
        if self._layout is None:
            self._layout = self._layout_by(found)
            found = found if self._layout.folder == HOODIE else self.storage.list(self._layout.folder)
        return found

    def _may_have_moved(self, found: Sequence[FileInfo]) -> bool:
        """Whether somebody may be taking these files away, the table being of another version by now."""
        if self.layout.tells_completion:
            return not found or any(entry.name == MOVED for entry in found)
        return any(entry.path == LAYOUT_2.folder for entry in found)

    def _layout_by(self, listed: Sequence[FileInfo]) -> TimelineLayout:
        """By what stands in ``.hoodie``, if it leaves no doubt; the properties cost another call."""
        if any(LAYOUT_1.parse(entry.name) for entry in listed) and not any(e.path == LAYOUT_2.folder for e in listed):
            return LAYOUT_1
        with suppress(TableNotFoundError):
            return self.layout
        return LAYOUT_1

    def has_archive(self, folder: str) -> bool:
        """Whether anything has ever been archived."""
        return bool(self._archive_mark(folder))

    def _archive_mark(self, folder: str) -> str:
        files = [entry for entry in self.storage.list(check_path(folder)) if self.layout.archive_name in entry.name]
        stamps = "\n".join(sorted(f"{entry.name} {entry.size_bytes}" for entry in files))
        return hashlib.blake2b(stamps.encode(), digest_size=16).hexdigest() if files else ""

    # --- what instants say ----------------------------------------------------------------------------

    def path(self, instant: Instant) -> str:
        """Path of an instant's file, relative to the table."""
        return self.layout.path(instant)

    def info(self, instant: Instant) -> FileInfo | None:
        """What stands there, or None."""
        return self.storage.info(self.path(instant))

    def read(self, instant: Instant) -> bytes:
        """The bytes of an instant's file."""
        return self.storage.read(self.path(instant))

    def commit(self, instant: Instant) -> CommitMetadata:
        """The metadata of a completed commit.

        Raises:
            CorruptTableError: the file is empty, torn or no commit metadata; names the file.
        """
        file_name = self.layout.file_name(instant)
        stamp = self._stamps.get(file_name)
        key = CommitKey(self.storage.location, file_name, *stamp) if stamp else None
        cached = _COMMITS.get(key) if key else None
        if cached is None:
            cached = decode_commit(self.read(instant), name=f"{self.storage.location}/{self.path(instant)}")
            if key:
                _COMMITS.put(key, cached)
        return cached

    def forget(self, instants: Iterable[Instant]) -> None:
        """Nobody will ask for these commits again: they have left the timeline as it was loaded last."""
        for instant in instants:
            stamp = self._stamps.get(file_name := self.layout.file_name(instant))
            if stamp is not None:
                _COMMITS.forget(CommitKey(self.storage.location, file_name, *stamp))

    def requested_replace(self, instant: Instant) -> RequestedReplace | None:
        """What a replacecommit's or clustering's requested file says; None if it is empty or gone."""
        for requested in self.layout.requests(instant):
            if requested.action in REPLACE_ACTIONS:
                with suppress(FileNotFoundError):
                    return decode_requested_replace(self.read(requested), name=self.layout.file_name(requested))
        return None

    def pending_clustering(self, timeline: Timeline) -> Mapping[FileGroupId, str]:
        """File groups that a pending clustering plan is going to replace -> the plan's instant time."""
        groups: dict[FileGroupId, str] = {}
        for instant in timeline.pending:
            if instant.action in REPLACE_ACTIONS:
                requested = self.requested_replace(instant)
                groups.update(dict.fromkeys(requested.file_groups if requested else (), instant.time))
        return groups

    def compaction_plan(self, instant: Instant) -> CompactionPlan | None:
        """What a pending compaction or log compaction is going to do; None if nothing is written there yet.

        Raises:
            FileNotFoundError: the instant is no longer what it was when the timeline was loaded.
            CorruptTableError: the file is no plan.
        """
        requested = instant.at(State.REQUESTED)
        data = self.read(requested)
        return decode_compaction_plan(data, name=self.path(requested)) if data else None

    def pending_compactions(self, timeline: Timeline) -> Mapping[FileGroupId, str]:
        """File groups that a pending compaction has opened a new slice for -> the plan's instant time."""
        groups: dict[FileGroupId, str] = {}
        for instant in timeline.pending:
            if instant.action is Action.COMPACTION and (plan := self.compaction_plan(instant)) is not None:
                groups.update((operation.group, instant.time) for operation in plan.operations)
        return groups

    def rollback_plan(self, rollback: Instant) -> RollbackPlan | None:
        """What a rollback undoes; None if its plan is gone."""
        requested = rollback.at(State.REQUESTED)
        with suppress(FileNotFoundError):
            return decode_rollback_plan(self.read(requested), name=self.path(requested))
        return None

    def restore_plan(self, restore: Instant) -> RestorePlan | None:
        """What a restore undoes; None if its plan is gone or empty."""
        requested = restore.at(State.REQUESTED)
        with suppress(FileNotFoundError):
            data = self.read(requested)
            return decode_restore_plan(data, name=self.path(requested)) if data else None
        return None

    def savepoint(self, instant: Instant) -> SavepointMetadata:
        """What a completed savepoint holds."""
        return decode_savepoint(self.read(instant), name=self.path(instant))

    def clean(self, instant: Instant) -> CleanMetadata | None:
        """What a completed clean left; None if its file is empty."""
        data = self.read(instant)
        return decode_clean(data, name=self.path(instant)) if data else None

    def clean_plan(self, clean: Instant) -> CleanPlan:
        """What a clean deletes.

        Raises:
            CorruptTableError: its plan is empty or damaged.
        """
        requested = clean.at(State.REQUESTED)
        return decode_clean_plan(self.read(requested), name=f"{self.storage.location}/{self.path(requested)}")

    def archived(self, since: str = "") -> ArchivedTimeline:
        """What has left the active timeline. Load that before: an instant is in one of the two, or in both.

        Args:
            since: commits from this instant time on are wanted; older files of the archive are not read then.
        """
        folder = check_path(self.config().archive_folder)
        return (read_lsm_history if self.layout.tells_completion else read_archive_logs)(self.storage, folder, since)

    def archived_unseen(self, timeline: Timeline, known: frozenset[str]) -> list[tuple[str, CommitMetadata]]:
        """Commits that have completed since these were all, and have been archived already; by instant time.

        The archive is read only if the oldest of the known commits has left the timeline; commits that savepoints hold
        there do not tell, as long as there are others.
        """
        held = {instant.time for instant in timeline.of_action(Action.SAVEPOINT)}
        oldest = min(known - held, default=max(known, default=""))
        if oldest and oldest in timeline.commit_times:
            return []
        archive = self.archived(oldest)
        unseen = [i for i in archive.completed_in("") if i.time >= oldest and i.time not in known]
        unseen = [instant for instant in unseen if instant.time not in timeline.commit_times]
        return [(instant.time, metadata) for instant, metadata in archive.commits(unseen)]

    def completion_times(self, timeline: Timeline, times: Collection[str]) -> Mapping[str, str]:
        """Instant time -> when that commit completed, of those that count (`Timeline.is_committed`).

        The archive is read from the oldest such instant on where the layout tells completion times; of one that is
        not there either its own time is taken.
        """
        active = {time: end for time in times if (end := timeline.completion_time(time)) is not None}
        older = {time: time for time in times if time not in active and timeline.is_committed(time)}
        if older and timeline.layout.tells_completion:
            older.update(self.archived(min(older)).completion_times(older))
        return {**active, **older}

    # --- the steps of an action -----------------------------------------------------------------------

    def request(self, instant: Instant, data: bytes = b"") -> None:
        """Put a new instant on the timeline. Raises ``FileExistsError`` if its time is taken."""
        self.storage.create(self.path(instant.at(State.REQUESTED)), data)

    def start(self, instant: Instant, profile: CommitMetadata | bytes | None = None) -> Instant:
        """The second step, by create-if-absent; ``FileExistsError`` if somebody else took it.

        Args:
            profile: what a write is going to do, or the file's bytes.
        """
        inflight = check_step(instant, State.INFLIGHT)
        data = self.layout.encode_commit(profile) if isinstance(profile, CommitMetadata) else profile or b""
        self.storage.create(self.path(inflight), data)
        return inflight

    def complete(self, instant: Instant, metadata: Completed, clock: Clock) -> Instant:
        """The last step, which makes an action visible: the one way to take it. Call it under the table's lock.

        In layout 1 the file's name keeps a second one out. In layout 2 it holds the completion time, which is taken
        here, greater than every time on the timeline.

        Raises:
            FileExistsError: somebody else took the step.
            OutcomeUnknownError: see `put_once`.
        """
        done, data = self.finished(instant, metadata, clock)
        put_once(self.storage, self.path(done), data)
        return done

    def finished(self, instant: Instant, metadata: Completed, clock: Clock) -> tuple[Instant, bytes]:
        """The completed instant, with the name that it keeps for every try, and the bytes of its file.

        Raises:
            FileExistsError: it has been completed.
        """
        done = check_step(instant, State.COMPLETED)
        if self.layout.tells_completion:
            done = replace(done, completion_time=self._completion_time(done, clock))
        return done, self._encoded(done, metadata)

    def _encoded(self, done: Instant, metadata: Completed) -> bytes:
        match metadata:
            case CommitMetadata():
                return self.layout.encode_commit(metadata, replace=done.action is Action.REPLACE_COMMIT)
            case CleanMetadata():
                return encode_clean(metadata)
            case SavepointMetadata():
                return encode_savepoint(metadata)
            case Restored():
                return encode_restore(metadata)
        return encode_rollback(metadata)

    def _completion_time(self, done: Instant, clock: Clock) -> str:
        config, timeline = self.config(), self.load()
        for instant in timeline.instants:
            if (instant.time, instant.action, instant.state) == (done.time, done.action, done.state):
                raise FileExistsError(self.path(instant))
        return next_instant_time(clock.now_ms(), max(timeline.last_time or "", done.time), config.zone)

    def remove(self, instant: Instant) -> None:
        """Take a completed instant off the timeline: its pending files first, so that it never looks pending.

        Of a commit whose rows are to vanish see `undo`.
        """
        self.storage.delete(self.path(instant.at(State.REQUESTED)))
        self.storage.delete(self.path(instant.at(State.INFLIGHT)))
        self.storage.delete(self.path(instant))

    def undo(self, commit: Instant) -> None:
        """Make a completed commit pending again: its rows vanish, its files may go."""
        self.storage.delete(self.path(commit))

    def revert(self, instant: Instant) -> None:
        """Take a pending instant back to its first step: the plan stays."""
        self.storage.delete(self.path(instant.at(State.INFLIGHT)))

    def erase(self, instant: Instant) -> None:
        """Take a pending instant off the timeline; its inflight file goes last."""
        self.storage.delete(self.path(instant.at(State.REQUESTED)))
        self.storage.delete(self.path(instant.at(State.INFLIGHT)))
