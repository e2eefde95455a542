"""The rule of reading: how the log files of a slice and its base file become rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakeformat.errors import UnsupportedTableError
from lakeformat.model.merge_settings import PartialUpdateMode, RecordMergeMode
from lakeformat.model.record import IS_DELETED, OPERATION, RECORD_KEY
from lakeformat.model.table_config import TableConfig

__all__ = ["PartialUpdateMode", "ReadRule", "read_rule"]


@dataclass(frozen=True, slots=True)
class ReadRule:
    """Which version of a record is read. A picklable value, the same in every task.

    Attributes:
        ordering: the ordering fields, of which the first that differs decides: the greater value wins, the later
            written version on a tie (event time). Empty: the later written version wins (commit time).
        partial: what of a version's fields does not count.
        unavailable: the text that stands for an unknown value under ``FILL_UNAVAILABLE``.
        delete_field: a column that makes deletes of rows whose value reads as ``delete_marker``; "" for none.
    """

    ordering: tuple[str, ...] = ()
    partial: PartialUpdateMode = PartialUpdateMode.NONE
    unavailable: str = ""
    delete_field: str = ""
    delete_marker: str = ""

    def needed_of_base(self) -> tuple[str, ...]:
        """Columns of base files that merging looks at, whatever is asked for; of a struct's field the struct."""
        return (RECORD_KEY, *dict.fromkeys(name.partition(".")[0] for name in self.ordering))

    def needed_of_logs(self, names: Iterable[str]) -> tuple[str, ...]:
        """The same of log blocks, of whose columns ``names`` these are."""
        known = {*self.needed_of_base(), IS_DELETED, OPERATION, self.delete_field}
        return tuple(name for name in names if name in known)


def read_rule(properties: Mapping[str, str]) -> ReadRule:
    """The rule of a table with these ``hoodie.properties``.

    Raises:
        UnsupportedTableError: rows are merged by code of the table's own, or in a way that is not known.
    """
    settings = TableConfig(properties).merge_settings
    if settings.mode is RecordMergeMode.CUSTOM:
        raise UnsupportedTableError(
            f"the table merges its log files in a way that is not known here ({settings.custom}); read its base files, "
            "with hoodie.datasource.query.type=read_optimized, or all of it with Apache Hudi"
        )
    return ReadRule(
        ordering=settings.ordering_fields if settings.mode is RecordMergeMode.EVENT_TIME else (),
        partial=settings.partial_update,
        unavailable=settings.unavailable_value,
        delete_field=settings.delete_field,
        delete_marker=settings.delete_marker,
    )
