"""Random tables and options of pyarrow's Parquet writer, and files spliced from row groups of others."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import assume
from hypothesis import strategies as st

from lakeformat.files.splice.spliced_file import SplicedFile
from lakeformat.files.splice.stored_groups import find_stored_groups, read_footer

__all__ = ["splice", "spliced_and_rewritten", "tables", "writer_options"]

_LEAVES: Sequence[tuple[pa.DataType, st.SearchStrategy[Any]]] = (
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)),
    (pa.binary(), st.binary(max_size=12)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", "UTC"), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))),
    (pa.timestamp("us"), st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1))),
    (pa.decimal128(20, 3), st.decimals(-(10**12), 10**12, places=3)),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from(["red", "green", "blue", ""])),
)
_CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]


def _kinds(depth: int) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    leaves = st.sampled_from(_LEAVES)
    if not depth:
        return leaves
    below = _kinds(depth - 1).filter(lambda kind: not pa.types.is_dictionary(kind[0]))
    return st.one_of(
        leaves,
        below.map(lambda kind: (pa.list_(kind[0]), st.lists(st.none() | kind[1], max_size=4))),
        st.lists(below, min_size=1, max_size=3).map(_struct_of),
        below.map(
            lambda kind: (
                pa.map_(pa.string(), kind[0]),
                st.dictionaries(st.sampled_from("abc"), st.none() | kind[1], max_size=3).map(lambda d: [*d.items()]),
            )
        ),
    )


def _struct_of(kinds: Sequence[tuple[pa.DataType, st.SearchStrategy[Any]]]) -> tuple[Any, Any]:
    names = [f"f{at}" for at in range(len(kinds))]
    values = {name: st.none() | kind[1] for name, kind in zip(names, kinds, strict=True)}
    return pa.struct([(name, kind[0]) for name, kind in zip(names, kinds, strict=True)]), st.fixed_dictionaries(values)


@st.composite
def tables(draw: st.DrawFn, depth: int = 2) -> pa.Table:
    """Draw a table of random columns; half of the columns have nulls."""
    columns = draw(st.lists(_kinds(depth), min_size=1, max_size=5))
    count = draw(st.integers(1, 60))
    arrays, fields = [], []
    for at, (kind, values) in enumerate(columns):
        nullable = draw(st.booleans())
        cells = draw(st.lists((st.none() | values) if nullable else values, min_size=1, max_size=8))
        repeated = [cells[row * 7 % len(cells)] for row in range(count)]
        arrays.append(pa.array(repeated, kind))
        fields.append(pa.field(f"c{at}", kind, nullable))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


@st.composite
def writer_options(draw: st.DrawFn, codecs: Sequence[str] = _CODECS) -> dict[str, Any]:
    """Draw options of pyarrow's Parquet writer."""
    return {
        "compression": draw(st.sampled_from(codecs)),
        "use_dictionary": draw(st.booleans()),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
        "data_page_size": draw(st.sampled_from([64, 1 << 20])),
        "write_page_index": draw(st.booleans()),
        "write_page_checksum": draw(st.booleans()),
        "write_statistics": draw(st.booleans()),
        "store_schema": draw(st.booleans()),
    }


def splice(data: bytes, copied: Iterable[int], new: pa.Table, order: Sequence[int], **options: Any) -> bytes:
    """Return a file with copied row groups of a file, and with new row groups.

    Args:
        order: the numbers of the copied row groups in their order; -1 is a new row group of all of ``new``.
    """
    source, sink = pa.BufferReader(data), pa.BufferOutputStream()
    groups = find_stored_groups(source, read_footer(source), copied)
    index = all(group.has_page_index for group in groups.values())
    file = SplicedFile(sink, keeps_page_index=index)
    writer = pq.ParquetWriter(file.stream, new.schema, **{**options, "write_page_index": index})
    for at in order:
        if at < 0:
            writer.write_table(new)
            file.note_written_group()
        else:
            file.copy(groups[at], {})
    metadata = file.finish(writer.close)
    spliced: bytes = sink.getvalue().to_pybytes()
    assert metadata.equals(pq.read_metadata(pa.BufferReader(spliced)))
    return spliced


def spliced_and_rewritten(
    data: st.DataObject, table: pa.Table, stored: dict[str, Any], fresh: dict[str, Any]
) -> tuple[bytes, bytes]:
    """Return a file of copied and new row groups in any order, and a file that pyarrow writes with the same rows.

    Args:
        stored: options of the file from which row groups are copied.
        fresh: options of the new row groups, and of the file that is rewritten.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=data.draw(st.integers(1, 40)), **stored)
    file = sink.getvalue().to_pybytes()
    source = pq.ParquetFile(pa.BufferReader(file))
    _assume_readable(file)
    order = data.draw(st.lists(st.integers(-1, source.metadata.num_row_groups - 1), min_size=1, max_size=6))
    new = table.slice(0, 5)
    spliced = splice(file, {*order} - {-1}, new, order, **fresh)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **fresh) as writer:
        for at in order:
            writer.write_table(new if at < 0 else source.read_row_group(at).cast(table.schema))
    rewritten = sink.getvalue().to_pybytes()
    _assume_readable(rewritten)
    return spliced, rewritten


def _assume_readable(file: bytes) -> None:
    """Leave out files that pyarrow writes and cannot read: empty lists that may not be null, in pages of version 2."""
    try:
        pq.read_table(pa.BufferReader(file))
    except pa.ArrowInvalid:
        assume(False)
