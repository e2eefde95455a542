"""A table's rows as a dataset that duckdb scans: it reads the columns that a query needs, when the query needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lakeformat.codec.conform import read_schema
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError
from lakeformat.model.record import RECORD_KEY
from lakeformat.read.scan import scan_of
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot

__all__ = ["LazyScan"]

_SKIPPING: Final = (pa.types.is_signed_integer, pa.types.is_string, pa.types.is_boolean, pa.types.is_date32)


class LazyScan(ds.Dataset):  # type: ignore[misc]
    """The rows of one snapshot. duckdb asks `scanner` for columns and gives it the conditions that Arrow can answer.

    Memory of a scan: as of a read of these columns, one file per thread; what duckdb keeps of the rows is its own.
    """

    def __init__(
        self,
        storage: Storage,
        snapshot: Snapshot,
        options: Options,
        fail: Callable[[Exception], None],
        *,
        with_key: bool = False,
    ) -> None:
        """Make the scan.

        Args:
            fail: is given an error of a read, which duckdb would turn into one of its own.
            with_key: `RECORD_KEY` is the last column.
        """
        self._of, self._fail = (storage, snapshot, options), fail
        key = [pa.field(RECORD_KEY, pa.string())] if with_key else []
        columns = snapshot.columns(storage.location) if snapshot.schema is not None else pa.schema([])
        self._columns = pa.schema([*read_schema(columns), *key])

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._columns

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  duckdb's word.
        **how: Any,
    ) -> ds.Scanner:
        """Read the columns of the rows for which the filter is true, by Arrow's own rules."""
        wanted = list(self._columns.names if columns is None else columns)
        needed = [name for name in self._columns.names if name in wanted or _may_name(filter, name)]
        try:
            batches = self._read(needed or self._columns.names[:1], filter)
        except Exception as error:
            self._fail(error)
            raise
        return ds.Scanner.from_batches(batches, columns=wanted, filter=filter)

    def _read(self, columns: list[str], condition: pc.Expression | None) -> pa.RecordBatchReader:
        storage, snapshot, options = self._of
        if snapshot.instant_time is None:
            return pa.schema([self._columns.field(name) for name in columns]).empty_table().to_reader()
        scan = scan_of(storage, snapshot, options, columns)
        if condition is not None and self._skips_by(condition):
            try:
                scan = scan_of(storage, snapshot, options, columns, where=condition)
            except InvalidInputError:  # What statistics cannot answer, the scanner does.
                scan = scan_of(storage, snapshot, options, columns)
        reader = replace(scan, shows_progress=False).to_batches()
        return pa.RecordBatchReader.from_batches(reader.schema, self._watched(reader))

    def _watched(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except Exception as error:
            self._fail(error)
            raise

    def _skips_by(self, condition: pc.Expression) -> bool:
        """Tell whether files may be left out: every column of the condition has one order of its values."""
        named = [field for field in self._columns if _may_name(condition, field.name)]
        return all(any(is_kind(field.type) for is_kind in _SKIPPING) for field in named)


def _may_name(condition: pc.Expression | None, name: str) -> bool:
    """Tell whether a condition looks at a column; Arrow shows conditions, and not which columns they name."""
    return condition is not None and (not name.isidentifier() or name in str(condition))
