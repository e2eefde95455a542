"""Hudi's partition value extractors, which read partition values from partition paths."""

from __future__ import annotations

from lakeformat.model.table_config import EXTRACTOR
from lakeformat.model.table_version import table_version

__all__ = ["choose_extractor", "extractor_properties"]


def choose_extractor(partition_fields: int, *, hive_style: bool, slash_dates: bool = False) -> str:
    """Return the extractor for a number of partition fields (``HoodieTableConfigUtils``), by the name of Hudi's class.

    Args:
        hive_style: Whether partition folders are named ``field=value``.
        slash_dates: Whether partition folders of dates are ``2024/05/06``.

    >>> choose_extractor(1, hive_style=False)
    'SinglePartPartitionValueExtractor'
    """
    if not partition_fields:
        return "NonPartitionedExtractor"
    if partition_fields > 1:
        return "MultiPartKeysValueExtractor"
    if hive_style:
        return "HiveStylePartitionValueExtractor"
    return "SlashEncodedDayPartitionValueExtractor" if slash_dates else "SinglePartPartitionValueExtractor"


def extractor_properties(
    version: int, partition_fields: int, *, hive_style: bool, slash_dates: bool = False
) -> dict[str, str]:
    """Return the property that names the extractor, as Hudi 1.2 does; {} in version 6. See `choose_extractor`."""
    if table_version(version).stores_generator_class:
        return {}
    name = choose_extractor(partition_fields, hive_style=hive_style, slash_dates=slash_dates)
    return {EXTRACTOR: f"org.apache.hudi.hive.{name}"}
