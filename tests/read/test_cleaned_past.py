"""Time travel to instants whose files were cleaned by versions is refused: it never returns incomplete rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.errors import InstantNotAvailableError
from tests.helpers.tables import a_batch, a_schema

SCHEMA = a_schema(id="int64", region="string", v="string")


def rows(*ids: int, v: str) -> pa.Table:
    return a_batch(SCHEMA, id=ids, region=[f"r{i % 2}" for i in ids], v=v)


@pytest.mark.parametrize("file_index", [True, False])
@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("how", ["replaced", "rewritten"])
def test_time_travel_is_complete_or_refused_after_cleaning(
    version: int, kind: str, file_index: bool, how: str, tmp_path: Path
) -> None:
    """The commit that wrote the files is archived, so no commit on the timeline needs them."""
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
    refusals = 0
    for instant, count in past.items():
        try:
            assert table.to_arrow(as_of=instant).num_rows == count
        except InstantNotAvailableError:
            refusals += 1
    assert refusals >= len(past) - 1
