"""Files and their column bounds as one Arrow table: the form in which deltas and shards are stored.

Besides `FILE_COLUMNS` the table has three columns for each indexed column: ``min/<path>`` and ``max/<path>`` (of the
table's type when they were written) and ``nulls/<path>`` (int64). A float column also has ``nans/<path>`` (int64). Null
means unknown. Files written before NaN was counted have no ``nans/`` column, and older releases ignore it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.conform import read_schema
from lakeformat.errors import InvalidInputError
from lakeformat.files.facts import FileStats, fold
from lakeformat.files.footer_bounds import converts
from lakeformat.model.files import BaseFile, FileGroupId
from lakeformat.model.record import META_COLUMNS
from lakeformat.predicate import ColumnBounds, resolve
from lakeformat.table_state.live import FILE_COLUMNS, file_columns

__all__ = [
    "KINDS",
    "add_up",
    "bounds_of",
    "bounds_schema",
    "file_table",
    "group_keys",
    "in_order",
    "indexed_paths",
    "key_of",
    "newest",
    "together",
    "with_bounds",
]

LOW, HIGH, NULLS, NANS = "min/", "max/", "nulls/", "nans/"
KINDS: Final = (LOW, HIGH, NULLS, NANS)
#: Separates partition path and file id, which cannot contain it.
_SEPARATOR: Final = "\x00"


def bounds_schema(table: pa.Schema) -> pa.Schema:
    """Return the columns that may have bounds, with the types readers see: the meta columns and the table's."""
    return pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *read_schema(table)])


def file_table(
    files: Sequence[tuple[BaseFile, FileStats | None]], columns: Sequence[str], schema: pa.Schema
) -> pa.Table:
    """Return a table of files with their known statistics, sorted by partition path and file id.

    Args:
        columns: paths of the indexed columns.
        schema: the result of `bounds_schema`.
    """
    facts = [stats or FileStats(()) for _, stats in files]
    known = pa.array([stats is not None for _, stats in files], pa.bool_())
    bounds, rows = fold(facts, columns, schema)
    table = file_columns([file for file, _ in files])
    groups = pa.array([len(stats.group_rows) for stats in facts], pa.int32())
    at = FILE_COLUMNS.get_field_index("rows")
    table = table.set_column(at, FILE_COLUMNS.field("rows"), _where(known, rows))
    table = table.set_column(at + 1, FILE_COLUMNS.field("row_groups"), _where(known, groups))
    found = {path: ColumnBounds(*(_where(known, part) for part in _parts(of))) for path, of in bounds.items()}
    return in_order(with_bounds(table, found))


def _where(known: pa.Array, values: pa.Array | None) -> pa.Array | None:
    return None if values is None else pc.if_else(known, values, pa.scalar(None, values.type))


def _parts(bounds: ColumnBounds) -> tuple[pa.Array, pa.Array, pa.Array, pa.Array | None]:
    return bounds.minimum, bounds.maximum, bounds.null_count, bounds.nan_count


def with_bounds(table: pa.Table, bounds: Mapping[str, ColumnBounds]) -> pa.Table:
    """Add the columns of the bounds to a table: three for each path, four for a float column."""
    more: dict[str, pa.Array] = {}
    for path, of in bounds.items():
        more |= {f"{kind}{path}": part for kind, part in zip(KINDS, _parts(of), strict=True) if part is not None}
    schema = pa.schema([*table.schema, *(pa.field(name, part.type) for name, part in more.items())])
    return pa.Table.from_arrays([*table.columns, *more.values()], schema=schema)


def indexed_paths(names: Iterable[str]) -> list[str]:
    """Return the paths of which a table with these columns has bounds."""
    return [name.removeprefix(NULLS) for name in names if name.startswith(NULLS)]


def bounds_of(table: pa.Table, columns: Iterable[str], schema: pa.Schema) -> dict[str, ColumnBounds]:
    """Return the bounds of some columns in the types that the schema has now; inexact conversions give unknown bounds.

    Args:
        columns: paths. A path is left out if the table has no bounds of it, or if the schema has no such leaf.
    """
    found: dict[str, ColumnBounds] = {}
    known = set(table.column_names)
    for path in columns:
        if f"{NULLS}{path}" not in known:
            continue
        wanted = _leaf(path, schema)
        if wanted is None:
            continue
        low, high = (_as_type(table.column(f"{kind}{path}"), wanted) for kind in (LOW, HIGH))
        counts = table.column(f"{NULLS}{path}").combine_chunks().cast(pa.int64())
        nans = _nan_counts(table, path, counts) if pa.types.is_floating(wanted) else None
        if low is None or high is None:
            low = high = pa.nulls(len(counts), wanted)
        found[path] = ColumnBounds(low, high, counts, nans)
    return found


def _nan_counts(table: pa.Table, path: str, nulls: pa.Array) -> pa.Array:
    """Return the NaN counts of a float column: 0 if it was stored as integers then, null if they were not counted."""
    if table.schema.get_field_index(f"{NANS}{path}") >= 0:
        return table.column(f"{NANS}{path}").combine_chunks().cast(pa.int64())
    was_float = pa.types.is_floating(table.schema.field(f"{LOW}{path}").type)
    nothing = pa.scalar(None, pa.int64())
    return pc.if_else(pc.is_valid(nulls), nothing if was_float else pa.scalar(0, pa.int64()), nothing)


def _as_type(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.Array | None:
    values = column.combine_chunks()
    if values.type.equals(wanted):
        return values
    if not converts(values.type, wanted):
        return None
    try:
        return values.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def together(tables: Sequence[pa.Table], schema: pa.Schema, paths: Sequence[str] | None = None) -> pa.Table:
    """Concatenate tables of files. Bounds that a table lacks are unknown for its files.

    Args:
        schema: gives the types of the bounds.
        paths: column paths whose bounds are kept; by default all that any table has.
    """
    if paths is None:
        paths = list(dict.fromkeys(path for table in tables for path in indexed_paths(table.column_names)))
    wanted = {path: of for path in paths if (of := _leaf(path, schema)) is not None}
    parts = []
    for table in tables:
        bounds = bounds_of(table, wanted, schema)
        whole = {path: bounds.get(path) or _unknown(table.num_rows, of) for path, of in wanted.items()}
        parts.append(with_bounds(table.select(FILE_COLUMNS.names).cast(FILE_COLUMNS), whole))
    return pa.concat_tables(parts)


def _unknown(count: int, of: pa.DataType) -> ColumnBounds:
    counts = pa.nulls(count, pa.int64())
    return ColumnBounds(pa.nulls(count, of), pa.nulls(count, of), counts, counts if pa.types.is_floating(of) else None)


def _leaf(path: str, schema: pa.Schema) -> pa.DataType | None:
    """Return the type of a leaf column; None if the schema has no such leaf."""
    try:
        of = resolve(path, schema)[1]
    except InvalidInputError:
        return None
    return None if pa.types.is_nested(of) else of


def key_of(group: FileGroupId) -> str:
    """Return a file group as one text. The texts sort by partition path and file id."""
    return f"{group.partition_path}{_SEPARATOR}{group.file_id}"


def group_keys(files: pa.Table) -> pa.Array:
    """Return `key_of` of the file group of each file."""
    ids = pc.struct_field(pc.extract_regex(files.column("name"), r"^(?P<id>[^_]+)_"), 0)
    return pc.binary_join_element_wise(files.column("partition_path"), ids, _SEPARATOR).combine_chunks()


def in_order(files: pa.Table) -> pa.Table:
    """Sort files by partition path and file id."""
    return files.take(pc.sort_indices(group_keys(files)))


def newest(files: pa.Table, hidden: pa.Array) -> pa.Table:
    """Return the newest version of each file group, sorted. If several versions have one instant, take the last row.

    Args:
        hidden: keys of file groups that are replaced, and left out.
    """
    keys = group_keys(files)
    kept = pc.invert(pc.is_in(keys, value_set=hidden.cast(keys.type)))
    files, keys = files.filter(kept), keys.filter(kept)
    order = pc.sort_indices(
        pa.table({"key": keys, "time": files.column("instant_time")}),
        sort_keys=[("key", "ascending"), ("time", "ascending")],
    )
    sorted_keys = keys.take(order)
    last: npt.NDArray[np.bool_] = np.ones(len(keys), bool)
    if len(keys) > 1:
        last[:-1] = np.asarray(pc.not_equal(sorted_keys.slice(1), sorted_keys.slice(0, len(keys) - 1)))
    return files.take(order.filter(pa.array(last)))


def add_up(files: pa.Table, schema: pa.Schema) -> tuple[dict[str, ColumnBounds], pa.Array]:
    """Return the bounds of all files together and their number of rows, which `may_match` tests for a whole shard.

    A minimum or maximum is unknown if it is unknown for any file that may hold a value; a count is unknown if it is
    unknown for any file.
    """
    rows = files.column("rows").combine_chunks()
    found: dict[str, ColumnBounds] = {}
    for path, of in bounds_of(files, indexed_paths(files.column_names), schema).items():
        all_null = pc.fill_null(pc.equal(of.null_count, rows), False)
        unknown = pc.and_not(pc.is_null(of.minimum), all_null)
        ends = pc.min_max(of.minimum)["min"], pc.min_max(of.maximum)["max"]
        if pc.any(unknown).as_py():
            ends = pa.scalar(None, of.minimum.type), pa.scalar(None, of.minimum.type)
        low, high = (pa.repeat(end, 1) for end in ends)  # Python cannot hold some dates and timestamps.
        nans = None if of.nan_count is None else _sum(of.nan_count)
        found[path] = ColumnBounds(low, high, _sum(of.null_count), nans)
    return found, _sum(rows)


def _sum(counts: pa.Array) -> pa.Array:
    return pa.array([None if counts.null_count else pc.sum(counts).as_py() or 0], pa.int64())
