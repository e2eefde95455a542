"""The settings by which readers merge versions of a record, parsed from the properties of any table version.

A table up to version 6 stores a payload class. Version 8 stores a payload class and a merge mode. Version 9 stores the
merge mode, and instead of a payload class the settings that Hudi derives from it
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
#: Prefix under which version 9 stores further settings for merging, such as the delete field.
_PROPERTY: Final = "hoodie.record.merge.property."
_HUDI: Final = "org.apache.hudi."


class RecordMergeMode(str, Enum):
    """The rule that decides which of two versions of a record wins (Hudi: ``RecordMergeMode``)."""

    COMMIT_TIME = "COMMIT_TIME_ORDERING"
    EVENT_TIME = "EVENT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


class PartialUpdate(str, Enum):
    """The rule that selects the values that the losing version fills in the winning one (``PartialUpdateMode``)."""

    #: The losing version fills values that equal the default of their column, which in practice is null.
    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    #: The losing version fills strings and bytes that equal the placeholder `MergeSettings.unavailable_value`.
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """The rules by which versions of a record are merged.

    Attributes:
        mode: The rule that decides which version wins.
        ordering_fields: Columns whose values, compared as a tuple, decide which of two versions is newer; may be empty.
        partial_update: Which values come from the losing version; None if the result is the winning version alone.
        unavailable_value: The placeholder that `PartialUpdate.FILL_UNAVAILABLE` replaces.
        delete_field: Name of the column that marks deletes: a row is a delete if the column equals ``delete_marker``.
            "" if there is no such column.
        ignores_case: Whether ``delete_marker`` counts in capitals and in small letters.
        by_payload: Whether the payload class itself merges, as before version 9. Then every delete in log files wins,
            whatever its ordering value.
        is_sequence: Whether the ordering field holds texts ``file.position``, which are compared as two numbers.
        custom: For mode CUSTOM, the property that lakeformat does not know, as ``key=value`` for messages; else "".
    """

    mode: RecordMergeMode
    ordering_fields: tuple[str, ...] = ()
    partial_update: PartialUpdate | None = None
    unavailable_value: str = "__debezium_unavailable_value"
    delete_field: str = ""
    delete_marker: str = ""
    ignores_case: bool = False
    by_payload: bool = False
    is_sequence: bool = False
    custom: str = ""


_COMMIT: Final = MergeSettings(RecordMergeMode.COMMIT_TIME)
_EVENT: Final = MergeSettings(RecordMergeMode.EVENT_TIME)
#: The settings that the payload classes of Debezium have in common, before version 9.
_DEBEZIUM: Final = replace(
    _EVENT, delete_field="_change_operation_type", delete_marker="d", ignores_case=True, by_payload=True
)
#: Maps Hudi's payload classes, without package, to their settings. The classes have moved between packages.
_OF_PAYLOAD: Final[Mapping[str, MergeSettings]] = {
    "OverwriteWithLatestAvroPayload": _COMMIT,
    "OverwriteNonDefaultsWithLatestAvroPayload": replace(_COMMIT, partial_update=PartialUpdate.IGNORE_DEFAULTS),
    "AWSDmsAvroPayload": replace(_COMMIT, delete_field="Op", delete_marker="D", ignores_case=True),
    "DefaultHoodieRecordPayload": _EVENT,
    "EventTimeAvroPayload": _EVENT,
    "PartialUpdateAvroPayload": replace(_EVENT, partial_update=PartialUpdate.IGNORE_DEFAULTS, by_payload=True),
    "PostgresDebeziumAvroPayload": replace(
        _DEBEZIUM, ordering_fields=("_event_lsn",), partial_update=PartialUpdate.FILL_UNAVAILABLE
    ),
    "MySqlDebeziumAvroPayload": replace(_DEBEZIUM, ordering_fields=("_event_seq",), is_sequence=True),
}
_OF_MODE: Final[Mapping[str, MergeSettings]] = {_COMMIT.mode.value: _COMMIT, _EVENT.mode.value: _EVENT}
_OF_STRATEGY: Final[Mapping[str, MergeSettings]] = {
    "ce9acb64-bde0-424c-9b91-f6ebba25356d": _COMMIT,
    "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5": _EVENT,
}
_BY_PAYLOAD: Final = "00000000-0000-0000-0000-000000000000"


def merge_settings(values: Mapping[str, str], ordering_fields: tuple[str, ...]) -> MergeSettings:
    """Read the merge settings from a table's properties.

    If the stored merge mode, payload class or merge strategy is not known, the result has the mode CUSTOM and names the
    property in ``custom``.

    Args:
        values: The properties in ``hoodie.properties``.
        ordering_fields: The ordering fields that the table stores. Those of the payload class come first.
    """
    settings = _choose_settings(values, ordering_fields)
    delete = {key: values.get(_PROPERTY + key) or values.get(key, "") for key in (_DELETE_FIELD, _DELETE_MARKER)}
    if all(delete.values()):
        field, marker = delete.values()
        settings = replace(settings, delete_field=field, delete_marker=marker, ignores_case=False)
    partial = values.get(_PARTIAL, "").strip().upper()
    if partial and partial not in PartialUpdate.__members__:
        settings = _custom_settings(_PARTIAL, partial)
    elif partial:
        settings = replace(settings, partial_update=PartialUpdate(partial))
    return replace(
        settings,
        ordering_fields=settings.ordering_fields or ordering_fields,
        unavailable_value=values.get(_PROPERTY + _UNAVAILABLE) or settings.unavailable_value,
    )


def _choose_settings(values: Mapping[str, str], ordering_fields: tuple[str, ...]) -> MergeSettings:
    mode, payload = values.get(_MODE, "").strip().upper(), values.get(_PAYLOAD, "").strip()
    if mode in _OF_MODE:
        return _OF_MODE[mode]
    key, strategy = next(((key, value) for key in _STRATEGIES if (value := values.get(key, "").strip())), ("", ""))
    if strategy and strategy not in {*_OF_STRATEGY, _BY_PAYLOAD}:
        return _custom_settings(key, strategy)
    if payload:  # Stored up to version 8. If version 8 also stores a mode, it is CUSTOM here, and the class decides.
        settings = _OF_PAYLOAD.get(payload.rpartition(".")[2]) if payload.startswith(_HUDI) else None
        return settings or _custom_settings(_PAYLOAD, payload)
    if mode:
        return _custom_settings(_MODE, mode)
    if strategy in _OF_STRATEGY:
        return _OF_STRATEGY[strategy]
    return _EVENT if ordering_fields else _COMMIT


def _custom_settings(key: str, value: str) -> MergeSettings:
    return MergeSettings(RecordMergeMode.CUSTOM, custom=f"{key}={value}")
