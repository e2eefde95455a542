"""Partition values in a catalog, read from partition paths by the rules of Hudi's extractors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Final

from lakeformat.errors import InvalidInputError

__all__ = ["extract_values"]


def extract_values(extractor: str, path: str, fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return the partition values of a partition path; empty if the extractor finds none.

    >>> extract_values("MultiPartKeysValueExtractor", "day=1/hour=2", ("day", "hour"))
    ('1', '2')

    Raises:
        InvalidInputError: the path does not have the form that the extractor needs, or has another number of values.
    """
    try:
        values = _EXTRACTORS[extractor](path)
    except ValueError:
        raise InvalidInputError(
            f"partition path {path!r} does not have the form that {extractor} needs; set "
            "hoodie.datasource.hive_sync.partition_extractor_class"
        ) from None
    if values and len(values) != len(fields):
        raise InvalidInputError(
            f"partition path {path!r} has {len(values)} values by {extractor}, but the table has the partition fields "
            f"{', '.join(fields) or '(none)'}; set hoodie.datasource.hive_sync.partition_fields or "
            "hoodie.datasource.hive_sync.partition_extractor_class"
        )
    return values


def _after_equals(part: str) -> str:
    return part.partition("=")[2] if "=" in part else part


def _hive_style(path: str) -> tuple[str, ...]:
    if "=" not in path:
        raise ValueError(path)
    return (_after_equals(path),)


def _day(path: str) -> tuple[str, ...]:
    year, month, day = (int(_after_equals(part)) for part in path.split("/"))
    return (date(year, month, day).isoformat(),)


def _hour(path: str) -> tuple[str, ...]:
    *parts, last = path.split("/")
    hour = int(_after_equals(last))
    if not 0 <= hour < 24:
        raise ValueError(path)
    return (f"{_day('/'.join(parts))[0]}-{hour:02d}",)


_EXTRACTORS: Final[Mapping[str, Callable[[str], tuple[str, ...]]]] = {
    "NonPartitionedExtractor": lambda path: (),
    "SinglePartPartitionValueExtractor": lambda path: (path.replace("/", "-"),),
    "MultiPartKeysValueExtractor": lambda path: tuple(map(_after_equals, path.split("/"))) if path else (),
    "HiveStylePartitionValueExtractor": _hive_style,
    "SlashEncodedDayPartitionValueExtractor": _day,
    "SlashEncodedHourPartitionValueExtractor": _hour,
}
