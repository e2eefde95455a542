"""Methods of a table for savepoints, undoing commits, checks and repairs, shared by all table classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from lakeformat.beside.verbs import sync_after_commit
from lakeformat.config.foreign_names import ForeignNames
from lakeformat.config.resolve import Options
from lakeformat.file_system_view.context import TableContext
from lakeformat.model.instant import check_instant_time
from lakeformat.public import public
from lakeformat.services.dedupe import DedupeResult, DedupeSession
from lakeformat.services.doctor.describe import Description, describe
from lakeformat.services.doctor.findings import Findings
from lakeformat.services.doctor.run import DoctorSession
from lakeformat.services.report.table_report import TableReport, make_report
from lakeformat.services.restore.run import RestoreResult, RestoreSession
from lakeformat.services.savepoint import Savepoint, SavepointSession, read_savepoints
from lakeformat.timeline.versions import find_version

__all__ = ["Recovery"]

_Change = TypeVar("_Change", RestoreResult, DedupeResult)


@public
class Recovery(ForeignNames):
    """The methods savepoint, restore, rollback, describe, report, check, dedupe and repair.

    Subclasses set the attributes.
    """

    context: TableContext
    options: Options

    def savepoint(self, instant_time: str | None = None, *, comment: str = "", user: str = "") -> Savepoint:
        """Make a savepoint: cleaning and archiving leave the commit readable until the savepoint is deleted.

        Args:
            instant_time: the commit's instant time; the newest commit by default.
            comment, user: texts that are stored with the savepoint; empty by default.

        Returns:
            The savepoint, with the files that it keeps.

        Raises:
            InstantNotAvailableError: there is no such commit, or a clean has deleted files of it.
            InvalidInputError: the commit has a savepoint already.
            WriteConflictError: a clean is running, which may delete files of the commit.
        """
        if instant_time is not None:
            check_instant_time(instant_time, "savepoint")
        return SavepointSession(self.context, self.options).make(instant_time, comment, user)

    def savepoints(self) -> tuple[Savepoint, ...]:
        """Return all savepoints, oldest first."""
        return read_savepoints(self.context, self.context.store.load())

    def delete_savepoint(self, instant_time: str) -> None:
        """Delete a savepoint, so that cleaning and archiving may remove the commit.

        Args:
            instant_time: the commit's instant time.

        Raises:
            InvalidInputError: the savepoint does not exist.
        """
        check_instant_time(instant_time, "delete_savepoint")
        SavepointSession(self.context, self.options).delete(instant_time)

    def restore(self, instant_time: str | int, *, dry_run: bool = False) -> RestoreResult:
        """Return the table to a commit: undo everything that came after it. This cannot be undone.

        A reader sees the table either before or after the restore. A reader that began before may find files missing
        and raises an error. Later commits, their files, and later clusterings and compactions are removed. Cleans stay,
        so commits whose files were cleaned since then cannot be read with ``as_of``. The table forgets the batch ids of
        later commits, so a stream can write these batches again. If the process dies, the next write finishes the
        restore.

        Args:
            instant_time: the instant time of a savepoint, or of any completed commit on the active timeline; or the
                commit's version number, as `history` shows it.
            dry_run: whether to change nothing and only list the commits that would be undone; false by default.

        Returns:
            The commits that were undone, or would be.

        Raises:
            InstantNotAvailableError: there is no such commit or version, it is archived, or a clean has deleted files
                of it.
            InvalidInputError: a savepoint keeps a later commit.
            WriteConflictError: other processes are writing or cleaning; nothing was undone.
            UnsupportedTableError: a log file mixes rows of commits that stay and of commits that would be undone.
        """
        target = find_version(self.context.store, instant_time) or instant_time
        check_instant_time(target, "restore")
        session = RestoreSession(self.context, self.options)
        return session.plan_restore(str(target)) if dry_run else self._end_change(session.restore(str(target)))

    def rollback(self, instant_time: str | None = None, *, dry_run: bool = False) -> RestoreResult:
        """Undo the commit that completed last. This cannot be undone.

        A newest commit whose file on the timeline is damaged or gone is undone, too, by the names of its data files.

        Args:
            instant_time: the instant time of that commit, as a check that it is the last one; not checked by default.
            dry_run: whether to change nothing and only name the commit that would be undone; false by default.

        Returns:
            The commit that was undone, or would be.

        Raises:
            InstantNotAvailableError: there is no commit, or a clean has deleted files that it had replaced.
            InvalidInputError: ``instant_time`` is not the last commit, or a savepoint keeps it.
            WriteConflictError: other processes are writing or cleaning; nothing was undone.
        """
        if instant_time is not None:
            check_instant_time(instant_time, "rollback")
        session = RestoreSession(self.context, self.options)
        return session.plan_rollback(instant_time) if dry_run else self._end_change(session.rollback(instant_time))

    def _end_change(self, result: _Change) -> _Change:
        if result.instant_time:
            sync_after_commit(self.context, self.options, result.instant_time)
        return result

    def describe(self) -> Description:
        """Describe the table: kind, keys, files and bytes (live and all), services, savepoints, what to do next.

        Examples:
            >>> print(table.describe())
            table           flights, version 6, copy-on-write
            ...
        """
        return describe(self.context, self.options)

    def report(self, by: Sequence[str] | str = (), *, check: bool | None = None) -> TableReport:
        """Make a report of the table: one HTML page that needs no server and no network. Changes nothing.

        Examples:
            >>> table.report().save("report.html")

        The page shows the timeline, sizes and rows over time, partitions and files, the layout and what filters skip,
        the log share, services due, findings, and the slowest steps. What cannot be shown, for instance of a damaged
        table, has the reason in its place. Memory: that of `describe` and, with a check, of `check`.

        Args:
            by: the columns whose layout is shown, as in `layout_report`. By default those of the last clustering, else
                up to three columns, the record key first.
            check: whether to check names, sizes and the timeline, as ``check(contents=False)`` does. By default only
                if the table has at most 20,000 files.

        Raises:
            UnsupportedTableError, TableNotFoundError: the table cannot be read.
        """
        return make_report(self.context, self.options, by, check=check)

    def check(self, *, contents: bool = True) -> Findings:
        """Check the whole table for damage: files, keys, column statistics, timeline, archive, index. Changes nothing.

        Examples:
            >>> print(table.check())
            nothing is wrong

        Keys are compared within partitions. Memory: an object for each file of the table, and the keys of one
        partition.

        Args:
            contents: whether to read the rows of all live files; if False, only names, sizes and the timeline are
                checked.

        Returns:
            The findings. The value prints as a table, and is falsy if there are no findings.
        """
        return DoctorSession(self.context, self.options).check(contents=contents)

    def dedupe(self, *, dry_run: bool = False) -> DedupeResult:
        """Remove surplus rows: of the rows with one record key in one partition only the newest stays.

        Makes one commit.

        `insert` and `bulk_insert` do not look up keys, so they can add a key twice. The newest row is the one with the
        greatest ordering value, or the one of the latest commit if the table's merge mode is commit time. If rows are
        equal in ordering value and commit time, one of them stays. Keys are compared within partitions, as `check`
        does. This process rewrites the file groups that contain a surplus row. The other rows stay unchanged, commit
        time included.

        Args:
            dry_run: whether to change nothing and only return the rows; false by default.

        Returns:
            The rows of all keys that occur more than once, and which of them stay.

        Raises:
            InvalidInputError: the table has no record key.
            UnsupportedTableError: the table has a bucket index and surplus rows.
            WriteConflictError: another writer changed the files meanwhile; nothing was published.
        """
        session = DedupeSession(self.context, self.options)
        return session.dry_run() if dry_run else self._end_change(session.run())

    def repair(self, *, dry_run: bool = False, keep: bool = True) -> Findings:
        """Repair damage that has exactly one safe repair. For other damage, the findings of `check` say what to do.

        Files that no commit wrote are moved to ``.hoodie/.lakeformat/removed``. Pending instants of dead writers are
        rolled back or finished, and their markers are deleted. A wrong file index is deleted, a wrong metadata table is
        made again. Missing partition markers are written again. A newest commit whose file on the timeline is damaged
        or gone is rolled back. No other row changes.

        Args:
            dry_run: whether to change nothing and only return what would be repaired; false by default.
            keep: whether to keep removed files in ``.hoodie/.lakeformat/removed``; true by default. If False, they are
                deleted, and so are the files that earlier repairs moved there.

        Returns:
            The findings that were repaired, or would be.

        Raises:
            LockTimeoutError, WriteConflictError: another writer interfered.
        """
        return DoctorSession(self.context, self.options).repair(dry_run=dry_run, keep=keep)
