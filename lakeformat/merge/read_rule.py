"""The merge rule of reading: how the log files and the base file of a slice become rows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from lakeformat.errors import UnsupportedTableError
from lakeformat.model.merge_settings import MergeSettings, PartialUpdate, RecordMergeMode
from lakeformat.model.record import IS_DELETED, OPERATION, RECORD_KEY

__all__ = ["ReadRule", "read_rule"]


@dataclass(frozen=True, slots=True)
class ReadRule:
    """The rule that decides which version of a record is read. A picklable value, the same in every task.

    Attributes:
        ordering: the ordering fields; the first one that differs decides. The greater value wins; on a tie, the version
            written later (event time). If empty, the version written later wins (commit time).
        partial: which fields of a version are ignored; None ignores none.
        unavailable: the text that means an unknown value under ``FILL_UNAVAILABLE``.
        delete_field: a column whose value ``delete_marker`` turns a row into a delete; "" for none.
        by_payload: whether the table's payload class merges, as in versions before 9 (Hudi:
            ``PartialUpdateAvroPayload``): a delete is always unconditional, and the meta columns are always those of
            the version written last.
    """

    ordering: tuple[str, ...] = ()
    partial: PartialUpdate | None = None
    unavailable: str = ""
    delete_field: str = ""
    delete_marker: str = ""
    by_payload: bool = False

    def within(self, names: Collection[str]) -> ReadRule:
        """Return the rule for a table with these columns: ordering fields that the table lacks are dropped."""
        return replace(self, ordering=tuple(name for name in self.ordering if name.partition(".")[0] in names))

    def needed_of_base(self, *, by_position: bool = False) -> tuple[str, ...]:
        """Return the columns of base files that the merge needs; for a struct's field, the struct.

        Args:
            by_position: whether the log files have row numbers of the base file; then keys are not needed.
        """
        return (
            *(() if by_position else (RECORD_KEY,)),
            *dict.fromkeys(name.partition(".")[0] for name in self.ordering),
        )

    def needed_of_logs(self) -> tuple[str, ...]:
        """Return the columns of log blocks that the merge needs beside the record key, if the blocks have them."""
        return tuple(dict.fromkeys((*self.needed_of_base(by_position=True), *self.deleting_columns)))

    @property
    def deleting_columns(self) -> tuple[str, ...]:
        """Return the columns whose values turn rows of a log block into deletes."""
        return (IS_DELETED, OPERATION, *((self.delete_field,) if self.delete_field else ()))


def read_rule(settings: MergeSettings) -> ReadRule:
    """Return the read rule of a table that stores these settings.

    Raises:
        UnsupportedTableError: the table merges rows with its own code or in an unknown way.
    """
    if settings.mode is RecordMergeMode.CUSTOM:
        raise _unknown_merge(settings.custom)
    return ReadRule(
        ordering=settings.ordering_fields if settings.mode is RecordMergeMode.EVENT_TIME else (),
        partial=settings.partial_update,
        unavailable=settings.unavailable_value if settings.partial_update is PartialUpdate.FILL_UNAVAILABLE else "",
        delete_field=settings.delete_field,
        delete_marker=settings.delete_marker,
        by_payload=settings.by_payload,
    )


def _unknown_merge(setting: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"the table merges its log files in a way that is not known here ({setting}); read its base files, with "
        "hoodie.datasource.query.type=read_optimized, or all of it with Apache Hudi"
    )
