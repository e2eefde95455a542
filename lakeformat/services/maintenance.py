"""Methods of a table for cleaning, archiving, expiry, clustering, compaction, and changes of the table version."""

from __future__ import annotations

from collections.abc import Sequence

from lakeformat.beside.verbs import sync_after_commit
from lakeformat.catalog.verbs import register_after_commit
from lakeformat.config.compaction_options import STRATEGY, UNBOUNDED
from lakeformat.config.retention_options import make_expiry
from lakeformat.model.instant import check_instant_time
from lakeformat.public import public
from lakeformat.services.after_write import ServiceHost
from lakeformat.services.archive.run import ArchiveResult, ArchiveSession
from lakeformat.services.clean.plan import choose_retention
from lakeformat.services.clean.run import CleanResult, CleanSession
from lakeformat.services.cluster.run import ClusterSession, make_cluster_request
from lakeformat.services.compact.run import CompactSession, compact
from lakeformat.services.recovery import Recovery
from lakeformat.services.ttl import ExpireResult, ExpireSession
from lakeformat.services.upgrade.run import VersionChange, VersionSession
from lakeformat.transaction.commit.result import WriteResult

__all__ = ["Clustering", "Compaction", "Maintenance", "Versioning"]


@public
class Maintenance(Recovery, ServiceHost):
    """The methods clean, expire_partitions and archive, and those of `Recovery`."""

    def clean(
        self,
        *,
        commits: int | None = None,
        hours: int | None = None,
        versions: int | None = None,
        dry_run: bool = False,
    ) -> CleanResult:
        """Delete files that are needed only to read older commits, and folders of partitions that have become empty.

        A clean also runs after writes unless ``hoodie.clean.automatic=false``. It never deletes the newest slice of a
        file group, nor files that savepoints, pending compactions or pending clusterings need. Other writers may
        commit meanwhile.

        Args:
            commits: number of commits that stay readable. By default ``hoodie.clean.policy`` and the options that
                belong to it apply.
            hours: number of past hours whose commits stay readable.
            versions: number of versions to keep of each file group, whatever their age. Older commits may then be
                unreadable.
            dry_run: whether to change nothing and only return what would be deleted; false by default.

        Returns:
            The deleted files, with their sizes in bytes. ``skipped`` gives the reason if there was nothing to do.

        Raises:
            InvalidInputError: more than one of commits, hours and versions is given, or a count is below 1.
            StorageError: files could not be deleted; the next clean continues with them.
        """
        session = CleanSession(self.context, self.options, self._executors().deleter)
        retention = choose_retention(self.options, commits, hours, versions)
        return session.dry_run(retention) if dry_run else session.clean(retention)

    def expire_partitions(self, *, days: int | None = None, dry_run: bool = False) -> ExpireResult:
        """Delete the partitions that have expired, as ``delete_partitions`` does (Hudi: ``run_ttl``).

        ``hoodie.partition.ttl.management.strategy.type`` sets whether a partition's age is counted from its newest
        commit or from the commit that created its folder. With ``hoodie.partition.ttl.inline=true`` expiry also runs
        after writes. Partitions with a pending clustering stay until the clustering is over.

        Args:
            days: number of days that partitions stay; by default ``hoodie.partition.ttl.strategy.days.retain``.
            dry_run: whether to change nothing and only return what would be deleted; false by default.

        Returns:
            The deleted partitions. ``skipped`` gives the reason if none was deleted.

        Raises:
            InvalidInputError: days is below 1.
            WriteConflictError: another writer changed the same partitions meanwhile; a retry is safe.
        """
        session = ExpireSession(self.context, self.options, make_expiry(self.options, days))
        if dry_run:
            return session.dry_run()
        result = session.run()
        if not result.skipped:
            sync_after_commit(self.context, self.options, result.instant_time)
            register_after_commit(self.context, self.options, result.instant_time)
        return result

    def archive(self, *, min_commits: int | None = None, max_commits: int | None = None) -> ArchiveResult:
        """Move old commits, and cleans and rollbacks of the same age, from the timeline into the archive.

        Archiving also runs after writes unless ``hoodie.archive.automatic=false``. A shorter timeline makes reads and
        writes cheaper. ``history()`` and incremental queries read the archive too.

        Args:
            min_commits: number of commits that stay; by default ``hoodie.keep.min.commits``. The
                commits that cleaning keeps readable stay in any case.
            max_commits: archive only if the timeline has more than this many; by default ``hoodie.keep.max.commits``,
                or ``min_commits`` + 1 if that is given.

        Returns:
            The archived instants. ``skipped`` gives the reason if there are none.

        Raises:
            InvalidInputError: ``max_commits`` is not more than ``min_commits``.
        """
        return ArchiveSession(self.context, self.options).archive(min_commits, max_commits)


@public
class Clustering(ServiceHost):
    """The clustering methods: they rewrite files into larger or sorted files."""

    def _session(self) -> ClusterSession:
        return ClusterSession(self.context, self.options, self._executors().rewriter)

    def cluster(
        self,
        by: Sequence[str] | str | None = None,
        *,
        curve: str | None = None,
        partitions: Sequence[str] | str | None = None,
        target_file_bytes: int | None = None,
    ) -> WriteResult:
        """Rewrite files with sorted rows, so that reads with a filter on the sort columns skip most files.

        Rows stay unchanged, commit time and sequence number included. The old files stay until they are cleaned. Other
        writers may commit meanwhile, but not to the file groups that are being rewritten.

        Args:
            by: columns to sort by, fields of structs by path. If given, all files of the partitions are rewritten, even
                those that an earlier clustering with equal parameters wrote. By default
                ``hoodie.clustering.plan.strategy.sort.columns`` gives the columns, and only files below the small-file
                limit are rewritten, except those that such a clustering wrote. If that option is not set either, small
                files are combined without sorting.
            curve: ``hilbert``, ``z-order``, or ``linear`` (by the first column, then the second ...). By default
                ``hoodie.layout.optimize.strategy`` if it is set, else hilbert for several columns.
            partitions: partition paths as stored in the table, ``*`` for any text. A path that matches no partition is
                logged as a warning if others match. By default ``hoodie.clustering.plan.strategy.partition.selected``
                and the related options, else all partitions.
            target_file_bytes: target size of the new files; by default
                ``hoodie.clustering.plan.strategy.target.file.max.bytes``.

        Returns:
            The result. ``skipped`` gives the reason if there was nothing to do.

        Raises:
            InvalidInputError, SchemaMismatchError: a column or partition does not exist, a column cannot be sorted, or
                ``curve`` is given without columns.
            WriteConflictError: another writer changed the files meanwhile; nothing was published.
        """
        request = make_cluster_request(self.options, by, curve, partitions, target_file_bytes)
        return self._end_service(self._session().cluster(request))

    def schedule_clustering(
        self,
        by: Sequence[str] | str | None = None,
        *,
        curve: str | None = None,
        partitions: Sequence[str] | str | None = None,
        target_file_bytes: int | None = None,
    ) -> str | None:
        """Write a clustering plan to the timeline. lakeformat or Hudi can run the plan later.

        While the plan is pending, writes that would change one of its file groups are refused; the error names the
        plan.

        Args:
            by, curve, partitions, target_file_bytes: as in `cluster`.

        Returns:
            The plan's instant time; None if there was nothing to do.
        """
        return self._session().schedule(make_cluster_request(self.options, by, curve, partitions, target_file_bytes))

    def run_clustering(self, instant_time: str | None = None) -> WriteResult:
        """Run a plan that `schedule_clustering` or Hudi made; by default the oldest pending one that can be run.

        If the run fails, the plan stays and can be run again.

        Args:
            instant_time: the plan's instant time; by default the oldest pending plan that can be run.

        Returns:
            The result of the run.

        Raises:
            InvalidInputError: no plan of this time is pending.
            UnsupportedTableError: the plan needs an execution class that lakeformat does not implement.
            WriteConflictError: another process is running the plan; or the plan's files have changed since it was made,
                and the plan was rolled back.
        """
        if instant_time is not None:
            check_instant_time(instant_time, "run_clustering")
        return self._end_service(self._session().run(instant_time))

    def cancel_clustering(self, instant_time: str) -> None:
        """Remove a pending clustering plan from the timeline, so that its file groups accept writes again.

        Args:
            instant_time: the plan's instant time.

        Raises:
            InvalidInputError: no plan of this time is pending.
            WriteConflictError: the plan is running.
        """
        check_instant_time(instant_time, "cancel_clustering")
        self._session().cancel(instant_time)


@public
class Compaction(ServiceHost):
    """The compaction methods: they merge log files into base files."""

    def _compact_session(self) -> CompactSession:
        return CompactSession(self.context, self.options, self._executors().compactor)

    def compact(self) -> WriteResult:
        """Merge log files into base files: first those of pending plans, then those that the options choose.

        Rows stay unchanged, commit time and sequence number included. The old files stay until they are cleaned. Other
        writers may commit meanwhile. ``hoodie.compaction.strategy`` and the related options choose the file slices; by
        default all that have log files, up to 500 GB to read and write.

        Returns:
            The last run's result. ``skipped`` gives the reason if there was nothing to do.

        Raises:
            UnsupportedTableError: the table is copy-on-write, or of a kind that cannot be compacted.
            WriteConflictError: a running write may append log files that the plan would miss (table version 6); nothing
                was published.
        """
        return self._end_service(compact(self._compact_session))

    def schedule_compaction(self) -> str | None:
        """Write a compaction plan to the timeline. lakeformat or Hudi can run the plan later.

        From then on, writers append log files to new file slices, whose base files the run of the plan will write. In
        table version 6 the plan cannot be cancelled after such a write.

        Returns:
            The plan's instant time; None if there was nothing to do.

        Raises:
            WriteConflictError: a running write may append log files that the plan would miss (table version 6).
        """
        return self._compact_session().schedule()

    def run_compaction(self, instant_time: str | None = None) -> WriteResult:
        """Run a plan that `schedule_compaction` or Hudi made; by default the oldest pending one that can be run.

        If the run fails, the plan stays and can be run again.

        Args:
            instant_time: the plan's instant time; by default the oldest pending plan that can be run.

        Returns:
            The result of the run.

        Raises:
            InvalidInputError: no plan of this time is pending.
            CorruptTableError: a file of the plan is missing.
            WriteConflictError: another process is running the plan, or other writers have added files to the slices
                that the plan merges.
        """
        if instant_time is not None:
            check_instant_time(instant_time, "run_compaction")
        return self._end_service(self._compact_session().run(instant_time))

    def cancel_compaction(self, instant_time: str) -> None:
        """Remove a pending compaction plan from the timeline.

        Args:
            instant_time: the plan's instant time.

        Raises:
            InvalidInputError: no plan of this time is pending.
            WriteConflictError: the plan is running; or, in table version 6, log files already belong to a slice that
                only this plan defines, so that their rows would be lost.
        """
        check_instant_time(instant_time, "cancel_compaction")
        self._compact_session().cancel(instant_time)


@public
class Versioning(ServiceHost):
    """The methods upgrade and downgrade, which change the table version."""

    def _version_session(self) -> VersionSession:
        everything = self.options.with_values(**{STRATEGY: UNBOUNDED})
        return VersionSession(
            self.context,
            self.options,
            lambda: compact(lambda: CompactSession(self.context, everything, self._executors().compactor)),
        )

    def upgrade(self, to: int) -> VersionChange:
        """Move the table to a later table version.

        Rows and data files stay as they are. The timeline's files move to the folder that the new version uses. Readers
        see the table unchanged throughout. The change holds the table's lock: lakeformat writers wait. Writers of other
        programs must be stopped. If the process dies, the table has either the old version or the new one. A
        merge-on-read table that moves from or to version 6 is compacted first, as Hudi does.

        Args:
            to: the new table version: 8, which Hudi 1.0 and later read, or 9, which Hudi 1.1 and later read.

        Returns:
            The versions before and after. ``skipped`` gives the reason if nothing was done.

        Raises:
            InvalidInputError: the version does not exist, or is earlier than the table's.
            WriteConflictError: a write or a plan is pending.
            UnsupportedTableError: the table has log files that cannot be compacted, or a setting that cannot be carried
                over. The message names the setting.
        """
        return self._version_session().move(to, is_upgrade=True)

    def downgrade(self, to: int) -> VersionChange:
        """Move the table to an earlier table version, as `upgrade` moves it to a later one.

        Args:
            to: the new table version: 8 or 6.

        Returns:
            The versions before and after. ``skipped`` gives the reason if nothing was done.

        Raises:
            InvalidInputError: the version does not exist, or is later than the table's.
            LakeformatError: the other errors of `upgrade`.
        """
        return self._version_session().move(to, is_upgrade=False)
