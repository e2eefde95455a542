"""The properties that each table version stores in ``hoodie.properties`` for the same settings.

They equal the properties of tables that Hudi 1.2.0 makes, for both table types. Sources: ``HoodieTableConfig`` and
``HoodieTableMetaClient.TableBuilder``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakeformat.model import table_config as names
from lakeformat.model.keys import KeyGeneratorKind
from lakeformat.model.table_config import MergeMode

__all__ = ["extractor_of", "key_generator_of", "layout_of_version", "merging_of", "ordering_of"]

_STRATEGY_OF: Final[Mapping[str, str]] = {
    MergeMode.COMMIT_TIME: "ce9acb64-bde0-424c-9b91-f6ebba25356d",
    MergeMode.EVENT_TIME: "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
}
_BY_PAYLOAD: Final = "00000000-0000-0000-0000-000000000000"
#: Modes that are payload classes -> the mode that version 9 stores for them, together with a partial update mode.
_PARTIAL: Final[Mapping[str, str]] = {
    MergeMode.PARTIAL_UPDATE: MergeMode.EVENT_TIME,
    MergeMode.NON_DEFAULTS: MergeMode.COMMIT_TIME,
}


def layout_of_version(version: int) -> dict[str, str]:
    """Return the properties for a table version, its timeline layout and the folders of the timeline."""
    if version == 6:  # The only supported version with timeline layout 1.
        return {names.VERSION: "6", names.LAYOUT: "1", names.ARCHIVE_FOLDER: "archived"}
    return {
        names.VERSION: str(version),
        names.INITIAL_VERSION: str(version),
        names.LAYOUT: "2",
        names.TIMELINE_PATH: "timeline",
        names.HISTORY_PATH: "history",
        names.ARCHIVE_FOLDER: "history",
        names.TABLE_FORMAT: "native",
        names.SEVERAL_FORMATS: "false",
    }


def merging_of(version: int, mode: str, payload: str = "") -> dict[str, str]:
    """Return the properties that store a merge mode.

    Args:
        mode: A `MergeMode`.
        payload: The payload class that the user named, or "". Version 9 stores its name for a later downgrade.
    """
    payload_class = payload or MergeMode.PAYLOAD_OF[mode]
    if version == 6:
        return {names.PAYLOAD: payload_class}
    if version == 8:
        stored_mode = "CUSTOM" if mode in _PARTIAL else mode
        strategy = _STRATEGY_OF.get(stored_mode, _BY_PAYLOAD)
        return {names.MERGE_MODE: stored_mode, names.MERGE_STRATEGY: strategy, names.PAYLOAD: payload_class}
    stored = {names.MERGE_MODE: _PARTIAL.get(mode, mode)}
    if mode in _PARTIAL:
        stored[names.PARTIAL_UPDATE_MODE] = "IGNORE_DEFAULTS"
    return {**stored, names.LEGACY_PAYLOAD: payload_class} if payload or mode in _PARTIAL else stored


def ordering_of(version: int, field: str) -> dict[str, str]:
    """Return the property that stores the ordering column; {} if the column is ""."""
    return {names.ORDERING if version == 6 else names.ORDERING_1X: field} if field else {}


def key_generator_of(version: int, kind: KeyGeneratorKind) -> dict[str, str]:
    """Return the property that stores the key generator: its class up to version 6, then its type."""
    if version == 6:
        return {names.KEY_GENERATOR: kind.class_name}
    return {names.KEY_GENERATOR_1X: kind.type_name}


def extractor_of(version: int, partition_fields: int, *, hive_style: bool) -> dict[str, str]:
    """Return the property that names Hudi's partition value extractor, as Hudi 1.2 stores it; {} in version 6.

    Args:
        partition_fields: Number of partition fields.
    """
    if version == 6:
        return {}
    one = "HiveStylePartitionValueExtractor" if hive_style else "SinglePartPartitionValueExtractor"
    several = {0: "NonPartitionedExtractor", 1: one}
    return {names.EXTRACTOR: f"org.apache.hudi.hive.{several.get(partition_fields, 'MultiPartKeysValueExtractor')}"}
