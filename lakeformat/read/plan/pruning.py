"""Step 3, pure: leave out files by what their place and name tell, without opening one.

What commits prove of slices whose folder alone would leave them out: that their rows lie where the folder says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.errors import CorruptTableError
from lakeformat.file_system_view.folder_values import folder_values, off_folder, own_files, own_logs
from lakeformat.model.files import FileSlice
from lakeformat.model.keys import KeySettings
from lakeformat.model.record import COMMIT_TIME, FILE_NAME, PARTITION_PATH
from lakeformat.predicate import ColumnBounds, Predicate, may_match
from lakeformat.predicate.nodes import leaves
from lakeformat.storage.port import Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["proven_own", "prune_by_name"]

Flags = npt.NDArray[np.bool_]


def prune_by_name(
    files: pa.Table,
    predicate: Predicate,
    keys: KeySettings,
    schema: pa.Schema,
    bounds: Mapping[str, ColumnBounds],
    *,
    meta_columns: bool = True,
    folders_tell: bool = False,
) -> tuple[Flags, Flags]:
    """Which files may hold a match, judged by partition path, file name and instant.

    Args:
        files: of `lakeformat.file_system_view.live_files.FILE_COLUMNS`.
        bounds: of the filter's columns, as far as they are known.
        meta_columns: whether rows have them.
        folders_tell: rows have the partition values of their folder by definition.

    Returns:
        A flag a file; and those left out by a partition value alone of which nobody knows yet whether their rows have
        that value.
    """
    count = files.num_rows
    unknown = pa.nulls(count, pa.int64())
    folders = files.column("partition_path").combine_chunks().dictionary_encode()
    newest = files.column("instant_time").combine_chunks()
    names = {
        PARTITION_PATH: _exactly(folders.dictionary_decode()),
        FILE_NAME: _exactly(files.column("name").combine_chunks()),
        COMMIT_TIME: ColumnBounds(pa.nulls(count, pa.string()), newest, unknown),
    }
    if not meta_columns:
        names.clear()
    asked = {leaf.column for leaf in leaves(predicate)}
    found = folder_values(folders.dictionary.to_pylist(), keys, schema)
    values = {name: of.take(folders.indices) for name, of in found.items() if name in asked}
    flags = may_match(predicate, {**names, **{name: _exactly(of) for name, of in values.items()}}, unknown)
    doubted = np.zeros(count, np.bool_)
    by_value = ~flags & may_match(predicate, names, unknown) if values and not flags.all() else doubted
    if by_value.any() and not folders_tell:
        off, known = off_folder(values, bounds)
        flags |= by_value & off & known
        doubted = by_value & ~known
    return flags, doubted


def _exactly(values: pa.Array) -> ColumnBounds:
    """Bounds of columns that have one value a file; null where the value is not known."""
    nulls = pc.if_else(pc.is_valid(values), pa.scalar(0, pa.int64()), pa.scalar(None, pa.int64()))
    return ColumnBounds(values, values, nulls)


def proven_own(storage: Storage, timeline: Timeline, slices: Sequence[FileSlice]) -> npt.NDArray[np.bool_]:
    """Return a flag per slice: whether commits prove that its rows have the partition values of their folder.

    The proof for a log file needs one single commit that wrote all of it.
    """
    store = TimelineStore(storage)
    store.load()
    wanted = {each.base_instant for each in slices}
    since = min((each.base_instant for each in slices if each.logs), default=None)
    own: set[str] = set()
    logs: dict[str, int | None] = {}
    for instant in timeline.commits:
        logged = since is not None and instant.time >= since
        if instant.time in wanted or logged:
            with suppress(FileNotFoundError, CorruptTableError):  # An archived or damaged commit proves nothing.
                metadata = store.commit(instant)
                own |= own_files(metadata)
                logs |= {path: None if path in logs else size for path, size in own_logs(metadata).items()}
    return np.array(
        [
            (each.base is None or each.base.path in own)
            and all(logs.get(log.path) == log.size_bytes for log in each.logs)
            for each in slices
        ],
        np.bool_,
    )
