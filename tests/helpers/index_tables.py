"""Small tables in memory for the file index, actions of programs that do not know it, and the check of the index."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakeformat import Table
from lakeformat.codec.timeline_files.commit import encode_commit_json
from lakeformat.config.resolve import resolve
from lakeformat.file_system_view.file_index.load import load_snapshot
from lakeformat.file_system_view.file_index.shards import IndexedFiles
from lakeformat.file_system_view.file_index.stored import FOLDER
from lakeformat.file_system_view.live_files import file_objects
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import BaseFileName, FileGroupId, join_path
from lakeformat.model.instant import Action, Instant, State
from lakeformat.storage import Clock, MemoryStorage, Storage, SystemClock
from lakeformat.storage.port import HOODIE
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import TableState
from lakeformat.timeline.timeline_layout import LAYOUT_1
from lakeformat.write.intake import create_table
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", p="string", v="float64", t="string")
#: No packing, so that files multiply; frequent snapshots of the index, in many shards.
OPTIONS: dict[str, Any] = {
    "recordkey": "id",
    "partitionpath": "p",
    "name": "t",
    "hoodie.parquet.small.file.limit": 0,
    "lakeformat.file.index.commits": 3,
    "lakeformat.file.index.shard.files": 2,
}


class MovedClock(SystemClock):
    """A clock that can be moved ahead."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


def new_table(storage: Storage | None = None, clock: Clock | None = None, **options: Any) -> Table:
    table = Table(storage or MemoryStorage(), resolve({**OPTIONS, **options}), clock=clock)
    create_table(table.context.store, table.options, SCHEMA, SystemClock())
    return table


def reopen(table: Table, **options: Any) -> Table:
    return Table(table.context.storage, resolve({**OPTIONS, **options}))


def open_as_foreign(table: Table) -> Table:
    """Return the table as a program sees it that does not know the index."""
    return reopen(table, **{"lakeformat.file.index": False})


def rows(*ids: int, partitions: int = 3, bump: int = 0) -> pa.Table:
    values = [None if i % 5 == 0 else float("nan") if i % 7 == 0 else i + bump / 10 for i in ids]
    texts = [None if i % 4 == 0 else "é" * (i % 90) for i in ids]
    return pa.table({"id": ids, "p": [f"p{i % partitions}" for i in ids], "v": values, "t": texts}, SCHEMA)


def compare_with_listing(table: Table, as_of: str | None = None) -> bool:
    """Compare the index with a listing. Return whether the index was used."""
    store = table.context.store
    found = load_snapshot(store, TableState(as_of))
    listed = load_snapshot(store, TableState(as_of), use_index=False)
    assert found.instant_time == listed.instant_time
    assert found.schema == listed.schema
    assert found.files == listed.files
    assert found.live.count == listed.live.count
    assert found.live.size_bytes == listed.live.size_bytes
    assert dict(found.by_partition) == dict(listed.by_partition)
    assert list(found.by_partition) == sorted(listed.by_partition)
    portions = [file for portion in found.live.portions(["id", "v"]) for file in file_objects(portion.files)]
    assert tuple(portions) == listed.files
    return isinstance(found.live, IndexedFiles) and found.live.is_whole


def copy_table(table: Table, copied: Storage | None = None) -> Table:
    """Return a copy of the table for a process that has read nothing yet."""
    copied, storage = copied or MemoryStorage(), table.context.storage
    folders = [""]
    while folders:
        for entry in storage.list(folders.pop()):
            if entry.is_folder:
                folders.append(entry.path)
            else:
                copied.replace(entry.path, storage.read(entry.path))
    return reopen(Table(copied))


def index_files(table: Table) -> list[str]:
    return [entry.path for entry in table.context.storage.list(FOLDER)]


# --- the actions of other programs -----------------------------------------------------------------------


def erase(storage: Storage, instant: Instant) -> None:
    for state in State:
        storage.delete(LAYOUT_1.path(instant.at(state)))


def restore(table: Table, count: int) -> None:
    """Restore as Hudi does: delete the newest commits and their files."""
    storage, store = table.context.storage, TimelineStore(table.context.storage)
    timeline = store.load()
    for instant in timeline.commits[len(timeline.commits) - count :]:
        metadata = store.read_commit(instant)
        erase(storage, instant)
        for stat in metadata.all_stats():
            storage.delete(stat.path)
    newest = timeline.newest_time or ""
    storage.create(LAYOUT_1.path(Instant(str(int(newest) + 1), Action.RESTORE, State.COMPLETED)), b"x")


def archive(table: Table, count: int, held: int = 0) -> None:
    """Archive the oldest commits as Hudi does, after deleting the file groups that they replaced.

    Args:
        held: the number of older commits that savepoints hold.
    """
    storage, store = table.context.storage, TimelineStore(table.context.storage)
    archived = f"{HOODIE}/archived/.commits_.archive.{len(storage.list(f'{HOODIE}/archived')) + 1}_1-0-1"
    storage.create(archived, b"#HUDI#")
    for instant in store.load().commits[held : held + count]:
        metadata = store.read_commit(instant)
        groups = {FileGroupId(path, id_) for path, ids in metadata.replaced.items() for id_ in ids}
        for group in groups:
            for entry in storage.list(group.partition_path):
                name = BaseFileName.match(entry.name)
                if name is not None and name.file_id == group.file_id:
                    storage.delete(entry.path)
        erase(storage, instant)


def begin_old(table: Table, before: int = -1) -> str | None:
    """Begin another program's instant that is older than a commit (by default the newest). Return it if possible."""
    storage, timeline = table.context.storage, TimelineStore(table.context.storage).load()
    if len(timeline.commits) < 2 or timeline.pending:
        return None
    time = str(int(timeline.commits[before].time) - 1)
    if any(instant.time == time for instant in timeline.instants):
        return None
    storage.create(f"{HOODIE}/{time}.commit.requested", b"")
    storage.create(f"{HOODIE}/{time}.inflight", b"")
    return time


def complete(table: Table, time: str) -> None:
    """Complete such an instant without a lock: it adds a copy of some file as a new file group."""
    storage = table.context.storage
    files = load_snapshot(table.context.store, use_index=False).files
    stats = {}
    for file in files[:1]:
        name = BaseFileName(f"late{time}-0", "0-0-0", time)
        data = storage.read(file.path)
        storage.replace(join_path(file.partition_path, str(name)), data)
        path = join_path(file.partition_path, str(name))
        stat = WriteStat(name.file_id, path, file.partition_path, None, 1, num_inserts=1, size_bytes=len(data))
        stats[file.partition_path] = (stat,)
    storage.create(f"{HOODIE}/{time}.commit", encode_commit_json(CommitMetadata("INSERT", stats)))
