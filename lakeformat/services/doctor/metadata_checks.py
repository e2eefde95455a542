"""Checks of Hudi's metadata table against the table's commits and files.

Hudi's readers and writers list files from that table. A live file that it lacks is not seen by them: its rows are
missing, and written again as new ones.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.errors import CorruptTableError, UnsupportedTableError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.metadata_table.index_definitions import read_secondary_indexes
from lakeformat.metadata_table.metadata_table import open_metadata_table
from lakeformat.metadata_table.names import FOLDER
from lakeformat.model.files import BaseFileName, join_path
from lakeformat.model.instant import Action
from lakeformat.model.table_config import TableConfig
from lakeformat.services.doctor.findings import Finding, Kind
from lakeformat.services.doctor.plan import Facts
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.upkeep.secondary_changes import index_type, read_index_keys

__all__ = ["check_metadata_table", "check_secondary_indexes"]

#: File name of a deltacommit of the metadata table, in timeline layout 1 or 2.
_APPLIED: Final = re.compile(r"(\d{17})(?:_\d{17})?\.deltacommit")
#: Prefix of the times of deltacommits that initialised the metadata table from a listing.
_INITIAL: Final = "0000"
#: Actions that delete files, and note this in the metadata table afterwards.
_DELETING: Final = frozenset({Action.CLEAN, Action.ROLLBACK, Action.RESTORE})


def check_metadata_table(
    store: TimelineStore, config: TableConfig, facts: Facts, damaged: Collection[str]
) -> Iterator[Finding]:
    """Yield findings if Hudi's metadata table lacks commits, cannot be read, or has other files than the folders.

    There is at most one finding of each sort, which counts the files and names one of them.

    Args:
        damaged: paths of live files that have other sizes than their commits say. If one was cut short, a metadata
            table that is made again would have its size, and readers would not notice the damage.
    """
    if not config.has_metadata_table:
        return
    lacking = _find_lacking_commits(store.storage, facts.timeline)
    if lacking:
        yield _finding(FOLDER, f"it lacks {len(lacking)} commits, {lacking[0]} for one")
        return
    try:
        stored = _read_files(store.storage, config, facts.timeline)
    except CorruptTableError:
        try:  # Another program may have compacted and cleaned it meanwhile.
            stored = _read_files(store.storage, config, store.load())
        except CorruptTableError as error:
            yield _finding(FOLDER, f"it cannot be read: {error}")
            return
    except UnsupportedTableError:
        return  # Newer releases of Hudi may read it.
    if stored is not None:
        yield from _compare_files(store, facts, stored, damaged)


def check_secondary_indexes(store: TimelineStore, snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a finding for each secondary index that does not have just the values and keys of all rows.

    Memory: the keys and values of all rows, twice.
    """
    with suppress(CorruptTableError, UnsupportedTableError):
        table = open_metadata_table(store.storage, snapshot.config, snapshot.timeline)
        indexes = read_secondary_indexes(table) if table is not None else ()
        for index in indexes:
            if table is None or index_type(snapshot.schema, index.column) is None:
                continue
            read = partial(read_index_keys, store.storage, snapshot, [index])
            right = pa.concat_arrays([read(piece).of[index.partition] for piece in snapshot.each_slice()])
            stored = table.secondary_index(index.partition)
            pairs = ((right, stored), (stored, right))
            wrong = [pc.sum(pc.invert(pc.is_in(column, value_set=other))).as_py() or 0 for column, other in pairs]
            if any(wrong):
                name = index.partition.value
                cure = f"it lacks {wrong[0]} rows and has {wrong[1]} too many; drop_index({name!r}), and make it again"
                yield Finding(Kind.METADATA_TABLE, index.partition.folder, cure)


def _finding(path: str, reason: str) -> Finding:
    cure = f"lakeformat repair --yes makes the metadata table again ({reason})"
    return Finding(Kind.METADATA_TABLE, path, cure, mends=True)


def _find_lacking_commits(storage: Storage, timeline: Timeline) -> list[str]:
    listed = [*storage.list(f"{FOLDER}/.hoodie"), *storage.list(f"{FOLDER}/.hoodie/timeline")]
    applied = {match[1] for entry in listed if (match := _APPLIED.fullmatch(entry.name))}
    first = min((time for time in applied if not time.startswith(_INITIAL)), default="~")
    return [i.time for i in timeline.commits if first <= i.time and i.time not in applied]


def _read_files(storage: Storage, config: TableConfig, timeline: Timeline) -> dict[str, int] | None:
    """Return the sizes of the files that the metadata table lists, by path; None if it lists none.

    Check, too, that no file group of the other partitions is missing.
    """
    table = open_metadata_table(storage, config, timeline)
    if table is None:
        return None
    table.check_file_groups()
    rows: pa.Table = table.files()
    columns = (rows[name].to_pylist() for name in ("partition_path", "file_name", "size_bytes"))
    return {join_path(path, name): size for path, name, size in zip(*columns, strict=True)}


def _compare_files(
    store: TimelineStore, facts: Facts, stored: Mapping[str, int], damaged: Collection[str]
) -> Iterator[Finding]:
    live = {file.path: file.size_bytes for piece in facts.slices for file in piece.files}
    lacks = sorted(path for path in live.keys() - stored.keys() if store.storage.info(path) is not None)
    if lacks:
        yield _finding(lacks[0], f"it lacks {len(lacks)} live files: Hudi does not see their rows")
    cut = {path for path in damaged if live.get(path, 0) < stored.get(path, 0)}
    comparable = [(path, size) for path, size in live.items() if path in stored and path not in cut]
    differ = sorted(path for path, size in comparable if _is_other_size(path, stored[path], size))
    if differ:
        path = differ[0]
        yield _finding(
            path, f"it has other sizes for {len(differ)} live files, here {stored[path]:,} bytes for {live[path]:,}"
        )
    listing = facts.listing
    present = {file.path for files in (listing.bases, listing.logs, listing.change_data) for file in files}
    gone = sorted(path for path in stored.keys() - present if store.storage.info(path) is None)
    if gone and not _may_be_deleting(store):
        yield _finding(gone[0], f"it names {len(gone)} files that are gone")


def _is_other_size(path: str, stored: int, listed: int) -> bool:
    """Tell whether a size is wrong. A log file may have grown by blocks that were never committed."""
    is_base = BaseFileName.match(path.rpartition("/")[2]) is not None
    return listed != stored if is_base else listed < stored


def _may_be_deleting(store: TimelineStore) -> bool:
    """Tell whether an action is under way, or has died, that deletes files before it updates the metadata table."""
    return any(instant.action in _DELETING for instant in store.load().pending)
