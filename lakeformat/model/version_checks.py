"""Refusals by the version of a table: one that is not supported, or that is only read."""

from __future__ import annotations

from typing import Final

from lakeformat.errors import UnsupportedTableError
from lakeformat.model.table_version import TABLE_VERSIONS, WRITTEN_VERSIONS, table_version

__all__ = ["check_read", "check_written"]

_KEY: Final = "hoodie.table.version"
#: What to do with a table of a later version.
_OLDER_VERSION: Final = (
    f"set hoodie.write.table.version={max(WRITTEN_VERSIONS)} in the Hudi job that writes the table, "
    "and downgrade this one with Hudi's CLI"
)


def check_read(where: str, number: int, text: str | None) -> None:
    """Check that lakeformat reads tables of a version.

    Args:
        where: the path of the properties, for messages.
        text: the number as the properties have it.

    Raises:
        UnsupportedTableError: it does not.
    """
    if number not in TABLE_VERSIONS:
        only = f"only {', '.join(map(str, TABLE_VERSIONS))} are"
        cure = _OLDER_VERSION if number > max(TABLE_VERSIONS) else "use Apache Hudi for this table, or downgrade it"
        raise UnsupportedTableError(f"{where}: {_KEY}={text} is not supported, {only}; {cure}")


def check_written(where: str, number: int, doing: str) -> None:
    """Check that lakeformat changes tables of a version, too. Raise `UnsupportedTableError` if it only reads them."""
    if not table_version(number).is_written:
        raise UnsupportedTableError(f"{where}: {_KEY}={number} is only read, {doing} is refused; {_OLDER_VERSION}")
