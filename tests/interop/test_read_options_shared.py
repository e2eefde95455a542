"""Options of reads that change which rows are read: Hudi 1.2.0 and lakeformat give the same rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.config.read_options import BEGIN, MERGE_TYPE, PATH_GLOB, QUERY_TYPE
from tests.helpers.hudi_spark import Hudi
from tests.helpers.tables import a_table
from tests.read.test_unmerged_logs import BASE, LOGGED, SKIP, batch_of, logged_table, rows_of

pytestmark = pytest.mark.interop

W = "hoodie.datasource.write."
EVERYTHING = {QUERY_TYPE: "incremental", BEGIN: "000"}
GLOBS = ("b/*", "/b/*", "a", "*/b/*.parquet", "[ab]/*", "{a,c}/*", "*", "*.log*", "?/*", "[!a]/*", "a\\/*")


def hudis_table(hudi: Hudi, path: Path, version: int) -> None:
    options = {
        "hoodie.table.name": "t",
        f"{W}recordkey.field": "id",
        f"{W}partitionpath.field": "p",
        f"{W}precombine.field": "ts",
        f"{W}table.type": "MERGE_ON_READ",
        "hoodie.compact.inline": "false",
        "hoodie.write.table.version": str(version),
    }
    hudi.write(path, batch_of(*BASE), "upsert", **options)
    for row in LOGGED:
        hudi.write(path, batch_of(row), "upsert", **options)
    hudi.delete(path, batch_of((2, "", 6, "a")), **options)


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("writer", ["hudi", "lakeformat"])
def test_both_read_the_same_rows_side_by_side(writer: str, version: int, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    if writer == "hudi":
        hudis_table(hudi, path, version)
    else:
        logged_table(path, version)
    middle = sorted(each.instant_time for each in lakeformat.open(path).history())[2]
    ours = lakeformat.open(path, **SKIP)
    found: list[tuple[pa.Table, pa.Table]] = [
        (hudi.read(path, options=SKIP), ours.to_arrow()),
        (hudi.read(path, middle, SKIP), ours.to_arrow(as_of=middle)),
        (hudi.read(path, options={**EVERYTHING, **SKIP}), ours.changes("000").to_arrow()),
        (hudi.read(path, options={MERGE_TYPE: "payload_combine"}), lakeformat.open(path).to_arrow()),
    ]
    for theirs, mine in found:
        assert rows_of(mine) == rows_of(theirs)
    assert rows_of(found[0][1]) == sorted(BASE + LOGGED)


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_glob_selects_the_same_files(kind: str, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    if kind == "MERGE_ON_READ":
        logged_table(path, 9)
    else:
        a_table(path, rows=[batch_of(*BASE), batch_of(*LOGGED[:1])], partition_by="p", operation="upsert")
    for glob in GLOBS:
        theirs = hudi.read(path, options={**EVERYTHING, PATH_GLOB: glob})
        assert rows_of(lakeformat.open(path, **{PATH_GLOB: glob}).changes("000").to_arrow()) == rows_of(theirs), glob
