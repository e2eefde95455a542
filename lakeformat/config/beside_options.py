"""Options that keep metadata of other table formats beside a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.config.option import Effect, declare, options_of, parse_flag, parse_names, values_of
from lakeformat.config.problems import Problem
from lakeformat.errors import nearest

__all__ = ["BESIDE", "BESIDE_OPTIONS", "FORMATS", "BesideOptions", "find_beside_errors"]

BESIDE: Final = "lakeformat.beside"
_CATALOG: Final = "lakeformat.beside.iceberg.catalog"
_TABLE: Final = "lakeformat.beside.iceberg.table"
#: Maps each format whose metadata can lie beside a table to the folder of that metadata.
FORMATS: Final = {"delta": "_delta_log", "iceberg": "metadata"}


def _parse_formats(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.lower() for name in parse_names(text)))
    for name in names:
        if name not in FORMATS:
            raise ValueError(f"write {' or '.join(FORMATS)}{nearest(name, FORMATS)}")
    return names


def _parse_table(text: str) -> str:
    if text and (not all(text.split(".")) or "." not in text):
        raise ValueError("write namespace.table")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class BesideOptions:
    """What follows the table after each write.

    Attributes:
        formats: the formats whose metadata follows.
        fails: whether an error is raised if it cannot follow.
        iceberg_catalog: the catalog that names Iceberg's newest metadata; "" if files in the table's folder do.
        iceberg_table: the table's name in that catalog.
    """

    formats: tuple[str, ...] = declare(
        Effect.WRITE,
        BESIDE,
        "Formats whose metadata follows each write, so that their readers can read the table: delta, iceberg.",
        _parse_formats,
        (),
    )
    fails: bool = declare(
        Effect.WRITE,
        "lakeformat.beside.fail_on_error",
        "A write whose metadata of another format cannot follow raises SyncError, although its commit is visible. By "
        "default a warning is logged.",
        parse_flag,
        False,
    )

    iceberg_catalog: str = declare(
        Effect.WRITE,
        _CATALOG,
        "Name of a catalog in pyiceberg's configuration that Iceberg's metadata is committed to. By default the files "
        "metadata/v1.metadata.json and so on in the table name the newest metadata.",
        str,
        "",
    )
    iceberg_table: str = declare(
        Effect.WRITE,
        _TABLE,
        f"The table's name in {_CATALOG}, with its namespace: sales.flights.",
        _parse_table,
        "",
    )

    @classmethod
    def of(cls, get: Callable[[str], Any]) -> BesideOptions:
        """Make the typed form of the options."""
        return cls(**values_of(cls, get))


def find_beside_errors(get: Callable[[str], Any]) -> Iterator[Problem]:
    """Find an option of Iceberg's catalog that is set without the other."""
    for name, other in ((_CATALOG, _TABLE), (_TABLE, _CATALOG)):
        if get(name) and not get(other):
            yield Problem(name, f"option {name} needs {other}, too")


BESIDE_OPTIONS: Final = options_of(BesideOptions)
