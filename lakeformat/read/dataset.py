"""A pyarrow dataset over one snapshot of a table.

Engines ask a dataset for columns and filters: DuckDB, polars, DataFusion, ibis. The plan of a read chooses the files
and row groups. Plain base files (`lakeformat.read.plain_files`) are then read by pyarrow itself, all others by the
reader of `lakeformat.read`, which merges slices with log files. The class inherits from pyarrow's only in name, because
engines look for that class; no method of pyarrow's dataset in C++ is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lakeformat.errors import InvalidInputError
from lakeformat.public import public
from lakeformat.read.parts import NarrowRead, ReadPart, WholeRead

__all__ = ["PartFragment", "TableDataset"]

#: Columns of a scanner: names, or a mapping of new name to expression. None means all.
Projection: TypeAlias = Sequence[str] | Mapping[str, pc.Expression] | None


@public
class TableDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types.
    """The rows of one snapshot as a pyarrow dataset. It may be read any number of times.

    A filter skips files and row groups by the file index and footers, and only the needed columns are read. Nothing is
    read before a method that returns rows is called.
    """

    def __init__(self, scan: WholeRead) -> None:
        self._scan = scan

    def __reduce__(self) -> NoReturn:
        raise InvalidInputError("a dataset of a table cannot be pickled; pickle its get_fragments(), or read().parts()")

    def __repr__(self) -> str:
        return f"TableDataset({self._scan!r})"

    @property
    def schema(self) -> pa.Schema:
        """Return the columns."""
        return self._scan.schema

    @property
    def partition_expression(self) -> pc.Expression:
        """Return an expression that is true for all rows."""
        return pc.scalar(True)

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
        names = None if columns is None or isinstance(columns, Mapping) else list(columns)
        plain = self._scan.plain(names, filter)
        if plain is not None:
            return plain.scanner(columns=self.schema.names if columns is None else columns, filter=filter, **hints)
        return _scan_rows(self._scan, columns, filter, hints)

    def count_rows(self, filter: pc.Expression | None = None, **_: Any) -> int:  # noqa: A002  pyarrow's name.
        """Count the rows: without a filter and log files by the file index and footers alone."""
        return self._scan.narrow(where=filter).count()

    def get_fragments(
        self,
        filter: pc.Expression | None = None,  # noqa: A002  pyarrow's name.
    ) -> Iterator[ds.Fragment | PartFragment]:
        """Yield the parts in which rows may match a filter. Each part has its own scanner."""
        if (plain := self._scan.plain(where=filter)) is not None:
            return iter(plain.get_fragments())
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

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """Raise `InvalidInputError`: the columns are those of the table."""
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

    def count_rows(self, **how: Any) -> int:
        """Count the rows of the part. Arguments as in `scanner`."""
        return int(self.scanner(**how).count_rows())


def _scan_rows(
    rows: NarrowRead, columns: Projection, condition: pc.Expression | None, hints: Mapping[str, Any]
) -> ds.Scanner:
    """Return a scanner of a read or a part of one. pyarrow computes a projection that is more than names."""
    by_name = None if columns is None or isinstance(columns, Mapping) else list(columns)
    read = by_name or (rows.schema.names[:1] if by_name is not None else None)
    batches = rows.narrow(read, condition).to_batches()
    project = columns if isinstance(columns, Mapping) or by_name == [] else None
    return ds.Scanner.from_batches(batches, columns=project, **hints)


def _in_memory(dataset: ds.Dataset) -> ds.Dataset:
    return ds.InMemoryDataset(dataset.to_table()) if isinstance(dataset, TableDataset) else dataset
