"""``hoodie.properties`` of a table that moves to another version. Pure.

Source: Hudi's ``SixToEightUpgradeHandler``, ``EightToNineUpgradeHandler`` and their inverses, and tables that Hudi
1.2.0 has moved. Two things differ from Hudi: the types of a custom key generator and the payload class are always kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakeformat.model import table_config as names
from lakeformat.model.keys import KeyGeneratorKind, KeySettings
from lakeformat.model.table_config import TableConfig
from lakeformat.model.version_properties import extractor_of, key_generator_of, layout_of_version, merging_of

__all__ = ["moved_properties"]

#: Properties that differ between versions.
_REWRITTEN: Final = frozenset(
    {
        names.PAYLOAD,
        names.LEGACY_PAYLOAD,
        names.MERGE_MODE,
        names.MERGE_STRATEGY,
        names.PARTIAL_UPDATE_MODE,
        names.KEY_GENERATOR,
        names.KEY_GENERATOR_1X,
        names.ORDERING,
        names.ORDERING_1X,
        names.PARTITION_FIELDS,
    }
)
#: Properties that stay unchanged if the table has them: folders do not move.
_KEPT: Final = frozenset({names.INITIAL_VERSION, names.TIMELINE_PATH, names.HISTORY_PATH, names.ARCHIVE_FOLDER})


def moved_properties(config: TableConfig, to: int, keys: KeySettings) -> dict[str, str]:
    """Return the properties of the same table in another version.

    Args:
        config: the table's present configuration.
        to: 6, 8 or 9.
        keys: how its keys are generated, types of a custom generator included.

    Raises:
        UnsupportedTableError: the table's merge mode or payload class is not known.
    """
    payload = config.get(names.PAYLOAD) or config.get(names.LEGACY_PAYLOAD)
    layout = layout_of_version(to)
    layout[names.INITIAL_VERSION] = str(config.version)
    if to == 6:
        layout.pop(names.INITIAL_VERSION)
    typed = keys.kind is KeyGeneratorKind.CUSTOM and to != 6
    fields = (f"{f.name}:{f.kind.value}" if typed else f.name for f in keys.partition_fields)
    ordering = names.ORDERING_1X if to == 9 else names.ORDERING
    values: Mapping[str, str] = {
        **{key: text for key, text in config.values.items() if key not in _REWRITTEN},
        **{key: text for key, text in layout.items() if key not in _KEPT or key not in config.values},
        **merging_of(to, config.merge_mode, payload),
        **key_generator_of(to, keys.kind),
        **({ordering: ",".join(config.ordering_fields)} if config.ordering_fields else {}),
        names.PARTITION_FIELDS: ",".join(fields),
    }
    extractor = extractor_of(to, len(keys.partition_fields), hive_style=config.hive_style)
    return {**extractor, **values}
