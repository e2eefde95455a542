"""A small table with a past, to be clustered, and the look at its rows that clustering must not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import lakeformat
from lakeformat.model.files import BaseFile
from tests.helpers import hudi_rs

SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "region": pa.string(),
        "x": pa.int64(),
        "y": pa.float64(),
        "city": pa.string(),
        "at": pa.struct({"z": pa.int32()}),
    }
)
Rows = list[dict[str, Any]]


def rows(count: int, seed: int = 0) -> pa.Table:
    """Rows with nulls, NaN and repeated text; keys from 0."""
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


def make(path: Path, count: int = 600, parts: int = 4, **options: Any) -> lakeformat.Table:
    """Several files in each of three partitions, and rows of several commits."""
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="region")
    whole = rows(count)
    for part in range(parts):
        table.bulk_insert(whole.slice(part * count // parts, count // parts))
    small = lakeformat.open(path, **{"hoodie.parquet.small.file.limit": 0})
    small.upsert(rows(count, seed=1).slice(0, count // 10))
    return lakeformat.open(path, **options)


def seen(table: lakeformat.Table, as_of: str | None = None) -> str:
    """All rows with their meta columns, but for the file each is in; NaN equals NaN."""
    listed = hudi_rs.rows_by_key(table.to_arrow(as_of=as_of, meta_columns=True))
    return repr([{name: value for name, value in row.items() if name != "_hoodie_file_name"} for row in listed])


def as_hudi_rs_sees(table: lakeformat.Table) -> str:
    """The same by hudi-rs."""
    listed = hudi_rs.rows_by_key(hudi_rs.read(table.engine.storage.location))
    return repr([{name: value for name, value in row.items() if name != "_hoodie_file_name"} for row in listed])


def column_of(table: lakeformat.Table, file: BaseFile, column: str) -> list[Any]:
    """One column of one live file, in the order of its rows."""
    where = f"_hoodie_file_name = '{file.name}'"
    found: list[Any] = table.to_arrow(columns=[column], where=where).column(column).to_pylist()
    return found


def file_names(table: lakeformat.Table) -> set[str]:
    """Names of the live files."""
    return {str(file.name) for file in table.snapshot().files}
