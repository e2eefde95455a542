"""The table's clustering verbs, shared by all hosts."""

from __future__ import annotations

from collections.abc import Sequence

from lakeformat.config.resolve import Options
from lakeformat.model.instant import check_instant_time
from lakeformat.services.cluster.run import ClusterSession, Rewriter, request_of
from lakeformat.table_state.engine import Engine
from lakeformat.transaction.result import WriteResult

__all__ = ["Clustering"]


class Clustering:
    """The clustering verbs: rewrite files together, larger and sorted.

    Subclasses provide the engine and the rewriter.
    """

    engine: Engine
    options: Options

    def _rewriter(self) -> Rewriter | None:
        """Return the function that rewrites groups; None means this process."""
        return None

    def _session(self) -> ClusterSession:
        return ClusterSession(self.engine, self.options, self._rewriter())

    def cluster(
        self,
        by: Sequence[str] | str | None = None,
        *,
        curve: str | None = None,
        partitions: Sequence[str] | str | None = None,
        target_file_bytes: int | None = None,
    ) -> WriteResult:
        """Rewrite files in an order that lets reads skip most of them.

        Rows stay unchanged, commit time and sequence number included. The old files stay until they are cleaned. Others
        may write meanwhile, but not to the file groups that are being rewritten.

        Args:
            by: columns to sort by, fields of structs by path; then all files of the partitions are rewritten. By
                default ``hoodie.clustering.plan.strategy.sort.columns`` gives the columns and only files below the
                small-file limit are rewritten; without columns, small files are only combined. Files written by the
                same clustering before are rewritten only if ``by`` is given.
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
        return self._session().cluster(request_of(self.options, by, curve, partitions, target_file_bytes))

    def schedule_clustering(
        self,
        by: Sequence[str] | str | None = None,
        *,
        curve: str | None = None,
        partitions: Sequence[str] | str | None = None,
        target_file_bytes: int | None = None,
    ) -> str | None:
        """Put a clustering plan on the timeline, to be run later by lakeformat or Hudi.

        While the plan is pending, writes that would change one of its file groups are refused; the error names the
        plan.

        Returns:
            The plan's instant time; None if there was nothing to do.
        """
        return self._session().schedule(request_of(self.options, by, curve, partitions, target_file_bytes))

    def run_clustering(self, instant_time: str | None = None) -> WriteResult:
        """Run a plan that `schedule_clustering` or Hudi made; by default the oldest pending one that can be run.

        If the run fails, the plan stays and can be run again.

        Raises:
            InvalidInputError: no plan of this time is pending.
            UnsupportedTableError: the plan needs an execution class that is not built.
            WriteConflictError: the plan runs already; or its files have changed since, and it was rolled back.
        """
        if instant_time is not None:
            check_instant_time(instant_time, "run_clustering")
        return self._session().run(instant_time)

    def cancel_clustering(self, instant_time: str) -> None:
        """Remove a plan from the timeline. Its file groups accept writes again.

        Raises:
            InvalidInputError: no plan of this time is pending.
            WriteConflictError: the plan is running.
        """
        check_instant_time(instant_time, "cancel_clustering")
        self._session().cancel(instant_time)
