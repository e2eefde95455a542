"""Words of statements that no parser of SQL reads: how a table is named in them. Pure."""

from __future__ import annotations

import re
from typing import Final

from lakeformat.errors import InvalidInputError
from lakeformat.sql_statements.parse import TableName, shortened

__all__ = ["NAME", "after_name", "named_in"]

#: A table: a path after a format, a path as text, or a name, with or without quotes.
NAME: Final = (
    r"""(?:(?:lakehouse|hudi|delta)\.[`"](?P<path>[^`"]+)[`"]|'(?P<text>[^']+)'|"""
    r"""(?P<name>(?:\w+|[`"][^`"]+[`"])(?:\.(?:\w+|[`"][^`"]+[`"]))*))"""
)


def named_in(match: re.Match[str]) -> TableName:
    """The table that `NAME` has found."""
    path = match["path"] or match["text"]
    name = (match["name"] or "").replace("`", "").replace('"', "")
    path = name if not path and "/" in name else path
    return TableName(path, path) if path else TableName(name)


def after_name(text: str, head: str) -> str:
    """What follows the table's name, for a statement that begins with a pattern.

    Raises:
        InvalidInputError: there is no name.
    """
    found = re.match(rf"\s*{head}\s+{NAME}\s*", text, re.IGNORECASE)
    if found is None:
        raise InvalidInputError(f"{shortened(text)} names no table; name one, or write lakehouse.`/its/path`")
    return text[found.end() :]
