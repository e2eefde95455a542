"""The clustering verbs of a table, the same under every host."""

from __future__ import annotations

from collections.abc import Sequence

from lakeformat.config.resolve import Options
from lakeformat.model.instant import check_instant_time
from lakeformat.services.cluster.run import ClusterSession, Rewriter, request_of
from lakeformat.table_state.engine import Engine
from lakeformat.transaction.result import WriteResult

__all__ = ["Clustering"]


class Clustering:
    """Rewrites files together, larger and in order. A host says where the table is and who rewrites."""

    engine: Engine
    options: Options

    def _rewriter(self) -> Rewriter | None:
        """Who rewrites files; None is this process."""
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

        The rows stay what they are, commit time and sequence number included; the old files stay until they are
        cleaned. Others may write meanwhile, but not to the rows that are being rewritten.

        Args:
            by: columns, fields of structs by path: all files of the partitions are sorted by them. By default what
                ``hoodie.clustering.plan.strategy.sort.columns`` says, for files below the small-file limit; with no
                columns there either, small files are only brought together. By option, files are left alone that
                the same clustering has made; with ``by`` they are taken again.
            curve: ``hilbert``, ``z-order``, or ``linear`` (by the first column, then the second ...). By default
                what ``hoodie.layout.optimize.strategy`` says, else hilbert for several columns.
            partitions: partition paths as they stand in the table, ``*`` for any text; one that matches nothing beside
                others that do gets a warning. By default what
                ``hoodie.clustering.plan.strategy.partition.selected`` and its kin say, else all.
            target_file_bytes: of the new files; ``hoodie.clustering.plan.strategy.target.file.max.bytes`` by default.

        Returns:
            the result; its ``skipped`` tells why if there was nothing to do.

        Raises:
            InvalidInputError, SchemaMismatchError: a column or partition is not there, has no order, or is not named
                where it has to be.
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
        """Only plan it: the plan waits on the timeline until somebody runs it, we or Hudi.

        Until then its file groups take no rows: writes that would change one are refused, and name the plan.

        Args: see `cluster`.

        Returns:
            the plan's instant time; None if there was nothing to do.
        """
        return self._session().schedule(request_of(self.options, by, curve, partitions, target_file_bytes))

    def run_clustering(self, instant_time: str | None = None) -> WriteResult:
        """Carry out a plan that `schedule_clustering` or Hudi made; by default the oldest waiting one that can be
        run.

        A run that fails leaves the plan as it was, so it can be run again.

        Raises:
            InvalidInputError: no such plan is pending.
            UnsupportedTableError: it is meant for a way of execution that is not built.
            WriteConflictError: it runs already, or its files have changed since: then the plan is gone, too.
        """
        if instant_time is not None:
            check_instant_time(instant_time, "run_clustering")
        return self._session().run(instant_time)

    def cancel_clustering(self, instant_time: str) -> None:
        """Take a plan off the timeline; its file groups take rows again.

        Raises:
            InvalidInputError: no such plan is pending.
            WriteConflictError: it is running.
        """
        check_instant_time(instant_time, "cancel_clustering")
        self._session().cancel(instant_time)
