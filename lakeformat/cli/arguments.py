"""Arguments shared by commands, and opening the table that they name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from lakeformat.errors import InvalidOptionError

if TYPE_CHECKING:
    from lakeformat.table import Table

__all__ = [
    "AsJson",
    "AsOf",
    "Columns",
    "OptionPairs",
    "Output",
    "RowsFormat",
    "ShownFormat",
    "StorageOptionPairs",
    "TablePath",
    "Vertical",
    "Where",
    "find_table",
    "open_table",
    "parse_pairs",
    "split_names",
]

TablePath: TypeAlias = Annotated[str, typer.Argument(help="Folder or URL of the table.", show_default=False)]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
AsOf: TypeAlias = Annotated[
    str | None, typer.Option(help="The table as it was: an instant, a version number, a date (and time).")
]
Vertical: TypeAlias = Annotated[bool, typer.Option("--vertical", help="Show each value on a line of its own.")]
Where: TypeAlias = Annotated[str | None, typer.Option(help="Only rows that match this Spark SQL condition.")]
Columns: TypeAlias = Annotated[str | None, typer.Option(help="Only these columns, commas between them.")]
RowsFormat: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--format", "-f", help="Format of the rows: parquet, csv, json or arrow; by default, from the file's name."
    ),
]
ShownFormat: TypeAlias = Annotated[
    str, typer.Option("--format", "-f", help="table, csv, json (lines), arrow (a stream) or parquet.")
]
Output: TypeAlias = Annotated[str | None, typer.Option("--output", "-O", help="A file or URL instead of stdout.")]
OptionPairs: TypeAlias = Annotated[
    list[str] | None, typer.Option("--option", "-o", help="An option as name=value, also Hudi's; may be repeated.")
]
StorageOptionPairs: TypeAlias = Annotated[
    list[str] | None, typer.Option("--storage-option", help="For the file system of a URL: name=value; repeatable.")
]


def parse_pairs(given: Sequence[str] | None) -> dict[str, str]:
    """Parse ``name=value`` texts into a dict.

    Raises:
        InvalidOptionError: a text has no ``=``.
    """
    values = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidOptionError(f"option {text!r} has no value; write name=value")
        values[name.strip()] = value
    return values


def split_names(text: str | None) -> list[str] | None:
    """Split names at commas. Return None for None."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def find_table(path: str, options: Sequence[str] | None = None, storage: Sequence[str] | None = None) -> Table:
    """Return the table without a look at ``hoodie.properties``, which may be lost: to check or repair it."""
    from lakeformat.table import make_table

    named: dict[str, Any] = parse_pairs(options)
    return make_table(path, {"storage_options": parse_pairs(storage), **named})


def open_table(path: str, options: Sequence[str] | None = None, storage: Sequence[str] | None = None) -> Table:
    """Open the table. Raises the errors of `lakeformat.open`."""
    import lakeformat

    named: dict[str, Any] = parse_pairs(options)
    return lakeformat.open(path, storage_options=parse_pairs(storage), **named)
