"""The actions of a Delta log that show a snapshot's base files, as JSON. Pure.

Source: the protocol of Delta Lake (``PROTOCOL.md``): actions, per-file statistics, partition value serialization.

The files hold all columns, so the table has no partition columns for Delta: the smallest and greatest values of a
partition column let readers skip the same files. Only if files lack the partition columns are these columns Delta's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.beside.face import COMPLETED, INSTANT, bounded_columns, file_paths, sure_bounds
from lakeformat.errors import UnsupportedTableError
from lakeformat.file_system_view.live_files import Portion
from lakeformat.predicate import ColumnBounds, column_path

__all__ = [
    "add_actions",
    "commit_info",
    "encode_actions",
    "partition_text",
    "protocol_of",
    "remove_actions",
]

_PLAIN: Final = {"minReaderVersion": 1, "minWriterVersion": 2}
#: Timestamps without a zone need a feature.
_LOCAL: Final = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["timestampNtz"],
    "writerFeatures": ["timestampNtz"],
}


def protocol_of(schema: pa.Schema) -> Mapping[str, Any]:
    """Return the protocol that readers of these columns need."""
    return _LOCAL if any(map(_is_local, _leaf_types(field.type for field in schema))) else _PLAIN


def _is_local(of: pa.DataType) -> bool:
    return kind_of(of) is Kind.TIMESTAMP and of.tz is None


def _leaf_types(types: Iterable[pa.DataType]) -> Iterator[pa.DataType]:
    for of in types:
        if kind_of(of).is_nested:
            yield from _leaf_types(of.field(number).type for number in range(of.num_fields))
        else:
            yield of


def commit_info(instant_time: str, completed: str, operation: str, now_ms: int) -> Mapping[str, Any]:
    """Return the action that names the instant which a version shows."""
    return {
        "commitInfo": {
            "timestamp": now_ms,
            "operation": operation,
            "engineInfo": "lakeformat",
            INSTANT: instant_time,
            COMPLETED: completed,
        }
    }


def remove_actions(paths: Sequence[str], now_ms: int) -> Iterator[Mapping[str, Any]]:
    """Yield the actions that hide files."""
    for path in paths:
        yield {"remove": {"path": quote(path), "deletionTimestamp": now_ms, "dataChange": True}}


def add_actions(
    portion: Portion,
    rows: Sequence[int],
    values: Mapping[str, Mapping[str, str | None]],
    schema: pa.Schema,
    now_ms: int,
) -> Iterator[Mapping[str, Any]]:
    """Yield the actions that show files.

    Args:
        rows: number of rows of each file.
        values: mapping of partition path to the values of Delta's partition columns.
        schema: the columns of the table.
    """
    files = portion.files
    columns = [_column_statistics(name, portion.bounds.get(column_path([name]))) for name in bounded_columns(schema)]
    paths, folders, sizes = (
        column.to_pylist() for column in (file_paths(files), files["partition_path"], files["size_bytes"])
    )
    for number, (path, folder, size) in enumerate(zip(paths, folders, sizes, strict=True)):
        yield {
            "add": {
                "path": quote(path),
                "partitionValues": values.get(folder, {}),
                "size": size,
                "modificationTime": now_ms,
                "dataChange": True,
                "stats": _statistics_text(number, rows[number], columns),
            }
        }


@dataclass(frozen=True, slots=True)
class _ColumnStatistics:
    """Bounds of one column as JSON texts, and its numbers of nulls, an entry per file; None if not known."""

    name: str
    low: Sequence[str | None]
    high: Sequence[str | None]
    nulls: Sequence[int | None]

    def is_known(self, at: int, rows: int) -> bool:
        """Tell whether the statistics say all about a file. If all values are null, there are no bounds."""
        nulls = self.nulls[at]
        return nulls is not None and (nulls == rows or (self.low[at] is not None and self.high[at] is not None))


def _column_statistics(name: str, bounds: ColumnBounds | None) -> _ColumnStatistics | None:
    if bounds is None:
        return None
    low, high = (_json_texts(bound) for bound in sure_bounds(bounds))
    return _ColumnStatistics(json.dumps(name), low, high, bounds.null_count.to_pylist())


def _statistics_text(number: int, rows: int, columns: Sequence[_ColumnStatistics | None]) -> str:
    """Return the statistics of a file: of all columns, or of none.

    deltalake 1.6 reads no row of a file for a filter on a column without bounds, if other columns have some.
    """
    measured = [column for column in columns if column is not None and column.is_known(number, rows)]
    if len(measured) < len(columns):
        return f'{{"numRecords":{rows}}}'
    bounded = [column for column in measured if column.nulls[number] != rows]
    low = ",".join(f"{column.name}:{column.low[number]}" for column in bounded)
    high = ",".join(f"{column.name}:{column.high[number]}" for column in bounded)
    nulls = ",".join(f"{column.name}:{column.nulls[number]}" for column in measured)
    return f'{{"numRecords":{rows},"minValues":{{{low}}},"maxValues":{{{high}}},"nullCount":{{{nulls}}}}}'


def _json_texts(values: pa.Array) -> list[str | None]:
    """Return bounds as JSON. Decimals have all their digits."""
    plain = _time_texts(values) if kind_of(values.type) in (Kind.DATE, Kind.TIMESTAMP) else values
    to_text: Callable[[Any], str] = json.dumps
    if kind_of(values.type) is Kind.DECIMAL:
        to_text = "{:f}".format
    return [None if value is None else to_text(value) for value in plain.to_pylist()]


def _time_texts(values: pa.Array) -> pa.Array:
    """Return dates and timestamps as ISO 8601; null for years of more or fewer than four digits."""
    texts = pc.replace_substring(values.cast(pa.string()), " ", "T")
    usual = pc.match_substring_regex(texts, r"^\d{4}-")
    return pc.if_else(usual, texts, pa.scalar(None, pa.string()))


def partition_text(value: pa.Scalar) -> str | None:
    """Return the value of a partition column as Delta stores it; None for null.

    Raises:
        UnsupportedTableError: Delta has no form for the value.
    """
    if not value.is_valid:
        return None
    if kind_of(value.type).is_nested or kind_of(value.type) is Kind.BYTES:
        raise UnsupportedTableError(f"Delta has no partition columns of type {value.type}")
    text = str(value.cast(pa.string()).as_py())
    return text.replace(" ", "T") if kind_of(value.type) is Kind.TIMESTAMP else text


def encode_actions(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """Return actions as the content of a version's file."""
    return "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode() + b"\n"
