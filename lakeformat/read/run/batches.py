"""Step 6 of a read (``docs/design/read-path.md``): read splits as Arrow batches with the query's rows and columns.

Memory: one row group's pages of the columns read, plus two batches, each of up to `_MOST_BYTES`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.arrow.conform import conform
from lakeformat.arrow.row_bytes import split_rows
from lakeformat.files.footer_bounds import row_group_bounds
from lakeformat.files.footers import choose_dictionary_reads, open_parquet, row_batches
from lakeformat.files.missing_files import missing_file_error
from lakeformat.files.replaced_rows import read_replacing_rows
from lakeformat.files.skeletons import open_rows
from lakeformat.files.slice_reader import read_slice
from lakeformat.files.slice_skipping import Skipping
from lakeformat.predicate import Always, mask, may_match, path_parts
from lakeformat.read.plan import FilePart, SlicePart, Split
from lakeformat.read.query import ReadQuery, readable_schema
from lakeformat.storage.port import Storage

__all__ = ["BATCH_ROWS", "read_split"]

#: Maximum number of rows of a batch.
BATCH_ROWS = 65_536
#: Maximum size in bytes up to which small batches are joined into one. They are joined because each batch costs its
#: consumer a fixed time, a millisecond in Spark.
_BATCH_BYTES = 16 << 20
#: Maximum decoded size of a batch in bytes. Only a single row may take more.
_MOST_BYTES = 32 << 20


def read_split(
    storage: Storage,
    split: Split,
    query: ReadQuery,
    table: pa.Schema,
    *,
    footers: Mapping[str, pq.FileMetaData] = MappingProxyType({}),
    threads: bool = True,
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the matching rows of a split, with exactly the query's columns, in batches of up to `BATCH_ROWS`.

    The plan does not open every footer, so it may leave in row groups without a match. These are skipped here: the
    footer of each file is opened, and its statistics rule them out.

    Args:
        table: the table's schema, without meta columns.
        footers: footers that have been read already, by path.
        threads: whether threads decode columns in parallel, which takes a tenth more work.

    Raises:
        CorruptTableError: a file is missing or damaged; the message names the file.
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in _batches(storage, split, query, table, footers, threads=threads):
        if held and (rows + batch.num_rows > BATCH_ROWS or size + batch.nbytes > _BATCH_BYTES):
            yield _join_batches(held)
            held, rows, size = [], 0, 0
        large = batch.num_rows >= BATCH_ROWS // 2 or batch.nbytes >= _BATCH_BYTES // 2
        if not batch.num_columns or (large and not held):
            yield batch
        else:
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
    if held:
        yield _join_batches(held)


def _join_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


def _batches(
    storage: Storage,
    split: Split,
    query: ReadQuery,
    table: pa.Schema,
    footers: Mapping[str, pq.FileMetaData],
    *,
    threads: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield the matching rows in batches as they were read, not joined."""
    full = readable_schema(table, meta_columns=True)
    wanted_names = set(query.schema.names)
    needed = pa.schema([(query.schema if name in wanted_names else full).field(name) for name in query.file_columns()])
    filtered = query.predicate != Always(True)
    for part in split.parts:
        if isinstance(part, SlicePart) and part.replacing_only:
            rows = read_replacing_rows(
                storage, part.slice, part.merging, full, needed.names,
                most_rows=BATCH_ROWS, most_bytes=_MOST_BYTES, threads=threads,
            )  # fmt: skip
        elif isinstance(part, SlicePart):
            rows = read_slice(
                storage, part.slice, part.merging, full, needed.names,
                most_rows=BATCH_ROWS, most_bytes=_MOST_BYTES, threads=threads,
                skipping=Skipping(query.predicate, full) if filtered and query.skipping else None,
            )  # fmt: skip
        else:
            rows = _rows_of_file(storage, part, query, full, needed.names, footers.get(part.path), threads=threads)
        for batch in rows:
            shaped = conform(batch, needed)
            if filtered:
                shaped = shaped.filter(mask(query.predicate, shaped))
            if shaped.num_rows:
                yield shaped.select(query.schema.names) if len(needed) > len(query.schema) else shaped


def _rows_of_file(
    storage: Storage,
    part: FilePart,
    query: ReadQuery,
    table: pa.Schema,
    names: Sequence[str],
    metadata: pq.FileMetaData | None,
    *,
    threads: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the row groups of a base file that may contain a match, with the file's column types.

    Args:
        names: names of the needed columns.
        metadata: the footer, if it has been read already.
    """
    where = f"{storage.location}/{part.path}"
    try:
        with open_rows(storage, part.path) as source, open_parquet(source, where, metadata=metadata) as parquet:
            present, footer, shape = set(parquet.schema_arrow.names), parquet.metadata, part.shape
            wanted_names = names if shape is None else shape.stored_names(names, part.instant_time)
            columns = [name for name in wanted_names if name in present]
            groups: Sequence[int] | None = part.row_groups
            if query.predicate != Always(True) and query.skipping:
                groups = _may_match(footer, part, query, table)
                if not groups:
                    return
            repeated = choose_dictionary_reads(footer, columns)
            reader = open_parquet(source, where, metadata=footer, read_dictionary=repeated)
            batches = row_batches(
                reader,
                where,
                BATCH_ROWS,
                columns=columns,
                row_groups=groups,
                threads=threads,
                most_bytes=_MOST_BYTES,
            )
            for batch in (piece for some in batches for piece in split_rows(some, BATCH_ROWS, _MOST_BYTES)):
                yield batch if shape is None else shape.restore(batch, names, part.instant_time)
    except FileNotFoundError:
        raise missing_file_error(storage, part.path) from None


def _may_match(footer: pq.FileMetaData, part: FilePart, query: ReadQuery, table: pa.Schema) -> Sequence[int]:
    """Return the row groups of the part that may hold a row that the query selects."""
    without_statistics = part.columns_without_statistics
    columns = [path for path in query.filter_paths if path_parts(path)[0] not in without_statistics]
    bounds, rows, _ = row_group_bounds([footer], columns, table, [part.nan_free])
    kept: list[int] = np.flatnonzero(may_match(query.predicate, bounds, rows)).tolist()
    return kept if part.row_groups is None else [group for group in part.row_groups if group in kept]
