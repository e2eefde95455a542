"""One base file on its way to disk: meta columns, filter and footer (Hudi: ``HoodieSparkParquetWriter``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.codec.bloom import BloomFilter
from lakeformat.codec.conform import conform
from lakeformat.index.footers import BLOOM, BLOOM_TYPE, MAX_KEY, MIN_KEY
from lakeformat.model.files import BaseFileName
from lakeformat.model.record import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, META_COLUMNS, PARTITION_PATH, RECORD_KEY

__all__ = [
    "ROW_GROUP_ROWS",
    "BaseFileWriter",
    "FileSettings",
    "KeyRange",
    "constant",
    "roomy_filter",
    "seqnos",
    "stamped",
    "stored_schema",
]

#: Rows of a row group; also the unit in which files are read and merged.
ROW_GROUP_ROWS: Final = 131_072

_CONSTANT: Final = pa.dictionary(pa.int32(), pa.string())
#: Meta columns with a handful of values each: handed to Parquet as dictionaries, never hashed.
_REPEATED: Final = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)
_SAMPLE_ROWS: Final = 8192
_DICTIONARY_SHARE: Final = 0.5
_HEADROOM: Final = 1.2
#: Share of its size that a column of keys must shrink to.
_WORTH_COMPRESSING: Final = 0.4


@dataclass(frozen=True, slots=True)
class FileSettings:
    """What all files of one write share. ``fpp``: false-positive rate of the filter; sizes in bytes."""

    schema: pa.Schema
    avro_schema: str
    codec: str = "zstd"
    fpp: float = 1e-4
    max_file_bytes: int = 125829120


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The table's columns behind the five meta columns, as they are handed to the Parquet writer."""
    meta = [pa.field(name, _CONSTANT if name in _REPEATED else pa.string()) for name in META_COLUMNS]
    return pa.schema([*meta, *schema])


def constant(value: str, rows: int) -> pa.DictionaryArray:
    """One text, many times, as a dictionary column."""
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([value]))


class KeyRange:
    """Least and greatest key in Java's order, by UTF-16 units."""

    def __init__(self) -> None:
        self.minimum: str | None = None
        self.maximum: str | None = None

    def add(self, keys: pa.ChunkedArray) -> None:
        """Widen by these keys."""
        for chunk in keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]:
            if len(chunk):
                self._add(chunk)

    def _add(self, keys: pa.Array) -> None:
        if _has_high_bytes(keys):
            # Only text with characters from U+E000 on sorts otherwise in UTF-8; there are few such keys.
            is_high = pc.match_substring_regex(keys, "[\\x{E000}-\\x{10FFFF}]")
            high = keys.filter(is_high).to_pylist()
            if high:
                self._widen(min(high, key=_java_order), max(high, key=_java_order))
            keys = keys.filter(pc.invert(is_high))
        if len(keys):
            found = pc.min_max(keys)
            self._widen(found["min"].as_py(), found["max"].as_py())

    def _widen(self, low: str, high: str) -> None:
        self.minimum = low if self.minimum is None else min(self.minimum, low, key=_java_order)
        self.maximum = high if self.maximum is None else max(self.maximum, high, key=_java_order)


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _has_high_bytes(keys: pa.Array) -> bool:
    offsets, data = keys.buffers()[1:3]
    width = np.int64 if pa.types.is_large_string(keys.type) else np.int32
    ends = np.frombuffer(offsets, width)[[keys.offset, keys.offset + len(keys)]]
    if data is None or ends[0] == ends[1]:
        return False
    return bool((np.frombuffer(data, np.uint8)[ends[0] : ends[1]] >= 0xEE).any())


class BaseFileWriter:
    """Streams row groups into one base file.

    Args:
        sink: where the bytes go.
        name: the file's name, written into every row.
        bloom: a filter that already holds (some of) the keys; None collects all keys and sizes one at the end,
            at the cost of keeping the keys of this file in memory.
    """

    def __init__(
        self,
        sink: Any,
        partition_path: str,
        name: BaseFileName,
        settings: FileSettings,
        bloom: BloomFilter | None = None,
    ) -> None:
        self.sink, self.partition_path, self.name, self.settings = sink, partition_path, name, settings
        self.rows = 0
        self.range = KeyRange()
        self._bloom = bloom
        self._keys: list[pa.Array] = []
        self._writer: pq.ParquetWriter | None = None
        self._closed_bytes: int | None = None
        self._schema = stored_schema(settings.schema)

    @property
    def size_bytes(self) -> int:
        """Bytes written so far."""
        return int(self.sink.tell()) if self._closed_bytes is None else self._closed_bytes

    def write(self, rows: pa.Table, *, new_keys: pa.Array | pa.ChunkedArray | None = None) -> None:
        """Append rows as row groups.

        Args:
            rows: commit time (dictionary), seqno, record key and the table's columns, by name.
            new_keys: those keys the given filter lacks; None means all of them.
        """
        if not rows.num_rows:
            return
        keys = rows.column(RECORD_KEY)
        self.range.add(keys)
        if self._bloom is None:
            self._keys += keys.chunks
        else:
            self._bloom.add(keys if new_keys is None else new_keys)
        columns = {
            PARTITION_PATH: constant(self.partition_path, rows.num_rows),
            FILE_NAME: constant(str(self.name), rows.num_rows),
        }
        arrays = [columns[f.name] if f.name in columns else rows.column(f.name) for f in self._schema]
        self._open(rows).write_table(pa.Table.from_arrays(arrays, schema=self._schema), ROW_GROUP_ROWS)
        self.rows += rows.num_rows

    def _open(self, sample: pa.Table | None) -> pq.ParquetWriter:
        if self._writer is None:
            leaves = [path for field in self._schema for path in _leaves(field, field.name)]
            self._writer = pq.ParquetWriter(
                self.sink,
                self._schema,
                compression=self._codecs(leaves, sample),
                use_dictionary=[*_REPEATED, *_dictionary_columns(self.settings.schema, sample)],
                write_statistics=[path for path in leaves if path != COMMIT_SEQNO],
                store_schema=False,
                write_page_checksum=True,
            )
        return self._writer

    def _codecs(self, leaves: Sequence[str], sample: pa.Table | None) -> dict[str, str]:
        """Codec by leaf column; random keys, which hardly shrink, stay as they are: a merge is a tenth faster."""
        codecs = dict.fromkeys(leaves, self.settings.codec)
        if sample is not None and not _shrinks(sample.column(RECORD_KEY).slice(0, _SAMPLE_ROWS)):
            codecs[RECORD_KEY] = "none"
        return codecs

    def close(self) -> None:
        """Write filter and footer."""
        writer = self._open(None)
        bloom = self._bloom
        if bloom is None:
            bloom = roomy_filter(self.rows, self.settings.fpp)
            if self._keys:
                bloom.add(pa.chunked_array(self._keys))
        footer = {"parquet.avro.schema": self.settings.avro_schema, BLOOM: bloom.encode()}
        if bloom.keys_per_row is not None:
            footer[BLOOM_TYPE] = bloom.type_code
        if self.range.minimum is not None and self.range.maximum is not None:
            footer[MIN_KEY], footer[MAX_KEY] = self.range.minimum, self.range.maximum
        writer.add_key_value_metadata(footer)
        writer.close()
        self._closed_bytes = int(self.sink.tell())

    def __enter__(self) -> BaseFileWriter:
        return self

    def __exit__(self, *error: object) -> None:
        """After a failure let go of the sink; the file is thrown away by whoever opened it."""
        if self._closed_bytes is None and self._writer is not None:
            with suppress(pa.ArrowException, OSError):
                self._writer.close()


def stamped(rows: pa.Table, schema: pa.Schema, instant_time: str, task: int, first: int) -> pa.Table:
    """Prepared rows as rows of this instant: commit time, seqno and record key before the table's columns.

    Args:
        first: counter of the first row's seqno.
    """
    data = conform(rows, schema)
    table = pa.table({
        COMMIT_TIME: constant(instant_time, rows.num_rows),
        COMMIT_SEQNO: seqnos(instant_time, task, first, rows.num_rows),
        RECORD_KEY: rows.column(RECORD_KEY),
    })  # fmt: skip
    for field in data.schema:
        table = table.append_column(field, data.column(field.name))
    return table


def roomy_filter(rows: int, fpp: float) -> BloomFilter:
    """A filter with room for some more keys than there are, so that the next merges only add to it."""
    return BloomFilter.sized(int(rows * _HEADROOM), fpp)


def seqnos(instant_time: str, task: int, first: int, rows: int) -> pa.Array:
    """``<instant>_<task>_<counter>`` for rows from ``first`` on."""
    counters = pa.array(np.arange(first, first + rows)).cast(pa.string())
    return pc.binary_join_element_wise(f"{instant_time}_{task}", counters, "_")


def _shrinks(keys: pa.ChunkedArray) -> bool:
    data = "".join(keys.to_pylist()).encode()
    return len(pa.Codec("zstd").compress(data)) < len(data) * _WORTH_COMPRESSING


def _dictionary_columns(schema: pa.Schema, sample: pa.Table | None) -> list[str]:
    """Leaf columns for which a dictionary pays: values repeat in a sample. Nested leaves get one."""
    chosen: list[str] = []
    for field in schema:
        if pa.types.is_nested(field.type):
            chosen += _leaves(field, field.name)
        elif sample is not None:
            some = sample.column(field.name).slice(0, _SAMPLE_ROWS)
            if pc.count_distinct(some, mode="all").as_py() <= len(some) * _DICTIONARY_SHARE:
                chosen.append(field.name)
    return chosen


def _leaves(field: pa.Field, path: str) -> Iterator[str]:
    kind = field.type
    children: Sequence[tuple[str, pa.Field]]
    if pa.types.is_struct(kind):
        children = [(f"{path}.{child.name}", child) for child in kind]
    elif pa.types.is_map(kind):
        children = [(f"{path}.key_value.key", kind.key_field), (f"{path}.key_value.value", kind.item_field)]
    elif pa.types.is_list(kind):
        children = [(f"{path}.list.element", kind.value_field)]
    else:
        yield path
        return
    for below, child in children:
        yield from _leaves(child, below)
