"""What every write is given from outside: the ports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from lakeformat.file_index.load import load_snapshot
from lakeformat.model.table_config import TableConfig
from lakeformat.storage.port import Clock, Ids, Storage
from lakeformat.timeline.snapshot import Snapshot
from lakeformat.timeline.store import TimelineStore
from lakeformat.write.aggregates import Rows

__all__ = ["Engine"]


@dataclass(frozen=True)
class Engine:
    """What every path needs.

    Attributes:
        storage: where files live.
        clock: what time it is.
        ids: where randomness comes from.
        view: how rows are read.
        use_index: whether snapshots may come from the file index.
    """

    storage: Storage
    clock: Clock
    ids: Ids
    view: Callable[[Storage, Snapshot], Rows]
    use_index: bool

    @cached_property
    def store(self) -> TimelineStore:
        """The table's timeline."""
        return TimelineStore(self.storage)

    def snapshot(
        self, as_of: str | None = None, config: TableConfig | None = None, unseen: frozenset[str] = frozenset()
    ) -> Snapshot:
        """The table now or at an instant time, by the file index or by listing; see `load_snapshot`."""
        return load_snapshot(self.store, as_of=as_of, unseen=unseen, config=config, use_index=self.use_index)

    def writable(self) -> Snapshot:
        """The table as it stands, refused if it cannot be written to."""
        config = self.store.config()
        config.check_writable(self.storage.location)
        return self.snapshot(config=config)
