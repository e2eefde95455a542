"""Checks of the file index against the folders and the files' footers. Readers skip files by this index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.errors import CorruptTableError, LakeformatError
from lakeformat.files.footer_bounds import fold_files, row_group_bounds
from lakeformat.files.footers import read_metadata
from lakeformat.model.files import BaseFile
from lakeformat.predicate import ColumnBounds
from lakeformat.services.doctor.findings import Finding, Kind
from lakeformat.storage.port import Storage
from lakeformat.table_state.engine import Engine
from lakeformat.table_state.file_index.columns import add_up, bounds_of, indexed_paths
from lakeformat.table_state.file_index.live import IndexedFiles, ShardPart
from lakeformat.table_state.file_index.stored import FOLDER
from lakeformat.table_state.live import file_objects

__all__ = ["lying_index", "other_files"]

#: Footers held in memory at once.
_AT_ONCE: Final = 1000


def other_files(engine: Engine, files: frozenset[BaseFile]) -> Iterator[Finding]:
    """Yield a finding if the index is in use and lists other files than the folders hold."""
    try:
        live = _index_in_use(engine)
        if live is None:
            return
        indexed = frozenset(file for portion in live.portions() for file in file_objects(portion.files))
        if indexed == files:
            return
        gone, lacking = len(indexed - files), len(files - indexed)
        why = f"live files that only the index names: {gone}, that only the folders hold: {lacking}"
    except LakeformatError as error:
        why = f"{error}"
    yield _finding(why)


def lying_index(engine: Engine) -> Iterator[Finding]:
    """Yield a finding if the index's row counts or bounds contradict the footers of the files.

    Reads the footers of all files that the index lists. Other checks report damaged and missing files. Memory: one
    shard of the index and a thousand footers.
    """
    with suppress(LakeformatError):  # `other_files` reports it.
        live = _index_in_use(engine)
        wrong = sum(_count_wrong_files(engine.storage, live, part) for part in live.parts) if live is not None else 0
        if wrong:
            files = f"{wrong} file{'s' * (wrong != 1)}"
            yield _finding(f"the index has other row counts or bounds than the footers of {files}")


def _index_in_use(engine: Engine) -> IndexedFiles | None:
    """Return the files of the index; None if the table has no index or this engine does not use it."""
    if not engine.use_index or not engine.storage.list(FOLDER):
        return None
    live = engine.snapshot().live
    return live if isinstance(live, IndexedFiles) else None


def _finding(why: str) -> Finding:
    cure = f"{why}; lakeformat repair --yes removes the index, and the next write makes it again"
    return Finding(Kind.FILE_INDEX, FOLDER, cure, mends=True)


def _count_wrong_files(storage: Storage, live: IndexedFiles, part: ShardPart) -> int:
    """Count the files of one shard that the index describes wrongly."""
    known = part.read(storage, live.schema, None)
    paths = indexed_paths(known.column_names)
    wrong = 0
    if part.path and not part.changed:
        row = live.manifest.shards.slice(part.at, 1)
        summed, rows = add_up(known, live.schema)
        wrong = known.num_rows * _count_wrong_bounds(row, rows, bounds_of(row, paths, live.schema), summed)
    for start in range(0, known.num_rows, _AT_ONCE):
        some = known.slice(start, _AT_ONCE)
        footers, there = [], []
        for at, file in enumerate(file_objects(some)):
            with suppress(CorruptTableError):
                footers.append(read_metadata(storage, file))
                there.append(at)
        some = some.take(pa.array(there, pa.int64()))
        bounds, rows, owner = row_group_bounds(footers, paths, live.schema)
        folded, rows = fold_files(bounds, rows, owner, len(footers))
        wrong += _count_wrong_bounds(some, rows, bounds_of(some, paths, live.schema), folded)
    return wrong


def _count_wrong_bounds(
    files: pa.Table, rows: pa.Array, indexed: Mapping[str, ColumnBounds], true: Mapping[str, ColumnBounds]
) -> int:
    """Count the files that the index describes wrongly. Values that one side lacks are ignored; bounds may be wider."""
    wrong = _flags(pc.not_equal(files.column("rows").combine_chunks(), rows))
    for path in indexed.keys() & true.keys():
        stated, actual = indexed[path], true[path]
        wrong = pc.or_(wrong, _flags(pc.greater(stated.minimum, actual.minimum)))
        wrong = pc.or_(wrong, _flags(pc.less(stated.maximum, actual.maximum)))
        wrong = pc.or_(wrong, _flags(pc.not_equal(stated.null_count, actual.null_count)))
    return int(pc.sum(wrong).as_py() or 0)


def _flags(flags: pa.Array) -> pa.Array:
    return pc.fill_null(flags, False)
