"""Text output of the demo: aligned tables, write reports of any shape, checksums of rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv

__all__ = ["checksum", "indented", "report_text", "shown", "text_table"]

_NUMBERS = (int, float)


def text_table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format ``rows`` under ``names``, columns aligned, numbers to the right.

    >>> print(text_table(["step", "files"], [["bloom", 1200], ["ranges", 7]]))
    step    files
    bloom   1,200
    ranges      7
    """
    values = [list(row) for row in rows]
    numeric = [all(isinstance(row[n], _NUMBERS) or row[n] is None for row in values) for n in range(len(names))]
    cells = [list(names), *([shown(value) for value in row] for row in values)]
    widths = [max(len(row[n]) for row in cells) for n in range(len(names))]
    lines = (
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def shown(value: object) -> str:
    """Format one value in few characters: with thousands separators, small fractions with three decimal places."""
    match value:
        case None:
            return "-"
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if abs(value) >= 100 else f"{round(value, 3):g}"
        case _:
            return str(value)


def report_text(report: Mapping[str, Any]) -> str:
    """Format a write's report of any shape: its plain values in one line, then each nested part.

    A mapping of plain values takes one line. A list of mappings becomes a table: keys that all of them have are
    columns, each mapping's other keys are in the last column.
    """
    parts: list[str] = []
    plain = {name: value for name, value in report.items() if not _is_nested(value)}
    if plain:
        parts.append(_in_one_line(plain))
    for name, value in report.items():
        match value:
            case Mapping() if any(_is_nested(inner) for inner in value.values()):
                parts.append(f"{name}:\n{indented(report_text(value))}")
            case Mapping() if value:
                parts.append(f"{name}: {_in_one_line(value)}")
            case [_, *_] if all(isinstance(item, Mapping) for item in value):
                parts.append(f"{name}:\n{indented(_mappings_table(value))}")
            case [_, *_]:
                parts.append(f"{name}: {', '.join(shown(item) for item in value)}")
    return "\n".join(parts)


def _is_nested(value: object) -> bool:
    return isinstance(value, Mapping | list | tuple)


def _in_one_line(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{_words(name)} {_flat(value)}" for name, value in values.items())


def _words(name: str) -> str:
    return name.replace("_", " ")


def _flat(value: object) -> str:
    return f"({_in_one_line(value)})" if isinstance(value, Mapping) else shown(value)


def _mappings_table(rows: Sequence[Mapping[str, object]]) -> str:
    shared = [name for name in rows[0] if all(name in row and not _is_nested(row[name]) for row in rows)]
    rest = [_in_one_line({name: row[name] for name in row if name not in shared}) for row in rows]
    names = [*map(_words, shared), *(["counts"] if any(rest) else [])]
    cells = ([*(row[name] for name in shared), more][: len(names)] for row, more in zip(rows, rest, strict=True))
    return text_table(names, cells)


def indented(text: str) -> str:
    """Indent ``text`` by two spaces."""
    return "\n".join(f"  {line}" for line in text.splitlines())


def checksum(rows: pa.Table, schema: pa.Schema, *, by: Sequence[str]) -> str:
    """Return the first 16 hex digits of the SHA-256 of ``rows``: the columns of ``schema``, sorted ``by`` a unique key.

    Values are cast to the schema's types first, so that engines may represent equal values differently. Null and the
    empty string differ. The order of the rows does not matter. Raises a pyarrow error if a column is missing or does
    not fit its type.
    """
    ordered = rows.select(schema.names).cast(schema).sort_by([(name, "ascending") for name in by])
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(ordered, sink)
    return hashlib.sha256(sink.getvalue()).hexdigest()[:16]
