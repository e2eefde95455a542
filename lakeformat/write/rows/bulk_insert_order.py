"""The order of rows in a bulk_insert, and their division over files (Hudi: ``BulkInsertPartitioner``)."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.gather import combine_table, gather
from lakeformat.arrow.kinds import field_type, kind_of
from lakeformat.config.option import import_callable
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidInputError, InvalidOptionError, SchemaMismatchError, nearest
from lakeformat.keys.record_keys import field_column
from lakeformat.model.record import RECORD_KEY

__all__ = ["PARTITIONER", "SORT_COLUMNS", "Layout", "Partitioner", "SortMode", "plan_layout", "sort_order"]

_MODE: Final = "hoodie.bulkinsert.sort.mode"
_CLASS: Final = "hoodie.bulkinsert.user.defined.partitioner.class"
SORT_COLUMNS: Final = "hoodie.bulkinsert.user.defined.partitioner.sort.columns"
PARTITIONER: Final = "lakeformat.bulkinsert.partitioner"

#: A function that chooses the output files of rows. It takes prepared rows of one partition, with the record key as
#: ``_hoodie_record_key``, and returns an integer array with the number of the output file of each row. It is called
#: with a part of the rows at a time. Rows of one partition with the same number go to the same file, whichever task
#: writes them; a file that exceeds the size limit is split.
Partitioner = Callable[[pa.Table], Any]


class SortMode(enum.Enum):
    """The order in which bulk_insert writes rows (Hudi: ``BulkInsertSortMode``)."""

    NONE = "NONE"
    GLOBAL_SORT = "GLOBAL_SORT"
    PARTITION_SORT = "PARTITION_SORT"
    PARTITION_PATH_REPARTITION = "PARTITION_PATH_REPARTITION"
    PARTITION_PATH_REPARTITION_AND_SORT = "PARTITION_PATH_REPARTITION_AND_SORT"

    @property
    def sorts(self) -> bool:
        """Tell whether rows are sorted within their partition."""
        return self not in {SortMode.NONE, SortMode.PARTITION_PATH_REPARTITION}


@dataclass(frozen=True, slots=True)
class Layout:
    """The order of a bulk_insert's rows and their division over files. It can be pickled if the partitioner can.

    Attributes:
        columns: the columns that sort the rows of a partition, nulls last; empty keeps the input order.
        partitioner: a callable, or ``package.module:function``; None for one sequence of files per partition.
        across_tasks: whether the rows of all tasks are sorted and divided together. If not, each task sorts and divides
            only its own rows. In plain Python, the whole write is one task.
    """

    columns: tuple[str, ...]
    partitioner: str | Partitioner | None
    across_tasks: bool

    def arrange(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Divide prepared rows of one partition by output file. Yield pairs of the file's number and its sorted rows.

        Raises:
            InvalidInputError: if the partitioner does not return a number for each row.
        """
        if self.partitioner is None:
            yield 0, gather(combine_table(rows), sort_order(rows, self.columns)) if self.columns else rows
            return
        numbers = _file_numbers(_load(self.partitioner), rows)
        ordered = sort_order(rows, self.columns) if self.columns else np.arange(rows.num_rows)
        order = ordered[np.argsort(numbers[ordered], kind="stable")]
        rows = combine_table(rows)
        run_numbers, starts = np.unique(numbers[order], return_index=True)
        for number, part in zip(run_numbers.tolist(), np.split(order, starts[1:]), strict=True):
            yield number, gather(rows, part)


def plan_layout(options: Options, schema: pa.Schema, *, combine: bool) -> Layout | None:
    """Return the layout that the options select; None if rows keep the input order.

    Args:
        schema: the columns to be stored.
        combine: whether the rows are combined by key, which sorts them by key.

    Raises:
        InvalidOptionError: if options contradict each other, or a partitioner cannot be imported.
        SchemaMismatchError: if a sort column is missing or has no order.
    """
    mode = SortMode(options[_MODE])
    columns: tuple[str, ...] = options[SORT_COLUMNS]
    partitioner: str | Partitioner | None = options[PARTITIONER]
    if options[_CLASS] and not columns:
        raise InvalidOptionError(f"{_CLASS}={options[_CLASS]} needs columns to sort by; set {SORT_COLUMNS}")
    if combine and (columns or partitioner):
        raise InvalidOptionError(
            f"hoodie.combine.before.insert=true sorts by record key; leave out either that option or "
            f"{SORT_COLUMNS} and {PARTITIONER}"
        )
    for name in columns:
        _check_order(schema, name)
    if partitioner is not None:
        _load(partitioner)
    elif mode is SortMode.NONE and not columns:
        return None
    if columns and mode is SortMode.NONE:
        mode = SortMode.GLOBAL_SORT
    sorting = (columns or (RECORD_KEY,)) if mode.sorts else columns
    return Layout(sorting, partitioner, across_tasks=partitioner is not None or mode is not SortMode.PARTITION_SORT)


def _check_order(schema: pa.Schema, name: str) -> None:
    kind = field_type(schema, name)
    if kind is None:
        raise SchemaMismatchError(
            f"the sort column {name!r} is not among the columns{nearest(name, schema.names)}; add it or name another"
        )
    if kind_of(kind).is_nested:
        raise SchemaMismatchError(f"the sort column {name!r} is {kind}, which has no order; name another column")


def sort_order(rows: pa.Table, columns: tuple[str, ...], *, nulls_first: bool = False) -> np.ndarray:
    """Sort the rows by these columns (``a.b`` for a struct's field). Return the rows' positions in sorted order.

    The sort is stable. NaN comes after all numbers.

    Args:
        nulls_first: whether nulls come before all values; if not, they come last.
    """
    values = [field_column(rows, name, "sort") for name in columns]
    if nulls_first:
        values = [key for value in values for key in ((pc.is_valid(value), value) if value.null_count else (value,))]
    keys = pa.table(values, [str(number) for number in range(len(values))])
    by = [(name, "ascending") for name in keys.schema.names]
    return np.asarray(pc.sort_indices(keys, sort_keys=by)).astype(np.int64)


def _load(partitioner: str | Partitioner) -> Partitioner:
    try:
        return import_callable(partitioner)
    except ImportError as error:
        raise InvalidOptionError(
            f"{PARTITIONER}={partitioner} cannot be imported ({error}); write package.module:function, of a module "
            "that driver and workers have"
        ) from None
    except TypeError:
        raise InvalidOptionError(f"{PARTITIONER}={partitioner} is not a function; name one") from None


def _file_numbers(partitioner: Partitioner, rows: pa.Table) -> np.ndarray:
    try:
        numbers = partitioner(rows)
    except Exception as error:
        raise InvalidInputError(
            f"the partitioner failed ({type(error).__name__}: {error}) on {rows.num_rows} rows; correct it"
        ) from error
    if isinstance(numbers, pa.ChunkedArray):
        numbers = numbers.combine_chunks()
    array = np.asarray(numbers)
    if array.shape != (rows.num_rows,) or not np.issubdtype(array.dtype, np.integer):
        raise InvalidInputError(
            f"the partitioner returned {array.dtype} of shape {array.shape} for {rows.num_rows} rows; return one "
            "integer, the number of the output file, for each row"
        )
    return array
