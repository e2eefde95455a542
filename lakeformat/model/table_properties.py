"""The properties that a new or upgraded table stores, which differ by table version.

They equal the properties of tables that Hudi 1.2.0 creates, for both table types. Sources: ``HoodieTableConfig`` and
``HoodieTableMetaClient.TableBuilder``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lakeformat.model import table_config as names
from lakeformat.model.keys import KeyGeneratorKind, PartitionField
from lakeformat.model.table_config import MergeMode
from lakeformat.model.table_version import table_version

__all__ = [
    "key_generator_properties",
    "layout_properties",
    "merge_properties",
    "ordering_properties",
    "payload_ordering",
]

_STRATEGY_OF: Final[Mapping[str, str]] = {
    MergeMode.COMMIT_TIME: "ce9acb64-bde0-424c-9b91-f6ebba25356d",
    MergeMode.EVENT_TIME: "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
}
_BY_PAYLOAD: Final = "00000000-0000-0000-0000-000000000000"
_DELETE_FIELD: Final = names.MERGE_PROPERTY + "hoodie.payload.delete.field"
_DELETE_MARKER: Final = names.MERGE_PROPERTY + "hoodie.payload.delete.marker"
_UNAVAILABLE: Final = names.MERGE_PROPERTY + "hoodie.write.partial.update.unavailable.value"
_DEBEZIUM: Final[Mapping[str, str]] = {_DELETE_FIELD: "_change_operation_type", _DELETE_MARKER: "d"}
#: Maps merge modes to the further properties that version 9 stores for them.
_MERGE_PROPERTIES: Final[Mapping[str, Mapping[str, str]]] = {
    MergeMode.AWS_DMS: {_DELETE_FIELD: "Op", _DELETE_MARKER: "D"},
    MergeMode.POSTGRES: {**_DEBEZIUM, _UNAVAILABLE: "__debezium_unavailable_value"},
    MergeMode.MYSQL: _DEBEZIUM,
}


def layout_properties(version: int) -> dict[str, str]:
    """Return the properties that store a table version, its timeline layout and the folders of the timeline."""
    layout = str(table_version(version).timeline_layout)
    if layout == "1":
        return {names.VERSION: str(version), names.LAYOUT: layout, names.ARCHIVE_FOLDER: "archived"}
    return {
        names.VERSION: str(version),
        names.INITIAL_VERSION: str(version),
        names.LAYOUT: layout,
        names.TIMELINE_PATH: "timeline",
        names.HISTORY_PATH: "history",
        names.ARCHIVE_FOLDER: "history",
        names.TABLE_FORMAT: "native",
        names.SEVERAL_FORMATS: "false",
    }


def merge_properties(version: int, mode: str, payload: str = "") -> dict[str, str]:
    """Return the properties that store a merge mode in a table version.

    Args:
        version: The table version.
        mode: A `MergeMode`.
        payload: The payload class that the user named; "" for the class that belongs to ``mode``. Version 9 stores the
            class only for a later downgrade.
    """
    payload_class, traits = payload or MergeMode.PAYLOAD_OF[mode], table_version(version)
    if not traits.stores_merge_mode:
        return {names.PAYLOAD: payload_class}
    if traits.stores_payload:
        stored_mode = "CUSTOM" if mode in MergeMode.STORED_AS else mode
        strategy = _STRATEGY_OF.get(stored_mode, _BY_PAYLOAD)
        return {names.MERGE_MODE: stored_mode, names.MERGE_STRATEGY: strategy, names.PAYLOAD: payload_class}
    stored = {names.MERGE_MODE: MergeMode.STORED_AS.get(mode, mode), **_MERGE_PROPERTIES.get(mode, {})}
    if mode in MergeMode.PARTIAL_OF:
        stored[names.PARTIAL_UPDATE_MODE] = MergeMode.PARTIAL_OF[mode].value
    return {**stored, names.LEGACY_PAYLOAD: payload_class} if payload or mode in MergeMode.STORED_AS else stored


def payload_ordering(version: int, mode: str) -> tuple[str, ...]:
    """Return the ordering columns that the payload class of a merge mode prescribes; empty if it leaves the choice."""
    if mode == MergeMode.MYSQL:
        several = table_version(version).takes_several_ordering_fields
        return ("_event_bin_file", "_event_pos") if several else ("_event_seq",)
    return ("_event_lsn",) if mode == MergeMode.POSTGRES else ()


def ordering_properties(version: int, fields: Sequence[str]) -> dict[str, str]:
    """Return the property that stores the ordering columns; {} if there are none."""
    key = names.ORDERING if table_version(version).stores_old_ordering else names.ORDERING_1X
    return {key: ",".join(fields)} if fields else {}


def key_generator_properties(
    version: int, kind: KeyGeneratorKind, partition_fields: Sequence[PartitionField]
) -> dict[str, str]:
    """Return the properties that store the key generator and the partition fields.

    Version 6 stores the class of the generator, and the types of a custom one's fields under `TYPED_FIELDS`. Later
    versions store the generator's type, and the types of a custom one's fields beside their names.
    """
    plain = ",".join(field.name for field in partition_fields)
    typed = ",".join(field.typed for field in partition_fields) if kind is KeyGeneratorKind.CUSTOM else ""
    if table_version(version).stores_generator_class:
        own = {names.TYPED_FIELDS: typed} if typed else {}
        return {names.KEY_GENERATOR: kind.class_name, names.PARTITION_FIELDS: plain, **own}
    return {names.KEY_GENERATOR_1X: kind.type_name, names.PARTITION_FIELDS: typed or plain}
