"""Displays for notebooks and terminals: small tables as HTML and as text, and a progress bar.

``_repr_html_`` methods return the tables. All text in them is escaped.

The progress bar is shown only on terminals and in notebooks. tqdm (``lakeformat[progress]``) draws it after two seconds
of work. tqdm's environment variables apply: ``TQDM_DISABLE=1`` switches the bar off, ``TQDM_DELAY=10`` shows it after
ten seconds. If stderr is not a terminal, or tqdm is not installed, nothing is drawn and nothing is counted.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from threading import Lock
from typing import Any, Final, Protocol

__all__ = [
    "BYTES",
    "FILES",
    "SILENT",
    "Progress",
    "cut_text",
    "fit_columns",
    "format_bytes",
    "hidden_columns",
    "html_pairs",
    "html_rows",
    "html_text",
    "is_visible",
    "progress",
    "text_rows",
    "text_width",
]

_LEFT: Final = "text-align:left;padding:2px 12px 2px 0"
_RIGHT: Final = "text-align:right;padding:2px 12px 2px 0;font-variant-numeric:tabular-nums"


def format_bytes(count: int) -> str:
    """Format a number of bytes.

    >>> format_bytes(1536)
    '1.5 KiB'
    """
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"


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


#: Widths in characters: of a cut text, most and least, and of the gap between columns.
_WIDEST_TEXT: Final = 32
_LEAST_TEXT: Final = 12
_GAP: Final = 3


def fit_columns(widths: Sequence[int], is_number: Sequence[bool], room: int) -> list[int]:
    """Return the widths of the columns that fit, from the left; there is at least one. Numbers are not cut.

    The last column takes the room that is left.

    >>> fit_columns([4, 60, 5, 9], [True, False, True, True], 50), fit_columns([4, 60], [True, False], 50)
    ([4, 32, 5], [4, 43])
    """
    if sum(widths) + _GAP * (len(widths) - 1) <= room:
        return list(widths)
    fitted: list[int] = []
    for width, number in zip(widths, is_number, strict=True):
        remaining = room - sum(fitted) - _GAP * len(fitted)
        fitting = width if number else min(width, _WIDEST_TEXT)
        if fitted and fitting > remaining and (number or remaining < _LEAST_TEXT):
            break
        fitted.append(min(fitting, remaining))
    if fitted:
        remaining = room - sum(fitted) - _GAP * (len(fitted) - 1)
        fitted[-1] = min(widths[len(fitted) - 1], fitted[-1] + remaining)
    return fitted


def text_width(text: str) -> int:
    """Return the number of columns of a terminal that a text takes.

    >>> text_width("a\u0301"), text_width("\u6771\u4eac")
    (1, 4)
    """
    if text.isascii():
        return len(text)
    zero = sum(unicodedata.category(character) in {"Mn", "Me", "Cf"} for character in text)
    return len(text) - zero + sum(unicodedata.east_asian_width(character) in {"W", "F"} for character in text)


def cut_text(text: str, most: int) -> str:
    """Cut a text that is longer than ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def hidden_columns(names: Sequence[str], room: int | None) -> str:
    """Return the line that names the columns without room, cut to ``room`` characters.

    >>> hidden_columns(["files", "seconds"], 30)
    '… 2 more columns: files, seco…'
    """
    line = f"… {len(names):,} more column{'s' * (len(names) > 1)}: {', '.join(names)}"
    return line if room is None else cut_text(line, room)


def text_rows(head: Sequence[str], rows: Iterable[Sequence[Any]], *, note: str = "") -> str:
    """Return rows as aligned text that fits the width of the terminal: long texts are cut, columns without room named.

    Args:
        note: a line below the rows; none by default.
    """
    given = [list(row) for row in rows]
    texts = [[_plain(value) for value in row] for row in given]
    numbers = [any(_is_number(row[number]) for row in given) for number in range(len(head))]
    widths = [max(map(text_width, (name, *(row[number] for row in texts)))) for number, name in enumerate(head)]
    room = shutil.get_terminal_size((120, 24)).columns
    fitted = fit_columns(widths, numbers, room)
    lines = [_text_line([*head], fitted, numbers), *(_text_line(row, fitted, numbers) for row in texts)]
    if hidden := head[len(fitted) :]:
        lines.append(hidden_columns(hidden, room))
    return "\n".join([*lines, *([note] if note else ())])


def _text_line(texts: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    cells = []
    for text, width, number in zip(texts, widths, numbers, strict=False):
        shown = cut_text(text, width)
        blank = " " * (width - text_width(shown))
        cells.append(blank + shown if number else shown + blank)
    return (" " * _GAP).join(cells).rstrip()


def _plain(value: Any) -> str:
    return "" if value is None else " ".join(str(value).split()) if isinstance(value, str) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    number = _is_number(value)
    return f"<td style='{_RIGHT if number else _LEFT}'>{html_text(value)}</td>"


def _caption(text: str) -> str:
    return f"<strong>{escape(text)}</strong>" if text else ""


def _note(text: str) -> str:
    return f"<p style='margin:4px 0'>{escape(text)}</p>" if text else ""


BYTES: Final = "B"
FILES: Final = " files"
#: Defaults of tqdm's arguments, unless an environment variable sets them.
_STYLE: Final = {"delay": 2, "leave": False}


class Progress(Protocol):
    """Interface by which any thread of a running job reports its progress."""

    def advance(self, done: int, *, rows: int = 0, files: int = 0, size_bytes: int = 0) -> None:
        """Add ``done`` to the finished part of the total, and the counts to those shown beside the bar."""


class _NoProgress:
    """An implementation of `Progress` that shows nothing."""

    def advance(self, done: int, *, rows: int = 0, files: int = 0, size_bytes: int = 0) -> None:
        """Do nothing."""


SILENT: Final[Progress] = _NoProgress()


class _Bar:
    """An implementation of `Progress` that draws a tqdm bar."""

    def __init__(self, bar: Any) -> None:
        self._bar, self._lock = bar, Lock()
        self._counts = {"rows": 0, "files": 0, "bytes": 0}

    def advance(self, done: int, *, rows: int = 0, files: int = 0, size_bytes: int = 0) -> None:
        """Advance the bar by ``done``, and add to the counts beside it."""
        with self._lock:
            for name, count in (("rows", rows), ("files", files), ("bytes", size_bytes)):
                self._counts[name] += count
            counts = [f"{self._counts[name]:,} {name}" for name in ("rows", "files") if self._counts[name]]
            written = [f"{self._counts['bytes'] / 1e6:,.1f} MB"] if self._counts["bytes"] else []
            self._bar.set_postfix_str(", ".join(counts + written), refresh=False)
            # A total in bytes is an estimate, so never advance past it.
            self._bar.update(max(0, min(done, self._bar.total - self._bar.n)))


def is_visible() -> bool:
    """Tell whether a bar would be visible: in a notebook, or if stderr is a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel") or (sys.stderr is not None and sys.stderr.isatty())


@contextmanager
def progress(what: str, total: int, unit: str = BYTES) -> Iterator[Progress]:
    """Show a progress bar while the block runs: percentage, rate, time left, and the counts that the work reports.

    Args:
        what: Name of the work, such as ``compact``.
        total: Amount of work in ``unit``. `BYTES` are shown with unit prefixes.
    """
    bar = _open_bar(what, total, unit) if is_visible() else None
    if bar is None:
        yield SILENT
        return
    with bar:
        yield _Bar(bar)


def _open_bar(what: str, total: int, unit: str) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    scale = {"unit_scale": True, "unit_divisor": 1024} if unit == BYTES else {}
    style = {name: value for name, value in _STYLE.items() if f"TQDM_{name.upper()}" not in os.environ}
    return tqdm(total=total, desc=what, unit=unit, **scale, **style)
