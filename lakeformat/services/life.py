"""The table's verbs that remove old data and old commits, shared by all hosts."""

from __future__ import annotations

from lakeformat.config.resolve import Options
from lakeformat.config.ttl_options import expiry_of
from lakeformat.services.archive.run import ArchiveResult, ArchiveSession
from lakeformat.services.clean.retention import retention_of
from lakeformat.services.clean.run import CleanResult, CleanSession, Deleter
from lakeformat.services.ttl.run import ExpireResult, ExpireSession
from lakeformat.services.upkeep import Upkeep
from lakeformat.table_state.engine import Engine

__all__ = ["Life"]


class Life(Upkeep):
    """The verbs clean, expire_partitions and archive, and those of `Upkeep`.

    Subclasses provide the engine and the deleter.
    """

    engine: Engine
    options: Options

    def _deleter(self) -> Deleter | None:
        """Return the function that deletes files; None means this process."""
        return None

    def clean(
        self,
        *,
        commits: int | None = None,
        hours: int | None = None,
        versions: int | None = None,
        dry_run: bool = False,
    ) -> CleanResult:
        """Delete files that only older versions of the table need, and folders of partitions that have become empty.

        A clean also runs after writes unless ``hoodie.clean.automatic=false``. It never deletes the newest version of a
        file group, nor files that savepoints, pending compactions or pending clusterings need. Others may write
        meanwhile.

        Args:
            commits: number of commits that stay readable. By default ``hoodie.clean.policy`` and the options that
                belong to it apply.
            hours: keep the commits of this many hours readable.
            versions: number of versions to keep of each file group, whatever their age. Older commits may then be
                unreadable.
            dry_run: change nothing, only return what would be deleted.

        Returns:
            The deleted files, with bytes. ``skipped`` gives the reason if there was nothing to do.

        Raises:
            InvalidInputError: more than one of commits, hours and versions is given, or a count is below 1.
            StorageError: files could not be deleted; the next clean continues with them.
        """
        session = CleanSession(self.engine, self.options, self._deleter())
        retention = retention_of(self.options, commits, hours, versions)
        return session.dry_run(retention) if dry_run else session.clean(retention)

    def expire_partitions(self, *, days: int | None = None, dry_run: bool = False) -> ExpireResult:
        """Delete the partitions that have expired, as ``delete_partitions`` does (Hudi: ``run_ttl``).

        ``hoodie.partition.ttl.management.strategy.type`` sets whether a partition's age is counted from its newest
        commit or from the commit that made its folder. With ``hoodie.partition.ttl.inline=true`` expiry also runs after
        writes. Partitions with a pending clustering stay until the clustering is over.

        Args:
            days: number of days that partitions stay; by default ``hoodie.partition.ttl.strategy.days.retain``.
            dry_run: change nothing, only return what would be deleted.

        Returns:
            The deleted partitions. ``skipped`` gives the reason if none was deleted.

        Raises:
            InvalidInputError: days is below 1.
            WriteConflictError: another writer interfered; a retry is safe.
        """
        session = ExpireSession(self.engine, self.options, expiry_of(self.options, days))
        return session.dry_run() if dry_run else session.run()

    def archive(self, *, min_commits: int | None = None, max_commits: int | None = None) -> ArchiveResult:
        """Move old commits, and cleans and rollbacks of the same age, from the timeline into the archive.

        Archiving also runs after writes unless ``hoodie.archive.automatic=false``. A shorter timeline makes reads and
        writes cheaper. ``history()`` and incremental queries read the archive too.

        Args:
            min_commits: number of commits that stay; by default ``hoodie.keep.min.commits``. Never fewer than cleaning
                keeps readable.
            max_commits: archive only if the timeline has more than this many; by default ``hoodie.keep.max.commits``,
                or ``min_commits`` + 1 if that is given.

        Returns:
            The archived instants. ``skipped`` gives the reason if there are none.

        Raises:
            InvalidInputError: ``max_commits`` is not more than ``min_commits``.
        """
        return ArchiveSession(self.engine, self.options).archive(min_commits, max_commits)
