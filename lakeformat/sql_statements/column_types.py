"""Types of columns as SQL writes them, and as Arrow has them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from lakeformat.errors import InvalidInputError
from lakeformat.sql_statements.parse import shortened

__all__ = ["arrow_field", "arrow_type", "sql_type"]

_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "CHAR": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),  # Spark's timestamp is a moment.
    "TIMESTAMPLTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
}
_NAMES: Final[Mapping[pa.DataType, str]] = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}


def arrow_type(node: Any) -> pa.DataType:
    """The type that a node of sqlglot's tree says.

    Raises:
        InvalidInputError: no table can hold it.
    """
    name = getattr(node.this, "name", "")
    if name in _PLAIN:
        return _PLAIN[name]
    if name == "DECIMAL":
        said = [int(each.this.name) for each in node.expressions]
        return pa.decimal128(said[0] if said else 10, said[1] if len(said) > 1 else 0)
    if name == "ARRAY" and node.expressions:
        return pa.list_(arrow_type(node.expressions[0]))
    if name == "MAP" and node.expressions:
        return pa.map_(*map(arrow_type, node.expressions))
    if name == "STRUCT" and node.expressions:
        return pa.struct([arrow_field(each) for each in node.expressions])
    raise InvalidInputError(
        f"type {shortened(node.sql('spark'))} is not supported; see docs/limits.md for those that are"
    )


def arrow_field(node: Any) -> pa.Field:
    """A column's definition. Its comment is not kept.

    Raises:
        InvalidInputError: a type or a clause that is not supported.
    """
    optional = True
    for each in node.args.get("constraints") or ():
        kind = type(each.kind).__name__
        if kind == "NotNullColumnConstraint":
            optional = bool(each.kind.args.get("allow_null"))
        elif kind != "CommentColumnConstraint":
            said = shortened(each.sql("spark"))
            raise InvalidInputError(f"{said} of column {str(node.name)!r} is not supported; give each row its value")
    if node.args.get("position") is not None:
        raise InvalidInputError(f"the place of column {str(node.name)!r} is not supported; new columns come last")
    return pa.field(str(node.name), arrow_type(node.args["kind"]), optional)


def sql_type(kind: pa.DataType) -> str:
    """How Spark SQL writes a type of a stored column."""
    if kind in _NAMES:
        return _NAMES[kind]
    for matches, text in _NESTED:
        if matches(kind):
            return text(kind)
    return str(kind)


_NESTED: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], str]], ...]] = (
    (pa.types.is_decimal, lambda kind: f"decimal({kind.precision},{kind.scale})"),
    (pa.types.is_timestamp, lambda kind: "timestamp" if kind.tz else "timestamp_ntz"),
    (pa.types.is_fixed_size_binary, lambda kind: "binary"),
    (pa.types.is_list, lambda kind: f"array<{sql_type(kind.value_type)}>"),
    (pa.types.is_large_list, lambda kind: f"array<{sql_type(kind.value_type)}>"),
    (pa.types.is_map, lambda kind: f"map<{sql_type(kind.key_type)},{sql_type(kind.item_type)}>"),
    (pa.types.is_struct, lambda kind: f"struct<{','.join(f'{each.name}:{sql_type(each.type)}' for each in kind)}>"),
)
