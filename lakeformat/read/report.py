"""Reports on a stored table: an overview (kind, size, columns), and a layout report.

The overview opens no data file. The layout report reads footers for the value ranges of the files, and a sample of the
rows. Its memory: the sampled rows of the requested columns, and the footers of `_MOST_FILES` files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.arrow.conform import reader_schema
from lakeformat.concurrency import thread_pool
from lakeformat.display import html_pairs, html_rows
from lakeformat.errors import InvalidInputError, LakeformatError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.live_files import FILE_COLUMNS, file_objects
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.footer_bounds import fold_files, row_group_bounds
from lakeformat.files.footers import read_metadata
from lakeformat.layout.boxes import FileRanges
from lakeformat.layout.layout_report import LayoutReport, Sample, estimate_layouts
from lakeformat.layout.ranks import leaf_type
from lakeformat.model.files import BaseFile
from lakeformat.predicate import Always, ColumnBounds, path_parts, resolve_column
from lakeformat.read.plan import FilePart, Split
from lakeformat.read.query import ReadQuery, readable_schema
from lakeformat.read.run.batches import read_split
from lakeformat.read.scan import list_files_table
from lakeformat.storage.port import Storage

__all__ = ["overview", "overview_html", "report_layout"]

#: Default of the maximum number of files whose footers and rows are read.
_MOST_FILES: Final = 4_096
#: Maximum number of row groups from which rows are drawn. The requested columns of each are read whole.
_MOST_ROW_GROUPS: Final = 256


def report_layout(
    storage: Storage,
    snapshot: Snapshot,
    columns: Sequence[str],
    *,
    target_file_bytes: int | None = None,
    selectivity: float = 0.01,
    sample_rows: int = 200_000,
    most_files: int = _MOST_FILES,
) -> LayoutReport:
    """Estimate how well filters skip files now and in other layouts. Arguments as in `lakeformat.Table.layout_report`.

    Args:
        most_files: maximum number of files whose footers and rows are read. If the table has more, they are chosen at
            equal distances.

    Raises:
        InvalidInputError: there are no columns, a column is not known, or the selectivity is not between 0 and 1.
        CorruptTableError: a file is damaged; the message names the file.
    """
    if not 0 < selectivity < 1:
        raise InvalidInputError(f"selectivity={selectivity} is not a share of rows; give one between 0 and 1")
    schema = readable_schema(snapshot.columns(storage.location), meta_columns=True)
    kinds = dict(resolve_column(column, schema) for column in columns)
    if not kinds or len(kinds) < len(columns):
        raise InvalidInputError(f"a layout needs one or more different columns, not {', '.join(columns) or 'none'}")
    for name, kind in kinds.items():
        leaf_type(pa.schema([(name, kind)]), name)
    live = _list_base_files(snapshot)
    files = file_objects(live.take(pa.array(_spread_evenly(len(live), most_files))))
    with thread_pool(max(2, pa.cpu_count())) as pool:
        footers = list(pool.map(lambda file: read_metadata(storage, file), files))
    bounds, rows, owner = row_group_bounds(footers, list(kinds), schema)
    folded, file_rows = fold_files(bounds, rows, owner, len(files))
    is_unknown = [snapshot.shape(file) is not None for file in files]
    known_rows = sum(file_rows.to_pylist())
    sample = _draw_sample(storage, snapshot, files, footers, kinds, sample_rows)
    folders = live["partition_path"].combine_chunks().dictionary_encode()
    partitions = {path: number for number, path in enumerate(folders.dictionary.to_pylist())}
    return estimate_layouts(
        Sample(
            sample.select(list(kinds)),
            np.array([partitions[path] for path in sample["partition"].to_pylist()], np.int64),
            _count_target_files(np.asarray(folders.indices), np.asarray(live["size_bytes"]), target_file_bytes),
        ),
        {name: _file_ranges(folded[name], file_rows, is_unknown) for name in kinds},
        rows=known_rows * len(live) // len(files) if files else 0,
        files=len(live),
        selectivity=selectivity,
    )


def _spread_evenly(count: int, most: int) -> npt.NDArray[np.int64]:
    """Return at most ``most`` of the numbers from 0 to ``count - 1``, at equal distances."""
    return np.arange(min(count, most)) * count // max(1, min(count, most))


def _list_base_files(snapshot: Snapshot) -> pa.Table:
    """Return the live base files as a table with `FILE_COLUMNS`, sorted by partition path and name."""
    files = [FILE_COLUMNS.empty_table(), *(portion.files for portion in snapshot.read_optimized().live.portions())]
    return pa.concat_tables(files).sort_by([("partition_path", "ascending"), ("name", "ascending")])


def _count_target_files(
    partition: npt.NDArray[np.int32], size_bytes: npt.NDArray[np.int64], target_bytes: int | None
) -> npt.NDArray[np.int64]:
    """Return the number of files of each partition after a rewrite into files of `target_bytes`.

    If there is no target size, each partition keeps its present number of files.

    Args:
        partition, size_bytes: the number of the partition, and the size, of each file.
    """
    if target_bytes is None:
        return np.bincount(partition)
    return np.maximum(1, np.ceil(np.bincount(partition, size_bytes) / target_bytes)).astype(np.int64)


def _file_ranges(bounds: ColumnBounds, rows: pa.Array, is_unknown: Sequence[bool]) -> FileRanges:
    """Return the value range of a column in each file.

    If the ``is_unknown`` flag of a file is set, its range is unknown, because its columns differ from the table's.
    """
    has_value = pa.array([not flag for flag in is_unknown], pa.bool_())
    blank = pc.and_(pc.fill_null(pc.equal(bounds.null_count, rows), False), has_value)
    nothing = pa.scalar(None, bounds.minimum.type)
    lowest, highest = (pc.if_else(has_value, of, nothing) for of in (bounds.minimum, bounds.maximum))
    return FileRanges(lowest, highest, np.asarray(blank))


def _draw_sample(
    storage: Storage,
    snapshot: Snapshot,
    files: Sequence[BaseFile],
    footers: Sequence[pq.FileMetaData],
    kinds: Mapping[str, pa.DataType],
    most_rows: int,
) -> pa.Table:
    """Draw rows, with their partition path, evenly from the files. Read at most `_MOST_ROW_GROUPS` row groups."""
    groups = [(number, group) for number, footer in enumerate(footers) for group in range(footer.num_row_groups)]
    sizes = np.array([footers[number].row_group(group).num_rows for number, group in groups], np.int64)
    schema = pa.schema([*kinds.items(), ("partition", pa.string())])
    total = int(sizes.sum())
    if not total:
        return schema.empty_table()
    table = snapshot.columns(storage.location)
    full = readable_schema(table, meta_columns=True)
    tops = dict.fromkeys(path_parts(name)[0] for name in kinds)
    query = ReadQuery(pa.schema([full.field(top) for top in tops]), Always(True))
    count = min(len(groups), _MOST_ROW_GROUPS)
    # Cut all rows into `count` runs of equal length. Read the row group that contains the middle row of each run. If a
    # large row group contains the middle rows of several runs, draw that many times more rows from it.
    middles = (np.arange(count) * 2 + 1) * total // (2 * count)
    drawn, times = np.unique(np.searchsorted(np.cumsum(sizes), middles, "right"), return_counts=True)

    def read_rows(group: int, share: int) -> pa.Table:
        file_number, number = groups[group]
        part = FilePart(files[file_number].path, 0, (number,), shape=snapshot.shape(files[file_number]))
        rows = pa.Table.from_batches(read_split(storage, Split((part,)), query, table), query.schema)
        rows = rows.take(pa.array(_spread_evenly(rows.num_rows, share * most_rows // count)))
        leaves = [_leaf(rows, name).cast(kind) for name, kind in kinds.items()]
        path = pa.array([files[file_number].partition_path], pa.string()).take(
            pa.array(np.zeros(rows.num_rows, np.int64))
        )
        return pa.table([*leaves, path], schema=schema)

    with thread_pool(max(2, pa.cpu_count())) as pool:
        return pa.concat_tables(pool.map(read_rows, drawn.tolist(), times.tolist()))


def _leaf(rows: pa.Table, path: str) -> pa.ChunkedArray:
    top, *inner = path_parts(path)
    column = rows[top]
    for part in inner:
        column = pc.struct_field(column, part)
    return column


def overview(context: TableContext, snapshot: Snapshot) -> dict[str, Any]:
    """Return a dict of facts about a table, ready for JSON. ``rows`` is None if counting needs footers or merges."""
    config = snapshot.config
    files = list_files_table(snapshot)
    counts = files["rows"]
    has_value = not counts.null_count and not snapshot.live.has_logs
    return {
        "name": config.name,
        "location": context.storage.location,
        "type": config.table_type.value if config.table_type else None,
        "version": config.version,
        "record_key": list(config.record_fields),
        "partition_by": list(config.partition_fields),
        "ordering": list(config.ordering_fields),
        "last_commit": snapshot.instant_time,
        "commits": len(snapshot.timeline.commits),
        "partitions": len(snapshot.live.partitions()),
        "files": snapshot.live.count,
        "log_files": sum(map(len, filter(None, files["log_files"].to_pylist()))) if snapshot.live.has_logs else 0,
        "bytes": snapshot.live.size_bytes,
        "rows": pc.sum(counts, min_count=0).as_py() if has_value else None,
    }


def overview_html(context: TableContext) -> str:
    """Return the overview and the columns as HTML. If the table cannot be read, return the reason as HTML."""
    try:
        snapshot = context.snapshot()
        facts = overview(context, snapshot)
    except LakeformatError as error:
        return html_pairs({"location": context.storage.location, "no table": str(error)})
    name = str(facts.pop("name"))
    plain = {key.replace("_", " "): value for key, value in facts.items() if value not in ([], 0) or key == "rows"}
    schema = reader_schema(snapshot.schema) if snapshot.schema is not None else []
    columns = html_rows(("column", "type"), [(field.name, str(field.type)) for field in schema])
    return html_pairs(plain, caption=name, more=columns)
