"""Tables that Hudi makes with the properties of its own version, and that lakeformat continues to write.

The oracle is a dict from record key to row. Of two rows of a key, the row with the greater ordering value stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi, the_rest_by_night
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.interop

W: Final = "hoodie.datasource.write."
SCHEMA: Final = a_schema(id="string", ts="int64", part="string", day="int64", x="int64")
DAY: Final = 86_400_000
TIMED: Final = {
    "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
    "hoodie.keygen.timebased.output.dateformat": "yyyyMM",
    "hoodie.keygen.timebased.timezone": "UTC",
}
KEYGEN: Final = "org.apache.hudi.keygen."
#: Options for Hudi and for lakeformat, except those that the table stores. Days have the form ``yyyyMM``, because Hudi
#: 0.15 reads the folders of a custom generator as the column's type, here long.
CASES: Final[Mapping[str, Mapping[str, str]]] = {
    "not partitioned": {f"{W}partitionpath.field": ""},
    "simple": {f"{W}partitionpath.field": "part"},
    "complex, hive style": {
        f"{W}partitionpath.field": "part,day",
        f"{W}recordkey.field": "id,part",
        f"{W}hive_style_partitioning": "true",
    },
    "timestamp": {
        f"{W}partitionpath.field": "day",
        f"{W}keygenerator.class": f"{KEYGEN}TimestampBasedKeyGenerator",
        **TIMED,
        "hoodie.keygen.timebased.output.dateformat": "yyyy/MM",
    },
    "custom": {
        f"{W}partitionpath.field": "part:SIMPLE,day:TIMESTAMP",
        f"{W}keygenerator.class": f"{KEYGEN}CustomKeyGenerator",
        **TIMED,
    },
    "latest wins": {
        f"{W}partitionpath.field": "part",
        f"{W}payload.class": "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
    },
}
#: Options that lakeformat finds in the table's properties. Hudi 0.15 stores no payload class.
STORED: Final = ("keygenerator.class", "hive_style_partitioning", "recordkey.field")

Rows = dict[str, dict[str, object]]


def rows(numbers: range, ts: int, x: int) -> pa.Table:
    columns = [
        [f"k{n}" for n in numbers],
        [ts] * len(numbers),
        [f"p{n % 2}" for n in numbers],
        [19_000 * DAY + n % 5 * 20 * DAY for n in numbers],
        [x] * len(numbers),
    ]
    return pa.table(columns, schema=SCHEMA)


def by_key(table: pa.Table) -> Rows:
    found = {row["id"]: {"ts": row["ts"], "x": row["x"]} for row in table.select(["id", "ts", "x"]).to_pylist()}
    assert len(found) == table.num_rows, "a record key is doubled"
    return found


def apply_upsert(known: Rows, table: pa.Table, *, by_time: bool) -> Rows:
    newer = {
        key: row
        for key, row in by_key(table).items()
        if key not in known or not by_time or row["ts"] >= known[key]["ts"]  # type: ignore[operator]
    }
    return known | newer


@pytest.mark.parametrize("case", the_rest_by_night(CASES, {"not partitioned", "custom"}))
def test_we_write_to_a_table_that_hudi_made(case: str, hudi: Hudi, tmp_path: Path) -> None:
    by_time = case != "latest wins"
    hudi_options = {"hoodie.table.name": "t", f"{W}recordkey.field": "id", f"{W}precombine.field": "ts", **CASES[case]}
    if by_time:
        hudi_options[f"{W}payload.class"] = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
    path = tmp_path / "t"
    hudi.write(path, rows(range(40), 5, 0), "bulk_insert", **hudi_options)
    known = by_key(rows(range(40), 5, 0))

    ours = lakeformat.open(path, **{k: v for k, v in CASES[case].items() if not k.endswith(STORED)})
    folders = {file.partition_path for file in ours.snapshot().files}
    for batch in (rows(range(10), 4, 1), rows(range(10, 20), 6, 2), rows(range(35, 50), 5, 3)):
        ours.upsert(batch)
        known = apply_upsert(known, batch, by_time=by_time)
    assert by_key(ours.to_arrow()) == known
    assert {file.partition_path for file in ours.snapshot().files} == folders
    assert by_key(ours.to_arrow(where=f"day >= {19_000 * DAY}")) == known
    assert by_key(hudi.read(path)) == known

    for batch in (rows(range(5, 15), 5, 4), rows(range(45, 55), 7, 5)):
        hudi.write(path, batch, "upsert", **hudi_options)
        known = apply_upsert(known, batch, by_time=by_time)
    assert by_key(ours.to_arrow()) == known
    ours.delete(rows(range(0, 55, 3), 9, 0).select(["id", "part", "day"]))
    kept = {f"k{n}" for n in range(55) if n % 3}
    assert by_key(hudi.read(path)) == by_key(ours.to_arrow()) == {k: v for k, v in known.items() if k in kept}
