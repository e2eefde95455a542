"""A small table whose rows lie scattered over many files, and the view of its rows that clustering must not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lakeformat
from lakeformat.model.files import BaseFile
from tests.helpers import hudi_rs
from tests.helpers.tables import NO_PACKING, a_schema, a_table

SCHEMA = a_schema(id="string", region="string", x="int64", y="double", city="string", at=pa.struct({"z": pa.int32()}))
Rows = list[dict[str, Any]]


def rows(count: int, seed: int = 0) -> pa.Table:
    """Return rows with the keys ``key-00000`` and up, in three regions, with nulls, NaN and repeated text."""
    random = np.random.default_rng(seed)
    x = [None if value % 17 == 0 else int(value) for value in random.integers(0, 1000, count)]
    y = [None if at % 13 == 0 else float("nan") if at % 11 == 0 else float(random.normal()) for at in range(count)]
    return pa.table(
        {
            "id": [f"key-{at:05}" for at in range(count)],
            "region": [("eu", "us", "asia")[at % 3] for at in range(count)],
            "x": x,
            "y": y,
            "city": [f"city-{at % 7}" for at in range(count)],
            "at": [None if at % 19 == 0 else {"z": int(random.integers(0, 50))} for at in range(count)],
        },
        schema=SCHEMA,
    )


def scattered_table(path: Path, count: int = 600, parts: int = 4, **options: Any) -> lakeformat.Table:
    """Create a copy-on-write table of 600 rows: three partitions, several files in each, rows of several commits.

    Args:
        count: the number of rows.
        parts: the number of bulk inserts; an upsert of a tenth of the rows follows.
        options: the options of the table that is returned, not of the writes before.
    """
    table = a_table(path, schema=SCHEMA, partition_by="region")
    whole = rows(count)
    for part in range(parts):
        table.bulk_insert(whole.slice(part * count // parts, count // parts))
    lakeformat.open(path, **NO_PACKING).upsert(rows(count, seed=1).slice(0, count // 10))
    return lakeformat.open(path, **options)


def all_rows(table: lakeformat.Table, as_of: str | None = None) -> str:
    """Return all rows with their meta columns except the file name, as a text in which NaN equals NaN."""
    listed = hudi_rs.rows_by_key(table.to_arrow(as_of=as_of, meta_columns=True))
    return repr([{name: value for name, value in row.items() if name != "_hoodie_file_name"} for row in listed])


def all_rows_by_hudi_rs(table: lakeformat.Table) -> str:
    """Return the same text from the rows that hudi-rs reads."""
    listed = hudi_rs.rows_by_key(hudi_rs.read(table.context.storage.location))
    return repr([{name: value for name, value in row.items() if name != "_hoodie_file_name"} for row in listed])


def column_of(table: lakeformat.Table, file: BaseFile, column: str) -> list[Any]:
    """Return the values of one column in one live file, in the order of the rows."""
    where = f"_hoodie_file_name = '{file.name}'"
    found: list[Any] = table.to_arrow(columns=[column], where=where).column(column).to_pylist()
    return found


def file_names(table: lakeformat.Table) -> set[str]:
    """Return the names of the live base files."""
    return {str(file.name) for file in table.snapshot().files}


def sortable(table: lakeformat.Table) -> list[str]:
    """Return the columns that a table can be clustered by: no structs, lists or maps, and no booleans."""
    return [field.name for field in table.schema if not (field.type.num_fields or str(field.type).startswith("bool"))]
