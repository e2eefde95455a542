"""Partitions with their own numbers of buckets: Hudi 1.2.0 and lakeformat write the same buckets by turns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi
from tests.helpers.tables import a_table
from tests.index.test_partition_buckets import BUCKET, COUNT, EXPRESSIONS, SCHEMA, counts_of

pytestmark = pytest.mark.interop

W = "hoodie.datasource.write."
RULE = {**BUCKET, EXPRESSIONS: "b,1;a,8", COUNT: "3"}


def batch(numbers: range, v: int) -> pa.Table:
    rows = [{"id": i, "v": v, "p": ("a1", "b", "ab", "c")[i % 4]} for i in numbers]
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("first", ["hudi", "lakeformat"])
def test_both_write_the_same_buckets_by_turns(first: str, kind: str, version: int, hudi: Hudi, tmp_path: Path) -> None:
    path, whole = tmp_path / "t", range(120)
    named = {"hoodie.table.name": "t", f"{W}recordkey.field": "id", f"{W}partitionpath.field": "p"}
    # Tasks of Hudi that run at once fail: they change one cache of the rule's numbers.
    alone = {"hoodie.upsert.shuffle.parallelism": "1"}
    theirs = {**named, **RULE, **alone, f"{W}table.type": kind, "hoodie.write.table.version": str(version)}
    model: dict[int, int] = {}
    for turn in range(4):
        v, numbers = turn + 1, whole[turn * 20 : turn * 20 + 60]
        if (turn % 2 == 0) == (first == "hudi"):
            hudi.write(path, batch(numbers, v), "upsert", **theirs)
        elif turn:
            lakeformat.open(path, **RULE).upsert(batch(numbers, v))
        else:
            made = {"hoodie.table.name": "t", **RULE}
            a_table(
                path, rows=batch(numbers, v), partition_by="p", merge_on_read=kind == "MERGE_ON_READ",
                version=version, operation="upsert", **made,
            )  # fmt: skip
        model |= dict.fromkeys(numbers, v)
        for rows in (lakeformat.open(path).to_arrow(), hudi.read(path)):
            assert sorted(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True)) == sorted(model.items())
    assert counts_of(path) == {"a1": 8, "b": 1, "ab": 1, "c": 3}
