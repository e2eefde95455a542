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

__all__ = [
    "DUPLICATES",
    "EXIT_CODES",
    "STOPPED",
    "UNEXPECTED",
    "USAGE",
    "exit_code",
    "exits_text",
    "human_bytes",
    "print_remark",
    "show_json",
    "show_pairs",
    "show_result",
    "show_rows",
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
    """Print a table. Numbers are right-aligned."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    table = Table(box=SIMPLE_HEAD, title=title or None, title_justify="left", show_edge=False, pad_edge=False)
    for at, name in enumerate(names):
        numbers = any(_is_number(row[at]) for row in cells)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(_text(value)) for value in row))
    _print(table)


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
        (errors.StorageError, errors.CatalogError, OSError),
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
