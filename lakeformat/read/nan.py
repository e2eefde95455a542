"""Where float columns may hold NaN: no Parquet statistic tells, the file index does of files that were counted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.predicate import ColumnBounds, column_path, path_parts, resolve
from lakeformat.read.query import readable_schema
from lakeformat.timeline.snapshot import Snapshot

__all__ = ["may_hold_nan", "nan_free_columns"]


def may_hold_nan(
    snapshot: Snapshot, columns: Sequence[str], paths: Collection[str] | None = None
) -> Mapping[str, bool]:
    """Whether a column may hold NaN in any of some live files. False is certain; one of no floats never does.

    No file is opened: what the file index does not know, such as the files of other programs, may hold NaN.

    Args:
        columns: paths of leaves, or top columns; a struct may hold NaN if one of its leaves may, and a list or map
            with floats in it always may.
        paths: of the files in question, by default all live ones; of files that are not live nothing is known.

    Returns:
        One answer for each column, under the name given.

    Raises:
        InvalidInputError: a column is not in the table.
    """
    schema = readable_schema(snapshot.schema, meta_columns=True) if snapshot.schema is not None else pa.schema([])
    leaves = {column: _floats(*resolve(column, schema)) for column in columns}
    asked = sorted({leaf for found in leaves.values() for leaf in found if leaf is not None})
    suspects: set[str] = set()
    files = 0
    for portion in snapshot.live.portions(asked) if any(leaves.values()) else ():
        among = _paths_in(portion.files, paths)
        files += int(among.sum())
        for leaf in asked:
            bounds = portion.bounds.get(leaf)
            if among.any() and (bounds is None or not bounds.nan_free[among].all()):
                suspects.add(leaf)
    if paths is not None and files < len(set(paths)):
        suspects |= set(asked)
    some = files > 0 if paths is None else bool(paths)
    return {column: some and any(x is None or x in suspects for x in found) for column, found in leaves.items()}


def nan_free_columns(bounds: Mapping[str, ColumnBounds], files: npt.NDArray[np.int64]) -> list[tuple[str, ...]]:
    """For each of these files the float columns, by path, that are known to hold no NaN in it."""
    flags = [(path, of.nan_free[files]) for path, of in bounds.items() if pa.types.is_floating(of.minimum.type)]
    if not flags:
        return [()] * len(files)
    known: dict[tuple[bool, ...], tuple[str, ...]] = {}  # Most files are alike.
    found = []
    for row in zip(*(column.tolist() for _, column in flags), strict=True):
        if row not in known:
            known[row] = tuple(path for (path, _), flag in zip(flags, row, strict=True) if flag)
        found.append(known[row])
    return found


def _paths_in(files: pa.Table, wanted: Collection[str] | None) -> npt.NDArray[np.bool_]:
    if wanted is None:
        return np.ones(files.num_rows, bool)
    folders, names = files.column("partition_path"), files.column("name")
    paths = pc.if_else(pc.equal(folders, ""), names, pc.binary_join_element_wise(folders, names, "/"))
    return np.asarray(pc.is_in(paths, value_set=pa.array(sorted(wanted), pa.string())))


def _floats(path: str, of: pa.DataType) -> list[str | None]:
    """Paths of the floats at or below a column; None for those in lists and maps, of which nothing is known."""
    if pa.types.is_floating(of):
        return [path]
    if pa.types.is_struct(of):
        return [leaf for field in of for leaf in _floats(column_path([*path_parts(path), field.name]), field.type)]
    if pa.types.is_nested(of):
        inner = [of.key_type, of.item_type] if pa.types.is_map(of) else [of.value_type]
        return [None for each in inner if _floats(path, each)]
    return []
