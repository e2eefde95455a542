"""The file index against the folders, and against the footers of the files: it decides which files nobody reads."""

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

#: Footers in memory at once.
_AT_ONCE: Final = 1000


def other_files(engine: Engine, files: frozenset[BaseFile]) -> Iterator[Finding]:
    """An index that is used, and names other files than the folders hold."""
    try:
        live = _used(engine)
        if live is None:
            return
        named = frozenset(file for portion in live.portions() for file in file_objects(portion.files))
        if named == files:
            return
        gone, lacking = len(named - files), len(files - named)
        why = f"live files that only the index names: {gone}, that only the folders hold: {lacking}"
    except LakeformatError as error:
        why = f"{error}"
    yield _wrong(why)


def lying_index(engine: Engine) -> Iterator[Finding]:
    """An index whose row counts or bounds leave out what the footers of the files tell.

    Reads the footers of all files that it names; those that are damaged or gone others tell of. Memory: a shard of the
    index, and a thousand footers.
    """
    with suppress(LakeformatError):  # What `other_files` tells.
        live = _used(engine)
        lies = sum(_lies(engine.storage, live, part) for part in live.parts) if live is not None else 0
        if lies:
            yield _wrong(f"the index has other row counts or bounds than the footers of {lies} file{'s' * (lies != 1)}")


def _used(engine: Engine) -> IndexedFiles | None:
    if not engine.use_index or not engine.storage.list(FOLDER):
        return None
    live = engine.snapshot().live
    return live if isinstance(live, IndexedFiles) else None


def _wrong(why: str) -> Finding:
    cure = f"{why}; lakeformat repair --yes removes the index, and the next write makes it again"
    return Finding(Kind.FILE_INDEX, FOLDER, cure, mends=True)


def _lies(storage: Storage, live: IndexedFiles, part: ShardPart) -> int:
    known = part.read(storage, live.schema, None)
    paths = indexed_paths(known.column_names)
    lies = 0
    if part.path and not part.changed:
        row = live.manifest.shards.slice(part.at, 1)
        summed, rows = add_up(known, live.schema)
        lies = known.num_rows * _count(row, rows, bounds_of(row, paths, live.schema), summed)
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
        lies += _count(some, rows, bounds_of(some, paths, live.schema), folded)
    return lies


def _count(files: pa.Table, rows: pa.Array, told: Mapping[str, ColumnBounds], true: Mapping[str, ColumnBounds]) -> int:
    """Files of which the index says too little. What one of the two doesn't know is no lie; bounds may be wider."""
    wrong = _flags(pc.not_equal(files.column("rows").combine_chunks(), rows))
    for path in told.keys() & true.keys():
        said, stands = told[path], true[path]
        wrong = pc.or_(wrong, _flags(pc.greater(said.minimum, stands.minimum)))
        wrong = pc.or_(wrong, _flags(pc.less(said.maximum, stands.maximum)))
        wrong = pc.or_(wrong, _flags(pc.not_equal(said.null_count, stands.null_count)))
    return int(pc.sum(wrong).as_py() or 0)


def _flags(flags: pa.Array) -> pa.Array:
    return pc.fill_null(flags, False)
