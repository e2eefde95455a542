"""Indexes that Hudi's SQL has made and a write of lakeformat has dropped: Hudi's queries go on, and are right."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakeformat
from lakeformat.metadata_table.index_definitions import INDEX_DEFINITIONS
from tests.helpers.fixture_tables import unpack
from tests.helpers.hudi_spark import Hudi
from tests.metadata_table.test_foreign_indexes import ROW, TABLES, rows_after

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize("is_mended", [False, True])
@pytest.mark.parametrize("name", TABLES)
def test_hudi_queries_by_the_expression_and_the_column(name: str, is_mended: bool, hudi: Hudi, tmp_path: Path) -> None:
    path = unpack(name, tmp_path)
    text = (path / INDEX_DEFINITIONS).read_bytes()
    lakeformat.open(path).upsert([ROW])
    if is_mended:  # An earlier write left the definitions.
        (path / INDEX_DEFINITIONS).write_bytes(text)
        lakeformat.open(path).upsert([ROW])
    rows = rows_after(name).values()
    hudi.run(f"CREATE OR REPLACE TEMPORARY VIEW dropped USING hudi OPTIONS (path '{path}')")
    for condition, right in (
        ("from_unixtime(ts, 'yyyy-MM-dd') = '1970-01-06'", {row["id"] for row in rows if row["ts"] == 432000}),
        ("from_unixtime(ts, 'yyyy-MM-dd') = '1970-01-05'", {row["id"] for row in rows if row["ts"] == 345600}),
        ("city = 'oslo'", {row["id"] for row in rows if row["city"] == "oslo"}),
        ("id = 3", {3}),
    ):
        found = hudi.sql(f"SELECT id FROM dropped WHERE {condition}")  # noqa: S608
        assert set(found["id"].to_pylist()) == right, condition
