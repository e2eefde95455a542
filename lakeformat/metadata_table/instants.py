"""The timeline of a metadata table, and which of its log blocks a reader counts. Pure.

A deltacommit of the metadata table is completed before the commit of the table that it belongs to. Until the commit is
completed, too, no reader may count the blocks of the deltacommit. The rule depends on the version of the table:

- From version 8 on, blocks count whose instant is completed in the metadata table and not pending in the table.
- In version 6, blocks count whose instant is completed in both, and those of instants that only the metadata table has:
  the first ones, which fill a partition from a listing.

Hudi: ``HoodieTableMetadataUtil.getValidInstantTimestamps`` of 1.x and of 0.15. Both add the instants that rollbacks of
the table name. These are left out here: their blocks have been deleted, or a rollback block takes them back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from lakeformat.model.instant import COMMIT_ACTIONS, Action, State
from lakeformat.model.table_version import TableVersion
from lakeformat.timeline.timeline import Timeline

__all__ = ["MetadataInstants"]

_NAME: Final = re.compile(r"(?P<time>\d{14,23})(?:_(?P<end>\d{14,17}))?\.(?P<action>[a-z]+)(?:\.(?P<state>[a-z]+))?")
#: Prefix of the instants that fill a new metadata table.
_FIRST: Final = "00000000000000"
#: Digits of an instant that fills a partition which is added later, in table version 6.
_ADDED_DIGITS: Final = 20
#: Actions of the table that always write a deltacommit of the same time.
_RECORDED: Final = COMMIT_ACTIONS | {Action.CLEAN}


def _is_first(time: str) -> bool:
    """Tell whether an instant of this time fills a new partition."""
    return time.startswith(_FIRST) or len(time) == _ADDED_DIGITS


@dataclass(frozen=True, slots=True)
class MetadataInstants:
    """The completed instants of a metadata table, and the ones whose blocks count.

    Attributes:
        completions: Maps the times of completed instants to their completion times (in layout 1 their own times).
        counted: Times of the instants whose blocks count.
        times: The times of all instants on the timeline, completed or not.
        oldest: The oldest of these times; instants before it are archived.
        has_completion_times: Whether the timeline has layout 2.
        applied: Times of the completed deltacommits, without those that fill a new partition.
        filled: Times of the completed deltacommits that fill a new partition.
        compacted: Time of the newest completed compaction; "" if there is none. From it on the table archives nothing.
        restored: Maps the times of completed restores to the time of the first deltacommit that follows.
    """

    completions: Mapping[str, str]
    counted: frozenset[str]
    times: frozenset[str]
    oldest: str
    has_completion_times: bool
    applied: frozenset[str] = frozenset()
    filled: frozenset[str] = frozenset()
    compacted: str = ""
    restored: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_file_names(cls, names: Iterable[str], table: Timeline, version: TableVersion) -> MetadataInstants:
        """Make the value from the names in the metadata table's timeline folder.

        Args:
            table: The active timeline of the table.
            version: The version of the metadata table.
        """
        has_completion_times = version.has_completion_times
        times: set[str] = set()
        completions: dict[str, str] = {}
        applied: set[str] = set()
        filled: set[str] = set()
        compacted = ""
        restores: set[str] = set()
        for name in names:
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            times.add(match["time"])
            if match["action"] != "inflight" and match["state"] is None:
                completions[match["time"]] = match["end"] or match["time"]
                if match["action"] == Action.DELTA_COMMIT.value:
                    (filled if _is_first(match["time"]) else applied).add(match["time"])
                elif match["action"] == Action.COMMIT.value:
                    compacted = max(compacted, match["time"])
                elif match["action"] == Action.RESTORE.value:
                    restores.add(match["time"])
        pending = {instant.time for instant in table.pending}
        if has_completion_times:
            counted = completions.keys() - pending
        else:
            done = {instant.time for instant in table.instants if instant.state is State.COMPLETED}
            own = set(filter(_is_first, completions))
            counted = (completions.keys() & done) | own
        return cls(
            completions,
            frozenset(counted),
            frozenset(times),
            min(times, default=""),
            has_completion_times,
            frozenset(applied),
            frozenset(filled),
            compacted,
            {
                time: min((applied_time for applied_time in applied if applied_time > time), default="")
                for time in restores
            },
        )

    def find_lacking(self, table: Timeline) -> str | None:
        """Return the time of a commit or clean of the table that this timeline lacks; None if there is none.

        Instants from before the oldest deltacommit are not compared: the metadata table was filled from a listing, or
        the deltacommits are archived.
        """
        first = min(self.applied, default=None)
        filled = min((end for time, end in self.completions.items() if _is_first(time)), default=None)
        for instant in table.instants:
            if instant.state is not State.COMPLETED or instant.action not in _RECORDED or instant.time in self.applied:
                continue
            is_after = first is not None and instant.time >= first
            if is_after or (self.has_completion_times and filled is not None and instant.completed_at > filled):
                return instant.time
        return None

    def find_unknown(self, table: Timeline) -> str | None:
        """Return the time of a deltacommit whose instant is missing in the table; None if there is none.

        Instants that the table may have archived are not compared: it archives cleans and rollbacks that are newer than
        its oldest commit, but nothing since the last compaction of the metadata table. An instant that is later than
        the timeline that was loaded may have begun since then. Hudi's restores are known, see `_of_restores`.
        """
        oldest, newest = table.oldest_write, table.newest_time
        if oldest is None or newest is None:
            return None
        unknown = self.applied - table.taken_times - self._of_restores(table)
        first = max(oldest, self.compacted)
        return min((time for time in unknown if first <= time < newest), default=None)

    def _of_restores(self, table: Timeline) -> set[str]:
        """Return the times of the deltacommits that Hudi's restores of the table have written.

        From version 8 on, such a deltacommit has a time of its own. While the restore of the table is pending, Hudi
        restores the metadata table; then the deltacommit adds what differs from a listing. Hudi:
        ``HoodieBackedTableMetadataWriter.update(HoodieRestoreMetadata, String)``.
        """
        done = [restored for restored in table.of_action(Action.RESTORE) if restored.state is State.COMPLETED]
        return {
            time
            for restore, time in self.restored.items()
            if any(
                restored.time < restore and self.completions.get(time, "~") <= restored.completed_at
                for restored in done
            )
        }

    def has_base(self, instant_time: str) -> bool:
        """Tell whether base files of this instant are valid: it is completed, or archived."""
        return instant_time in self.completions or instant_time < self.oldest

    def is_counted(self, instant_time: str) -> bool:
        """Tell whether the log blocks of this instant count."""
        return instant_time in self.counted

    def latest_base(self, log_time: str) -> str | None:
        """Return the greatest instant of a base file that a log file may belong to; None if the log is not visible.

        Args:
            log_time: The instant time in the log file's name.
        """
        if not self.has_completion_times:
            return log_time
        return self.completions.get(log_time) or (log_time if log_time < self.oldest else None)
