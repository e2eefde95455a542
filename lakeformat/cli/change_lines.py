"""Changes for people: of each the key, and the values that differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from lakeformat.cli.rows import value_text

__all__ = ["change_lines", "first_rows"]

_OPERATIONS: Final = {"i": "insert", "u": "update", "d": "delete"}


def first_rows(batches: pa.RecordBatchReader, most: int) -> pa.RecordBatchReader:
    """Return the first rows of a stream. No more batches are read than are needed."""

    def read() -> Iterator[pa.RecordBatch]:
        remaining = most
        while remaining > 0 and (batch := next(batches, None)) is not None:
            yield batch.slice(0, remaining)
            remaining -= batch.num_rows

    return pa.RecordBatchReader.from_batches(batches.schema, read())


def change_lines(changes: pa.RecordBatchReader, keys: Sequence[str]) -> pa.RecordBatchReader:
    """Return a row for each change: the operation, the instant, the record key, and the values that differ.

    Args:
        changes: rows of `ChangeImages`.
        keys: columns of the record key.
    """
    images = changes.schema.field("after").type
    fields = [images.field(number) for number in range(images.num_fields)]
    shown = [field for field in fields if field.name in keys]
    schema = pa.schema([("change", pa.string()), ("instant", pa.string()), *shown, ("values", pa.string())])
    lines = (_lines(batch, schema, [field.name for field in shown]) for batch in changes)
    return pa.RecordBatchReader.from_batches(schema, lines)


def _lines(batch: pa.RecordBatch, schema: pa.Schema, keys: Sequence[str]) -> pa.RecordBatch:
    rows = batch.to_pylist()
    columns: list[list[Any]] = [[_OPERATIONS.get(row["op"], row["op"]) for row in rows], [row["ts_ms"] for row in rows]]
    columns += [[(row["after"] or row["before"])[name] for row in rows] for name in keys]
    columns.append([_differences(row["before"], row["after"], keys) for row in rows])
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.record_batch(arrays, schema=schema)


def _differences(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, keys: Sequence[str]) -> str:
    """Return the values of a row that came or went, or those that an update changed.

    >>> _differences({"id": 1, "v": "x", "w": 2}, {"id": 1, "v": "y", "w": 2}, ["id"])
    'v: x → y'
    """
    if before is None or after is None:
        return ", ".join(
            f"{name}={value_text(value)}" for name, value in (before or after or {}).items() if name not in keys
        )
    return ", ".join(
        f"{name}: {value_text(before.get(name))} → {value_text(value)}"
        for name, value in after.items()
        if before.get(name) != value
    )
