"""What every read and write is given from outside: the ports."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lakeformat.config.resolve import Options
from lakeformat.model.table_config import TableConfig
from lakeformat.storage import RandomIds, SystemClock, open_storage
from lakeformat.storage.port import Clock, Ids, Storage
from lakeformat.table_state.bucket_layout import check_bucket_layout
from lakeformat.table_state.file_index.load import load_snapshot
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["Engine", "open_engine"]


@dataclass(frozen=True)
class Engine:
    """What every path needs.

    Attributes:
        storage: where files live.
        clock: what time it is.
        ids: where randomness comes from.
        use_index: whether snapshots may come from the file index.
    """

    storage: Storage
    clock: Clock
    ids: Ids
    use_index: bool

    @cached_property
    def store(self) -> TimelineStore:
        """The table's timeline."""
        return TimelineStore(self.storage)

    def snapshot(
        self,
        as_of: str | None = None,
        config: TableConfig | None = None,
        unseen: frozenset[str] = frozenset(),
        wanted: frozenset[str] | None = None,
        timeline: Timeline | None = None,
    ) -> Snapshot:
        """The table now or at an instant time, by the file index or by listing; see `load_snapshot`."""
        return load_snapshot(
            self.store,
            as_of=as_of,
            unseen=unseen,
            wanted=wanted,
            config=config,
            timeline=timeline,
            use_index=self.use_index,
        )

    def snapshot_since(self, seen: Snapshot | None) -> Snapshot:
        """The table now: the snapshot of it that was seen before, where no instant has come, gone or moved since.

        Whatever changes the files of a table is announced on its timeline, so the folders need not be listed again.
        """
        if seen is not None:
            config = self.store.config()
            if config == seen.config and self.timeline(config) == seen.timeline:
                return seen
        return self.snapshot()

    def timeline(self, config: TableConfig) -> Timeline:
        """All active instants, with what `snapshot` wants to know of the archive."""
        return self.store.load(config.archive_folder if self.use_index else None)

    def writable(self) -> Snapshot:
        """The table as it stands, refused if it cannot be written to."""
        config = self.store.config()
        config.check_writable(self.storage.location)
        check_bucket_layout(self.storage)
        snapshot = self.snapshot(config=config)
        snapshot.check_writable(self.storage.location)
        return snapshot


def open_engine(path: str, options: Options, **storage_options: Any) -> Engine:
    """The engine of the table at a path or URL.

    Args:
        storage_options: for the file system of the URL.

    Raises:
        InvalidOptionError: there is no such file system, or its package is missing.
    """
    storage = open_storage(path, sync=options["lakeformat.storage.sync"], **storage_options)
    return Engine(storage, SystemClock(), RandomIds(), options.write.file_index)
