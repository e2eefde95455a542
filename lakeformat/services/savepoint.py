"""Making, listing and deleting savepoints (Hudi: ``SavepointActionExecutor``, ``SavepointHelpers``)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from lakeformat.codec.timeline_files.recovery import SavepointMetadata
from lakeformat.config.resolve import Options
from lakeformat.errors import InstantNotAvailableError, InvalidInputError, WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.live_files import ListedFiles, ListedSlices
from lakeformat.locks import lock_table
from lakeformat.model.files import join_path
from lakeformat.model.instant import Action, Instant, State
from lakeformat.model.table_config import TableConfig
from lakeformat.public import OneLine, public
from lakeformat.services.restore.plan import find_target, list_instants_after
from lakeformat.services.restore.run import snapshot_at
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order.decisions import Decision, DecisionState, Kind, decide
from lakeformat.transaction.undo.recovery import recover

__all__ = ["Savepoint", "SavepointSession", "read_savepoints"]

_LOG: Final = logging.getLogger("lakeformat.services")


@public
@dataclass(frozen=True, slots=True, repr=False)
class Savepoint(OneLine):
    """A commit whose files are kept until the savepoint is deleted.

    Attributes:
        instant_time: instant time of the commit.
        comment, user: texts that the caller of `savepoint` gave; may be empty.
        saved_at_ms: time at which the savepoint was made, in milliseconds since the epoch.
        files: paths of the files that are kept.
    """

    instant_time: str
    comment: str
    user: str
    saved_at_ms: int
    files: tuple[str, ...]

    def __str__(self) -> str:
        notes = "".join(f", {text}" for text in (self.user, self.comment) if text)
        return f"savepoint {self.instant_time}: {len(self.files):,} files{notes}"


def read_savepoints(context: TableContext, timeline: Timeline) -> tuple[Savepoint, ...]:
    """Return the completed savepoints, oldest first."""
    done = (i for i in timeline.of_action(Action.SAVEPOINT) if i.state is State.COMPLETED)
    return tuple(_savepoint(instant.time, context.store.read_savepoint(instant)) for instant in done)


def _savepoint(time: str, metadata: SavepointMetadata) -> Savepoint:
    files = (join_path(path, name) for path, names in metadata.files.items() for name in names)
    return Savepoint(time, metadata.comments, metadata.saved_by, metadata.saved_at_ms, tuple(sorted(files)))


class SavepointSession:
    """Makes and deletes savepoints of one table, of any table version and table type that lakeformat can read."""

    def __init__(self, context: TableContext, options: Options) -> None:
        self.context, self.options, self.store = context, options, context.store

    def make(self, instant_time: str | None, comment: str, user: str) -> Savepoint:
        """Make a savepoint of a commit, by default of the newest.

        The files are listed under the table's lock, so that no clean is planned meanwhile. If a clean is pending, an
        error is raised, because the clean may be about to delete the files.
        """
        with self._lock() as (config, state):
            timeline = self.store.load()
            target = self._target(timeline, instant_time)
            of_target = [i for i in timeline.of_action(Action.SAVEPOINT) if i.time == target.time]
            if any(i.state is State.COMPLETED for i in of_target):
                raise InvalidInputError(
                    f"{self.context.storage.location}: commit {target.time} has a savepoint already; delete that first"
                )
            self._check_no_clean(timeline)
            files = self._files(config, timeline, target)
            metadata = SavepointMetadata(user, self.context.clock.now_ms(), comment, files)
            instant = Instant(target.time, Action.SAVEPOINT, State.REQUESTED)
            if not of_target:
                with suppress(
                    FileExistsError
                ):  # Another process makes the same savepoint; one of the two completes it.
                    self.store.start(instant)
            self._decide(instant.at(State.INFLIGHT), metadata, (state, timeline))
        savepoint = _savepoint(target.time, metadata)
        _LOG.info("%s: %s", self.context.storage.location, savepoint)
        return savepoint

    def list_files(self, instant_time: str) -> Mapping[str, tuple[str, ...]]:
        """Return the files that a savepoint of a commit keeps: a mapping of partition path to bare names.

        Raises:
            InstantNotAvailableError: the commit is not on the timeline, or its files are gone.
        """
        timeline = self.store.load()
        return self._files(self.store.config(), timeline, self._target(timeline, instant_time))

    def delete(self, instant_time: str) -> None:
        """Delete the savepoint of a commit. The next cleans may delete the commit's files."""
        with self._lock(allows_lost=True):  # A restore that gives a lost commit up may need it.
            instants = [i for i in self.store.load().of_action(Action.SAVEPOINT) if i.time == instant_time]
            if not instants:
                raise InvalidInputError(f"{self.context.storage.location} has no savepoint of {instant_time}")
            # Delete the completed file first: then the savepoint is gone, even if the process dies before the rest.
            removal = Decision(kind=Kind.REMOVE, instant_time=instant_time)
            decide(self.store, lambda *_: removal)
            for instant in instants:
                if instant.state is State.COMPLETED:
                    self.context.storage.delete(self.store.path(instant))
                self.store.erase(instant.at(State.INFLIGHT))

    def _check_no_clean(self, timeline: Timeline) -> None:
        cleaning = next((i for i in timeline.pending if i.action is Action.CLEAN), None)
        if cleaning is not None:
            raise WriteConflictError(
                f"{self.store.path(cleaning)} is pending in {self.context.storage.location}, which may delete "
                "files of the savepoint; wait for it, or call clean(), which finishes it"
            )

    def _decide(self, savepoint: Instant, metadata: SavepointMetadata, seen: tuple[DecisionState, Timeline]) -> None:
        """Decide the savepoint: create its completed file.

        Args:
            seen: the state of the decisions, and the timeline, before the files were listed.

        Raises:
            WriteConflictError: since then, a clean was planned, or the commit was undone or archived.
        """
        before, timeline_before = seen
        location = self.context.storage.location

        def check(state: DecisionState, timeline: Timeline) -> Decision:
            self._check_no_clean(timeline)
            cleans = frozenset(timeline.of_action(Action.CLEAN)) - frozenset(timeline_before.of_action(Action.CLEAN))
            is_gone = savepoint.time not in timeline.commit_times or savepoint.time <= state.archived_to
            if is_gone or cleans or before.number < state.barrier:
                raise WriteConflictError(
                    f"{location} was cleaned, restored or archived while a savepoint of {savepoint.time} was made; run "
                    "it again"
                )
            done, data = self.store.encode_completed(savepoint, metadata, self.context.clock, timeline)
            return Decision(kind=Kind.SAVEPOINT, instant_time=savepoint.time, path=self.store.path(done), data=data)

        try:
            decide(self.store, check)
        except FileExistsError:
            raise InvalidInputError(
                f"{location}: commit {savepoint.time} has a savepoint already; delete that first"
            ) from None
        except WriteConflictError:
            self.store.erase(savepoint)
            raise

    @contextmanager
    def _lock(self, *, allows_lost: bool = False) -> Iterator[tuple[TableConfig, DecisionState]]:
        config = self.store.config()
        config.check_changeable(self.context.storage.location)
        with lock_table(self.context.storage, self.options.lock, service=True, clock=self.context.clock):
            state, _ = recover(self.store, config, self.context.clock, allows_lost=allows_lost)
            yield config, state

    def _target(self, timeline: Timeline, instant_time: str | None) -> Instant:
        location = self.context.storage.location
        if instant_time is not None:
            return find_target(timeline, instant_time, location, activity="make a savepoint")
        if not timeline.commits:
            raise InstantNotAvailableError(f"{location} has no commit yet: there is nothing to make a savepoint of")
        return timeline.commits[-1]

    def _files(self, config: TableConfig, timeline: Timeline, target: Instant) -> Mapping[str, tuple[str, ...]]:
        """Return a mapping of partition path to the names of the files that a snapshot at the commit reads."""
        live = snapshot_at(self.context, config, timeline, target, activity="make a savepoint").live
        slices = live.slices if isinstance(live, ListedSlices) else ()
        bases = live.files if isinstance(live, ListedFiles) else ()
        later = {instant.time for instant in list_instants_after(timeline, target)}
        names_by_path: dict[str, list[str]] = {}
        for file in (*bases, *(file for piece in slices for file in piece.files)):
            # If a log file's name contains the instant of a compaction plan that is later than the commit, the log file
            # was written after that plan, so the commit does not need it.
            if file.name.instant_time not in later:
                names_by_path.setdefault(file.partition_path, []).append(str(file.name))
        return {path: tuple(names) for path, names in names_by_path.items()}
