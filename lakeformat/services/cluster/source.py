"""The rows of one clustering group, as they stand in its base files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lakeformat.codec.conform import conform
from lakeformat.codec.gather import gather, one_chunk
from lakeformat.files.base_file import ROW_GROUP_BYTES, ROW_GROUP_ROWS, stored_schema
from lakeformat.files.footers import open_base, open_parquet, read_metadata, row_batches
from lakeformat.files.stored_rows import repeating_text, stored_batches, stored_shape
from lakeformat.model.files import BaseFile
from lakeformat.model.record import COMMIT_TIME
from lakeformat.storage.port import Storage

__all__ = ["GroupSource", "open_group"]

#: Rows that tell how much memory the others take.
_PROBE_ROWS: Final = 4096
#: Bytes of a sample.
_SAMPLE_BYTES: Final = 64 << 20


@dataclass(frozen=True)
class GroupSource:
    """The files of a group, looked at.

    Attributes:
        files: of one partition.
        rows: of all of them.
        row_bytes: of a row in memory, about.
        encoded: text columns that come as dictionaries.
        schema: the table's columns.
    """

    storage: Storage
    partition_path: str
    files: tuple[BaseFile, ...]
    rows: int
    row_bytes: float
    encoded: frozenset[str]
    schema: pa.Schema

    @property
    def memory_bytes(self) -> float:
        """Of all rows, about."""
        return self.rows * self.row_bytes

    @property
    def stored_bytes(self) -> int:
        """Of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def shape(self) -> pa.Schema:
        """Of the rows that `batches` gives."""
        return stored_shape(stored_schema(self.schema, self.encoded))

    def batches(
        self,
        file: BaseFile,
        *,
        threads: bool,
        encoded: frozenset[str] | None = None,
        rows: int = ROW_GROUP_ROWS,
        most_bytes: int = ROW_GROUP_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """One file's rows: commit time, sequence number, key and the table's columns. Memory: a row group's pages."""
        encoded = self.encoded if encoded is None else encoded
        with (
            open_base(self.storage, file) as stored,
            open_parquet(stored, file.path, read_dictionary=[COMMIT_TIME, *encoded]) as parquet,
        ):
            shape = stored_schema(self.schema, encoded)
            yield from stored_batches(
                parquet, file.path, shape, threads=threads, rows=rows, most_bytes=max(most_bytes, 1)
            )

    def sample(self, columns: Sequence[str], most: int) -> pa.Table:
        """About ``most`` rows from everywhere, of some columns, or fewer; the same in every run.

        Memory: `_SAMPLE_BYTES`, about: of longer values every second is left out as often as it takes.
        """
        wanted = pa.schema([self.schema.field(name) for name in columns])
        random = np.random.default_rng(self.rows)
        share = min(1.0, most / max(self.rows, 1))
        found, size = [wanted.empty_table()], 0
        for file in self.files:
            with open_base(self.storage, file) as stored, open_parquet(stored, file.path) as parquet:
                present = [name for name in wanted.names if name in parquet.schema_arrow.names]
                for batch in row_batches(parquet, file.path, ROW_GROUP_ROWS, columns=present):
                    chosen = np.flatnonzero(random.random(batch.num_rows) < share)
                    rows = conform(batch, wanted)
                    found.append(pa.Table.from_batches([rows.take(pa.array(chosen))]))
                    size += found[-1].nbytes
                    while size > _SAMPLE_BYTES and share * self.rows > 1:
                        whole = pa.concat_tables(found)
                        found = [gather(whole, np.arange(0, whole.num_rows, 2))]
                        size, share = found[0].nbytes, share / 2
        return one_chunk(pa.concat_tables(found))


def open_group(storage: Storage, partition_path: str, files: Sequence[BaseFile], schema: pa.Schema) -> GroupSource:
    """Look at the footers of a group's files, and at a few rows.

    Raises:
        CorruptTableError: a file is missing or damaged; names the file.
    """
    footers = [read_metadata(storage, file) for file in files]
    texts = {field.name for field in schema if pa.types.is_string(field.type)}
    encoded = repeating_text(footers, texts)
    rows = sum(footer.num_rows for footer in footers)
    source = GroupSource(storage, partition_path, tuple(files), rows, 1.0, encoded, schema)
    filled = next((file for file, footer in zip(files, footers, strict=True) if footer.num_rows), None)
    if filled is None:
        return source
    batch: Any = next(source.batches(filled, threads=False, encoded=frozenset(), rows=_PROBE_ROWS))
    stored = sum(footer.row_group(at).total_byte_size for footer in footers for at in range(footer.num_row_groups))
    row_bytes = max(batch.nbytes / batch.num_rows, stored / rows)  # Rows behind the first may be longer.
    return GroupSource(storage, partition_path, tuple(files), rows, row_bytes, encoded, schema)
