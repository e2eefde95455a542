"""Base files as the write path makes them, and base files with missing or wrong footers."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.codec.bloom import BloomFilter
from lakeformat.files.base_file import ROW_GROUP_ROWS, BaseFileWriter, FileSettings, constant_column
from lakeformat.files.footers import BLOOM, BLOOM_TYPE, MAX_KEY, MIN_KEY
from lakeformat.keys.record_keys import make_seqnos
from lakeformat.model.files import BaseFile, BaseFileName
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage import Storage
from tests.helpers.tables import a_schema

__all__ = ["FOOTERS", "POOL", "Change", "rewrite", "write_file"]

SCHEMA = a_schema(v="int64")
INSTANT = "20240101000000000"


class Inline(Executor):
    """An executor that runs each call at once in the thread of the caller."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # The future holds every error of the call.
            future.set_exception(error)
        return future


POOL = Inline()


def write_file(
    storage: Storage,
    number: int,
    keys: Sequence[str],
    fpp: float = 0.01,
    *,
    partition: str = "",
    file_id: str | None = None,
    instant: str = INSTANT,
    row_group_rows: int = ROW_GROUP_ROWS,
) -> BaseFile:
    """Write a base file as the write path does, and return it.

    Args:
        number: makes the name and the sequence numbers of the file.
        keys: the record keys, one row each; ``v`` is the row number.
        fpp: the rate of false positives of the bloom filter.
    """
    name = BaseFileName(file_id or f"file-{number}", "0-0-0", instant)
    path = BaseFile(partition, name, 0).path
    rows = pa.table(
        {
            "_hoodie_commit_time": constant_column(INSTANT, len(keys)),
            "_hoodie_commit_seqno": make_seqnos(INSTANT, number, 0, len(keys)),
            RECORD_KEY: pa.array(keys, pa.string()),
            "v": pa.array(range(len(keys)), pa.int64()),
        }
    )
    settings = FileSettings(SCHEMA, "{}", fpp=fpp, row_group_rows=row_group_rows)
    with storage.open_output(path) as sink, BaseFileWriter(sink, partition, name, settings) as writer:
        writer.write(rows)
        writer.close()
        size = writer.size_bytes
    return BaseFile(partition, name, size)


Change = Callable[[dict[bytes, bytes]], dict[bytes, bytes]]


def rewrite(storage: Storage, file: BaseFile, change: Change, *, statistics: bool = True) -> None:
    """Write the same rows with a changed footer and with one row group for each row.

    Args:
        change: makes the new key-value metadata from the old.
        statistics: keep the column statistics.
    """
    with storage.open_input(file.path) as source:
        parquet = pq.ParquetFile(source)
        rows, footer = parquet.read(), parquet.metadata.metadata
    with storage.open_output(file.path) as sink:
        schema = rows.schema.remove_metadata()
        writer = pq.ParquetWriter(sink, schema, store_schema=False, write_statistics=statistics)
        writer.write_table(rows.replace_schema_metadata(None), 1)
        writer.add_key_value_metadata(change(dict(footer)))
        writer.close()


def without(*names: bytes) -> Change:
    return lambda footer: {name: value for name, value in footer.items() if name not in names}


def with_filter(value: bytes) -> Change:
    return lambda footer: {**footer, BLOOM: value}


def as_simple(footer: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return a footer with the same bits as a filter of the older type, which has no type code."""
    found = BloomFilter.decode(footer[BLOOM], "DYNAMIC_V0")
    simple = BloomFilter(bits=found.bits, hashes=found.hashes, rows=found.rows)
    return {**without(BLOOM, BLOOM_TYPE)(footer), BLOOM: simple.encode().encode()}


FOOTERS: dict[str, Change] = {
    "as written": lambda footer: footer,
    "simple filter": as_simple,
    "no filter": without(BLOOM, BLOOM_TYPE),
    "no range": without(MIN_KEY, MAX_KEY),
    "half a range": without(MIN_KEY),
    "nothing": lambda _: {},
    "no base64": with_filter(b"%%%"),
    "cut filter": with_filter(base64.b64encode(b"\xff\xff\xff\xff\x00\x00")),
    "unknown filter type": lambda footer: {**footer, BLOOM_TYPE: b"RIBBON"},
    "range of bytes": lambda footer: {**footer, MIN_KEY: b"\xff\xfe"},
}
