"""Apache Hudi reads a table that has put bad rows aside, and the table of bad rows, and writes to both."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi
from tests.helpers.tables import a_schema

pytestmark = [pytest.mark.interop, pytest.mark.nightly]

SCHEMA = a_schema(id="string", p="string", n="int32")


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize("version", [6, 9])
def test_hudi_reads_and_writes_the_table_and_its_bad_rows(version: int, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    made = {"hoodie.write.table.version": version, "bad_rows": "aside"}
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="p", **made)
    columns = {"id": ["a", None, "c"], "p": ["x", "x", "../z"], "n": [1, 2, 3]}
    for _ in range(2):
        table.upsert(pa.table(columns, schema=SCHEMA))
    assert hudi.read(path)["id"].to_pylist() == ["a"]

    place = path / ".hoodie/.lakeformat/bad_rows"
    aside = hudi.read(place)
    found = sorted(zip(aside["reason"].to_pylist(), aside["row_json"].to_pylist(), strict=True))
    assert [(reason, json.loads(text)["n"]) for reason, text in found] == [
        *[("no_key", 2)] * 2,
        *[("unusable_partition", 3)] * 2,
    ]
    assert lakeformat.open(place).config.version == version

    theirs = {"hoodie.write.table.version": str(version)}
    names = lakeformat.open(place).schema.names
    hudi.write(place, aside.select(names).slice(0, 1), "insert", **theirs)
    hudi.write(path, pa.table([["d"], ["x"], [4]], schema=SCHEMA), "upsert", **theirs)
    table.upsert(pa.table(columns, schema=SCHEMA))
    assert table.bad_rows().num_rows == hudi.read(place).num_rows == 7
    assert sorted(hudi.read(path)["id"].to_pylist()) == ["a", "d"]
    assert str(table.check()) == "nothing is wrong"
