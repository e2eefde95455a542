"""Tables as datasets of Ray: ``pip install 'lakeformat[ray]'``.

Examples::

    from lakeformat.integrations.ray import read_table, write_table

    dataset = read_table("/data/flights", ["carrier", "distance"], where="month = 3")
    result = write_table(dataset, "/data/far", "upsert")
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lakeformat.extras import install_line

try:
    import ray.data
    from ray.data.block import BlockAccessor, BlockMetadata
    from ray.data.datasource import Datasink, Datasource, ReadTask
except ModuleNotFoundError as error:
    raise ImportError(f"lakeformat.integrations.ray needs {error.name}; {install_line('ray')}") from None

from lakeformat.errors import InvalidInputError
from lakeformat.integrations.staging import StagedFile, StagedWrite
from lakeformat.integrations.tables import TableOrPath, make_scan
from lakeformat.model.operation import Operation
from lakeformat.read.parts import ReadPart
from lakeformat.read.scan import Scan
from lakeformat.transaction.commit.result import WriteResult

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["LakeformatDatasink", "LakeformatDatasource", "read_table", "write_table"]

#: Estimated bytes in memory per stored byte; Ray itself estimates so for Parquet.
_DECODED: Final = 5


def read_table(
    table: TableOrPath,
    columns: list[str] | None = None,
    *,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
    **options: Any,
) -> ray.data.Dataset:
    """Return a Ray dataset over one snapshot of a table. Nothing is read yet.

    Each read task reads one part of the table. Columns that the dataset selects, and filters by expressions
    (``dataset.filter(expr=col("distance") > 2000)``), become columns and a condition of the read, which skips files.

    Args:
        table: the table, or its path.
        columns: wanted columns; all by default.
        override_num_blocks, concurrency, ray_remote_args: as in `ray.data.read_datasource`.
        options: ``where``, ``as_of``, ``meta_columns`` and ``time_zone`` as in `lakeformat.Table.read`; for a path also
            the options of `lakeformat.open`.

    Raises:
        LakeformatError: as in `lakeformat.open` and `lakeformat.Table.read`.
    """
    return ray.data.read_datasource(
        LakeformatDatasource(table, columns, **options),
        override_num_blocks=override_num_blocks,
        concurrency=concurrency,
        ray_remote_args=dict(ray_remote_args) if ray_remote_args else None,
    )


def write_table(
    dataset: ray.data.Dataset,
    table: TableOrPath,
    operation: Operation | str | None = None,
    *,
    concurrency: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> WriteResult:
    """Write a Ray dataset to a table in one commit.

    The write tasks write the rows to Arrow files beside the table. Then this process reads them as a stream and makes
    one commit. If a task fails, the table is unchanged. If two rows have the same key, and the table has no ordering
    field, the row of the later task wins.

    Args:
        table: an existing table, or its path.
        operation: as in `lakeformat.Table.write`. By default the option ``hoodie.datasource.write.operation`` of the
            table, else ``upsert``, or ``insert`` for a table without record key.
        concurrency, ray_remote_args: as in `ray.data.Dataset.write_datasink`.
        arguments: ``combine``, ``options``, ``validators``, ``callbacks`` and ``extra_metadata`` as in
            `lakeformat.Table.write`.

    Returns:
        as `lakeformat.Table.write`.

    Raises:
        LakeformatError: as in `lakeformat.Table.write`.
    """
    sink = LakeformatDatasink(table, operation, **arguments)
    remote = dict(ray_remote_args) if ray_remote_args else None
    dataset.write_datasink(sink, concurrency=concurrency, ray_remote_args=remote)
    return sink.result


class LakeformatDatasource(Datasource):
    """A read of a table for `ray.data.read_datasource`. Arguments as in `read_table`.

    Raises:
        InvalidInputError: the read has a limit, or is verified.
    """

    def __init__(self, table: TableOrPath, columns: list[str] | None = None, **options: Any) -> None:
        super().__init__()
        self._projection_map: dict[str, str] | None = None
        self._scan = make_scan(table, columns, options)
        self._scan.check_whole("a dataset of Ray")

    def get_name(self) -> str:
        """Return the name of the read tasks."""
        return "Lakeformat"

    def supports_projection_pushdown(self) -> bool:
        """Return True: a read of fewer columns is faster."""
        return True

    def supports_predicate_pushdown(self) -> bool:
        """Return True: a condition skips files."""
        return True

    def apply_predicate(self, predicate_expr: Any) -> Self:
        """Return a source of the rows that satisfy a Ray expression too; itself if Ray must filter the rows."""
        try:
            narrowed = self._scan.narrow(where=predicate_expr.to_pyarrow())
        except InvalidInputError:
            return self
        clone: Self = super().apply_predicate(predicate_expr)
        clone._scan = narrowed
        return clone

    def estimate_inmemory_data_size(self) -> int:
        """Estimate the bytes of all rows in memory."""
        return _DECODED * sum(part.size_bytes for part in self._narrowed().parts())

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Return a task for each part of the read. If there is no part, return one task without rows."""
        scan = self._narrowed()
        selects_none = self._projection_map == {}
        parts = scan.parts(at_least=parallelism)
        location = scan.storage.location
        if not parts:
            return [ReadTask(partial(_no_rows, scan.schema), BlockMetadata(0, 0, None, None), scan.schema)]
        return [
            ReadTask(
                partial(_read_blocks, part, selects_none=selects_none),
                BlockMetadata(
                    num_rows=part.rows,
                    size_bytes=_DECODED * part.size_bytes,
                    exec_stats=None,
                    input_files=tuple(f"{location}/{path}" for path in part.paths),
                ),
                None if selects_none else scan.schema,
                per_task_row_limit,
            )
            for part in parts
        ]

    def _narrowed(self) -> Scan:
        """Return the read of the columns that Ray selected. If it selected none, read one column, to count the rows."""
        if self._projection_map is None:
            return self._scan
        return self._scan.narrow(list(self._projection_map) or self._scan.schema.names[:1])


def _read_blocks(part: ReadPart, *, selects_none: bool) -> Iterator[pa.Table]:
    for batch in part.to_batches():
        block = pa.Table.from_batches([batch])
        yield BlockAccessor.for_block(block).select([]) if selects_none else block


def _no_rows(schema: pa.Schema) -> list[pa.Table]:
    return [schema.empty_table()]


class LakeformatDatasink(Datasink[list[StagedFile]]):
    """A write to a table for `ray.data.Dataset.write_datasink`. Arguments and errors as in `write_table`.

    Attributes:
        result: the result of the commit, once the dataset is written.
    """

    result: WriteResult

    def __init__(self, table: TableOrPath, operation: Operation | str | None = None, **arguments: Any) -> None:
        self._write = StagedWrite(table, operation, arguments)

    def write(self, blocks: Iterable[Any], ctx: Any) -> list[StagedFile]:
        """Write the blocks of a task to the stage folder, and return the files."""
        return self._write.stage.write((BlockAccessor.for_block(block).to_arrow() for block in blocks), ctx.task_idx)

    def on_write_complete(self, write_result: Any) -> None:
        """Write the rows of all tasks to the table in one commit."""
        self.result = self._write.commit(file for files in write_result.write_returns for file in files or ())

    def on_write_failed(self, error: Exception) -> None:
        """Delete the rows that tasks have written."""
        self._write.stage.discard()
