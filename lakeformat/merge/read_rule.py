"""The rule of reading: how the log files of a slice and its base file become rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from lakeformat.errors import UnsupportedTableError
from lakeformat.model.merge_settings import MergeSettings, PartialUpdate, RecordMergeMode
from lakeformat.model.record import IS_DELETED, OPERATION, RECORD_KEY

__all__ = ["ReadRule", "read_rule"]


@dataclass(frozen=True, slots=True)
class ReadRule:
    """Which version of a record is read. A picklable value, the same in every task.

    Attributes:
        ordering: the ordering fields, of which the first that differs decides: the greater value wins, the later
            written version on a tie (event time). Empty: the later written version wins (commit time).
        partial: what of a version's fields does not count; None: all does.
        unavailable: the text that stands for an unknown value under ``FILL_UNAVAILABLE``.
        delete_field: a column that makes deletes of rows whose value reads as ``delete_marker``; "" for none.
        by_payload: the table's payload class merges, as in versions before 9 (Hudi: ``PartialUpdateAvroPayload``): a
            delete deletes whatever is there, and the meta columns are always those of the version written last.
    """

    ordering: tuple[str, ...] = ()
    partial: PartialUpdate | None = None
    unavailable: str = ""
    delete_field: str = ""
    delete_marker: str = ""
    by_payload: bool = False

    def within(self, names: Collection[str]) -> ReadRule:
        """The rule of a table with these columns: an ordering field that is not there decides nothing."""
        return replace(self, ordering=tuple(name for name in self.ordering if name.partition(".")[0] in names))

    def needed_of_base(self, *, by_position: bool = False) -> tuple[str, ...]:
        """Columns of base files that merging looks at, whatever is asked for; of a struct's field the struct.

        Args:
            by_position: the log files say which rows they change.
        """
        return (
            *(() if by_position else (RECORD_KEY,)),
            *dict.fromkeys(name.partition(".")[0] for name in self.ordering),
        )

    def needed_of_logs(self) -> tuple[str, ...]:
        """The same of log blocks beside the record key, as far as they have these columns."""
        return tuple(dict.fromkeys((*self.needed_of_base(by_position=True), *self.deleting_columns)))

    @property
    def deleting_columns(self) -> tuple[str, ...]:
        """Columns whose values make deletes of a log block's rows."""
        return (IS_DELETED, OPERATION, *((self.delete_field,) if self.delete_field else ()))


def read_rule(settings: MergeSettings) -> ReadRule:
    """The rule of a table that stores these settings.

    Raises:
        UnsupportedTableError: rows are merged by code of the table's own, or in a way that is not known.
    """
    if settings.mode is RecordMergeMode.CUSTOM:
        raise _not_ours(settings.custom)
    return ReadRule(
        ordering=settings.ordering_fields if settings.mode is RecordMergeMode.EVENT_TIME else (),
        partial=settings.partial_update,
        unavailable=settings.unavailable_value if settings.partial_update is PartialUpdate.FILL_UNAVAILABLE else "",
        delete_field=settings.delete_field,
        delete_marker=settings.delete_marker,
        by_payload=settings.by_payload,
    )


def _not_ours(setting: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"the table merges its log files in a way that is not known here ({setting}); read its base files, with "
        "hoodie.datasource.query.type=read_optimized, or all of it with Apache Hudi"
    )
