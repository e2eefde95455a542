"""The driver's plan of the key lookup of a global index: units of slices, or of keys to ask a record index for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from lakeformat.index.stored_keys import DeletingSlice, LogsWithKeys
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.model.files import FileSlice
from lakeformat.write.rows.prepare import ANY_PARTITION
from lakeformat.write.workload.shuffle_plan import TagUnit, split_by_bytes

__all__ = ["plan_global_units", "plan_index_units"]

#: Target number of staged rows whose keys one task looks up in a record index.
_INDEX_ROWS: Final = 500_000


def plan_global_units(
    slices: Sequence[FileSlice],
    *,
    unit_bytes: int,
    logs_of: Callable[[FileSlice], LogsWithKeys | None],
    deleting_of: Callable[[Sequence[FileSlice]], Mapping[int, DeletingSlice]],
) -> tuple[TagUnit, ...]:
    """Divide the key lookup of a global index into units of at most ``unit_bytes``.

    A unit has slices of any partitions, and all staged keys are looked up in it. Slices are numbered through the table.

    Args:
        slices: all live file slices of the table.
        unit_bytes: maximum bytes of the file slices in a unit; a larger slice gets its own unit.
        logs_of: function that returns the log files of a slice that may hold keys which its base file lacks.
        deleting_of: function that returns, by position, those of the slices whose log files may have deleted rows.
    """
    units: list[TagUnit] = []
    for first, last in split_by_bytes(slices, unit_bytes):
        chosen = tuple(slices[first:last])
        logs = {number: logs for number, piece in enumerate(chosen) if (logs := logs_of(piece)) is not None}
        deleting = deleting_of(chosen)
        units.append(
            TagUnit(
                ANY_PARTITION,
                ANY_PARTITION,
                chosen,
                first,
                0,
                exact=True,
                logs=logs,
                finds_deleted=True,
                deleting=deleting,
            )
        )
    return tuple(units)


def plan_index_units(
    slices: Sequence[FileSlice],
    stage_rows: Sequence[int],
    index: MetadataTable,
    *,
    exact: bool,
    logs_of: Callable[[FileSlice], LogsWithKeys | None],
    deleting_of: Callable[[Sequence[FileSlice]], Mapping[int, DeletingSlice]],
) -> tuple[TagUnit, ...]:
    """Divide the key lookup in a record index into units of about `_INDEX_ROWS` staged rows, of whole stage files.

    Args:
        slices: all live file slices of the table.
        stage_rows: for each stage file its number of rows.
        exact: whether the places of the index are compared with the files.
        logs_of, deleting_of: as for `plan_global_units`.
    """
    logs = {number: logs for number, piece in enumerate(slices) if (logs := logs_of(piece)) is not None}
    deleting = deleting_of(slices)
    starts = np.cumsum([0, *stage_rows])[:-1] // _INDEX_ROWS
    parts = [tuple(np.flatnonzero(starts == number).tolist()) for number in np.unique(starts)]
    return tuple(
        TagUnit(
            ANY_PARTITION,
            ANY_PARTITION,
            tuple(slices),
            0,
            0,
            exact,
            logs,
            finds_deleted=True,
            deleting=deleting,
            index=index,
            stages=stages,
        )
        for stages in parts
    )
