"""What a table stores of how versions of a record are merged, whatever release stored it, as one value for readers.

Up to table version 6 a payload class tells, in version 8 a merge mode beside it, in version 9 the mode, and settings
that Hudi makes of its own payload classes (Hudi: ``HoodieTableConfig.inferMergingConfigsForV9TableCreation``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

__all__ = ["MergeSettings", "PartialUpdate", "RecordMergeMode", "merge_settings"]

_PAYLOAD: Final = "hoodie.compaction.payload.class"
_MODE: Final = "hoodie.record.merge.mode"
_STRATEGIES: Final = ("hoodie.record.merge.strategy.id", "hoodie.compaction.record.merger.strategy")
_PARTIAL: Final = "hoodie.table.partial.update.mode"
_DELETE_FIELD: Final = "hoodie.payload.delete.field"
_DELETE_MARKER: Final = "hoodie.payload.delete.marker"
_UNAVAILABLE: Final = "hoodie.write.partial.update.unavailable.value"
#: Before the name of a setting that belongs to merging.
_PROPERTY: Final = "hoodie.record.merge.property."
_HUDI: Final = "org.apache.hudi."


class RecordMergeMode(str, Enum):
    """Who wins of two versions of a record (Hudi: ``RecordMergeMode``)."""

    COMMIT_TIME = "COMMIT_TIME_ORDERING"
    EVENT_TIME = "EVENT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


class PartialUpdate(str, Enum):
    """Which columns of the winner are taken from the loser (Hudi: ``PartialUpdateMode``)."""

    #: Those that hold their column's default, in practice null.
    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    #: Text and bytes that hold `MergeSettings.unavailable_value`.
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """How records are merged.

    Attributes:
        ordering_fields: columns whose values, as a tuple, tell which of two versions is newer; may be none.
        partial_update: None: the winner is taken whole.
        by_payload: versions meet as ``PartialUpdateAvroPayload`` itself has them meet: see `ReadRule`.
        unavailable_value: of FILL_UNAVAILABLE.
        delete_field: a record whose column of this name holds ``delete_marker`` is a delete; "" where there is none.
        custom: of CUSTOM, the setting that nobody but its own class knows, for messages.
    """

    mode: RecordMergeMode
    ordering_fields: tuple[str, ...] = ()
    partial_update: PartialUpdate | None = None
    by_payload: bool = False
    unavailable_value: str = "__debezium_unavailable_value"
    delete_field: str = ""
    delete_marker: str = ""
    custom: str = ""


_COMMIT: Final = MergeSettings(RecordMergeMode.COMMIT_TIME)
_EVENT: Final = MergeSettings(RecordMergeMode.EVENT_TIME)
#: Hudi's payload classes, by their short names: they have moved between packages.
_OF_PAYLOAD: Final[Mapping[str, MergeSettings]] = {
    "OverwriteWithLatestAvroPayload": _COMMIT,
    "OverwriteNonDefaultsWithLatestAvroPayload": replace(_COMMIT, partial_update=PartialUpdate.IGNORE_DEFAULTS),
    "AWSDmsAvroPayload": replace(_COMMIT, delete_field="Op", delete_marker="D"),
    "DefaultHoodieRecordPayload": _EVENT,
    "EventTimeAvroPayload": _EVENT,
    # Merged by the class itself up to version 8; version 9 makes settings of it.
    "PartialUpdateAvroPayload": replace(_EVENT, partial_update=PartialUpdate.IGNORE_DEFAULTS, by_payload=True),
}
_OF_MODE: Final[Mapping[str, MergeSettings]] = {_COMMIT.mode.value: _COMMIT, _EVENT.mode.value: _EVENT}
_OF_STRATEGY: Final[Mapping[str, MergeSettings]] = {
    "ce9acb64-bde0-424c-9b91-f6ebba25356d": _COMMIT,
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": _EVENT,
}
_BY_PAYLOAD: Final = "00000000-0000-0000-0000-000000000000"


def merge_settings(values: Mapping[str, str], ordering_fields: tuple[str, ...]) -> MergeSettings:
    """From a table's properties. A setting that is not known makes the mode CUSTOM, and is named.

    Args:
        values: ``hoodie.properties``.
        ordering_fields: those that the table stores. They go before those that a payload class implies.
    """
    found = _rule(values, ordering_fields)
    said = {key: values.get(_PROPERTY + key) or values.get(key, "") for key in (_DELETE_FIELD, _DELETE_MARKER)}
    if all(said.values()):
        found = replace(found, delete_field=said[_DELETE_FIELD], delete_marker=said[_DELETE_MARKER])
    partial = values.get(_PARTIAL, "").strip().upper()
    if partial and partial not in PartialUpdate.__members__:
        found = _custom(_PARTIAL, partial)
    elif partial:
        found = replace(found, partial_update=PartialUpdate(partial))
    return replace(
        found,
        ordering_fields=ordering_fields or found.ordering_fields,
        unavailable_value=values.get(_PROPERTY + _UNAVAILABLE) or found.unavailable_value,
    )


def _rule(values: Mapping[str, str], ordering_fields: tuple[str, ...]) -> MergeSettings:
    mode, payload = values.get(_MODE, "").strip().upper(), values.get(_PAYLOAD, "").strip()
    if mode in _OF_MODE:
        return _OF_MODE[mode]
    key, strategy = next(((key, said) for key in _STRATEGIES if (said := values.get(key, "").strip())), ("", ""))
    if strategy and strategy not in {*_OF_STRATEGY, _BY_PAYLOAD}:
        return _custom(key, strategy)
    if payload:  # Versions 6 and 8; with mode CUSTOM where it goes beyond the two modes.
        known = _OF_PAYLOAD.get(payload.rpartition(".")[2]) if payload.startswith(_HUDI) else None
        return known or _custom(_PAYLOAD, payload)
    if mode:
        return _custom(_MODE, mode)
    if strategy in _OF_STRATEGY:
        return _OF_STRATEGY[strategy]
    return _EVENT if ordering_fields else _COMMIT


def _custom(key: str, value: str) -> MergeSettings:
    return MergeSettings(RecordMergeMode.CUSTOM, custom=f"{key}={value}")
