"""A pyarrow dataset over one snapshot of a table.

Engines ask a dataset for columns and filters: DuckDB, polars, DataFusion, ibis. All rows come from the reader of
`lakeformat.read`: statistics of Parquet files know neither NaN nor the sign of zero, so pyarrow's own scan of the files
would lose rows. Engines look for pyarrow's class, and some functions of pyarrow ask it in C++ (`Scanner.from_dataset`,
`UnionDataset`): there the dataset has a single file in memory, without statistics, which holds the same rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import FSSpecHandler, PyFileSystem

from lakeformat.errors import InvalidInputError
from lakeformat.public import public
from lakeformat.read.parts import NarrowRead, ReadPart, WholeRead
from lakeformat.read.run.batches import read_split

__all__ = ["PartFragment", "TableDataset"]

_LOG: Final = logging.getLogger("lakeformat.read")

#: Columns of a scanner: names, or a mapping of new name to expression. None means all.
Projection: TypeAlias = Sequence[str] | Mapping[str, pc.Expression] | None


#: The name of the file, for an error of C++.
_FILE: Final = "rows of a table that cannot be read; to_table() of its dataset says why"


class _RowsFile(FSSpecHandler):  # type: ignore[misc]  # pyarrow has no types.
    """A file system of one file for C++: the rows in Arrow's format, read when the file is opened.

    Memory: all rows, until C++ closes the file.

    Attributes:
        scan: the read of the rows; None as long as C++ asks for the columns only.
    """

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(None)
        self._schema = schema
        self.scan: WholeRead | None = None

    def get_type_name(self) -> str:
        """Return the kind of file system."""
        return "lakeformat"

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Return the file. It is empty after an error, because pyarrow may wait for ever for errors of Python."""
        try:
            with _one_more_thread():
                return pa.BufferReader(self._write())
        except Exception as error:
            _LOG.error("the rows of %r cannot be read: %s", self.scan, error)
            return pa.BufferReader(b"")

    def _write(self) -> pa.Buffer:
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_file(buffer, self._schema) as file:
            for part in () if self.scan is None else self.scan.parts():
                # Arrow's threads may all wait for this file, so they cannot decode it.
                for batch in read_split(part.storage, part.split, part.query, part.table, threads=False):
                    file.write_batch(batch)
        return buffer.getvalue()


_COUNTING: Final = Lock()


@contextmanager
def _one_more_thread() -> Iterator[None]:
    """Give Arrow one more thread for input. C++ asks for rows in such a thread, which waits for those that read."""
    _change_threads(1)
    try:
        yield
    finally:
        _change_threads(-1)


def _change_threads(by: int) -> None:
    with _COUNTING:
        pa.set_io_thread_count(pa.io_thread_count() + by)


@public
class TableDataset(ds.UnionDataset):  # type: ignore[misc]  # pyarrow has no types.
    """The rows of one snapshot as a pyarrow dataset. It may be read any number of times.

    A filter skips files and row groups by the file index and footers, and only the needed columns are read. Nothing is
    read before a method that returns rows is called.
    """

    def __init__(self, scan: WholeRead) -> None:
        form, file = ds.IpcFileFormat(), _RowsFile(scan.schema)
        fragment = form.make_fragment(_FILE, PyFileSystem(file))
        _ = fragment.physical_schema  # C++ keeps it, so it opens the file for rows only.
        file.scan = scan
        super().__init__(scan.schema, [ds.FileSystemDataset([fragment], scan.schema, form)])
        self._scan = scan

    def __reduce__(self) -> NoReturn:
        raise InvalidInputError("a dataset of a table cannot be pickled; pickle its get_fragments(), or read().parts()")

    def __repr__(self) -> str:
        return f"TableDataset({self._scan!r})"

    def scanner(
        self,
        columns: Projection = None,
        filter: pc.Expression | None = None,  # noqa: A002  pyarrow's name.
        **hints: Any,
    ) -> ds.Scanner:
        """Return a scanner, which reads the rows once.

        Args:
            columns: names, or a mapping of new name to expression; all columns by default.
            filter: an expression; the rows for which it is true are read. All rows by default.
            hints: pyarrow's further arguments, such as ``batch_size``.

        Raises:
            InvalidInputError: an unknown column, or an expression that cannot be evaluated.
        """
        return _scan_rows(self._scan, columns, filter, hints)

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:  # noqa: A002  pyarrow's name.
        """Count the rows: without a filter and log files by the file index and footers alone."""
        return self._scan.narrow(where=filter).count()

    def get_fragments(
        self,
        filter: pc.Expression | None = None,  # noqa: A002  pyarrow's name.
    ) -> Iterator[PartFragment]:
        """Yield the parts in which rows may match a filter. Each part has its own scanner."""
        return map(PartFragment, self._scan.narrow(where=filter).parts())

    def filter(self, expression: pc.Expression) -> TableDataset:
        """Return a dataset of the rows for which an expression is true."""
        return TableDataset(self._scan.narrow(where=expression))

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """Return the rows in memory, sorted as `pyarrow.Table.sort_by` does."""
        return ds.InMemoryDataset(self.to_table().sort_by(sorting, **options))

    def join(self, right_dataset: ds.Dataset, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """Join with another dataset in memory, as `pyarrow.dataset.Dataset.join` does."""
        return _in_memory(self).join(_in_memory(right_dataset), *arguments, **options)

    def join_asof(self, right_dataset: ds.Dataset, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """Join with another dataset in memory, as `pyarrow.dataset.Dataset.join_asof` does."""
        return _in_memory(self).join_asof(_in_memory(right_dataset), *arguments, **options)

    def replace_schema(self, schema: pa.Schema) -> TableDataset:
        """Return this dataset if the columns are its own. Raise `InvalidInputError` if they are others."""
        if schema.equals(self.schema):
            return self
        raise InvalidInputError("the columns of this dataset are those of the table; cast the rows that it returns")


@dataclass(frozen=True, slots=True)
class PartFragment:
    """A part of a dataset, with the methods of a pyarrow fragment that engines use. Picklable."""

    part: ReadPart

    @property
    def physical_schema(self) -> pa.Schema:
        """Return the columns."""
        return self.part.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """Return an expression that is true for all rows."""
        return pc.scalar(True)

    def scanner(
        self,
        schema: pa.Schema | None = None,
        columns: Projection = None,
        filter: pc.Expression | None = None,  # noqa: A002  pyarrow's name.
        **hints: Any,
    ) -> ds.Scanner:
        """Return a scanner, which reads the rows of the part once.

        Args:
            schema: ignored; the columns are those of the table.
            columns, filter, hints: as in `TableDataset.scanner`.
        """
        return _scan_rows(self.part, columns, filter, hints)

    def to_table(self, schema: pa.Schema | None = None, **how: Any) -> pa.Table:
        """Return the rows of the part, in memory. Arguments as in `scanner`."""
        return self.scanner(schema, **how).to_table()

    def to_batches(self, schema: pa.Schema | None = None, **how: Any) -> Iterator[pa.RecordBatch]:
        """Return the rows of the part, batch by batch. Arguments as in `scanner`."""
        batches: Iterator[pa.RecordBatch] = self.scanner(schema, **how).to_batches()
        return batches

    def head(self, num_rows: int, **how: Any) -> pa.Table:
        """Return the first rows of the part. Arguments as in `scanner`."""
        return self.scanner(**how).head(num_rows)

    def take(self, indices: Any, **how: Any) -> pa.Table:
        """Return rows of the part by their places in it. Arguments as in `scanner`."""
        return self.scanner(**how).take(pa.array(indices))

    def count_rows(self, **how: Any) -> int:
        """Count the rows of the part. Arguments as in `scanner`."""
        return int(self.scanner(**how).count_rows())


def _scan_rows(
    rows: NarrowRead, columns: Projection, condition: pc.Expression | None, hints: Mapping[str, Any]
) -> ds.Scanner:
    """Return a scanner of a read or a part of one. pyarrow computes a projection that is more than names."""
    by_name = None if columns is None or isinstance(columns, Mapping) else list(columns)
    read = by_name or (rows.schema.names[:1] if by_name is not None else None)
    reader = rows.narrow(read, condition).to_batches()
    batches = pa.RecordBatchReader.from_batches(reader.schema, _read_beside(reader))
    project = columns if isinstance(columns, Mapping) or by_name == [] else None
    return ds.Scanner.from_batches(batches, columns=project, **hints)


def _read_beside(batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches to a thread of Arrow for input, which waits for others that read the files."""
    with _one_more_thread(), batches:
        yield from batches


def _in_memory(dataset: ds.Dataset) -> ds.Dataset:
    return ds.InMemoryDataset(dataset.to_table()) if isinstance(dataset, TableDataset) else dataset
