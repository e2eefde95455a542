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
from dataclasses import dataclass
from typing import Final

from lakeformat.model.instant import State
from lakeformat.timeline.timeline import Timeline

__all__ = ["MetadataInstants"]

_NAME: Final = re.compile(r"(?P<time>\d{14,20})(?:_(?P<end>\d{14,17}))?\.(?P<action>[a-z]+)(?:\.(?P<state>[a-z]+))?")
#: Prefix of the instants that fill a new metadata table.
_FIRST: Final = "00000000000000"
#: Digits of an instant that fills a partition which is added later, in table version 6.
_ADDED_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class MetadataInstants:
    """The completed instants of a metadata table, and the ones whose blocks count.

    Attributes:
        completions: Maps the times of completed instants to their completion times (in layout 1 their own times).
        counted: Times of the instants whose blocks count.
        oldest: The oldest time on the timeline, completed or not; instants before it are archived.
        has_completion_times: Whether the timeline has layout 2.
    """

    completions: Mapping[str, str]
    counted: frozenset[str]
    oldest: str
    has_completion_times: bool

    @classmethod
    def of_file_names(cls, names: Iterable[str], table: Timeline, version: int) -> MetadataInstants:
        """Make the value from the names in the metadata table's timeline folder.

        Args:
            table: The active timeline of the table.
            version: The version of the metadata table.
        """
        has_completion_times = version >= 8
        times: set[str] = set()
        completions: dict[str, str] = {}
        for name in names:
            found = _NAME.fullmatch(name)
            if found is None:
                continue
            times.add(found["time"])
            if found["action"] != "inflight" and found["state"] is None:
                completions[found["time"]] = found["end"] or found["time"]
        pending = {instant.time for instant in table.pending}
        if has_completion_times:
            counted = completions.keys() - pending
        else:
            done = {instant.time for instant in table.instants if instant.state is State.COMPLETED}
            own = {time for time in completions if time.startswith(_FIRST) or len(time) == _ADDED_DIGITS}
            counted = (completions.keys() & done) | own
        return cls(completions, frozenset(counted), min(times, default=""), has_completion_times)

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
