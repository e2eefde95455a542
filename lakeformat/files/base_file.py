"""The writer of a base file: meta columns, bloom filter and footer (Hudi: ``HoodieSparkParquetWriter``).

The module also reuses the bloom filter and key range of a base file for the next base file of its file group, so that
old keys are not hashed again. It copies rows from one base file into another, and chooses the columns that get a
dictionary.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeformat.arrow.conform import conform
from lakeformat.arrow.kinds import Kind, kind_of, leaf_columns
from lakeformat.arrow.logical_types import plain_bytes, stored_column, vector_footer
from lakeformat.arrow.row_bytes import decoded_bytes, split_rows
from lakeformat.codec.bloom import BloomFilter
from lakeformat.errors import CorruptTableError
from lakeformat.files.column_stats import FileStats, NanCounts, collect_file_stats
from lakeformat.files.footers import BLOOM, BLOOM_TYPE, MAX_KEY, MIN_KEY, KeyFooter, KeyRange, row_batches
from lakeformat.files.stored_shape import FileShape
from lakeformat.keys.record_keys import make_seqnos
from lakeformat.model.files import BaseFileName
from lakeformat.model.record import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakeformat.storage.port import Storage

__all__ = [
    "ENCODED_TEXT",
    "ROW_GROUP_BYTES",
    "ROW_GROUP_ROWS",
    "SAMPLE_ROWS",
    "BaseFileWriter",
    "FileSettings",
    "FilterAndRange",
    "as_type",
    "chunk_writer",
    "constant_column",
    "copied_schema",
    "dictionary_columns",
    "estimate_filter_bytes",
    "inherit_filter_and_range",
    "make_growable_filter",
    "parquet_writer",
    "read_copied_batches",
    "stamp_rows",
    "stamp_rows_with",
    "stored_schema",
]

#: Maximum number of rows of a sample, from which the encoding and codec of a column are chosen.
SAMPLE_ROWS: Final = 8192
_DICTIONARY_SHARE: Final = 0.5
#: Minimum number of rows of a run of sample rows that is checked alone: in fewer rows, values may repeat by chance.
_LEAST_JOINING: Final = 32
#: Maximum number of equal parts of a sample that are checked separately, because it may contain rows of several writes.
_STRETCHES: Final = 16


def dictionary_columns(fields: Iterable[pa.Field], sample: pa.Table | None, joins: bool) -> list[str]:
    """Choose the leaf columns that get a dictionary: those whose values repeat in a sample, and all nested leaves.

    Args:
        joins: whether the sample may consist of existing rows and rows added to them. If so, runs of its rows are also
            checked alone, because values may repeat only in the rows of one write.
    """
    chosen: list[str] = []
    for field in fields:
        if kind_of(field.type).is_nested:
            chosen += leaf_columns(field, field.name)
        elif sample is not None and field.name not in META_COLUMNS:
            column = sample.column(field.name)
            if _repeat_in_any(column, [*_split_sample(len(column) if joins else 0)]):
                chosen.append(field.name)
    return chosen


def _split_sample(rows: int) -> Iterator[tuple[int, int]]:
    """Choose the runs of sample rows that are checked alone for repeated values. Yield the start and length of each.

    The runs are the last half, quarter, eighth and sixteenth of the rows, then equal parts of all rows.
    """
    for share in (2, 4, 8, 16):
        if _LEAST_JOINING <= rows // share <= SAMPLE_ROWS:
            yield rows - rows // share, rows // share
    parts = min(_STRETCHES, rows // _LEAST_JOINING)
    for part in range(parts):
        yield part * rows // parts, min(rows // parts, SAMPLE_ROWS // _STRETCHES)


def _repeat_in_any(column: pa.ChunkedArray, stretches: Sequence[tuple[int, int]]) -> bool:
    """Tell whether values repeat in the first `SAMPLE_ROWS` rows, or within any one of some runs of rows.

    Args:
        stretches: start and length of each run.
    """
    if not stretches or len(column) > SAMPLE_ROWS:
        return any(_has_repeats(column.slice(*stretch)) for stretch in ((0, SAMPLE_ROWS), *stretches))
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    repeated = len(column) - len(encoded.dictionary)
    if repeated >= len(column) * (1 - _DICTIONARY_SHARE):
        return True
    if repeated < min(rows for _, rows in stretches) * (1 - _DICTIONARY_SHARE):
        return False
    codes = np.asarray(encoded.indices)
    order = np.argsort(codes, kind="stable")
    previous = np.full(len(codes), -1)  # For each row, the previous row with the same value; -1 if none.
    repeats = np.flatnonzero(codes[order[1:]] == codes[order[:-1]])
    previous[order[repeats + 1]] = order[repeats]
    return any(
        np.count_nonzero(previous[start : start + rows] < start) <= rows * _DICTIONARY_SHARE
        for start, rows in stretches
    )


def _has_repeats(values: pa.ChunkedArray) -> bool:
    return bool(pc.count_distinct(values, mode="all").as_py() <= len(values) * _DICTIONARY_SHARE)


#: Maximum number of rows of a row group; also the default batch size, in rows, for reading and merging files.
ROW_GROUP_ROWS: Final = 131_072
#: Default for the maximum size of a row group in memory, in bytes. It equals Hudi's default for Parquet's row buffer.
ROW_GROUP_BYTES: Final = 125_829_120

#: The Arrow type of string columns whose values repeat. Parquet writes columns of this type without hashing the values.
ENCODED_TEXT: Final = pa.dictionary(pa.int32(), pa.string())
#: The dictionary indices of a column with one value in every row. They are created from a buffer, because `pa.array`
#: imports pandas, which takes half a second in every new process.
_ZEROS: Final = pa.Array.from_buffers(pa.int32(), ROW_GROUP_ROWS, [None, pa.py_buffer(bytes(4 * ROW_GROUP_ROWS))])
#: Meta columns with few distinct values. The Parquet writer gets them as dictionaries, so that it does not hash the
#: values.
_REPEATED: Final = (COMMIT_TIME, PARTITION_PATH, FILE_NAME)
_SAMPLE_BYTES: Final = 4 << 20
#: A page of long values ends after about this many bytes. Parquet checks the size only after each batch of values.
_PAGE_BYTES: Final = 1 << 20
_PAGE_LOOKS: Final = 1024
_HEADROOM: Final = 1.2
#: Approximate footer bytes of one column of one row group: offsets, encodings, minimum and maximum.
_COLUMN_FOOTER_BYTES: Final = 160
#: A column is compressed by the default codec only if its compressed size is at most this share of its plain size.
_WORTH_COMPRESSING: Final = 0.9
#: A record key column is compressed only if its compressed size is at most this share of its plain size. The share is
#: lower than for other columns, because writes read the record keys often, and uncompressed keys are read faster.
_WORTH_COMPRESSING_KEYS: Final = 0.4


@dataclass(frozen=True, slots=True)
class FileSettings:
    """Settings that all files of one write share.

    Attributes:
        skips_compression: whether columns that hardly shrink stay uncompressed.
        key_texts: names of the record key column and, if the record key is a copy of another column, that column.
        fpp: false-positive rate of the bloom filter.
        indexed_paths: paths of the leaf columns whose column statistics the file index stores.
        row_group_rows: maximum number of rows of a row group.
        row_group_bytes: maximum in-memory size of the rows of a row group, in bytes, without dictionaries. A single row
            that is larger gets its own row group.
        stores_meta: whether the meta columns have values. If not, they are null, and footers have no keys.
        dropped: names of the columns that no file holds, because folders give their values.
    """

    schema: pa.Schema
    avro_schema: str
    codec: str = "zstd"
    skips_compression: bool = True
    key_texts: tuple[str, ...] = (RECORD_KEY,)
    fpp: float = 1e-4
    max_file_bytes: int = 125829120
    indexed_paths: tuple[str, ...] = ()
    row_group_rows: int = ROW_GROUP_ROWS
    row_group_bytes: int = ROW_GROUP_BYTES
    stores_meta: bool = True
    dropped: frozenset[str] = frozenset()

    @property
    def file_schema(self) -> pa.Schema:
        """Return the columns of `schema` that files hold."""
        return pa.schema([field for field in self.schema if field.name not in self.dropped])

    @property
    def footer(self) -> Mapping[str, str]:
        """Return the entries of every footer: the columns as Avro, and the vectors among them."""
        return {"parquet.avro.schema": self.avro_schema, **vector_footer(self.schema)}

    def stored_rows(self, rows: pa.Table, schema: pa.Schema, partition_path: str, file_name: str) -> pa.Table:
        """Return rows in the columns of a file: with its meta columns, which are null if the table stores none.

        Args:
            rows: commit time, sequence number, record key and the table's columns, by name.
            schema: the columns of the file.
        """
        constants = {PARTITION_PATH: partition_path, FILE_NAME: file_name}

        def column(field: pa.Field) -> Any:
            if field.name in META_COLUMNS and not self.stores_meta:
                return pa.nulls(rows.num_rows, field.type)
            if field.name in constants:
                return constant_column(constants[field.name], rows.num_rows)
            return as_type(rows.column(field.name), field.type)

        return pa.Table.from_arrays([column(field) for field in schema], schema=schema)


def stored_schema(schema: pa.Schema, encoded: Collection[str] = ()) -> pa.Schema:
    """Return the schema for the Parquet writer: the five meta columns, then the table's columns.

    Args:
        encoded: names of the text columns that are written as dictionaries.
    """
    meta = [pa.field(name, ENCODED_TEXT if name in _REPEATED else pa.string()) for name in META_COLUMNS]
    return pa.schema(
        [*meta, *(f.with_type(ENCODED_TEXT if f.name in encoded else plain_bytes(f.type)) for f in schema)]
    )


def constant_column(value: str, rows: int) -> pa.DictionaryArray:
    """Make a dictionary column with the same string in every row."""
    indices = _ZEROS.slice(0, rows) if rows <= len(_ZEROS) else np.zeros(rows, np.int32)
    return pa.DictionaryArray.from_arrays(indices, pa.array([value]))


@dataclass(frozen=True)
class FilterAndRange:
    """The bloom filter and key range for a file's footer. The writer adds the keys of new rows to them."""

    bloom: BloomFilter
    range: KeyRange = dataclasses.field(default_factory=KeyRange)


class BaseFileWriter:
    """A writer that streams row groups into one base file.

    If the file replaces an older base file of its file group (``known``), rows are buffered until they fill half a row
    group. Otherwise a file that often grows by a few rows would get a tiny row group each time.

    Attributes:
        decoded_bytes: in-memory size of the rows written so far, in bytes, without dictionaries.
        facts: row count and column statistics of the closed file; set by `close`.
        schema: the columns of the file, as they are given to the Parquet writer.
        row_schema: the columns of its rows in memory.

    Args:
        sink: the output stream.
        name: the file's name, written into every row.
        known: bloom filter and key range of the older base file, which may hold some or all of the keys. If None, the
            writer collects all keys in memory and makes a filter of the right size at the end.
        encoded: names of the string columns that are written as dictionaries; plain strings are converted.
    """

    def __init__(
        self,
        sink: Any,
        partition_path: str,
        name: BaseFileName,
        settings: FileSettings,
        inherited: FilterAndRange | None = None,
        encoded: Collection[str] = (),
    ) -> None:
        self.sink, self.partition_path, self.name, self.settings = sink, partition_path, name, settings
        self.rows = 0
        self.copied_rows = self.copied_bytes = 0
        self.facts: FileStats | None = None
        self.range = inherited.range if inherited else KeyRange()
        self._bloom = inherited.bloom if inherited else None
        self._keys: list[pa.Array] = []
        self._writer: pq.ParquetWriter | None = None
        self._closed_bytes: int | None = None
        self._groups = 0
        self._joins = inherited is not None
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        self.decoded_bytes = 0
        self.schema = stored_schema(settings.file_schema, encoded)
        self.row_schema = stored_schema(settings.schema, encoded)
        self._nans = NanCounts(settings.file_schema, settings.indexed_paths)

    @property
    def size_bytes(self) -> int:
        """Return the bytes written so far."""
        return int(self.sink.tell()) if self._closed_bytes is None else self._closed_bytes

    @property
    def expected_bytes(self) -> int:
        """Estimate the file's size if it were closed now: the bytes written, plus the footer with the bloom filter."""
        if self._closed_bytes is not None:
            return self._closed_bytes
        keys = estimate_filter_bytes(self.rows, self.settings.fpp)
        columns = self._groups * len(self.schema) * _COLUMN_FOOTER_BYTES
        return self.size_bytes + keys + columns + len(self.settings.avro_schema)

    def write(self, rows: pa.Table, *, new_keys: pa.Array | pa.ChunkedArray | None = None) -> None:
        """Append rows as row groups.

        Args:
            rows: commit time (dictionary), seqno, record key and the table's columns, by name.
            new_keys: the keys of these rows that ``known`` lacks; None means all keys.
        """
        if not rows.num_rows:
            return
        if self.settings.stores_meta:
            self._add_keys(rows.column(RECORD_KEY) if new_keys is None else new_keys)
        stored = self.settings.stored_rows(rows, self.schema, self.partition_path, str(self.name))
        self.rows += rows.num_rows
        self._nans.add(rows)
        size = decoded_bytes(rows)
        self.decoded_bytes += size
        # Write the buffered rows before a large table is added: joining them would copy both.
        if self._held and self._held_bytes + size > self.settings.row_group_bytes:
            self._flush()
        self._held.append(stored)
        self._held_bytes += size
        is_half = sum(table.num_rows for table in self._held) >= ROW_GROUP_ROWS // 2
        if not self._joins or is_half or self._held_bytes >= self.settings.row_group_bytes // 2:
            self._flush()

    def _add_keys(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Add keys to the key range and the bloom filter."""
        self.range.add(keys)
        if self._bloom is None:
            self._keys += keys.chunks
        else:
            self._bloom.add(keys)

    def _flush(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        if held:
            rows = held[0] if len(held) == 1 else pa.concat_tables(held).unify_dictionaries().combine_chunks()
            most = min(self.settings.row_group_rows, ROW_GROUP_ROWS)
            for group in split_rows(rows, most, self.settings.row_group_bytes):
                self._write_group(group, most)

    def _write_group(self, rows: pa.Table, most: int) -> None:
        self._open(rows).write_table(rows, most)
        self._groups += 1

    def _open(self, sample: pa.Table | None) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = self._make_writer(sample)
        return self._writer

    def _make_writer(self, sample: pa.Table | None) -> pq.ParquetWriter:
        return parquet_writer(self.sink, self.schema, self.settings, sample, joins=self._joins)

    def close(self) -> None:
        """Write the buffered rows, the filter and the footer."""
        self._flush()
        writer = self._open(None)
        keys = self._footer_of_keys() if self.settings.stores_meta else {}
        writer.add_key_value_metadata({**self.settings.footer, **keys})
        metadata = self._write_footer(writer)
        self._closed_bytes = int(self.sink.tell())
        self.facts = collect_file_stats(metadata, self.schema, self.settings.indexed_paths, self._nans.by_path)

    def _footer_of_keys(self) -> Mapping[Any, str]:
        """Return the footer entries of the bloom filter and the key range."""
        bloom = self._bloom
        if bloom is None:
            bloom = make_growable_filter(self.rows, self.settings.fpp)
            if self._keys:
                bloom.add(pa.chunked_array(self._keys))
        footer = {BLOOM: bloom.encode()}
        if bloom.keys_per_row is not None:
            footer[BLOOM_TYPE] = bloom.type_code
        if self.range.minimum is not None and self.range.maximum is not None:
            footer[MIN_KEY], footer[MAX_KEY] = self.range.minimum, self.range.maximum
        return footer

    def _write_footer(self, writer: pq.ParquetWriter) -> pq.FileMetaData:
        writer.close()
        return writer.writer.metadata

    def __enter__(self) -> BaseFileWriter:
        return self

    def __exit__(self, *error: object) -> None:
        """Release the Parquet writer after a failure. The caller that opened the file deletes it."""
        if self._closed_bytes is None and self._writer is not None:
            with suppress(pa.ArrowException, OSError):
                self._writer.close()


def parquet_writer(
    sink: Any,
    schema: pa.Schema,
    settings: FileSettings,
    sample: pa.Table | None,
    *,
    joins: bool = False,
    checked_rows: int = SAMPLE_ROWS,
    page_index: bool = False,
) -> pq.ParquetWriter:
    """Make a Parquet writer for a file of the table.

    Args:
        schema: the schema of the file, from `stored_schema`.
        sample: rows that show which columns compress and which values repeat; None if there are no rows.
        joins: whether the sample may end with rows that were added to existing ones. If so, the whole sample is
            checked, because the added rows may differ from the existing ones.
        checked_rows: number of rows of the sample to check if ``joins`` is false.
        page_index: whether the file gets a page index.
    """
    checked = sample if sample is None or joins else sample.slice(0, checked_rows)
    plain = [field for field in schema if kind_of(field.type) is not Kind.DICTIONARY]
    codecs = _choose_codecs(_leaf_paths(schema), plain, checked, settings)
    return _open_writer(sink, schema, codecs, dictionary_columns(plain, checked, joins), sample, page_index)


def chunk_writer(
    sink: Any,
    schema: pa.Schema,
    stored: Mapping[str, pq.ColumnChunkMetaData],
    sample: pa.Table | None,
    *,
    page_index: bool,
) -> pq.ParquetWriter:
    """Make a Parquet writer that encodes columns as stored column chunks are.

    Args:
        stored: the column chunks by the path of their leaf.
        sample: rows of which the widest column sets how often the size of a page is checked.
    """
    leaves = _leaf_paths(schema)
    codecs = {path: stored[path].compression.replace("UNCOMPRESSED", "NONE") for path in leaves}
    return _open_writer(
        sink, schema, codecs, [path for path in leaves if stored[path].has_dictionary_page], sample, page_index
    )


def _open_writer(
    sink: Any,
    schema: pa.Schema,
    codecs: Mapping[str, str],
    dictionaries: Sequence[str],
    sample: pa.Table | None,
    page_index: bool,
) -> pq.ParquetWriter:
    encoded = [field.name for field in schema if kind_of(field.type) is Kind.DICTIONARY]
    return pq.ParquetWriter(
        sink,
        schema,
        compression=codecs,
        use_dictionary=[*dict.fromkeys([*encoded, *dictionaries])],
        write_statistics=[path for path in _leaf_paths(schema) if path != COMMIT_SEQNO],
        store_schema=False,
        write_page_checksum=True,
        write_page_index=page_index,
        write_batch_size=_choose_page_check_rows(sample),
    )


def _leaf_paths(schema: pa.Schema) -> list[str]:
    return [path for field in schema for path in leaf_columns(field, field.name)]


def _choose_codecs(
    leaves: Sequence[str], plain: Iterable[pa.Field], sample: pa.Table | None, settings: FileSettings
) -> dict[str, str]:
    """Choose the codec of each leaf column. A column that hardly shrinks stays uncompressed."""
    codecs = dict.fromkeys(leaves, settings.codec)
    if not settings.skips_compression or sample is None:
        return codecs
    for field in plain:
        least = _WORTH_COMPRESSING_KEYS if field.name in settings.key_texts else _WORTH_COMPRESSING
        if field.name in codecs and _measure_compression(sample.column(field.name), settings.codec) > least:
            codecs[field.name] = "none"
    return codecs


def stamp_rows(rows: pa.Table, schema: pa.Schema, instant_time: str, task: int, first: int) -> pa.Table:
    """Add this instant's meta columns to prepared rows: commit time, seqno and record key before the table's columns.

    Args:
        first: counter of the first row's seqno.
    """
    return stamp_rows_with(rows, schema, instant_time, make_seqnos(instant_time, task, first, rows.num_rows))


def stamp_rows_with(
    rows: pa.Table, schema: pa.Schema, instant_time: str, numbers: pa.Array | pa.ChunkedArray
) -> pa.Table:
    """Add the meta columns of this instant, as `stamp_rows` does, but with the given sequence numbers."""
    data = conform(rows, schema)
    meta = pa.table({
        COMMIT_TIME: constant_column(instant_time, rows.num_rows),
        COMMIT_SEQNO: numbers,
        RECORD_KEY: rows.column(RECORD_KEY),
    })  # fmt: skip
    return pa.Table.from_arrays([*meta.columns, *data.columns], schema=pa.schema([*meta.schema, *data.schema]))


def make_growable_filter(rows: int, fpp: float) -> BloomFilter:
    """Make a bloom filter for ``rows`` keys with room for some more, so that the next merges can add keys to it."""
    return BloomFilter.with_fewer_rounds(int(rows * _HEADROOM), fpp)


def estimate_filter_bytes(rows: int, fpp: float) -> int:
    """Estimate the size in bytes of a filter of `make_growable_filter` in a footer, where it is stored as text."""
    return int(rows * _HEADROOM * -math.log(fpp) / math.log(2) ** 2 / 8 * 4 / 3)


def as_type(column: Any, kind: pa.DataType) -> Any:
    """Return a column as it is, a text as a dictionary if it is stored as one, and vectors as their bytes."""
    column = stored_column(column, kind)
    return column if column.type.equals(kind) else column.dictionary_encode()


def _choose_page_check_rows(sample: pa.Table | None) -> int:
    """Return the number of values after which Parquet checks the size of a page."""
    widest = max((column.nbytes // sample.num_rows for column in sample.columns), default=1) if sample else 1
    return max(1, min(_PAGE_LOOKS, _PAGE_BYTES // max(widest, 1)))


def _measure_compression(column: pa.ChunkedArray, codec: str) -> float:
    """Return the ratio of compressed to uncompressed size of a sample of the column."""
    sample = next(split_rows(pa.table([column.slice(0, SAMPLE_ROWS)], ["sample"]), SAMPLE_ROWS, _SAMPLE_BYTES))
    data = pa.record_batch([sample.column(0).combine_chunks()], ["sample"]).serialize()
    return len(pa.Codec(codec).compress(data)) / len(data)


#: A stored filter is not reused if its capacity in keys is more than this multiple of the file's rows.
_OVERSIZED: Final = 4


def inherit_filter_and_range(storage: Storage, footer: KeyFooter, incoming: int) -> FilterAndRange | None:
    """Return the base file's filter and key range for the next base file; None if they cannot be reused.

    They cannot be reused in these cases: one of them is missing, the new keys do not fit into the filter, the filter
    has grown beyond its first bit array, or its capacity is more than `_OVERSIZED` times the number of rows.

    Keys of deleted rows stay in the filter and in the key range, as in Hudi's growing filters. This is safe: no
    existing key is missed. A look-up of a deleted key only reads the file and does not find the key.

    Args:
        incoming: number of new keys.
    """
    stored = footer.bloom(storage) if footer.minimum is not None and footer.maximum is not None else None
    roomy = stored is not None and len(stored.rows) == 1 and incoming <= stored.free
    if stored is None or not roomy or stored.used + stored.free > _OVERSIZED * max(footer.rows, 1):
        return None
    return FilterAndRange(stored, KeyRange(footer.minimum, footer.maximum))


def copied_schema(shape: pa.Schema) -> pa.Schema:
    """Return the columns that are copied from one base file into another: all but partition path and file name."""
    return pa.schema([field for field in shape if field.name not in {PARTITION_PATH, FILE_NAME}])


def read_copied_batches(
    parquet: Any,
    path: str,
    shape: pa.Schema,
    *,
    threads: bool,
    rows: int = ROW_GROUP_ROWS,
    most_bytes: int = ROW_GROUP_BYTES,
    row_groups: Sequence[int] | None = None,
    stored: FileShape | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a base file, in the columns of another base file into which they are copied.

    The meta columns partition path and file name are left out: their values are not copied. Columns that the file lacks
    are null.

    Args:
        shape: the schema of the new file, from `stored_schema`.
        rows: maximum number of rows of a batch; a batch never crosses the end of a row group.
        most_bytes: approximate maximum size of a batch in bytes, without its dictionary columns.
        row_groups: numbers of the row groups to read; None for all.
        stored: how the file stores the table's columns, if it stores them differently.

    Raises:
        CorruptTableError, UnsupportedTableError: the file has no record keys, or a column that cannot be converted.
    """
    copied = copied_schema(shape)
    present = set(parquet.schema_arrow.names)
    if RECORD_KEY not in present and (stored is None or stored.shape.key is None):
        raise CorruptTableError(f"{path} has no column {RECORD_KEY}; restore it from a copy")
    named = copied.names if stored is None else stored.stored_names(copied.names)
    columns = [name for name in named if name in present]
    for batch in row_batches(
        parquet, path, rows, columns=columns, row_groups=row_groups, threads=threads, most_bytes=most_bytes
    ):
        yield conform(batch if stored is None else stored.restore(batch, copied.names), copied)
