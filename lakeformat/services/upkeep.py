"""The verbs of a table by which it is kept, taken back and looked over, the same under every host."""

from __future__ import annotations

from lakeformat.config.other_names import ForeignNames
from lakeformat.config.resolve import Options
from lakeformat.model.instant import check_instant_time
from lakeformat.services.dedupe.run import DedupeResult, DedupeSession
from lakeformat.services.doctor.describe import Description, describe
from lakeformat.services.doctor.findings import Findings
from lakeformat.services.doctor.run import DoctorSession
from lakeformat.services.restore.run import RestoreResult, RestoreSession
from lakeformat.services.savepoint.run import Savepoint, SavepointSession, read_savepoints
from lakeformat.table_state.engine import Engine

__all__ = ["Upkeep"]


class Upkeep(ForeignNames):
    """Savepoints, restore, rollback, check and repair. A host says where the table is."""

    engine: Engine
    options: Options

    @property
    def location(self) -> str:
        """The table's folder or URL."""
        return self.engine.storage.location

    def savepoint(self, instant: str | None = None, *, comment: str = "", user: str = "") -> Savepoint:
        """Keep a commit, whatever is cleaned and archived, until the savepoint is deleted.

        Args:
            instant: the commit's instant time; the newest one by default.
            comment, user: are kept with it.

        Raises:
            InstantNotAvailableError: there is no such commit, or files of it have been cleaned away.
            InvalidInputError: it has a savepoint already.
            WriteConflictError: a clean is running, which may delete its files.
        """
        if instant is not None:
            check_instant_time(instant, "savepoint")
        return SavepointSession(self.engine, self.options).make(instant, comment, user)

    def savepoints(self) -> tuple[Savepoint, ...]:
        """All savepoints, oldest first."""
        return read_savepoints(self.engine, self.engine.store.load())

    def delete_savepoint(self, instant: str) -> None:
        """Let a commit go: cleaning and archiving take what is too old.

        Raises:
            InvalidInputError: there is no such savepoint.
        """
        check_instant_time(instant, "delete_savepoint")
        SavepointSession(self.engine, self.options).delete(instant)

    def restore(self, to: str, *, dry_run: bool = False) -> RestoreResult:
        """Go back to a commit: undo all that came after it, for good.

        Readers see the table before or after, never between; one that began before may find files gone, and says so.
        Commits, their files, clustering and compaction after it vanish; cleans stay, so that what has been cleaned
        away since cannot be had by ``as_of``. Batch ids are those of that time: a stream can bring its batches again.
        If the process dies, the next write finishes it.

        Args:
            to: instant time of a savepoint, or of any completed commit on the active timeline.
            dry_run: change nothing, only list the commits that would be undone.

        Raises:
            InstantNotAvailableError: there is no such commit, it is archived, or files of it have been cleaned away.
            InvalidInputError: a savepoint holds a later commit.
            WriteConflictError: others are writing or cleaning; nothing was undone.
            UnsupportedTableError: log files hold rows of commits that stay beside those of commits that go.
        """
        check_instant_time(to, "restore")
        session = RestoreSession(self.engine, self.options)
        return session.plan_restore(to) if dry_run else session.restore(to)

    def rollback(self, instant: str | None = None, *, dry_run: bool = False) -> RestoreResult:
        """Undo the commit that completed last, for good.

        Args:
            instant: its instant time, to be sure that it is the one that is meant.
            dry_run: change nothing, only name the commit that would be undone.

        Raises:
            InstantNotAvailableError: there is no commit, or what it wrote anew has been cleaned away.
            InvalidInputError: it is not the last one, or a savepoint holds it.
            WriteConflictError: others are writing or cleaning; nothing was undone.
        """
        if instant is not None:
            check_instant_time(instant, "rollback")
        session = RestoreSession(self.engine, self.options)
        return session.plan_rollback(instant) if dry_run else session.rollback(instant)

    def describe(self) -> Description:
        """What the table is: kind, keys, files and bytes, live and in all, services and savepoints, what to do next.

        Examples:
            >>> print(table.describe())
            table           flights, version 6, copy-on-write
            ...
        """
        return describe(self.engine, self.options)

    def check(self, *, contents: bool = True) -> Findings:
        """Look for damage in the whole table: files, keys, statistics, timeline, archive, index. Nothing is changed.

        Examples:
            >>> print(table.check())
            nothing is wrong

        Keys are compared within partitions. Memory: an object a file of the table, and the keys of one partition.

        Args:
            contents: read the rows of all live files; without it, what names, sizes and the timeline tell.

        Returns:
            the findings, as values; printed, a table. False if there are none.
        """
        return DoctorSession(self.engine, self.options).check(contents=contents)

    def dedupe(self, *, dry_run: bool = True) -> DedupeResult:
        """Remove surplus rows of one record key in one partition; the newest of each key stays. One commit.

        `insert` and `bulk_insert` do not look keys up, so they can bring a key twice. The newest row is the one with
        the greatest ordering value, or of the latest commit where the table's rule is commit time; of rows that are
        equal in both, one stays. Keys are compared within partitions, as `check` compares them. The file groups that
        hold a surplus row are written anew, by this process; the other rows stay as they were, commit time included.

        Args:
            dry_run: only list the rows.

        Returns:
            the rows of all keys that come more than once, and which of them stay.

        Raises:
            InvalidInputError: the table has no record key.
            UnsupportedTableError: rows of a table of buckets would have to go.
            WriteConflictError: another writer changed the files meanwhile; nothing was published.
        """
        session = DedupeSession(self.engine, self.options)
        return session.dry_run() if dry_run else session.run()

    def repair(self, *, dry_run: bool = True, keep: bool = True) -> Findings:
        """Mend what can be mended without a guess; `check` tells of the rest what to do.

        Files that no commit made are put aside, leftovers of dead writers cleared away, an index or metadata table
        that is wrong is dropped, partitions are marked again. No row changes.

        Args:
            dry_run: only tell what would be done.
            keep: put files into ``.hoodie/.lakeformat/removed``; False deletes them, and what stands there.

        Returns:
            what was mended.

        Raises:
            LockTimeoutError, WriteConflictError: another writer was in the way.
        """
        return DoctorSession(self.engine, self.options).repair(dry_run=dry_run, keep=keep)
