"""The stored settings for merging versions of a record, as one value for readers, for every table version.

A table up to version 6 stores a payload class. Version 8 stores a merge mode as well. Version 9 stores the mode, and
settings that Hudi derives from its own payload classes
(Hudi: ``HoodieTableConfig.inferMergingConfigsForV9TableCreation``).
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
#: Prefix of the settings that belong to merging.
_PROPERTY: Final = "hoodie.record.merge.property."
_HUDI: Final = "org.apache.hudi."


class RecordMergeMode(str, Enum):
    """The rule by which one of two versions of a record wins (Hudi: ``RecordMergeMode``)."""

    COMMIT_TIME = "COMMIT_TIME_ORDERING"
    EVENT_TIME = "EVENT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


class PartialUpdate(str, Enum):
    """The values of the winning version that are replaced by the losing version's (Hudi: ``PartialUpdateMode``)."""

    #: Values equal to their column's default, in practice null.
    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    #: Text and bytes equal to `MergeSettings.unavailable_value`.
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """The rules by which versions of a record are merged.

    Attributes:
        ordering_fields: Columns whose values, compared as a tuple, decide which of two versions is newer; may be empty.
        partial_update: Which values come from the losing version; None if the winning version is used whole.
        unavailable_value: The placeholder that FILL_UNAVAILABLE replaces.
        delete_field: Column that marks a delete if it holds ``delete_marker``; "" if there is none.
        by_payload: Whether the payload class itself merges, as before version 9; then a delete always deletes.
        custom: For mode CUSTOM, the setting that only its own Java class understands, for messages; else "".
    """

    mode: RecordMergeMode
    ordering_fields: tuple[str, ...] = ()
    partial_update: PartialUpdate | None = None
    unavailable_value: str = "__debezium_unavailable_value"
    delete_field: str = ""
    delete_marker: str = ""
    by_payload: bool = False
    custom: str = ""


_COMMIT: Final = MergeSettings(RecordMergeMode.COMMIT_TIME)
_EVENT: Final = MergeSettings(RecordMergeMode.EVENT_TIME)
#: Hudi's payload classes by short name, because they have moved between packages.
_OF_PAYLOAD: Final[Mapping[str, MergeSettings]] = {
    "OverwriteWithLatestAvroPayload": _COMMIT,
    "OverwriteNonDefaultsWithLatestAvroPayload": replace(_COMMIT, partial_update=PartialUpdate.IGNORE_DEFAULTS),
    "AWSDmsAvroPayload": replace(_COMMIT, delete_field="Op", delete_marker="D"),
    "DefaultHoodieRecordPayload": _EVENT,
    "EventTimeAvroPayload": _EVENT,
    "PartialUpdateAvroPayload": replace(_EVENT, partial_update=PartialUpdate.IGNORE_DEFAULTS, by_payload=True),
}
_OF_MODE: Final[Mapping[str, MergeSettings]] = {_COMMIT.mode.value: _COMMIT, _EVENT.mode.value: _EVENT}
_OF_STRATEGY: Final[Mapping[str, MergeSettings]] = {
    "ce9acb64-bde0-424c-9b91-f6ebba25356d": _COMMIT,
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": _EVENT,
}
_BY_PAYLOAD: Final = "00000000-0000-0000-0000-000000000000"


def merge_settings(values: Mapping[str, str], ordering_fields: tuple[str, ...]) -> MergeSettings:
    """Read the merge settings from a table's properties.

    If a setting is not known, the mode is CUSTOM and ``custom`` names the setting.

    Args:
        values: Contents of ``hoodie.properties``.
        ordering_fields: The ordering fields that the table stores; they override those that a payload class implies.
    """
    settings = _choose_settings(values, ordering_fields)
    delete = {key: values.get(_PROPERTY + key) or values.get(key, "") for key in (_DELETE_FIELD, _DELETE_MARKER)}
    if all(delete.values()):
        settings = replace(settings, delete_field=delete[_DELETE_FIELD], delete_marker=delete[_DELETE_MARKER])
    partial = values.get(_PARTIAL, "").strip().upper()
    if partial and partial not in PartialUpdate.__members__:
        settings = _custom_settings(_PARTIAL, partial)
    elif partial:
        settings = replace(settings, partial_update=PartialUpdate(partial))
    return replace(
        settings,
        ordering_fields=ordering_fields or settings.ordering_fields,
        unavailable_value=values.get(_PROPERTY + _UNAVAILABLE) or settings.unavailable_value,
    )


def _choose_settings(values: Mapping[str, str], ordering_fields: tuple[str, ...]) -> MergeSettings:
    mode, payload = values.get(_MODE, "").strip().upper(), values.get(_PAYLOAD, "").strip()
    if mode in _OF_MODE:
        return _OF_MODE[mode]
    key, strategy = next(((key, value) for key in _STRATEGIES if (value := values.get(key, "").strip())), ("", ""))
    if strategy and strategy not in {*_OF_STRATEGY, _BY_PAYLOAD}:
        return _custom_settings(key, strategy)
    if payload:  # Versions 6 and 8. In version 8 the mode is CUSTOM if the payload class fits neither mode.
        known = _OF_PAYLOAD.get(payload.rpartition(".")[2]) if payload.startswith(_HUDI) else None
        return known or _custom_settings(_PAYLOAD, payload)
    if mode:
        return _custom_settings(_MODE, mode)
    if strategy in _OF_STRATEGY:
        return _OF_STRATEGY[strategy]
    return _EVENT if ordering_fields else _COMMIT


def _custom_settings(key: str, value: str) -> MergeSettings:
    return MergeSettings(RecordMergeMode.CUSTOM, custom=f"{key}={value}")
