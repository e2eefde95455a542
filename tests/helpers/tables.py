"""The builder of small tables and of their rows.

A test states only what it needs::

    table = a_table(tmp_path / "t", rows=a_batch(id=range(3), p="x", v=0), partition_by="p")
    table.upsert(a_batch(id=[1], p="x", v=1))

`a_batch` makes rows column by column, `a_schema` names columns and their types, `a_table` creates the table and writes
the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakeformat
from lakeformat import Table
from lakeformat.config.resolve import resolve
from lakeformat.storage import MemoryStorage, Storage, SystemClock
from lakeformat.write.intake import create_table

__all__ = ["NO_PACKING", "a_batch", "a_schema", "a_table"]

#: No file counts as small, so each insert opens a file group.
NO_PACKING: dict[str, Any] = {"hoodie.parquet.small.file.limit": 0}


def a_schema(**types: str | pa.DataType) -> pa.Schema:
    """Return a schema from column names and types, ``a_schema(id="int64", v=pa.list_(pa.int32()))``."""
    return pa.schema({name: pa.type_for_alias(of) if isinstance(of, str) else of for name, of in types.items()})


def a_batch(schema: pa.Schema | None = None, /, **columns: Any) -> pa.Table:
    """Return rows made of columns; a single value is repeated in every row.

    Args:
        schema: gives the named columns their types and their order. Without it, Arrow infers the types: int64 from
            whole numbers, string from text.
        columns: a list, a range, an Arrow array, or the one value of every row. If no column is a list, there is
            one row.
    """
    given = {name: list(values) if isinstance(values, range | tuple) else values for name, values in columns.items()}
    lists = [values for values in given.values() if isinstance(values, list | pa.Array | pa.ChunkedArray)]
    count = len(lists[0]) if lists else 1
    full = {name: values if any(values is one for one in lists) else [values] * count for name, values in given.items()}
    if schema is None:
        return pa.table(full)
    return pa.table({name: full[name] for name in schema.names if name in full}, _fields(schema, full))


def _fields(schema: pa.Schema, columns: dict[str, Any]) -> pa.Schema:
    """Return the fields of these columns; fail if the schema lacks one of them."""
    assert columns.keys() <= {*schema.names}, f"{sorted(columns.keys() - {*schema.names})} are not in the schema"
    return pa.schema([field for field in schema if field.name in columns])


def a_table(
    place: Path | Storage | None = None,
    *,
    rows: pa.Table | Sequence[pa.Table] = (),
    schema: pa.Schema | None = None,
    keys: str | Sequence[str] = "id",
    partition_by: str | Sequence[str] = (),
    ordering: str | None = None,
    merge_on_read: bool = False,
    version: int | str | None = None,
    index: str | None = None,
    operation: str = "insert",
    **options: Any,
) -> Table:
    """Create a table and write rows to it. The table that is returned writes with the same options.

    Args:
        place: the folder of the table, or a storage. By default the table is in memory.
        rows: the rows of one commit, or a list with the rows of each commit.
        schema: the columns; by default those of the first rows.
        keys: the record key columns; ``()`` lets the table generate keys.
        partition_by: the partition columns.
        ordering: the ordering field.
        merge_on_read: make a merge-on-read table instead of a copy-on-write table.
        version: the table version (6, 8 or 9).
        index: the index type, such as ``BLOOM`` or ``BUCKET``.
        operation: the method of `Table` that writes the rows.
        options: more options, by Hudi's names or by their aliases.
    """
    commits = [rows] if isinstance(rows, pa.Table) else list(rows)
    columns = commits[0].schema if schema is None else schema
    kind = {"table_type": "MERGE_ON_READ"} if merge_on_read else {}
    given = {"hoodie.write.table.version": version, "hoodie.index.type": index}
    made = {**kind, **{name: value for name, value in given.items() if value is not None}, **options}
    if isinstance(place, Path):
        table = lakeformat.create(place, columns, record_key=keys, partition_by=partition_by, ordering=ordering, **made)
    else:
        roles = {"recordkey": keys, "partitionpath": partition_by, "ordering": ordering}
        named = {name: value for name, value in roles.items() if value}
        table = Table(place or MemoryStorage(), resolve({"name": "t", **named, **made}))
        create_table(table.context.store, table.options, columns, SystemClock())
    for batch in commits:
        getattr(table, operation)(batch)
    return table
