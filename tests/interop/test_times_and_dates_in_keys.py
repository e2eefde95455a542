"""Timestamps in keys and dates in folders, by the options of the key generators: Hudi 1.2.0 writes the same texts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi
from tests.helpers.tables import a_schema, a_table

pytestmark = pytest.mark.interop

W = "hoodie.datasource.write."
SLASHES = {f"{W}slash.separated.date.partitioning": "true"}
TIMES = {f"{W}keygenerator.consistent.logical.timestamp.enabled": "true"}
HIVE = {f"{W}hive_style_partitioning": "true"}
ENCODED = {f"{W}partitionpath.urlencode": "true"}
MOMENT = 1_704_164_645_678_901
SCHEMA = a_schema(
    id="int64",
    v="int64",
    day="string",
    date="date32",
    at=pa.timestamp("us", "UTC"),
    local=pa.timestamp("us"),
)
ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "v": [1, 1, 1, 1],
        "day": ["2024-05-06", "a-b/c", "x", None],
        "date": [date(2024, 5, 6), date(1999, 12, 31), date(2024, 5, 6), date(2000, 1, 1)],
        "at": [MOMENT, MOMENT // 1_000_000 * 1_000_000, -1_234_567, 600_000],
        "local": [MOMENT, 0, -1, 5],
    },
    schema=None,
).cast(SCHEMA)
#: Record key, partition fields, options.
CASES: dict[str, tuple[str, str, Mapping[str, str]]] = {
    "dates": ("id", "date", SLASHES),
    "texts": ("id", "day", SLASHES),
    "hive": ("id", "day", {**SLASHES, **HIVE}),
    "encoded": ("id", "day", {**SLASHES, **ENCODED}),
    "two fields": ("id,at", "date,v", SLASHES),
    "two keys": ("id,v", "date", SLASHES),
    "times": ("at", "v", TIMES),
    "times of several fields": ("at,local,date", "v", TIMES),
    "times in folders": ("id", "at", {**TIMES, **ENCODED}),
    "local times": ("local", "v", TIMES),
}


def written(table: pa.Table) -> list[tuple[str, str, int]]:
    named = table.select(["_hoodie_record_key", "_hoodie_partition_path", "v"]).to_pylist()
    return sorted((row["_hoodie_record_key"], row["_hoodie_partition_path"], int(row["v"])) for row in named)


def theirs(hudi: Hudi, path: Path, case: str, version: str) -> None:
    keys, fields, options = CASES[case]
    named = {"hoodie.table.name": "t", f"{W}recordkey.field": keys, f"{W}partitionpath.field": fields}
    made = {**named, **options, "hoodie.write.table.version": version, "hoodie.metadata.enable": "false"}
    hudi.write(path, ROWS, "upsert", **made)


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize("version", ["6", "9"])
@pytest.mark.parametrize("case", CASES)
def test_both_write_the_same_keys_and_folders(case: str, version: str, hudi: Hudi, tmp_path: Path) -> None:
    keys, fields, options = CASES[case]
    theirs(hudi, tmp_path / "hudi", case, version)
    wanted = written(lakeformat.open(tmp_path / "hudi").to_arrow(meta_columns=True))
    made = a_table(
        tmp_path / "ours",
        rows=ROWS,
        keys=keys.split(","),
        partition_by=fields.split(","),
        version=version,
        operation="upsert",
        **{"hoodie.table.name": "t", **options},
    )
    assert written(made.to_arrow(meta_columns=True)) == wanted
    # Each then meets the rows of the other: none is there twice.
    lakeformat.open(tmp_path / "hudi", **options).upsert(ROWS)
    assert written(lakeformat.open(tmp_path / "hudi").to_arrow(meta_columns=True)) == wanted
    theirs(hudi, tmp_path / "ours", case, version)
    assert written(lakeformat.open(tmp_path / "ours").to_arrow(meta_columns=True)) == wanted
