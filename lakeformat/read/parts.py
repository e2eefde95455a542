"""Parts of a read, which other processes may read: pickled, sent and read there. What engines ask of a read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from lakeformat.predicate import Always, Where
from lakeformat.public import public
from lakeformat.read.plan import Split
from lakeformat.read.query import ReadQuery
from lakeformat.read.run.batches import read_split
from lakeformat.storage.port import Storage

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["NarrowRead", "ReadPart", "WholeRead", "read_part"]


@public
@dataclass(frozen=True, slots=True)
class ReadPart:
    """A part of a read: some row groups, base files or file slices. Picklable.

    Every row of the read is in exactly one part.

    Attributes:
        storage: the table's storage.
        split: the row groups, base files and file slices.
        query: the columns and rows.
        table: the table's columns without the meta columns.
    """

    storage: Storage
    split: Split
    query: ReadQuery
    table: pa.Schema

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the files and row groups of the part, as stored."""
        return self.split.size_bytes

    @property
    def rows(self) -> int | None:
        """Return the number of rows.

        It is None if only reading finds it: if the read has a condition, or a part has log files or a base file whose
        number of rows is in its footer alone.
        """
        return self.split.rows if self.query.predicate == Always(True) else None

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the paths of the base files and file slices of the part, relative to the table."""
        return tuple(part.path for part in self.split.parts)

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the part's rows."""
        return self.query.schema

    def narrow(self, columns: Sequence[str] | None = None, where: Where | None = None) -> ReadPart:
        """Return a part with fewer columns and rows. Arguments and errors as `ReadQuery.narrow`."""
        return replace(self, query=self.query.narrow(self.table, columns, where))

    def to_batches(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow batches; see `read_part`."""
        batches = read_split(self.storage, self.split, self.query, self.table)
        return pa.RecordBatchReader.from_batches(self.query.schema, batches)


class NarrowRead(Protocol):
    """A read or a part of one: an engine narrows it to the columns and rows that it needs."""

    @property
    def schema(self) -> pa.Schema:
        """Return the columns."""

    def narrow(self, columns: Sequence[str] | None = None, where: Where | None = None) -> Self:
        """Return the same with fewer columns and rows. Arguments and errors as `ReadQuery.narrow`."""

    def to_batches(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of Arrow batches."""


class WholeRead(NarrowRead, Protocol):
    """A read of a table that may be counted and divided."""

    def count(self) -> int:
        """Count the rows."""

    def parts(self, at_least: int = 1) -> tuple[ReadPart, ...]:
        """Divide the read into parts."""


@public
def read_part(part: ReadPart) -> pa.RecordBatchReader:
    """Return the rows of a part of a read as a stream of Arrow batches. Memory: a few batches of 32 MB.

    Raises:
        CorruptTableError: a file is missing or damaged; the message names the file.
    """
    return part.to_batches()
