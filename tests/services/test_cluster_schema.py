"""After a clustering, a table has the columns of that time, not those of the time of the plan."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.codec.avro.schema import from_avro
from lakeformat.model.instant import Action, Instant, State
from tests.helpers.clustered import all_rows, all_rows_by_hudi_rs
from tests.helpers.overtaken import cluster_overtaken_by, make
from tests.helpers.tables import a_schema, a_table


def test_columns_added_during_a_clustering_are_kept(tmp_path: Path) -> None:
    table = make(tmp_path / "t")
    rows = pa.table({"id": [5], "v": [2**40], "extra": ["precious"]})
    time = cluster_overtaken_by(table, rows)
    assert table.history()[0].instant_time == time
    assert table.schema.names == ["id", "v", "extra"]
    found = lakeformat.open(tmp_path / "t").to_arrow(meta_columns=False).sort_by("id").to_pydict()
    assert found == {"id": [1, 2, 3, 4, 5], "v": [4, 3, 2, 1, 2**40], "extra": [None] * 4 + ["precious"]}
    assert all_rows_by_hudi_rs(table) == all_rows(table)
    assert table.to_arrow(where="v > 3").num_rows == 2

    metadata = table.context.store.read_commit(Instant(time, Action.REPLACE_COMMIT, State.COMPLETED))
    assert from_avro(metadata.files_schema_text, name=time) == pa.schema({"id": pa.int64(), "v": pa.int32()})


@pytest.mark.parametrize("merge_on_read", [False, True])
def test_columns_that_changed_places_are_clustered(merge_on_read: bool, tmp_path: Path) -> None:
    schema = a_schema(id="int64", e="int64", c="date32")
    rows = pa.table({"id": range(8), "e": [3, None, 1, 2] * 2, "c": [date(2000, 1, 1), None] * 4}, schema=schema)
    table = a_table(tmp_path / "t", rows=[rows, rows[:3]], schema=schema, merge_on_read=merge_on_read)
    table.alter().rename("e", "x").rename("c", "e").rename("x", "c").execute()
    table.update({"c": 9}, where="id = 1")
    before = table.to_arrow().sort_by("id")
    for by in (["c"], ["e"], ["e", "c"], ["id"]):
        table.cluster(by=by)
        assert table.to_arrow().sort_by("id") == before
