"""The compaction verbs of a table, the same under every host."""

from __future__ import annotations

from lakeformat.config.resolve import Options
from lakeformat.model.instant import check_instant_time
from lakeformat.services.compact.rewrite import Compactor
from lakeformat.services.compact.run import CompactSession, compact
from lakeformat.table_state.engine import Engine
from lakeformat.transaction.result import WriteResult

__all__ = ["Compaction"]


class Compaction:
    """Merges log files into base files. A host says where the table is and who rewrites."""

    engine: Engine
    options: Options

    def _compactor(self) -> Compactor | None:
        """Who rewrites slices; None is this process."""
        return None

    def _compact_session(self) -> CompactSession:
        return CompactSession(self.engine, self.options, self._compactor())

    def compact(self) -> WriteResult:
        """Merge log files into base files: first what plans wait for, then what the options choose.

        The rows stay what they are, commit time and sequence number included; the old files stay until they are
        cleaned. Others may write meanwhile. Which file slices, and how many, ``hoodie.compaction.strategy`` and its kin
        say; all that have log files, up to 500 GB, by default.

        Returns:
            the last run's result; its ``skipped`` tells why if there was nothing to do.

        Raises:
            UnsupportedTableError: a copy-on-write table, or one of a kind that cannot be compacted.
            WriteConflictError: a write is running that the plan could not know; nothing was published.
        """
        return compact(self._compact_session)

    def schedule_compaction(self) -> str | None:
        """Only plan it: the plan waits on the timeline until somebody runs it, we or Hudi.

        From then on others write to the slices that it opens; it cannot be undone once they have (table version 6).

        Returns:
            the plan's instant time; None if there was nothing to do.

        Raises:
            WriteConflictError: a write is running whose log files the plan could not know (table version 6).
        """
        return self._compact_session().schedule()

    def run_compaction(self, instant_time: str | None = None) -> WriteResult:
        """Carry out a plan that `schedule_compaction` or Hudi made; by default the oldest waiting one that can be run.

        A run that fails leaves the plan as it was, so it can be run again.

        Raises:
            InvalidInputError: no such plan is pending.
            CorruptTableError: a file of the plan is missing.
            WriteConflictError: it runs already, or others have added to what it merges.
        """
        if instant_time is not None:
            check_instant_time(instant_time, "run_compaction")
        return self._compact_session().run(instant_time)

    def cancel_compaction(self, instant_time: str) -> None:
        """Take a plan off the timeline.

        Raises:
            InvalidInputError: no such plan is pending.
            WriteConflictError: it is running; or log files have been written for a slice that it has opened, which
                would be lost without it (table version 6).
        """
        check_instant_time(instant_time, "cancel_compaction")
        self._compact_session().cancel(instant_time)
