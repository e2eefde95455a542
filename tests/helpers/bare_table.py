"""Tables in memory that are only a timeline and the names of data files, for tests of single steps of a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakeformat.codec.properties import encode
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import PARTITION_MARKER
from lakeformat.model.instant import Instant, State
from lakeformat.storage import MemoryStorage, Storage
from lakeformat.storage.port import NoLocks
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.decisions import STATE_PATH
from tests.helpers.short_timelines import instant

__all__ = [
    "MemoryWithoutLocks",
    "bare_store",
    "base_name",
    "commit_of",
    "files_of",
    "log_name",
    "names",
    "put_files",
    "put_instants",
    "stored",
]


class MemoryWithoutLocks(NoLocks, MemoryStorage):
    """A storage in memory that excludes no other process, like an object store."""


def bare_store(storage: Storage | None = None, **properties: str) -> TimelineStore:
    """Return the timeline of a table of version 6 without instants, with more properties (``_`` means a dot)."""
    stored = {"hoodie.table.version": "6", "hoodie.table.timeline.timezone": "UTC"}
    stored |= {name.replace("_", "."): value for name, value in properties.items()}
    store = TimelineStore(MemoryStorage() if storage is None else storage)
    store.storage.create(".hoodie/hoodie.properties", encode(stored, comments=[]))
    return store


def put_instants(
    store: TimelineStore, text: str, contents: Mapping[str, bytes | CommitMetadata] | None = None
) -> tuple[Instant, ...]:
    """Create the files of some instants, given as in `short_timelines`.

    Args:
        contents: the contents of the newest file of an instant, by its word. By default a completed file is a commit
            without files, and another file is empty.
    """
    found = tuple(instant(word) for word in text.split())
    for word, each in zip(text.split(), found, strict=True):
        for state in State:
            if state.value <= each.state.value:
                is_last = state is each.state
                empty = CommitMetadata("UPSERT", {}) if state is State.COMPLETED else b""
                data = (contents or {}).get(word, empty) if is_last else b""
                encoded = store.layout.encode_commit(data) if isinstance(data, CommitMetadata) else data
                at = each if state is State.COMPLETED else each.at(state)
                store.storage.create(store.path(at), encoded)
    return found


def base_name(group: str, time: str) -> str:
    """Return the name of a base file."""
    return f"{group}-0_0-0-0_{time}.parquet"


def log_name(group: str, time: str, version: int = 1) -> str:
    """Return the name of a log file."""
    return f".{group}-0_{time}.log.{version}_0-0-0"


def put_files(store: TimelineStore, *paths: str) -> None:
    """Create data files without contents, and mark their folders as partitions."""
    for path in paths:
        store.storage.create(path, b"")
        marker = f"{path.rpartition('/')[0]}/{PARTITION_MARKER}".lstrip("/")
        store.storage.replace(marker, b"")


def files_of(storage: Storage, folder: str = "") -> list[str]:
    """Return the paths of all files below a folder, without the properties and the marks of partitions."""
    found: list[str] = []
    for entry in storage.list(folder):
        if entry.is_folder:
            found += files_of(storage, entry.path)
        elif entry.name not in ("hoodie.properties", PARTITION_MARKER):
            found.append(entry.path)
    return found


def names(text: str) -> list[str]:
    """Return the paths on the timeline of some words: ``c2`` is all files of commit 2, ``c2?`` its requested file."""
    store = bare_store(MemoryStorage())
    put_instants(store, text)
    return files_of(store.storage)


def stored(store: TimelineStore) -> list[str]:
    """Return the paths of all files but the state of the decisions, as `files_of` does."""
    return [path for path in files_of(store.storage) if path != STATE_PATH]


def commit_of(paths: Sequence[str], replaced: Mapping[str, tuple[str, ...]] | None = None) -> CommitMetadata:
    """Return the metadata of a commit that has written files."""
    stats: dict[str, tuple[WriteStat, ...]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        stat = WriteStat(name.lstrip(".").partition("_")[0], path, folder, None, 1)
        stats[folder] = (*stats.get(folder, ()), stat)
    return CommitMetadata("UPSERT", stats, replaced=replaced or {})
