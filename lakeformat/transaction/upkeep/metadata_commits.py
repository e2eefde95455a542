"""What actions of this table do to Hudi's metadata table: they add to it, take back from it, or drop it.

Hudi's writers list files through the metadata table. If it lacked a commit, they would not see the commit's files and
would lose its rows (table-version-6, section 7). Therefore each action writes a deltacommit of its own instant time
before it becomes visible, and its undo removes that deltacommit before the action's pending files. What cannot be
maintained is dropped before the action becomes visible: one partition of the metadata table, or all of it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Final

from lakeformat.codec import properties
from lakeformat.config.metadata_options import COMPACT_COMMITS
from lakeformat.errors import CorruptTableError, UnsupportedTableError, WriteConflictError
from lakeformat.metadata_table.compaction import (
    compact,
    find_planned,
    is_compaction_due,
    last_compaction,
    remove_old_slices,
)
from lakeformat.metadata_table.deltacommit import MetadataChanges, remove_deltacommit, rows_of_files, write_deltacommit
from lakeformat.metadata_table.index_definitions import keep_definitions
from lakeformat.metadata_table.metadata_table import PROPERTIES, MetadataTable, open_metadata_table
from lakeformat.metadata_table.names import FIXED_PARTITIONS, FOLDER, MetadataPartition
from lakeformat.model.table_config import (
    INDEX_DEFS,
    METADATA_INFLIGHT,
    METADATA_PARTITIONS,
    PROPERTIES_PATH,
    VERSION,
    TableConfig,
)
from lakeformat.storage.port import Clock
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order.commit_order import order_of
from lakeformat.transaction.order.decisions import read_state
from lakeformat.transaction.order.properties_file import write_properties

__all__ = [
    "add_changes",
    "add_files",
    "add_undo",
    "drop_metadata_table",
    "drop_partitions",
    "find_archive_limit",
    "forget_partitions",
    "take_back_deltacommit",
    "take_back_late",
    "write_version",
]

_LOG: Final = logging.getLogger("lakeformat.write")
#: Errors of a metadata table that cannot be used: the next commit drops it.
_DAMAGE: Final = (CorruptTableError, UnsupportedTableError)
_COST: Final = "Hudi reads without them until a Hudi writer whose options ask for them builds them again from all files"
_COST_OF_SQL: Final = "Hudi reads without them; create index makes them again, that of Hudi's SQL for expressions"
_INDEX_NAME: Final = re.compile(r"[\w-]+")
_MADE_BY_OPTIONS: Final = frozenset(partition.value for partition in FIXED_PARTITIONS)


def drop_metadata_table(store: TimelineStore, clock: Clock) -> bool:
    """Remove the metadata table from the properties, then delete its folder. Return whether there was one."""
    storage = store.storage
    order = order_of(store)
    config = order.config()
    if not order.is_alone and not config.has_metadata_table:
        return False  # A folder without the property is one that readers ignore; repair() removes it.
    if config.has_metadata_table:
        forget_partitions(store, clock)
    if storage.info(FOLDER) is not None:
        storage.delete_folder(FOLDER)
        return True
    return config.has_metadata_table


def add_changes(
    store: TimelineStore,
    clock: Clock,
    instant_time: str,
    make_changes: Callable[[MetadataTable], MetadataChanges],
    *,
    compact_commits: int = COMPACT_COMMITS,
) -> None:
    """Write what a pending action changes into the metadata table, if there is one.

    Drop partitions that cannot follow; drop the metadata table if it cannot be read. A warning says so. Under a lock,
    call it while the lock is held.

    Args:
        make_changes: called with the metadata table.
        compact_commits: the table is compacted first if a file group has more log files.
    """
    order = order_of(store)
    config = order.config()
    _remove_stray_definitions(store, config)
    if not config.has_metadata_table:
        if order.is_alone and store.storage.info(FOLDER) is not None:
            store.storage.delete_folder(FOLDER)
        return
    timeline = store.load()  # Before the metadata table is opened: see `compact`.
    try:
        table = _open_whole(store, config, timeline)
        changes = make_changes(table)
        table = _without_lost(store, clock, table, changes.lost)
        if is_compaction_due(table, compact_commits):
            table = _compact(table, store.known_config, timeline, instant_time)
        _write(table, instant_time, changes, clock)
    except _DAMAGE as error:
        _drop_damaged(store, clock, instant_time, error)


def _remove_stray_definitions(store: TimelineStore, config: TableConfig) -> None:
    """Remove the definitions of indexes that the table's properties do not name, and what is left of their folders.

    Writes of lakeformat 0.1 left such definitions, and Hudi's writers without a metadata table do.
    """
    if config.get(INDEX_DEFS):
        kept = (*config.metadata_partitions, *config.pending_metadata_partitions)
        for name in keep_definitions(store.storage, kept):
            _LOG.warning(
                "removed the definition of the index %s of %s, which is not kept: %s",
                name,
                store.storage.location,
                _cost_of([name]),
            )
            if _INDEX_NAME.fullmatch(name):
                store.storage.delete_folder(f"{FOLDER}/{name}")


def _cost_of(names: Collection[str]) -> str:
    return _COST if _MADE_BY_OPTIONS.issuperset(names) else _COST_OF_SQL


def add_undo(
    store: TimelineStore,
    clock: Clock,
    instant_time: str,
    undone: Collection[str],
    make_changes: Callable[[MetadataTable, Timeline], MetadataChanges],
) -> None:
    """Write what the undo of completed commits changes into the metadata table, if there is one.

    Call it when the undo is pending, before any commit is hidden and before any file is deleted. It may be called
    again at any time. It does not compact, because a compaction would merge what is undone.

    Args:
        instant_time: the time of the rollback or restore.
        undone: times of the commits.
        make_changes: called with the metadata table and the table's timeline as they are without the commits.
    """
    config = order_of(store).config()
    if not config.has_metadata_table:
        return
    stored = store.load(as_stored=True)
    try:
        table = _open_whole(store, config, stored)
        if instant_time in table.instants.completions:
            return
        if find_planned(table) is not None:  # Its plan names log files that go.
            compact(table, stored, instant_time)
        without = stored.with_pending(frozenset(undone))
        table = _open_whole(store, config, without)
        changes = make_changes(table, without)
        _write(_without_lost(store, clock, table, changes.lost), instant_time, changes, clock)
    except _DAMAGE as error:
        _drop_damaged(store, clock, instant_time, error)


def _open_whole(store: TimelineStore, config: TableConfig, timeline: Timeline) -> MetadataTable:
    """Open the metadata table. Raise `CorruptTableError` if it does not list files, or lacks a commit of the table."""
    table = open_metadata_table(store.storage, config, timeline)
    if table is None:
        raise CorruptTableError("its partition files is missing or not complete")
    lacking, unknown = table.instants.find_lacking(timeline), None
    if order_of(store).is_alone:  # Else a slow writer may have added one, which the next writer removes.
        unknown = table.instants.find_unknown(timeline)
    if lacking or unknown:
        text = f"it lacks instant {lacking} of the table" if lacking else f"the table does not have its {unknown}"
        raise CorruptTableError(text)
    return table


def _without_lost(store: TimelineStore, clock: Clock, table: MetadataTable, lost: Collection[str]) -> MetadataTable:
    """Drop the partitions that cannot follow, and those that another program is building. Return what is left."""
    if lost := {*lost, *store.known_config.pending_metadata_partitions}:
        drop_partitions(store, clock, lost)
    return table.without(lost)


def _write(table: MetadataTable, instant_time: str, changes: MetadataChanges, clock: Clock) -> None:
    """Write a deltacommit, unless it is there already.

    Raises:
        WriteConflictError: another process writes it, because it took this one for dead.
    """
    if instant_time in table.instants.completions:
        return
    if instant_time in table.instants.times:
        remove_deltacommit(table, instant_time)  # An earlier try has died.
    try:
        write_deltacommit(table, instant_time, changes, clock)
    except FileExistsError as error:
        raise WriteConflictError(
            f"another process writes {instant_time} of the metadata table of {table.storage.location} ({error}); run "
            "this again"
        ) from None


def _drop_damaged(store: TimelineStore, clock: Clock, instant_time: str, error: Exception) -> None:
    drop_metadata_table(store, clock)
    _LOG.warning(
        "dropped the metadata table of %s, which could not be maintained by %s (%s): Hudi lists folders, and reads "
        "without statistics and indexes, until a Hudi writer with hoodie.metadata.enable=true builds it again",
        store.storage.location,
        instant_time,
        error,
    )


def add_files(store: TimelineStore, clock: Clock, instant_time: str, written: Sequence[tuple[str, str, int]]) -> None:
    """Add files without statistics, which a pending action has written, to the list of files.

    Args:
        written: partition path, name and size in bytes of each file.
    """
    changes = MetadataChanges({MetadataPartition.FILES: rows_of_files(written)})
    add_changes(store, clock, instant_time, lambda _: changes)


def _compact(table: MetadataTable, config: TableConfig, timeline: Timeline, instant_time: str) -> MetadataTable:
    """Compact the metadata table, if that is possible now. Return it as it is afterwards."""
    undone = read_state(table.storage)[0].undone_times
    if not compact(table, timeline, instant_time, undone=undone):
        return table
    after = open_metadata_table(table.storage, config, timeline)
    assert after is not None  # noqa: S101  It was opened before.
    remove_old_slices(after, min(instant.time for instant in (*timeline.instants, *timeline.voids)))
    return after


def forget_partitions(store: TimelineStore, clock: Clock, lost: Collection[str] | None = None) -> None:
    """Remove partitions of the metadata table from the definitions and properties: these, or by default all.

    The definition of an index that Hudi's SQL has made goes first: Hudi's readers look at nothing else. Call this
    before the folders are deleted.
    """
    version = order_of(store).version_of(PROPERTIES_PATH)
    config = store.config()
    values = {key: text for key, text in config.values.items() if key not in {METADATA_PARTITIONS, METADATA_INFLIGHT}}
    all_kept: set[str] = set()
    named = {METADATA_PARTITIONS: config.metadata_partitions, METADATA_INFLIGHT: config.pending_metadata_partitions}
    for key, names in named.items():
        if lost is not None and (kept := [name for name in names if name not in lost]):
            values[key] = ",".join(kept)
            all_kept.update(kept)
    if config.get(INDEX_DEFS):
        keep_definitions(store.storage, all_kept | _MADE_BY_OPTIONS)
    write_properties(store, values, clock, version)
    if config.get(INDEX_DEFS):
        keep_definitions(store.storage, all_kept)
    store.config()  # So that the next write of this process knows it.


def drop_partitions(
    store: TimelineStore, clock: Clock, lost: Collection[str], reason: str = "lakeformat cannot keep them up to date"
) -> None:
    """Remove partitions of the metadata table: from the properties, so that no reader uses them, then their folders."""
    storage = store.storage
    forget_partitions(store, clock, lost)
    for name in sorted(lost):
        storage.delete_folder(f"{FOLDER}/{name}")
    _LOG.warning(
        "dropped %s from the metadata table of %s, because %s: %s",
        ", ".join(sorted(lost)),
        storage.location,
        reason,
        _cost_of(lost),
    )


def take_back_deltacommit(store: TimelineStore, instant_time: str) -> None:
    """Remove what an action that is undone has added. Call it before the action's pending files are removed."""
    with suppress(*_DAMAGE):
        if (table := _open(store)) is not None:
            remove_deltacommit(table, instant_time)


def take_back_late(store: TimelineStore, undone: Collection[str]) -> None:
    """Remove deltacommits that slow writers have added after they were undone.

    Args:
        undone: times of the instants that were undone for good.
    """
    with suppress(*_DAMAGE):
        if undone and (table := _open(store)) is not None:
            for instant_time in sorted(table.instants.times & frozenset(undone)):
                remove_deltacommit(table, instant_time)


def write_version(store: TimelineStore, version: int) -> None:
    """Give the metadata table the version of its table, if it has one. The layouts of both versions must be equal."""
    storage = store.storage
    if not order_of(store).config().has_metadata_table or storage.info(PROPERTIES) is None:
        return
    values = dict(properties.decode(storage.read(PROPERTIES), name=f"{storage.location}/{PROPERTIES}"))
    values[VERSION] = str(version)
    storage.replace(PROPERTIES, properties.encode(values, comments=["Properties of the metadata table"]))


def find_archive_limit(store: TimelineStore) -> str:
    """Return the time from which on instants must stay on the timeline of a table that has a metadata table.

    In version 6 readers count a log block of the metadata table only if its instant is on the table's timeline. Its
    last compaction has merged all blocks before. Hudi: ``TimelineArchiverV2.getInstantsToArchive``.
    """
    with suppress(*_DAMAGE):
        if (table := _open(store)) is not None:
            return last_compaction(table)
    return ""


def _open(store: TimelineStore) -> MetadataTable | None:
    config = order_of(store).config()
    return open_metadata_table(store.storage, config, store.load()) if config.has_metadata_table else None
