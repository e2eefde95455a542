"""Keyword arguments that other libraries have: whoever tries one is told ours. None is ever passed over in silence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from lakeformat.errors import InvalidOptionError, nearest

__all__ = ["check_arguments"]

#: Of delta-rs, pyiceberg, polars and pandas -> ours, where a method has it.
_OURS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("condition", "expr", "filter", "filters", "predicate", "query", "row_filter"), "where"),
    **dict.fromkeys(("fields", "projection", "select", "selected_fields", "usecols"), "columns"),
    **dict.fromkeys(("datetime", "instant", "snapshot_id", "timestamp", "version"), "as_of"),
    **dict.fromkeys(("head", "n", "n_rows", "nrows", "rows"), "limit"),
}


def check_arguments(given: Iterable[str], known: Collection[str], otherwise: str = "") -> None:
    """Refuse keyword arguments that a method does not have.

    Args:
        otherwise: where such a name may belong instead, behind a semicolon.

    Raises:
        InvalidOptionError: names the first that is unknown, and the one that was meant.
    """
    for name in given:
        if name not in known:
            ours = _OURS.get(name.lower())
            hint = f"; did you mean {ours!r}?" if ours in known else nearest(name, known)
            raise InvalidOptionError(f"unknown argument {name!r}{hint or '; there are ' + ', '.join(known)}{otherwise}")
