"""The rule of reading: how the log files of a slice and its base file become rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
        by_payload: the table's payload class merges, as in versions before 9 (Hudi: ``PartialUpdateAvroPayload``): a
            delete deletes whatever is there, and the meta columns are always those of the version written last.
    """

    ordering: tuple[str, ...] = ()
    partial: PartialUpdateMode = PartialUpdateMode.NONE
    unavailable: str = ""
    delete_field: str = ""
    delete_marker: str = ""
    by_payload: bool = False

    def within(self, names: Collection[str]) -> ReadRule:
        """The rule of a table with these columns: an ordering field that is not there decides nothing."""
        return replace(self, ordering=tuple(name for name in self.ordering if name.partition(".")[0] in names))

    def needed_of_base(self) -> tuple[str, ...]:
        """Columns of base files that merging looks at, whatever is asked for; of a struct's field the struct."""
        return (RECORD_KEY, *dict.fromkeys(name.partition(".")[0] for name in self.ordering))

    def needed_of_logs(self, names: Iterable[str]) -> tuple[str, ...]:
        """The same of log blocks, of whose columns ``names`` these are."""
        known = {*self.needed_of_base(), IS_DELETED, OPERATION, self.delete_field}
        return tuple(name for name in names if name in known)


_MODEL: Final = "org.apache.hudi.common.model."
_COMMIT: Final = "COMMIT_TIME_ORDERING"
_EVENT: Final = "EVENT_TIME_ORDERING"

#: Payload classes that tables before version 9 name, with the settings to which Hudi 1.1 turns them in version 9
#: (``HoodieTableConfig.inferMergingConfigsForV9TableCreation``) and what they do otherwise.
_OF_PAYLOAD: Final[Mapping[str, tuple[str, ReadRule]]] = {
    _MODEL + "OverwriteWithLatestAvroPayload": (_COMMIT, ReadRule()),
    _MODEL + "DefaultHoodieRecordPayload": (_EVENT, ReadRule()),
    _MODEL + "EventTimeAvroPayload": (_EVENT, ReadRule()),
    _MODEL + "OverwriteNonDefaultsWithLatestAvroPayload": (
        _COMMIT,
        ReadRule(partial=PartialUpdateMode.IGNORE_DEFAULTS),
    ),
    _MODEL + "PartialUpdateAvroPayload": (
        _EVENT,
        ReadRule(partial=PartialUpdateMode.IGNORE_DEFAULTS, by_payload=True),
    ),
    _MODEL + "AWSDmsAvroPayload": (_COMMIT, ReadRule(delete_field="Op", delete_marker="D")),
}

_MODE: Final = "hoodie.record.merge.mode"
_PAYLOAD: Final = "hoodie.compaction.payload.class"
_STRATEGY: Final = ("hoodie.record.merge.strategy.id", "hoodie.compaction.record.merger.strategy")
_PARTIAL: Final = "hoodie.table.partial.update.mode"
_PROPERTY: Final = "hoodie.record.merge.property."
_ORDERING: Final = ("hoodie.table.ordering.fields", "hoodie.table.precombine.field")

#: Hudi's own strategies, and the mode of a table that says nothing else; "" is by payload class.
_OF_STRATEGY: Final[Mapping[str, str]] = {
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": _EVENT,
    "ce9acb64-bde0-424c-9b91-f6ebba25356d": _COMMIT,
    "00000000-0000-0000-0000-000000000000": "",
}


def read_rule(properties: Mapping[str, str]) -> ReadRule:
    """The rule of a table with these ``hoodie.properties``.

    Without any setting it is event time if the table names ordering fields, else commit time (Hudi 1.x's default).

    Raises:
        UnsupportedTableError: rows are merged by code of the table's own, or in a way that is not known.
    """
    ordering = tuple(name.strip() for name in _first(properties, _ORDERING)[1].split(",") if name.strip())
    mode, payload = properties.get(_MODE, "").strip().upper(), properties.get(_PAYLOAD, "").strip()
    key, strategy = _first(properties, _STRATEGY)
    if mode in {_COMMIT, _EVENT}:
        rule = _of_settings(properties)
    elif strategy and strategy not in _OF_STRATEGY:
        raise _not_ours(f"{key}={strategy}")
    elif payload in _OF_PAYLOAD:
        mode, rule = _OF_PAYLOAD[payload]
    elif mode or payload:
        raise _not_ours(f"{_PAYLOAD}={payload}" if payload else f"{_MODE}={mode}")
    else:
        mode = _OF_STRATEGY.get(strategy) or (_EVENT if ordering else _COMMIT)
        rule = _of_settings(properties)
    return replace(rule, ordering=ordering if mode == _EVENT else ())


def _first(properties: Mapping[str, str], keys: Sequence[str]) -> tuple[str, str]:
    """The first of these keys that has a value, and the value."""
    return next(((key, text) for key in keys if (text := properties.get(key, "").strip())), ("", ""))


def _of_settings(properties: Mapping[str, str]) -> ReadRule:
    partial = properties.get(_PARTIAL, "").strip().upper()
    if partial not in {mode.value for mode in PartialUpdateMode}:
        raise _not_ours(f"{_PARTIAL}={partial}")
    return ReadRule(
        partial=PartialUpdateMode(partial),
        unavailable=properties.get(_PROPERTY + "hoodie.write.partial.update.unavailable.value", ""),
        delete_field=properties.get(_PROPERTY + "hoodie.payload.delete.field", ""),
        delete_marker=properties.get(_PROPERTY + "hoodie.payload.delete.marker", ""),
    )


def _not_ours(setting: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"the table merges its log files in a way that is not known here ({setting}); read its base files, with "
        "hoodie.datasource.query.type=read_optimized, or all of it with Apache Hudi"
    )
