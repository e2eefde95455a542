"""One sync: read the face, then the table, compare, and add one version. Start here.

The face is read before the table. So the table that is compared has all commits which the face shows, and a version
that is put although another writer has put one meanwhile is refused by the storage: no sync takes another one back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from lakeformat.beside.face import Changes, Face, FaceFormat, Footers, bounded_columns, compare_files, folder_columns
from lakeformat.beside.shown import check_shown, find_first_whole, read_footers
from lakeformat.concurrency import tries
from lakeformat.errors import CorruptTableError, InstantNotAvailableError, SyncError, UnsupportedTableError
from lakeformat.file_system_view.context import TableContext
from lakeformat.predicate import column_path
from lakeformat.public import OneLine, public

__all__ = ["FaceSync", "Lag", "SyncSession"]

_PAUSES: Final = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 1.0, 1.0)


@public
@dataclass(frozen=True, slots=True, repr=False)
class FaceSync(OneLine):
    """What a sync has changed in the metadata of another format beside the table.

    Attributes:
        format: ``delta`` or ``iceberg``.
        version: the newest version of the metadata; -1 if there is none.
        instant_time: instant time of the newest commit that it shows; "" if there is none.
        files_added, files_removed: numbers of files that it shows now and did not, and the other way round.
        columns_changed: whether it has other columns now.
        skipped: why nothing was done; "" if something was.
        seconds: the duration.
    """

    format: str
    version: int
    instant_time: str
    files_added: int = 0
    files_removed: int = 0
    columns_changed: bool = False
    skipped: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        """Return one line with the version and the counts."""
        if self.skipped:
            return f"{self.format}: {self.skipped}"
        columns = ", columns changed" * self.columns_changed
        return (
            f"{self.format}: version {self.version} shows {self.instant_time}; {self.files_added:,} files added, "
            f"{self.files_removed:,} removed{columns}"
        )

    def as_step(self) -> dict[str, Any]:
        """Return the sync as a step of a write's report."""
        return {
            "step": "sync",
            "seconds": self.seconds,
            "format": self.format,
            "version": self.version,
            "files_added": self.files_added,
            "files_removed": self.files_removed,
            **({"skipped": self.skipped} if self.skipped else {}),
        }


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a face is behind the table.

    Attributes:
        can_follow: whether a sync would bring it up to date.
    """

    text: str
    can_follow: bool


class SyncSession:
    """Brings the metadata of one format beside a table up to date."""

    def __init__(self, context: TableContext, form: FaceFormat) -> None:
        self._context, self._storage, self._form = context, context.storage, form

    def run(self, *, replace: bool = False) -> FaceSync:
        """Add a version that shows the table as it is now, if the newest one does not.

        Args:
            replace: whether the metadata is deleted first, even that of another program.

        Raises:
            UnsupportedTableError: the base files alone do not have the table's rows.
            SyncError: another program wrote the metadata, or other writers were faster each time.
            CorruptTableError: a file of the metadata or of the table is missing or damaged.
        """
        clock, name = self._context.clock, self._form.name
        start = clock.seconds()
        if replace:
            self._form.delete()
        for _ in tries(_PAUSES):
            face = self._form.read()
            self._check_own(face)
            changes = self._compare(face)
            if changes is None:
                return FaceSync(name, face.version, "", skipped="the table has no columns yet; nothing is shown")
            if not changes:
                self._form.point(face)
                seconds = round(clock.seconds() - start, 4)
                return FaceSync(name, face.version, face.instant_time, skipped="nothing has changed", seconds=seconds)
            changes = self._add_facts(changes)
            version = self._form.put(face, changes, self._read_footers(face, changes))
            if version is not None:
                return FaceSync(
                    name,
                    version,
                    changes.snapshot.instant_time or "",
                    changes.files.added_count,
                    len(changes.files.removed),
                    changes.columns_changed,
                    seconds=round(clock.seconds() - start, 4),
                )
        raise SyncError(
            f"{self._storage.location}: other writers added versions to {self._form.folder} each time; sync again"
        )

    def mend(self) -> FaceSync:
        """Do as `run`. If the metadata is damaged, make it anew."""
        try:
            return self.run()
        except CorruptTableError:
            return self.run(replace=True)

    def find_lag(self) -> Lag | None:
        """Return how far metadata that lakeformat wrote is behind the table; None if it is not, or there is none."""
        try:
            face = self._form.read()
        except CorruptTableError as error:
            return Lag(str(error), can_follow=True)
        except SyncError as error:
            return Lag(str(error), can_follow=False)
        if face.version < 0 or face.stranger:
            return None
        try:
            changes = self._compare(face)
        except UnsupportedTableError as error:
            return Lag(f"it shows {face.instant_time or 'no commit'}: {error}", can_follow=False)
        except (CorruptTableError, InstantNotAvailableError):
            return None  # The table itself is damaged, which other checks say.
        return Lag(_describe_lag(face, changes, self._form.name), can_follow=True) if changes else None

    def _check_own(self, face: Face) -> None:
        if face.stranger:
            name, folder = self._form.name, self._form.folder
            raise SyncError(
                f"{self._storage.location}: version {face.version} of {folder} was written by {face.stranger}, so it "
                f"may show rows that the table does not have; load them into the table, then sync('{name}', "
                "replace=True) deletes that metadata and makes it anew"
            )

    def _compare(self, face: Face) -> Changes | None:
        """Load the table and compare it with a face. Return None if the table has no columns."""
        snapshot = self._context.snapshot(use_metadata_table=True)
        schema = snapshot.schema
        if schema is None:
            return None
        check_shown(snapshot, self._storage.location)
        portions = snapshot.live.portions([column_path([name]) for name in bounded_columns(schema)])
        columns_changed = self._form.columns_differ(face, snapshot, schema)
        return Changes(snapshot, schema, compare_files(portions, face.paths), columns_changed)

    def _add_facts(self, changes: Changes) -> Changes:
        """Read what only a new version says."""
        snapshot, store = changes.snapshot, self._context.store
        newest = snapshot.timeline.find(snapshot.instant_time) if snapshot.instant_time else None
        operation = store.read_commit(newest).operation if newest else "CREATE"
        return replace(changes, operation=operation, first_whole=find_first_whole(store, snapshot.timeline))

    def _read_footers(self, face: Face, changes: Changes) -> Footers:
        """Read the footers of the added files. Refuse files whose columns other readers read differently."""
        schema, dropped = changes.schema, frozenset(folder_columns(changes.snapshot))
        if changes.columns_changed and face.paths:
            read_footers(self._storage, changes.snapshot.live.portions(), schema, dropped)  # Files that stay, too.
        return read_footers(self._storage, changes.files.added, schema, dropped)


def _describe_lag(face: Face, changes: Changes, name: str) -> str:
    commits = sum(commit.completed_at > face.completed for commit in changes.snapshot.timeline.commits)
    files = f"{changes.files.added_count:,} files to add, {len(changes.files.removed):,} to remove"
    behind = f"{commits} commit{'' if commits == 1 else 's'} behind the table"
    return f"it shows {face.instant_time or 'no commit'}, {behind} ({files}): sync('{name}')"
