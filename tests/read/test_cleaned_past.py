"""Time travel to what cleaning by file versions, which keeps no commit whole, has taken: told, never rows that lack."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.errors import InstantNotAvailableError

SCHEMA = pa.schema({"id": pa.int64(), "region": pa.string(), "v": pa.string()})


def rows(*ids: int, v: str) -> pa.Table:
    return pa.table([ids, [f"r{i % 2}" for i in ids], [v] * len(ids)], schema=SCHEMA)


@pytest.mark.parametrize("file_index", [True, False])
@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("how", ["replaced", "rewritten"])
def test_time_travel_is_complete_or_refused_after_cleaning(
    version: int, kind: str, file_index: bool, how: str, tmp_path: Path
) -> None:
    """The commit that wrote the files is archived: no commit that is left promises them."""
    options = {
        "hoodie.clean.commits.retained": 1,
        "lakeformat.file.index": file_index,
        "hoodie.clean.automatic": False,
    }
    table = lakeformat.create(
        tmp_path / "t", SCHEMA, record_key="id", partitionpath="region",
        **{"hoodie.write.table.version": version, "table_type": kind}, **options,
    )  # fmt: skip
    table.bulk_insert(rows(*range(10), v="a"))
    for number in range(4):
        table.upsert(rows(number, v=str(number)))
    past = {each.instant_time: table.to_arrow(as_of=each.instant_time).num_rows for each in table.history()}
    if how == "replaced":
        table.cluster(["id"])
    elif kind == "MERGE_ON_READ":
        table.compact()
    table.archive(min_commits=3)
    assert table.clean(versions=1).files
    told = 0
    for instant, count in past.items():
        try:
            assert table.to_arrow(as_of=instant).num_rows == count
        except InstantNotAvailableError:
            told += 1
    assert told >= len(past) - 1
