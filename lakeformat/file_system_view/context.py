"""The context of a table: the ports (storage, clock, ids) that every read and write uses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lakeformat.config.resolve import Options
from lakeformat.file_system_view.file_index.load import load_snapshot
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.table_config import TableConfig
from lakeformat.storage import RandomIds, SystemClock, open_storage
from lakeformat.storage.port import Clock, Ids, Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import NOW, TableState, Timeline

__all__ = ["TableContext", "open_context"]


@dataclass(frozen=True)
class TableContext:
    """The ports of one table.

    Attributes:
        storage: the table's files.
        clock: the source of the current time.
        ids: the source of random ids.
        use_index: whether a snapshot may be loaded from the file index instead of a listing of the folders.
    """

    storage: Storage
    clock: Clock
    ids: Ids
    use_index: bool

    @cached_property
    def store(self) -> TimelineStore:
        """Return the store of the table's timeline."""
        return TimelineStore(self.storage)

    def snapshot(
        self,
        state: TableState = NOW,
        config: TableConfig | None = None,
        needed_times: frozenset[str] | None = None,
        timeline: Timeline | None = None,
        *,
        use_metadata_table: bool = False,
    ) -> Snapshot:
        """Load a state of the table. Arguments and errors are those of `load_snapshot`.

        Writes leave ``use_metadata_table`` false, because they must see each file that lies in the folders.
        """
        return load_snapshot(
            self.store,
            state,
            needed_times=needed_times,
            config=config,
            timeline=timeline,
            use_index=self.use_index,
            use_metadata_table=use_metadata_table,
        )

    def snapshot_since(self, seen: Snapshot | None) -> Snapshot:
        """Return the snapshot of the table as it is now: `seen` itself if settings and timeline have not changed.

        Each change of a table's files is on its timeline, so equal timelines prove that the files are the same.
        """
        if seen is not None:
            config = self.store.config()
            if config == seen.config and self.timeline(config) == seen.timeline:
                return seen
        return self.snapshot()

    def timeline(self, config: TableConfig) -> Timeline:
        """Load all active instants. If the file index may be used, load `Timeline.archive` too, which it needs."""
        return self.store.load(config.archive_folder if self.use_index else None)

    def writable_snapshot(self) -> Snapshot:
        """Load the table as it is now. Raise `UnsupportedTableError` if it cannot be written to."""
        config = self.store.config()
        config.check_writable(self.storage.location)
        return self.snapshot(config=config)


def open_context(path: str, options: Options, **storage_options: Any) -> TableContext:
    """Open the context of the table at a path or URL.

    Args:
        storage_options: options of the file system of the URL.

    Raises:
        InvalidOptionError: there is no such file system, or its package is missing.
    """
    storage = open_storage(path, sync=options["lakeformat.storage.sync"], **storage_options)
    return TableContext(storage, SystemClock(), RandomIds(), options.write.file_index)
