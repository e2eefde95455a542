"""Types that an upsert changes: Hudi 1.2.0 and lakeformat read the same values, of either writer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi
from tests.helpers.type_changes import PLACES, found_rows, right_rows, rows_of

pytestmark = pytest.mark.interop

_EVERY_RUN = {("column", "COPY_ON_WRITE"), ("struct", "MERGE_ON_READ")}
_CASES = [
    pytest.param(place, kind, marks=() if (place, kind) in _EVERY_RUN else pytest.mark.nightly)
    for place in PLACES
    for kind in ("COPY_ON_WRITE", "MERGE_ON_READ")
]


#: Hudi's vectorized reader reads no nested columns whose types have changed.
_VECTORIZED = "spark.sql.parquet.enableVectorizedReader"


@pytest.fixture
def slow_reader(hudi: Hudi) -> Iterator[Hudi]:
    """Yield a session that reads Parquet row by row."""
    hudi.run(f"SET {_VECTORIZED}=false")
    yield hudi
    hudi.run(f"RESET {_VECTORIZED}")


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize(("place", "kind"), _CASES)
@pytest.mark.parametrize("writer", ["hudi", "lakeformat"])
def test_both_read_the_same_values(writer: str, place: str, kind: str, slow_reader: Hudi, tmp_path: Path) -> None:
    hudi = slow_reader
    path = tmp_path / "t"
    options = {"hoodie.write.table.version": "9"}
    made = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "p",
        "hoodie.datasource.write.table.type": kind,
    }
    stored, new = rows_of([1, 4], place, incoming=False), rows_of([2], place, incoming=True)
    hudi.write(path, stored, "upsert", **made, **options)
    hudi.write(path, stored.slice(0, 1), "upsert", **options)
    if writer == "hudi":
        hudi.write(path, new, "upsert", **options)
    else:
        lakeformat.open(path).upsert(new)
    for rows in (hudi.read(path), lakeformat.open(path).to_arrow()):
        assert found_rows(rows) == right_rows(place)
