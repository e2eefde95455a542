"""What every write is given from outside: the ports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from lakeformat.storage.port import Clock, Ids, Storage
from lakeformat.timeline.snapshot import Snapshot
from lakeformat.timeline.store import TimelineStore
from lakeformat.write.aggregates import Rows

__all__ = ["Engine"]


@dataclass(frozen=True)
class Engine:
    """What every path needs: where files live, what time it is, where randomness comes from, how rows are read."""

    storage: Storage
    clock: Clock
    ids: Ids
    view: Callable[[Storage, Snapshot], Rows]

    @cached_property
    def store(self) -> TimelineStore:
        """The table's timeline."""
        return TimelineStore(self.storage)
