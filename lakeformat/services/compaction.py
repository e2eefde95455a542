"""The table's compaction verbs, shared by all hosts."""

from __future__ import annotations

from lakeformat.config.resolve import Options
from lakeformat.model.instant import check_instant_time
from lakeformat.services.compact.rewrite import Compactor
from lakeformat.services.compact.run import CompactSession, compact
from lakeformat.table_state.engine import Engine
from lakeformat.transaction.result import WriteResult

__all__ = ["Compaction"]


class Compaction:
    """The compaction verbs: merge log files into base files. Subclasses provide the engine and the compactor."""

    engine: Engine
    options: Options

    def _compactor(self) -> Compactor | None:
        """Return the function that rewrites slices; None means this process."""
        return None

    def _compact_session(self) -> CompactSession:
        return CompactSession(self.engine, self.options, self._compactor())

    def compact(self) -> WriteResult:
        """Merge log files into base files: first those of pending plans, then those that the options choose.

        Rows stay unchanged, commit time and sequence number included. The old files stay until they are cleaned. Others
        may write meanwhile. ``hoodie.compaction.strategy`` and the related options choose the file slices; by default
        all that have log files, up to 500 GB.

        Returns:
            The last run's result. ``skipped`` gives the reason if there was nothing to do.

        Raises:
            UnsupportedTableError: the table is copy-on-write, or of a kind that cannot be compacted.
            WriteConflictError: a write is running that the plan could not include; nothing was published.
        """
        return compact(self._compact_session)

    def schedule_compaction(self) -> str | None:
        """Put a compaction plan on the timeline, to be run later by lakeformat or Hudi.

        From then on others write to the slices that the plan opens. Once they have, the plan cannot be cancelled (table
        version 6).

        Returns:
            The plan's instant time; None if there was nothing to do.

        Raises:
            WriteConflictError: a write is running whose log files the plan could not include (table version 6).
        """
        return self._compact_session().schedule()

    def run_compaction(self, instant_time: str | None = None) -> WriteResult:
        """Run a plan that `schedule_compaction` or Hudi made; by default the oldest pending one that can be run.

        If the run fails, the plan stays and can be run again.

        Raises:
            InvalidInputError: no plan of this time is pending.
            CorruptTableError: a file of the plan is missing.
            WriteConflictError: the plan runs already, or others have written to the slices that it merges.
        """
        if instant_time is not None:
            check_instant_time(instant_time, "run_compaction")
        return self._compact_session().run(instant_time)

    def cancel_compaction(self, instant_time: str) -> None:
        """Remove a plan from the timeline.

        Raises:
            InvalidInputError: no plan of this time is pending.
            WriteConflictError: the plan is running; or log files have been written to a slice that it has opened, which
                would be lost without it (table version 6).
        """
        check_instant_time(instant_time, "cancel_compaction")
        self._compact_session().cancel(instant_time)
