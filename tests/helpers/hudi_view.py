"""What a reader sees that lists files from the metadata table by Hudi's rules alone, without any fallback.

A deltacommit of the metadata table counts if it is completed and its instant is not pending on the table's timeline
(version 6: if it is completed there). Hudi knows no void commits: to it they are commits without files.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.codec.timeline_files.commit import decode_commit
from lakeformat.metadata_table.metadata_table import MetadataTable, open_metadata_table
from lakeformat.model.files import BaseFileName, join_path
from lakeformat.model.instant import COMMIT_ACTIONS, REPLACE_ACTIONS, Action, State
from lakeformat.table import Table
from lakeformat.timeline.timeline import Timeline

__all__ = ["HudiView", "find_disagreements", "open_hudi_view"]


@dataclass(frozen=True)
class HudiView:
    """The table as Hudi sees it.

    Attributes:
        timeline: the instants as they are stored.
        metadata: the metadata table at the same time.
    """

    table: Table
    timeline: Timeline
    metadata: MetadataTable

    @property
    def is_undoing(self) -> bool:
        """Tell whether a rollback or restore is under way: Hudi's readers see its steps."""
        return any(each.action in {Action.ROLLBACK, Action.RESTORE} for each in self.timeline.pending)

    @property
    def has_late_deltacommit(self) -> bool:
        """Tell whether a slow writer has added to the metadata table after its undo; the next writer removes that."""
        known = {each.time for each in self.timeline.instants} - {each.time for each in self._voids()}
        return bool({time for time in self.metadata.instants.applied if time >= min(known, default="")} - known)

    def _voids(self) -> tuple[object, ...]:
        return self.table.context.store.load().voids

    def rows(self, columns: list[str]) -> pa.Table:
        """Read the rows of a copy-on-write table from the newest committed base file of each file group."""
        store = self.table.context.store
        storage, layout = store.storage, store.layout
        commits = [each for each in self.timeline.instants if each.action in COMMIT_ACTIONS]
        done = {each.time for each in commits if each.state is State.COMPLETED}
        start = min((each.time for each in commits), default="")
        replaced = set()
        for each in commits:
            if each.state is State.COMPLETED and each.action in REPLACE_ACTIONS:
                path = layout.path(each)
                metadata = decode_commit(storage.read(path), name=path)
                replaced |= {(folder, file_id) for folder, ids in metadata.replaced.items() for file_id in ids}
        newest: dict[tuple[str, str], tuple[str, str]] = {}
        for row in self.metadata.files().to_pylist():
            name = BaseFileName.match(row["file_name"])
            if name is None or (name.instant_time >= start and name.instant_time not in done):
                continue
            group = (row["partition_path"], name.file_id)
            found = (name.instant_time, join_path(row["partition_path"], row["file_name"]))
            if group not in replaced:
                newest[group] = max(newest.get(group, found), found)
        tables = [pq.read_table(pa.BufferReader(storage.read(path)), columns=columns) for _, path in newest.values()]
        return pa.concat_tables(tables)


def open_hudi_view(table: Table) -> HudiView | None:
    """Open the view. Return None if the table has no metadata table now."""
    store = table.context.store
    config = store.config()
    if "files" not in config.metadata_partitions:
        return None
    names = [entry.name for entry in store.storage.list(store.layout.folder) if not entry.is_folder]
    timeline = Timeline.of_file_names(names, None, store.layout)
    metadata = open_metadata_table(store.storage, config, timeline)
    assert metadata is not None
    return HudiView(table, timeline, metadata)


def find_disagreements(table: Table) -> list[str]:
    """Compare a table that is at rest with its metadata table by Hudi's rules. Return what is wrong."""
    view = open_hudi_view(table)
    if view is None:
        return []
    found = []
    storage = table.context.storage
    rows = view.metadata.files()
    paths = map(join_path, rows["partition_path"].to_pylist(), rows["file_name"].to_pylist())
    listed = dict(zip(paths, rows["size_bytes"].to_pylist(), strict=True))
    live = {file.path: file.size_bytes for piece in table.snapshot().each_slice() for file in piece.files}
    found += [f"the metadata table lacks {path}" for path in sorted(live.keys() - listed.keys())]
    found += [f"the metadata table names {path}, which is gone" for path in sorted(listed) if not storage.info(path)]
    found += [f"{path} has another size" for path, size in live.items() if path.endswith("t") and listed[path] != size]
    if "record_index" in view.metadata.names:
        found += _compare_keys(table, view.metadata)
    return found


def _compare_keys(table: Table, metadata: MetadataTable) -> list[str]:
    """Check that the record index has each live key with its place, and names live file groups alone."""
    places = {row["key"]: (row["partition_path"], row["file_id"]) for row in metadata.record_index().to_pylist()}
    groups = {(piece.group.partition_path, piece.group.file_id) for piece in table.snapshot().each_slice()}
    found = [f"key {key} is in {place}, which is no file group" for key, place in places.items() if place not in groups]
    columns = ["_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name"]
    for row in table.to_arrow(columns=columns).to_pylist():
        key, path, name = row.values()
        place = (path, name.removeprefix(".").partition("_")[0])
        if places.get(key) != place:
            found.append(f"key {key} is in {place}, the record index says {places.get(key)}")
    return found
