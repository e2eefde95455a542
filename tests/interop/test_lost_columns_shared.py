"""Columns that a write drops because its rows lack them: Hudi 1.2.0 and lakeformat leave the same rows."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi
from tests.write.test_dropped_columns import AGAIN, DROP, KEPT, PLAIN, first_table, rows, sorted_rows

pytestmark = pytest.mark.interop

W = "hoodie.datasource.write."


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_dropped_column_comes_back_in_the_same_rows(kind: str, version: int, hudi: Hudi, tmp_path: Path) -> None:
    steps = (rows(KEPT, (1, 2, "a")), rows(AGAIN, (4, 3, "b", "n4")), rows(AGAIN, (3, 4, "a", "u3")))
    for writer in ("hudi", "lakeformat"):
        first_table(tmp_path / writer, merge_on_read=kind == "MERGE_ON_READ", version=version)
    for step in steps:
        lakeformat.open(tmp_path / "lakeformat", **DROP, **PLAIN).upsert(step)
        asked = {**DROP, f"{W}table.type": kind, "hoodie.write.table.version": str(version)}
        hudi.write(tmp_path / "hudi", step, "upsert", **{f"{W}precombine.field": "ts"}, **asked)
        wanted = sorted_rows(tmp_path / "hudi")
        assert sorted_rows(tmp_path / "lakeformat") == wanted
        seen = hudi.read(tmp_path / "lakeformat").select(list(wanted[0])).sort_by("id")
        assert seen.to_pylist() == wanted
