"""Small HTML tables for the ``_repr_html_`` methods that notebooks call. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

__all__ = ["html_pairs", "html_rows", "html_text"]

_LEFT: Final = "text-align:left;padding:2px 12px 2px 0"
_RIGHT: Final = "text-align:right;padding:2px 12px 2px 0;font-variant-numeric:tabular-nums"


def html_text(value: Any) -> str:
    """Format a value as escaped HTML: numbers with thousands separators, lists with commas, "" for None."""
    if value is None:
        return ""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return escape(", ".join(map(str, value)))
    return escape(str(value))


def html_rows(head: Sequence[str], rows: Iterable[Sequence[Any]], *, caption: str = "", note: str = "") -> str:
    """Return an HTML table with a heading row; numbers are aligned to the right.

    >>> html_rows(["file", "rows"], [["a<b", 1200]]).count("<td")
    2
    """
    lines = [f"<th style='{_LEFT}'>{escape(name)}</th>" for name in head]
    body = ["".join(_cell(value) for value in row) for row in rows]
    return (
        f"<div>{_caption(caption)}<table style='border-collapse:collapse'><thead><tr>{''.join(lines)}</tr></thead>"
        f"<tbody>{''.join(f'<tr>{line}</tr>' for line in body)}</tbody></table>{_note(note)}</div>"
    )


def html_pairs(pairs: Mapping[str, Any], *, caption: str = "", more: str = "") -> str:
    """Return an HTML table with a name and its value in each row; values of None are left out.

    Args:
        more: HTML to put below the table, not escaped.
    """
    lines = [
        f"<tr><th style='{_LEFT}'>{escape(name)}</th><td style='{_LEFT}'>{html_text(value)}</td></tr>"
        for name, value in pairs.items()
        if value is not None
    ]
    return f"<div>{_caption(caption)}<table style='border-collapse:collapse'>{''.join(lines)}</table>{more}</div>"


def _cell(value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"<td style='{_RIGHT if number else _LEFT}'>{html_text(value)}</td>"


def _caption(text: str) -> str:
    return f"<strong>{escape(text)}</strong>" if text else ""


def _note(text: str) -> str:
    return f"<p style='margin:4px 0'>{escape(text)}</p>" if text else ""
