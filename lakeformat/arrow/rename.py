"""New names for the inner fields of nested columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from lakeformat.arrow.conform import is_any_list, rebase, replace_children
from lakeformat.arrow.kinds import Kind, kind_of

__all__ = ["FieldNames", "rename_fields"]

#: Maps the name of each field of a struct, list (``element``) or map (``key``, ``value``) to its new name, and to the
#: same for its own fields. Fields that are missing are left out of a struct.
FieldNames: TypeAlias = Mapping[str, tuple[str, "FieldNames"]]


def rename_fields(values: Any, names: FieldNames) -> Any:
    """Return an array or chunked array whose inner fields have new names. Values are not copied.

    A struct may end with no field. Its nulls are kept.
    """
    if isinstance(values, pa.ChunkedArray):
        chunks = values.chunks or [pa.array([], values.type)]
        return pa.chunked_array([rename_fields(chunk, names) for chunk in chunks])
    if kind_of(values.type) is Kind.STRUCT:
        return _rename_struct(values, names)
    if kind_of(values.type) is Kind.MAP:
        values = rebase(values)
        items = rename_fields(values.items, names["value"][1])
        kind = pa.map_(values.type.key_type, items.type)
        entries = pa.StructArray.from_arrays([values.keys, items], fields=[kind.key_field, kind.item_field])
        return replace_children(values, entries, kind)
    if is_any_list(values.type):
        values = rebase(values)
        elements = rename_fields(values.values, names["element"][1])
        return replace_children(values, elements, pa.list_(elements.type))
    return values


def _rename_struct(values: pa.StructArray, names: FieldNames) -> pa.StructArray:
    kept = [(field.name, *names[field.name]) for field in values.type if field.name in names]
    if not kept:
        valid = values.is_valid().buffers()[1]
        return pa.Array.from_buffers(pa.struct([]), len(values), [valid], children=[])
    arrays = [rename_fields(values.field(old), inner) if inner else values.field(old) for old, _, inner in kept]
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(arrays, names=[new for _, new, _ in kept], mask=mask)
