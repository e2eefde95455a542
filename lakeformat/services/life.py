"""The verbs of a table by which its past goes, the same under every host."""

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
    """Cleans and archives, and what `Upkeep` does. A host says where the table is and who deletes."""

    engine: Engine
    options: Options

    def _deleter(self) -> Deleter | None:
        """Who deletes files; None is this process."""
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

        It comes after writes by itself unless ``hoodie.clean.automatic=false``. The newest version of every file
        group, and what savepoints and pending compactions and clusterings need, stays in any case. Others may write
        meanwhile.

        Args:
            commits: keep so many commits readable as they were; by default what ``hoodie.clean.policy`` and its kin
                say.
            hours: keep commits of so many hours.
            versions: keep so many versions of each file group, whatever their age; then no older commit is sure to be
                readable.
            dry_run: change nothing, only tell what would go.

        Returns:
            the files that went, with bytes; its ``skipped`` tells why if nothing was to do.

        Raises:
            InvalidInputError: more than one way of keeping, or a count below 1.
            StorageError: files could not be deleted; the next clean goes on with them.
        """
        session = CleanSession(self.engine, self.options, self._deleter())
        retention = retention_of(self.options, commits, hours, versions)
        return session.dry_run(retention) if dry_run else session.clean(retention)

    def expire_partitions(self, *, days: int | None = None, dry_run: bool = False) -> ExpireResult:
        """Delete the partitions that have expired, as ``delete_partitions`` does (Hudi: ``run_ttl``).

        By ``hoodie.partition.ttl.management.strategy.type`` a partition's age is counted from its newest commit or from
        the one that made its folder. With ``hoodie.partition.ttl.inline=true`` it comes after writes by itself.
        Partitions with a pending clustering stay until that is over.

        Args:
            days: how long partitions stay; by default ``hoodie.partition.ttl.strategy.days.retain``.
            dry_run: change nothing, only tell what would go.

        Returns:
            the partitions that went; its ``skipped`` tells why if none did.

        Raises:
            InvalidInputError: fewer days than one.
            WriteConflictError: another writer was in the way; a retry is safe.
        """
        session = ExpireSession(self.engine, self.options, expiry_of(self.options, days))
        return session.dry_run() if dry_run else session.run()

    def archive(self, *, min_commits: int | None = None, max_commits: int | None = None) -> ArchiveResult:
        """Move old commits, and cleans and rollbacks beside them, from the timeline into the archive.

        It comes after writes by itself unless ``hoodie.archive.automatic=false``. Reads and writes cost less the
        shorter the timeline is; ``history()`` and incremental queries reach into the archive.

        Args:
            min_commits: so many stay; by default ``hoodie.keep.min.commits``, and never fewer than cleaning keeps
                readable.
            max_commits: only with more than these on the timeline some go; ``hoodie.keep.max.commits`` by default, or
                one more than ``min_commits``.

        Returns:
            the instants that left; its ``skipped`` tells why if none did.

        Raises:
            InvalidInputError: ``max_commits`` is not more than ``min_commits``.
        """
        return ArchiveSession(self.engine, self.options).archive(min_commits, max_commits)
