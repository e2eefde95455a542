"""The table's verbs `upgrade` and `downgrade`, shared by all hosts."""

from __future__ import annotations

from lakeformat.config.compaction_options import STRATEGY, UNBOUNDED
from lakeformat.config.resolve import Options
from lakeformat.services.compact.rewrite import Compactor
from lakeformat.services.compact.run import CompactSession, compact
from lakeformat.services.versions.run import VersionChange, VersionSession
from lakeformat.table_state.engine import Engine

__all__ = ["Versioning"]


class Versioning:
    """Upgrades and downgrades of a table, made only on request."""

    engine: Engine
    options: Options

    def _compactor(self) -> Compactor | None:
        """Return the function that rewrites slices; None means this process."""
        return None

    def _versions(self) -> VersionSession:
        everything = self.options.with_values(**{STRATEGY: UNBOUNDED})
        return VersionSession(
            self.engine,
            self.options,
            lambda: compact(lambda: CompactSession(self.engine, everything, self._compactor())),
        )

    def upgrade(self, to: int) -> VersionChange:
        """Move the table to a later table version.

        Rows and data files stay as they are. The timeline moves to the place where that version keeps it. Readers see
        the table unchanged throughout. The change holds the table's lock: lakeformat writers wait. Writers of other
        programs must be stopped. If the process dies, the table has either the old version or the new one. A
        merge-on-read table that moves from or to version 6 is compacted first, as Hudi does.

        Args:
            to: 8 or 9. Hudi 1.0 and later read 8, 1.1 and later 9.

        Returns:
            What was done. ``skipped`` gives the reason if nothing was.

        Raises:
            InvalidInputError: the version does not exist, or is earlier than the table's.
            WriteConflictError: a write or a plan is pending.
            UnsupportedTableError: the table has log files that cannot be compacted, or a setting that cannot be carried
                over. The message names the setting.
        """
        return self._versions().move(to, is_upgrade=True)

    def downgrade(self, to: int) -> VersionChange:
        """Move the table to an earlier table version, 8 or 6. Behaviour, result and errors are those of `upgrade`."""
        return self._versions().move(to, is_upgrade=False)
