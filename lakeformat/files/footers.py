"""The footers of base files: record key range and bloom filter (Hudi: ``HoodieBaseParquetWriter`` footer metadata)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.arrow.kinds import OFFSETS, Kind, kind_of
from lakeformat.codec.bloom import BloomFilter
from lakeformat.errors import CorruptTableError, StorageError
from lakeformat.files.batch_rows import MOST_BYTES, OpenParquet, choose_batch_rows, leaf_positions
from lakeformat.files.missing_files import missing_file_error
from lakeformat.files.skeletons import open_rows
from lakeformat.model.files import BaseFile
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage

__all__ = [
    "BLOOM",
    "BLOOM_TYPE",
    "MAX_KEY",
    "MIN_KEY",
    "OLD_BLOOM",
    "KeyFooter",
    "KeyRange",
    "choose_dictionary_reads",
    "find_dictionary_texts",
    "group_bytes",
    "open_base",
    "open_parquet",
    "parse_key_footer",
    "read_key_footer",
    "read_key_footers",
    "read_metadata",
    "row_batches",
]

_LOG: Final = logging.getLogger("lakeformat.index")

BLOOM: Final = b"org.apache.hudi.bloomfilter"
#: The key of the bloom filter in files that Hudi wrote before it joined Apache.
OLD_BLOOM: Final = b"com.uber.hoodie.bloomfilter"
BLOOM_TYPE: Final = b"hoodie_bloom_filter_type_code"
MIN_KEY: Final = b"hoodie_min_record_key"
MAX_KEY: Final = b"hoodie_max_record_key"

#: Maximum bytes of parsed footers in memory. Bloom filters are the largest part of a footer.
_KEPT_BYTES: Final = 64 << 20
#: Number of files that are submitted to the thread pool at a time.
_AT_A_TIME: Final = 64
#: A string column chunk counts as dictionary encoded if it stores fewer bytes per value than this.
_DICTIONARY_BYTES: Final = 2

#: Hudi compares record keys as Java strings, by UTF-16 code units. Comparing UTF-8 bytes is faster. If no UTF-8 byte of
#: the keys is at least this value, both orders are the same.
_OTHER_ORDER: Final = 0xEE
#: The thread that asks decodes a row group of at most this many bytes: handing its columns to others takes longer.
_FEW_BYTES: Final = 64 << 10


@dataclass(frozen=True)
class KeyFooter:
    """The facts about the record keys of one base file, from its footer.

    Attributes:
        rows: row count.
        minimum, maximum: bounds of the keys in UTF-8 order; None if no bound can be trusted.
        filter_bytes: length of the encoded bloom filter, 0 if there is none.
        footer_bytes: length of the footer.
        metadata: the parsed footer; None if it was freed to save memory: then it is read again when needed.
    """

    file: BaseFile
    rows: int
    minimum: str | None
    maximum: str | None
    filter_bytes: int
    footer_bytes: int
    metadata: pq.FileMetaData | None = field(repr=False)

    def bloom(self, storage: Storage) -> BloomFilter | None:
        """Return the filter, or None if there is none.

        If the filter cannot be decoded, log a warning and return None; the caller then reads the keys.
        """
        if not self.filter_bytes:
            return None
        metadata = self.metadata or read_metadata(storage, self.file)
        entries = metadata.metadata or {}
        kind = entries.get(BLOOM_TYPE)
        try:
            return BloomFilter.decode(_filter_text(entries), kind.decode("utf-8", "replace") if kind else None)
        except CorruptTableError as error:
            _LOG.warning("bloom filter of %s cannot be used, its keys are read instead: %s", self.file.path, error)
            return None


def open_parquet(source: Any, path: str, **options: Any) -> OpenParquet:
    """Open a base file and verify the checksums of the pages that are read.

    Raise `CorruptTableError`, which names the file, if it cannot be read as Parquet, and `MemoryError` if memory runs
    out.
    """
    try:
        parquet = OpenParquet(source, **options)
        parquet.schema_arrow  # noqa: B018  Decode the schema here, so that damaged names raise the error below.
    except StorageError:
        raise
    except (pa.ArrowInvalid, OSError, UnicodeDecodeError) as error:
        raise _unreadable(f"{path} cannot be read as Parquet", error) from None
    return parquet


def _unreadable(what: str, error: Exception) -> Exception:
    """Convert an error of the Parquet reader, which also reports damage if memory runs out while it reads a header."""
    if "bad_alloc" in str(error):
        return MemoryError(f"{what}: out of memory")
    return CorruptTableError(f"{what} ({str(error).splitlines()[0]}); restore it from a copy")


def row_batches(
    parquet: OpenParquet,
    path: str,
    rows: int,
    *,
    columns: Sequence[str],
    row_groups: Sequence[int] | None = None,
    threads: bool = True,
    most_bytes: int = MOST_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield batches of at most ``rows`` rows and about ``most_bytes`` with the named columns of some or all row groups.

    A damaged page header may end a column early or late without an error from the Parquet reader. So the rows of each
    row group are counted. No batch crosses the end of a row group, because otherwise a column with too few or too many
    values would shift against the other columns.

    Args:
        threads: decode columns in parallel; costs a tenth more work, so leave it off if all cores are busy anyway.
        most_bytes: approximate maximum decoded size of a batch in bytes. Texts read as dictionaries do not count.

    Raises:
        CorruptTableError: a page is damaged; the message names the file.
    """
    groups = range(parquet.metadata.num_row_groups) if row_groups is None else row_groups
    read = (
        list(columns) or parquet.schema_arrow.names[:1]
    )  # Without a column, the rows would be as many as are claimed.
    leaves = leaf_positions(parquet, read)
    for group in groups:
        row_group = parquet.metadata.row_group(group)
        missing, many = row_group.num_rows, threads and row_group.total_byte_size > _FEW_BYTES
        try:
            step = choose_batch_rows(parquet, group, leaves, rows, most_bytes)
            for batch in parquet.iter_batches(step, row_groups=[group], columns=read, use_threads=many):
                missing -= batch.num_rows
                for column in batch.columns:
                    if kind_of(column.type) is Kind.DICTIONARY:
                        column.validate(full=True)  # If a header is damaged, indices may point outside the dictionary.
                yield batch if columns else batch.select([])
        except StorageError:
            raise
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise _unreadable(f"{path} cannot be read", error) from None
        if missing:
            raise CorruptTableError(f"{path} has fewer or more rows than its footer says; restore it from a copy")


@contextmanager
def open_base(storage: Storage, file: BaseFile) -> Iterator[Any]:
    """Open a base file that must exist. Raise `CorruptTableError` if it is missing."""
    try:
        source = open_rows(storage, file.path)
    except FileNotFoundError:
        raise missing_file_error(storage, file.path) from None
    with source as opened:
        yield opened


def read_metadata(storage: Storage, file: BaseFile) -> pq.FileMetaData:
    """Read the Parquet footer of a base file. Raise `CorruptTableError` if the file is missing or damaged."""
    with open_base(storage, file) as source, open_parquet(source, f"{storage.location}/{file.path}") as parquet:
        return parquet.metadata


def choose_dictionary_reads(footer: pq.FileMetaData, columns: Sequence[str]) -> list[str]:
    """Return the text columns that are dictionary encoded in the first row group: these decode faster as dictionaries.

    A string that is not in a dictionary takes at least four bytes, for its length. So if a column takes less than two
    bytes per value, most of its values are in a dictionary.
    """
    if not footer.num_row_groups:
        return []
    group = footer.row_group(0)
    chunks = (group.column(column) for column in range(group.num_columns))
    small = {c.path_in_schema for c in chunks if c.physical_type == "BYTE_ARRAY" and _is_small(c)}
    return [name for name in columns if name in small]


def _is_small(chunk: pq.ColumnChunkMetaData) -> bool:
    return bool(chunk.has_dictionary_page and chunk.total_uncompressed_size < _DICTIONARY_BYTES * chunk.num_values)


def group_bytes(footer: pq.FileMetaData, group: int) -> int:
    """Return the compressed bytes of a row group."""
    row_group = footer.row_group(group)
    return sum(row_group.column(column).total_compressed_size for column in range(row_group.num_columns))


def read_key_footer(storage: Storage, file: BaseFile) -> KeyFooter:
    """Read the file's footer and return its facts about the keys."""
    return parse_key_footer(file, read_metadata(storage, file))


def parse_key_footer(file: BaseFile, metadata: pq.FileMetaData) -> KeyFooter:
    """Return the facts about the keys in a footer that is already read."""
    entries = metadata.metadata or {}
    minimum, maximum = _key_range(metadata, entries)
    return KeyFooter(
        file, metadata.num_rows, minimum, maximum, len(_filter_text(entries)), metadata.serialized_size, metadata
    )


def _filter_text(entries: dict[bytes, bytes]) -> bytes:
    return entries.get(BLOOM) or entries.get(OLD_BLOOM, b"")


def read_key_footers(storage: Storage, files: Sequence[BaseFile], pool: Executor) -> list[KeyFooter]:
    """Read the footers of many files, in order. Memory: 64 MB of parsed footers, and the key range of every file."""
    footers: list[KeyFooter] = []
    held_bytes = 0
    # `map` submits all its files at once, so it gets a few files at a time.
    for start in range(0, len(files), _AT_A_TIME):
        for footer in pool.map(lambda file: read_key_footer(storage, file), files[start : start + _AT_A_TIME]):
            held_bytes += footer.footer_bytes
            footers.append(footer if held_bytes <= _KEPT_BYTES else replace(footer, metadata=None))
    return footers


def _key_range(metadata: pq.FileMetaData, entries: dict[bytes, bytes]) -> tuple[str | None, str | None]:
    """Return the key range in Hudi's footer entries, widened by the column statistics of the record key column.

    If the key range were too narrow, look-ups would miss keys of the file. So the lower minimum and the higher maximum
    of the two ranges are returned.

    Return (None, None) if the entries are missing or not valid UTF-8, or if the order of the keys in UTF-8 and in Java
    may differ.
    """
    if MIN_KEY not in entries or MAX_KEY not in entries:
        return None, None
    ranges = [(entries[MIN_KEY], entries[MAX_KEY])]
    column = metadata.schema.names.index(RECORD_KEY) if RECORD_KEY in metadata.schema.names else -1
    for group in range(metadata.num_row_groups if column >= 0 else 0):
        statistics = metadata.row_group(group).column(column).statistics
        if statistics is not None and statistics.has_min_max:
            ranges.append((_bytes(statistics.min), _bytes(statistics.max)))
    low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
    if any(byte >= _OTHER_ORDER for byte in low + high):
        return None, None
    try:
        return low.decode(), high.decode()
    except UnicodeDecodeError:
        return None, None


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


class KeyRange:
    """The minimum and maximum record key in Java's string order (by UTF-16 code units)."""

    def __init__(self, minimum: str | None = None, maximum: str | None = None) -> None:
        self.minimum, self.maximum = minimum, maximum

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Widen the range to include these keys."""
        for chunk in keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]:
            if len(chunk):
                self._add(chunk)

    def _add(self, keys: pa.Array) -> None:
        if _has_high_bytes(keys):
            # Only strings with characters from U+E000 on sort differently in Java and in UTF-8. Compare these, which
            # are rare, in Python.
            is_high = pc.match_substring_regex(keys, "[\\x{E000}-\\x{10FFFF}]")
            high = keys.filter(is_high).to_pylist()
            if high:
                self._widen(min(high, key=_java_order), max(high, key=_java_order))
            keys = keys.filter(pc.invert(is_high))
        if len(keys):
            ends = pc.min_max(keys)
            self._widen(ends["min"].as_py(), ends["max"].as_py())

    def _widen(self, low: str, high: str) -> None:
        self.minimum = low if self.minimum is None else min(self.minimum, low, key=_java_order)
        self.maximum = high if self.maximum is None else max(self.maximum, high, key=_java_order)


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def _has_high_bytes(keys: pa.Array) -> bool:
    offsets, data = keys.buffers()[1:3]
    ends = np.frombuffer(offsets, OFFSETS[keys.type])[[keys.offset, keys.offset + len(keys)]]
    if data is None or ends[0] == ends[1]:
        return False
    return bool((np.frombuffer(data, np.uint8)[ends[0] : ends[1]] >= 0xEE).any())


#: A dictionary index takes at most this many bytes. A column chunk with more bytes per value contains plain texts.
_INDEX_BYTES: Final = 4


def find_dictionary_texts(footers: Sequence[Any], texts: Collection[str]) -> frozenset[str]:
    """Return the names of the string columns that all the files store in dictionaries."""
    chunks: dict[str, list[Any]] = {}
    for metadata in footers:
        for group in range(metadata.num_row_groups):
            for column in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(column)
                if chunk.path_in_schema in texts:
                    chunks.setdefault(chunk.path_in_schema, []).append(chunk)
    groups = sum(metadata.num_row_groups for metadata in footers)
    return frozenset(
        name for name, texts in chunks.items() if len(texts) == groups and all(map(_has_small_dictionary, texts))
    )


def _has_small_dictionary(chunk: Any) -> bool:
    """Tell whether a column chunk has a dictionary and takes at most `_INDEX_BYTES` bytes per value.

    If a dictionary grows too large, a Parquet writer stores the other values as plain strings, which take more bytes
    than this. So a chunk of this size is taken to have all its values in the dictionary.
    """
    return bool(chunk.has_dictionary_page) and chunk.total_uncompressed_size <= _INDEX_BYTES * chunk.num_values
