"""The kinds of Arrow types, one row for each. What a module does with a column depends on its kind.

A kind says what the values are, whatever their width or layout: large strings and string views are texts. A module
that decides something for all kinds matches them and ends with ``assert_never``, so mypy lists it when one is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

import numpy as np
import pyarrow as pa

__all__ = ["OFFSETS", "VIEWS", "Kind", "field_type", "kind_of", "leaf_columns"]

#: Maps each view type to the plain type with the same values. Arrow cannot decode dictionaries of view types.
VIEWS: Final = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
#: Maps each type whose arrays hold their bytes in one buffer to the type of the offsets in another.
OFFSETS: Final[Mapping[pa.DataType, type[np.signedinteger]]] = {
    **dict.fromkeys((pa.string(), pa.binary()), np.int32),
    **dict.fromkeys((pa.large_string(), pa.large_binary()), np.int64),
}


class Kind(Enum):
    """A kind of Arrow types: the names of its types in ``pyarrow.lib``, then its trait, if it has one."""

    NULL = "NA"
    BOOLEAN = "BOOL"
    INTEGER = "INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64", "number"
    FLOAT = "HALF_FLOAT FLOAT DOUBLE", "number"
    DECIMAL = "DECIMAL32 DECIMAL64 DECIMAL128 DECIMAL256", "number"
    TEXT = "STRING LARGE_STRING STRING_VIEW"
    BYTES = "BINARY LARGE_BINARY BINARY_VIEW FIXED_SIZE_BINARY"
    DATE = "DATE32 DATE64", "temporal"
    TIME = "TIME32 TIME64", "temporal"
    TIMESTAMP = "TIMESTAMP", "temporal"
    DURATION = "DURATION", "temporal"
    INTERVAL = "INTERVAL_MONTH_DAY_NANO", "temporal"
    LIST = "LIST LARGE_LIST FIXED_SIZE_LIST LIST_VIEW LARGE_LIST_VIEW", "nested"
    STRUCT = "STRUCT", "nested"
    MAP = "MAP", "nested"
    UNION = "SPARSE_UNION DENSE_UNION", "nested"
    DICTIONARY = "DICTIONARY"
    OTHER = "EXTENSION RUN_END_ENCODED"

    def __init__(self, types: str, trait: str = "") -> None:
        self.types = tuple(types.split())
        self.is_number = trait == "number"
        self.is_temporal = trait == "temporal"
        self.is_nested = trait == "nested"


_KINDS: Final[Mapping[int, Kind]] = {
    getattr(pa.lib, f"Type_{name}"): kind for kind in Kind for name in kind.types if name != "EXTENSION"
}


def kind_of(data_type: pa.DataType) -> Kind:
    """Return the kind of an Arrow type."""
    return _KINDS.get(data_type.id, Kind.OTHER)


def field_type(schema: pa.Schema, name: str) -> pa.DataType | None:
    """Return the type of a column, or of a struct's field (``a.b``); None if there is no such column.

    >>> str(field_type(pa.schema([("a", pa.struct([("b", pa.int64())]))]), "a.b"))
    'int64'
    """
    if name in schema.names:
        return schema.field(schema.names.index(name)).type
    top, *inner = name.split(".")
    if top not in schema.names:
        return None
    kind = schema.field(schema.names.index(top)).type
    for part in inner:
        if kind_of(kind) is not Kind.STRUCT or kind.get_field_index(part) < 0:
            return None
        kind = kind.field(part).type
    return kind


def leaf_columns(field: pa.Field, path: str) -> Iterator[str]:
    """Yield the paths of the leaf columns that Parquet makes of a field at the given path."""
    kind = field.type
    if kind_of(kind) is Kind.STRUCT:
        children = [(f"{path}.{child.name}", child) for child in kind]
    elif kind_of(kind) is Kind.MAP:
        children = [(f"{path}.key_value.key", kind.key_field), (f"{path}.key_value.value", kind.item_field)]
    elif kind_of(kind) is Kind.LIST:
        children = [(f"{path}.list.element", kind.value_field)]
    else:
        yield path
        return
    for below, child in children:
        yield from leaf_columns(child, below)
