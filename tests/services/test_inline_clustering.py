"""Clustering after a number of commits: the write succeeds, whatever happens to the clustering."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakeformat
from lakeformat.errors import InvalidOptionError, SchemaMismatchError
from tests.helpers.clustered import all_rows, all_rows_by_hudi_rs, file_names, rows

INLINE = {"hoodie.clustering.inline": True, "hoodie.parquet.small.file.limit": 0}
EVERY_TWO = {**INLINE, "hoodie.clustering.inline.max.commits": 2}
BY_X = {"hoodie.clustering.plan.strategy.sort.columns": "x,y", "hoodie.layout.optimize.strategy": "z-order"}


def make_table(path: Path, **options: Any) -> lakeformat.Table:
    return lakeformat.create(path, rows(0).schema, record_key="id", partition_by="region", **options)


def operations(table: lakeformat.Table) -> list[str]:
    return [entry.operation for entry in reversed(table.history())]


def test_inline_clustering_runs_every_given_number_of_commits(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", **EVERY_TWO, **BY_X)
    results = [table.insert(rows(60).slice(10 * at, 10)) for at in range(3)]
    assert operations(table) == ["insert", "insert", "cluster", "insert"]
    assert "services" not in results[0].report
    assert results[1].report["services"]["clustering"].startswith("cluster 2")
    table.update({"city": "there"}, "x > 500")
    table.delete(where="x > 900")
    table.merge(rows(60).slice(0, 5)).when_matched_update().execute()
    assert operations(table)[4:] == ["update", "cluster", "delete", "merge", "cluster"]
    assert all_rows_by_hudi_rs(table) == all_rows(table)
    assert len(file_names(table)) == 3


def test_inline_clustering_default_is_four_commits(tmp_path: Path) -> None:
    table = make_table(
        tmp_path / "t",
        **{"hoodie.datasource.clustering.inline.enable": "true", "hoodie.parquet.small.file.limit": 0},
    )
    for at in range(5):
        table.bulk_insert(rows(60).slice(10 * at, 10))
    assert operations(table) == [*["bulk_insert"] * 4, "cluster", "bulk_insert"]


def test_inline_scheduling_leaves_the_plan_to_others(tmp_path: Path) -> None:
    options = {"hoodie.clustering.schedule.inline": True, "hoodie.clustering.inline.max.commits": 2}
    table = make_table(tmp_path / "t", **options, **BY_X)
    for at in range(3):
        table.bulk_insert(rows(60).slice(10 * at, 10))
    (pending,) = table.snapshot().timeline.pending
    table.bulk_insert(rows(60).slice(40, 10))  # Two commits after the plan there is another plan, for other files.
    assert len(table.snapshot().timeline.pending) == 2
    assert table.run_clustering().instant_time == pending.time
    assert all_rows_by_hudi_rs(table) == all_rows(table)


def test_failed_inline_service_does_not_undo_the_write(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "t"
    table = make_table(path, **{**INLINE, "hoodie.clustering.inline.max.commits": 1})
    table.bulk_insert(rows(30))
    (damaged, *_) = path.glob("eu/*.parquet")
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-200] + bytes(200))
    result = table.bulk_insert(rows(60).slice(30))
    assert "CorruptTableError" in result.report["services"]["clustering"]
    assert "the write itself is complete" in caplog.text
    assert table.snapshot().timeline.pending == ()
    assert result.instant_time == table.history()[0].instant_time
    damaged.write_bytes(whole)
    assert table.to_arrow().num_rows == 60
    assert table.bulk_insert(rows(90).slice(60)).report["services"]["clustering"].startswith("cluster 2")
    assert all_rows_by_hudi_rs(table) == all_rows(table)


def test_columns_that_are_not_there_are_refused_before_the_write(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", **INLINE, **{"hoodie.clustering.plan.strategy.sort.columns": "nope"})
    with pytest.raises(SchemaMismatchError, match="'nope'"):
        table.bulk_insert(rows(30))
    assert table.history() == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"hoodie.clustering.schedule.inline": True}, "hoodie.clustering.schedule.inline=true"),
        ({"hoodie.index.type": "BUCKET"}, "hoodie.index.type=BUCKET"),
    ],
)
def test_contradicting_options_are_refused_before_the_write(options: dict[str, Any], text: str, tmp_path: Path) -> None:
    make_table(tmp_path / "t", **{key: value for key, value in options.items() if "index" in key})
    table = lakeformat.open(tmp_path / "t", **INLINE, **options)
    with pytest.raises(InvalidOptionError, match=text):
        table.bulk_insert(rows(30))
    assert table.history() == []


@pytest.mark.parametrize(
    "write",
    {
        "delete keys": lambda table: table.delete(rows(30).select(["id", "region"])),
        "delete": lambda table: table.delete(where="x > 3"),
        "update": lambda table: table.update({"x": 1}),
        "merge": lambda table: table.merge(rows(30)).when_matched_delete().execute(),
    }.values(),
    ids=["delete keys", "delete", "update", "merge"],
)
def test_bucket_table_is_recognised_by_its_files(write: Callable[[lakeformat.Table], Any], tmp_path: Path) -> None:
    make_table(tmp_path / "t", **{"hoodie.index.type": "BUCKET"}).upsert(rows(30))
    with pytest.raises(InvalidOptionError, match="finds rows by the names of their files"):
        write(lakeformat.open(tmp_path / "t", **INLINE))


def test_inline_clustering_leaves_clustered_partitions_alone(tmp_path: Path) -> None:
    options = {**INLINE, "hoodie.clustering.inline.max.commits": 1}
    table = make_table(tmp_path / "t", **options, **BY_X)
    table.bulk_insert(rows(60))
    before = table.snapshot().by_partition
    table.bulk_insert(rows(61).slice(60))  # A row of the partition eu.
    after = table.snapshot().by_partition
    assert (after["us"], after["asia"]) == (before["us"], before["asia"])
    assert len(after["eu"]) == 1
    assert after["eu"] != before["eu"]
    table.update({"x": 5}, "region = 'us'")
    assert table.snapshot().by_partition["us"][0].name.instant_time == table.history()[0].instant_time

    table = lakeformat.open(tmp_path / "t", **options, **{**BY_X, "hoodie.clustering.plan.strategy.sort.columns": "y"})
    table.bulk_insert(rows(62).slice(61))  # The settings ask for another order.
    assert {file.name.instant_time for file in table.snapshot().files} == {table.history()[0].instant_time}
    assert table.cluster("y").report["files"]["replaced"] == 3  # An explicit call clusters again.
    assert all_rows_by_hudi_rs(table) == all_rows(table)


def test_inline_clustering_does_not_reuse_the_batch_id(tmp_path: Path) -> None:
    options = {**INLINE, "hoodie.clustering.inline.max.commits": 1, "lakeformat.batch.app": "job"}
    make_table(tmp_path / "t")
    for number in range(2):
        table = lakeformat.open(tmp_path / "t", **options, **{"lakeformat.batch.id": number})
        assert not table.bulk_insert(rows(60).slice(30 * number, 30)).skipped
        assert table.bulk_insert(rows(60).slice(30 * number, 30)).skipped
    assert table.to_arrow().num_rows == 60
