from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeformat.errors import CorruptTableError
from lakeformat.files.footers import open_parquet, row_batches

ROWS = pa.table(
    {
        "k": [f"k{n}" for n in range(100)],
        "n": pa.array([n if n % 3 else None for n in range(100)]),
        "c": ["x"] * 100,
        "l": [[n] * (n % 3) for n in range(100)],
    }
)


def write_parquet(**options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(ROWS, sink, row_group_size=60, write_page_checksum=True, **options)
    return sink.getvalue()


def read(data: bytes, batch_rows: int = 33, **options: object) -> pa.Table:
    parquet = open_parquet(io.BytesIO(data), "x/base.parquet")
    columns = options.pop("columns", ROWS.column_names)
    batches = list(row_batches(parquet, "x/base.parquet", batch_rows, columns=columns, **options))
    return pa.Table.from_batches(batches)


def test_reads_selected_row_groups_and_columns() -> None:
    data = write_parquet()
    assert read(data).equals(ROWS)
    assert read(data, row_groups=[1]).equals(ROWS.slice(60))
    assert read(data, row_groups=[1, 0], columns=["n"]).num_rows == 100
    assert sum(batch.num_rows for batch in row_batches(open_parquet(io.BytesIO(data), "x"), "x", 7, columns=[])) == 100
    assert list(row_batches(open_parquet(io.BytesIO(data), "x"), "x", 7, columns=["k"], row_groups=[])) == []


def headers(data: bytes) -> list[int]:
    """Return the positions of the page headers, roughly: they are before each page and have no checksum."""
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    chunks = [group.column(at) for group in groups for at in range(group.num_columns)]
    starts = [c.data_page_offset for c in chunks] + [c.dictionary_page_offset for c in chunks if c.has_dictionary_page]
    return [start + at for start in starts for at in range(24)]


@pytest.mark.parametrize("batch_rows", [20, 33])
def test_a_flipped_bit_in_a_page_header_is_an_error_or_makes_no_difference(batch_rows: int) -> None:
    data = write_parquet(compression="zstd")
    refused = 0
    for at in headers(data):
        for bit in range(5):
            flipped = data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]
            try:
                rows = read(flipped, batch_rows)
            except CorruptTableError as error:
                refused += "x/base.parquet" in str(error)
            else:
                assert rows.equals(ROWS), (at, bit)
    assert refused > 600


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" * 3, b"\0" * 64, b"hello, this is no parquet"])
def test_file_that_is_not_parquet_is_named(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match=r"^x/base\.parquet cannot be read as Parquet .*restore it"):
        open_parquet(io.BytesIO(data), "x/base.parquet")


class NoMemory(io.BytesIO):
    """A file whose footer makes the Parquet reader run out of memory, with the reader's own message."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise OSError("Couldn't deserialize thrift: std::bad_alloc")


def test_memory_error_is_not_reported_as_damage() -> None:
    with pytest.raises(MemoryError, match=r"x/base\.parquet"):
        open_parquet(NoMemory(write_parquet()), "x/base.parquet")
