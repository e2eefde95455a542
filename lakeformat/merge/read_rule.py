"""The rule of reading: how the log files of a slice and its base file become rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from lakeformat.errors import UnsupportedTableError
from lakeformat.model.record import IS_DELETED, OPERATION, RECORD_KEY

__all__ = ["PartialUpdateMode", "ReadRule", "read_rule"]


class PartialUpdateMode(Enum):
    """Values by which a newer record says that it does not know a field (Hudi: ``PartialUpdateMode``)."""

    NONE = ""
    #: The default of the schema's field, which is null.
    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    #: A text of the table's own, in fields of text and bytes.
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"


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


_PAYLOADS: Final = "org.apache.hudi.common.model."
_COMMIT: Final = "COMMIT_TIME_ORDERING"
_EVENT: Final = "EVENT_TIME_ORDERING"

#: Payload classes that tables before version 9 name, as Hudi 1.1 turns them into settings of version 9
#: (``HoodieTableConfig.inferMergingConfigsForV9TableCreation``).
_SETTINGS_OF: Final[Mapping[str, tuple[str, PartialUpdateMode]]] = {
    _PAYLOADS + "OverwriteWithLatestAvroPayload": (_COMMIT, PartialUpdateMode.NONE),
    _PAYLOADS + "DefaultHoodieRecordPayload": (_EVENT, PartialUpdateMode.NONE),
    _PAYLOADS + "EventTimeAvroPayload": (_EVENT, PartialUpdateMode.NONE),
    _PAYLOADS + "OverwriteNonDefaultsWithLatestAvroPayload": (_COMMIT, PartialUpdateMode.IGNORE_DEFAULTS),
    _PAYLOADS + "PartialUpdateAvroPayload": (_EVENT, PartialUpdateMode.IGNORE_DEFAULTS),
}

_MODE: Final = "hoodie.record.merge.mode"
_PAYLOAD: Final = "hoodie.compaction.payload.class"
_STRATEGY: Final = "hoodie.record.merge.strategy.id"
_PARTIAL: Final = "hoodie.table.partial.update.mode"
_PROPERTY: Final = "hoodie.record.merge.property."
_ORDERING: Final = ("hoodie.table.ordering.fields", "hoodie.table.precombine.field")


def read_rule(properties: Mapping[str, str]) -> ReadRule:
    """The rule of a table with these ``hoodie.properties``.

    Without any setting it is event time if the table names ordering fields, else commit time (Hudi 1.x's default).

    Raises:
        UnsupportedTableError: rows are merged by code of the table's own, or in a way that is not known.
    """
    named = next((text for key in _ORDERING if (text := properties.get(key, "").strip())), "")
    ordering = tuple(name.strip() for name in named.split(",") if name.strip())
    mode, partial = _mode(properties, bool(ordering))
    return ReadRule(
        ordering=ordering if mode == _EVENT else (),
        partial=partial,
        unavailable=properties.get(_PROPERTY + "hoodie.write.partial.update.unavailable.value", ""),
        delete_field=properties.get(_PROPERTY + "hoodie.payload.delete.field", ""),
        delete_marker=properties.get(_PROPERTY + "hoodie.payload.delete.marker", ""),
    )


def _mode(properties: Mapping[str, str], ordered: bool) -> tuple[str, PartialUpdateMode]:
    mode = properties.get(_MODE, "").strip().upper()
    payload = properties.get(_PAYLOAD, "").strip()
    if mode in {_COMMIT, _EVENT}:
        return mode, _partial(properties)
    if payload in _SETTINGS_OF:
        return _SETTINGS_OF[payload]
    if mode or payload:
        key = _PAYLOAD if payload else _STRATEGY if properties.get(_STRATEGY) else _MODE
        raise _not_ours(f"{key}={properties[key]}")
    return _EVENT if ordered else _COMMIT, _partial(properties)


def _partial(properties: Mapping[str, str]) -> PartialUpdateMode:
    text = properties.get(_PARTIAL, "").strip().upper()
    try:
        return PartialUpdateMode(text)
    except ValueError:
        raise _not_ours(f"{_PARTIAL}={text}") from None


def _not_ours(setting: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"the table merges its log files in a way that is not known here ({setting}); read its base files, with "
        "hoodie.datasource.query.type=read_optimized, or all of it with Apache Hudi"
    )
