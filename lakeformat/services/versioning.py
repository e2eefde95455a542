"""The verbs that move a table between table versions, the same under every host."""

from __future__ import annotations

from lakeformat.config.compaction_options import STRATEGY, UNBOUNDED
from lakeformat.config.resolve import Options
from lakeformat.services.compact.rewrite import Compactor
from lakeformat.services.compact.run import CompactSession, compact
from lakeformat.services.versions.run import VersionChange, VersionSession
from lakeformat.table_state.engine import Engine

__all__ = ["Versioning"]


class Versioning:
    """Upgrades and downgrades, on request alone."""

    engine: Engine
    options: Options

    def _compactor(self) -> Compactor | None:
        """Who rewrites slices; None is this process."""
        return None

    def _versions(self) -> VersionSession:
        everything = self.options.with_values(**{STRATEGY: UNBOUNDED})
        return VersionSession(
            self.engine,
            self.options,
            lambda: compact(lambda: CompactSession(self.engine, everything, self._compactor())),
        )

    def upgrade(self, to: int) -> VersionChange:
        """Move the table to a later table version. Rows and files stay; the timeline goes to where that version has it.

        Readers see the table as it was throughout. It happens under the table's lock: writers wait, and those of
        other programs must rest. What dies on the way leaves the old version or the new one. A merge-on-read table that
        comes from 6 or goes there is compacted first, as by Hudi.

        Args:
            to: 8 or 9. Hudi 1.0 and later read 8, 1.1 and later 9.

        Returns:
            what was done; its ``skipped`` tells why if nothing was.

        Raises:
            InvalidInputError: no such version, or an earlier one.
            WriteConflictError: a write or a plan is pending.
            UnsupportedTableError: it has log files that cannot be compacted, or a setting that is not carried over,
                which is named.
        """
        return self._versions().move(to, is_upgrade=True)

    def downgrade(self, to: int) -> VersionChange:
        """Move the table to an earlier table version, 8 or 6: as `upgrade`, in all that it says."""
        return self._versions().move(to, is_upgrade=False)
