"""Output of results: JSON for programs, tables for people, and an exit code for each kind of error.

Results go to stdout, remarks to stderr.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from lakeformat import errors
from lakeformat.display import fit_columns, hidden_columns, text_width

__all__ = [
    "DUPLICATES",
    "EXIT_CODES",
    "STOPPED",
    "UNEXPECTED",
    "USAGE",
    "ValuePrinter",
    "exit_code",
    "exits_text",
    "human_bytes",
    "print_remark",
    "show_entries",
    "show_json",
    "show_pairs",
    "show_result",
    "show_rows",
    "show_vertical",
    "to_plain",
]


def to_plain(value: Any) -> Any:
    """Convert a value to JSON types.

    A dataclass becomes a dict of its fields, an enum its name in lower case, any other object its `str`.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(inner) for inner in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return value.name.lower() if isinstance(value, Enum) else str(value)


def show_json(value: Any) -> None:
    """Print a value as one JSON document on stdout."""
    print(json.dumps(to_plain(value), indent=2, ensure_ascii=False))


def print_remark(text: str) -> None:
    """Print a line for people on stderr, apart from the result."""
    print(text, file=sys.stderr)


def show_pairs(pairs: Mapping[str, Any]) -> None:
    """Print names and values. Values that are None or empty are left out."""
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in pairs.items():
        if value not in (None, "", []):
            table.add_row(name.replace("_", " "), _text(value))
    _print(table)


def show_rows(names: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "") -> None:
    """Print a report. Numbers are right-aligned and have separators. Only long texts go on in the next line."""
    given = [list(row) for row in rows]
    cells = [[_text(value) for value in row] for row in given]
    numbers = [any(_is_number(row[number]) for row in given) for number in range(len(names))]
    widths = [max(map(text_width, (name, *(row[number] for row in cells)))) for number, name in enumerate(names)]
    short = [number or width <= _SHORT_TEXT for number, width in zip(numbers, widths, strict=True)]
    room = _terminal_width()
    if room is not None:
        least = [width if is_short else _SHORT_TEXT for width, is_short in zip(widths, short, strict=True)]
        widths = fit_columns(least, [True] * len(least), room)
    table = _table(title)
    for name, number, is_short in zip(names[: len(widths)], numbers, short, strict=False):
        table.add_column(name, justify="right" if number else "left", overflow="fold", no_wrap=is_short)
    for row in cells:
        table.add_row(*map(_cell, row[: len(widths)]))
    _print(table)
    if hidden := names[len(widths) :]:
        print_remark(f"{hidden_columns(hidden, room)}\n--json or a wider terminal shows them")


def show_entries(entries: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Print entries for people on a terminal: each has a head line, and texts below it, which are wrapped."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(markup=False, highlight=False)
    for head, texts in entries:
        console.print(Text(head, style="bold", overflow="fold"))
        for text in filter(None, texts):
            console.print(Padding(Text(text, overflow="fold"), (0, 0, 0, 2)))


class ValuePrinter:
    """Prints rows of data in blocks, each row on one line. The first block decides how wide the columns are.

    On a terminal long texts are cut, and so are columns without room.

    Args:
        is_number: whether the values of each column are numbers, which are right-aligned and not cut.
    """

    def __init__(self, names: Sequence[str], is_number: Sequence[bool]) -> None:
        self._names, self._is_number = names, is_number
        self._room = _terminal_width()
        self._widths: list[int] | None = None

    def show(self, columns: Sequence[Sequence[str]]) -> None:
        """Print a block of rows, the first with the names above it.

        Args:
            columns: the texts of each column.
        """
        if self._widths is not None:
            self._show_more(columns, self._widths)
            return
        widths = [max(map(text_width, (name, *texts))) for name, texts in zip(self._names, columns, strict=True)]
        self._widths = widths if self._room is None else fit_columns(widths, self._is_number, self._room)
        table = _table("")
        for name, width, number in zip(self._names, self._widths, self._is_number, strict=False):
            table.add_column(
                _cell(name), justify="right" if number else "left", width=width, no_wrap=True, overflow="ellipsis"
            )
        for row in zip(*columns[: len(self._widths)], strict=True):
            table.add_row(*map(_cell, row))
        _print(table)

    def _show_more(self, columns: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
        padded = [
            [_pad(text, width, to_the_right=number, cuts=self._room is not None) for text in texts]
            for texts, width, number in zip(columns, widths, self._is_number, strict=False)
        ]
        gap = " " * _GAP
        lines = (gap.join(row) for row in zip(*padded, strict=True))
        print("\n".join(lines if self._room is None else map(str.rstrip, lines)))

    def finish(self) -> None:
        """Name the columns that had no room."""
        if hidden := self._names[len(self._widths or ()) :]:
            remark = "--vertical shows each on a line, read --columns chooses columns"
            print_remark(f"{hidden_columns(hidden, self._room)}\n{remark}")


def _pad(text: str, width: int, *, to_the_right: bool, cuts: bool) -> str:
    """Return a text as wide as its column; a longer one is cut on request."""
    wide = len(text) if text.isascii() else text_width(text)
    if wide > width and cuts:
        from rich.cells import set_cell_size

        return f"{set_cell_size(text, width - 1)}…"
    blank = " " * max(0, width - wide)
    return f"{blank}{text}" if to_the_right else f"{text}{blank}"


def show_vertical(names: Sequence[str], columns: Sequence[Sequence[str]], first: int = 0) -> None:
    """Print rows of data with each value on a line of its own.

    Args:
        first: number of the rows that were printed before.
    """
    wide = max(map(text_width, names), default=0)
    for number, row in enumerate(zip(*columns, strict=True), first):
        print(f"{'' if number == 0 else chr(10)}row {number + 1}")
        for name, text in zip(names, row, strict=True):
            print(f"  {name}{' ' * (wide - text_width(name))}  {text}")


#: Width in characters of a text that stays on its line.
_SHORT_TEXT: Final = 20
#: Width in characters of the gap between columns.
_GAP: Final = 3


def _table(title: str) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(box=SIMPLE_HEAD, title=title or None, title_justify="left", show_edge=False, pad_edge=False)


def _cell(text: str) -> Any:
    from rich.text import Text

    return Text(text)


def _terminal_width() -> int | None:
    """Return the width of the terminal in characters; None if stdout is none."""
    from rich.console import Console

    return Console().width if sys.stdout.isatty() else None


def _print(table: Any) -> None:
    """Print a table as wide as the terminal; without a terminal, as wide as its contents."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() else 1 << 12
    console = Console(width=wide, markup=False, highlight=False)
    if wide is None:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def show_result(result: Any, *, as_json: bool) -> None:
    """Print what a write did."""
    if as_json:
        show_json(
            {
                "instant_time": result.instant_time,
                "operation": result.operation,
                "skipped": result.skipped,
                **result.report,
            }
        )
    else:
        print(result)


def human_bytes(count: int | None) -> str | None:
    """Format a number of bytes: 1,536 is 1.5 KiB. Return None for None."""
    if count is None or count < 1024:
        return None if count is None else f"{count} B"
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:,.1f} {unit}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return str(value)


UNEXPECTED: Final = 1
USAGE: Final = 2
#: Exit code of ``check`` if the only findings are keys that occur twice, which inserts allow.
DUPLICATES: Final = 11
STOPPED: Final = 130
_CHANGE_THE_CALL: Final = "change the command, its options or the rows"

#: Maps an exit code to its error classes and a text that says what to do. An error gets the first code that fits.
EXIT_CODES: Final[Mapping[int, tuple[tuple[type[Exception], ...], str]]] = {
    2: ((errors.InvalidOptionError, errors.InvalidInputError), _CHANGE_THE_CALL),
    3: ((errors.TableNotFoundError,), "there is no table: check the path, or create it"),
    4: ((errors.UnsupportedTableError,), "the table uses a feature that is not built"),
    5: (
        (errors.CorruptTableError,),
        "a file of the table is damaged: check names it, bring it back from a copy",
    ),
    6: ((errors.WriteConflictError, errors.LockTimeoutError), "another writer was in the way: run it again"),
    7: ((errors.ValidationFailedError,), "a validator refused the write"),
    8: ((errors.InstantNotAvailableError,), "no such instant, or it was cleaned"),
    9: ((errors.CommitStateUnknownError,), "it is not known whether the commit is visible: look at the history"),
    10: (
        (errors.StorageError, errors.CatalogError, errors.SyncError, OSError),
        "the storage or the catalog failed: permissions, space, network",
    ),
}


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error; 1 for an unexpected one."""
    return next((code for code, (kinds, _) in EXIT_CODES.items() if isinstance(error, kinds)), UNEXPECTED)


def exits_text() -> str:
    """Return the list of exit codes for the help page."""
    lines = [f"{code} {meaning}" for code, (_, meaning) in EXIT_CODES.items()]
    lines += [f"{DUPLICATES} check found keys that come twice, and no damage: lakeformat dedupe", f"{STOPPED} stopped"]
    return "Exit codes: 0 done; 1 unexpected; " + "; ".join(lines) + "."
