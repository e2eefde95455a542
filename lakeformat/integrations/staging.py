"""A write whose rows come from many processes, as one commit.

The tasks of an engine write their rows to Arrow files in the stage folder of the write. The process that started the
write then reads these files batch by batch and makes one ordinary write of them. Nothing is on the table's timeline
before that. If a task or this process fails, the stage folder is deleted; if this process dies, a later write deletes
the folder after a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakeformat.arrow.conform import conform
from lakeformat.config.foreign_names import check_write_arguments
from lakeformat.errors import LakeformatError, SchemaMismatchError, StorageError
from lakeformat.integrations.tables import TableOrPath, open_target
from lakeformat.model.operation import Operation, operation_of
from lakeformat.storage import RandomIds, Storage
from lakeformat.transaction.commit.hooks import HookArguments
from lakeformat.transaction.commit.result import WriteResult
from lakeformat.transaction.order.written_file import stage_folder

if TYPE_CHECKING:
    from lakeformat.table import Table

__all__ = ["Stage", "StagedFile", "StagedWrite"]

#: The keyword arguments of `lakeformat.Table.write` that `StagedWrite` passes on.
_ARGUMENTS: Final = ("combine", "options", *HookArguments.__annotations__)
_OPTIONS_ARE_GIVEN: Final = "; options of the table are given to lakeformat.open(path, ...)"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """Rows that a task has written to an Arrow file in the stage folder. Picklable.

    Attributes:
        path: the file's path, relative to the table.
        order: numbers by which the files of a write are sorted; rows are written to the table in this order.
    """

    path: str
    schema: pa.Schema
    rows: int
    size_bytes: int
    order: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Stage:
    """The stage folder of a write. Picklable: tasks get it and write their rows to it."""

    storage: Storage
    folder: str

    def write(self, rows: Iterable[pa.Table], task: int = 0) -> list[StagedFile]:
        """Write rows to new files, and return these files. Memory: one table of the rows.

        Consecutive tables with the same columns get one file. A task that runs again writes other files; only the files
        that the engine passes on are read.

        Args:
            task: number of the task, the first number of `StagedFile.order`.
        """
        plain = (table.replace_schema_metadata(None) for table in rows)
        groups = groupby(plain, key=lambda table: table.schema)
        return [self._write_file(schema, some, (task, number)) for number, (schema, some) in enumerate(groups)]

    def _write_file(self, schema: pa.Schema, rows: Iterable[pa.Table], order: tuple[int, int]) -> StagedFile:
        path = f"{self.folder}/{RandomIds().token()}.arrow"
        count = size = 0
        with self.storage.open_output(path) as sink, pa.ipc.new_file(sink, schema) as file:
            for table in rows:
                file.write_table(table)
                count, size = count + table.num_rows, size + table.nbytes
        return StagedFile(path, schema, count, size, order)

    def discard(self) -> None:
        """Delete the folder with all files. If that fails, a later write deletes it after a day."""
        with suppress(LakeformatError, OSError):
            self.storage.delete_folder(self.folder)


@dataclass(frozen=True, slots=True)
class _StagedRows:
    """The rows of staged files. `to_reader` may be called again, for another attempt after a conflict."""

    storage: Storage
    files: tuple[StagedFile, ...]
    schema: pa.Schema

    @property
    def is_repeatable(self) -> bool:
        """Return True."""
        return True

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream. Memory: one batch."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, one batch at a time, in the order of the files."""
        for path in self.files:
            with self._open(path) as source:
                reader = pa.ipc.open_file(source)
                for number in range(reader.num_record_batches):
                    yield conform(reader.get_batch(number), self.schema)

    def _open(self, file: StagedFile) -> Any:
        try:
            return self.storage.open_input(file.path)
        except FileNotFoundError:
            raise StorageError(
                f"{file.path} of {self.storage.location}, which a task of this write made, is gone; run the write again"
            ) from None


class StagedWrite:
    """One write to a table, whose rows tasks stage with `stage`. Only `stage` is pickled, for the tasks.

    Args:
        table: the table, or its path.
        operation: as in `lakeformat.Table.write`. By default the option ``hoodie.datasource.write.operation`` of the
            table, else ``upsert``, or ``insert`` for a table without record key.
        arguments: ``combine``, ``options``, ``validators``, ``callbacks`` and ``extra_metadata`` as in
            `lakeformat.Table.write`.

    Raises:
        LakeformatError: the table cannot be written, or an argument is not known. No task has run.
    """

    def __init__(self, table: TableOrPath, operation: Operation | str | None, arguments: dict[str, Any]) -> None:
        check_write_arguments(arguments, _ARGUMENTS, "write_table", _OPTIONS_ARE_GIVEN)
        self._table: Table = open_target(table)
        self._operation = _choose_operation(self._table, operation)
        self._arguments = arguments
        self.stage = Stage(self._table.context.storage, stage_folder(self._table.context.ids.token()))

    def __getstate__(self) -> dict[str, Any]:
        return {"stage": self.stage}

    def column_names(self) -> frozenset[str]:
        """Return the names of the table's columns."""
        return frozenset(self._columns().names)

    def _columns(self) -> pa.Schema:
        return self._table.snapshot().columns(self._table.location)

    def commit(self, files: Iterable[StagedFile]) -> WriteResult:
        """Write the rows of these files to the table in one commit, and delete the stage folder.

        Memory: as a write of a stream by `lakeformat.Table.write`.

        Raises:
            SchemaMismatchError: tasks have staged a column with types that have no common type.
            LakeformatError: as in `lakeformat.Table.write`.
        """
        try:
            # Engines describe a block without rows by no columns.
            listed = tuple(sorted((staged for staged in files if staged.rows or len(staged.schema)), key=_by_order))
            rows = _StagedRows(self.stage.storage, listed, self._join_schemas(listed))
            return self._table.write(rows, self._operation, **self._arguments)
        finally:
            self.stage.discard()

    def _join_schemas(self, files: tuple[StagedFile, ...]) -> pa.Schema:
        """Return the columns of all files; those of the table if there are no files."""
        if not files:
            return self._columns()
        try:
            return pa.unify_schemas([staged.schema for staged in files], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise SchemaMismatchError(
                f"the tasks of a write to {self._table.location} have columns of different types: {error}; cast them"
            ) from None


def _by_order(file: StagedFile) -> tuple[int, int]:
    return file.order


def _choose_operation(table: Table, operation: Operation | str | None) -> Operation:
    named = operation or table.options.write.operation
    return operation_of(named or (Operation.UPSERT if table.config.record_fields else Operation.INSERT))
