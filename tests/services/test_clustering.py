"""Clustering changes where rows are and nothing else: we and hudi-rs read the same before and after."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.codec.avro_schema import from_avro
from lakeformat.codec.requested_replace import encode_clustering
from lakeformat.errors import (
    CorruptTableError,
    InvalidInputError,
    InvalidOptionError,
    SchemaMismatchError,
    UnsupportedTableError,
    WriteConflictError,
)
from lakeformat.model.clustering import ClusteringPlan
from lakeformat.model.instant import State
from lakeformat.services.cluster.here import Group, rewrite_here
from lakeformat.services.cluster.run import ClusterSession, request_of
from lakeformat.services.cluster.settings import RewriteSettings
from lakeformat.table_state.engine import Engine
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.rollback import revert_run
from lakeformat.transaction.written import Written
from tests.helpers.clustered import SCHEMA, all_rows_by_hudi_rs, column_of, file_names, scattered_table, rows, all_rows
from tests.helpers.fixture_tables import names, unpack

#: Rows in memory, and rows sorted on storage.
BUFFERS = (1 << 30, 40_000)
BUFFER = "lakeformat.clustering.buffer.bytes"
TINY = 4_000  #: Bytes: several files a partition.


def plan_of(path: Path, instant: str) -> ClusteringPlan:
    store = TimelineStore(lakeformat.open(path).engine.storage)
    found = next(one for one in store.load().instants if one.time == instant)
    requested = store.requested_replace(found)
    assert requested is not None
    assert requested.plan is not None
    return requested.plan


@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize("curve", ["linear", "hilbert", pytest.param("z-order", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "by",
    [("at.z", "x", "id"), *(pytest.param(by, marks=pytest.mark.slow) for by in (("x", "y"), ("city",)))],
    ids=",".join,
)
def test_rows_stay_what_they_are(by: Sequence[str], curve: str, buffer: int, tmp_path: Path) -> None:
    table = scattered_table(tmp_path / "t", **{BUFFER: buffer})
    before, commits, old = all_rows(table), [entry.instant_time for entry in table.history()], file_names(table)
    past = all_rows(table, commits[1])
    result = table.cluster(by, curve=curve, target_file_bytes=TINY)

    assert result.report["rows"] == {"rewritten": 600}
    assert all_rows(table) == before
    assert all_rows_by_hudi_rs(table) == before
    assert not old & file_names(table)
    assert {row["_hoodie_file_name"] for row in table.to_arrow(meta_columns=True).to_pylist()} == file_names(table)
    assert all_rows(table, commits[1]) == past
    assert table.history()[0].operation == "cluster"
    assert table.history()[0].report is not None

    changes = rows(700, seed=2).slice(50, 650)  # The filters, ranges and names of new files must serve writers.
    table.upsert(changes)
    table.delete(changes.select(["id", "region"]).slice(0, 40))
    assert table.to_arrow(meta_columns=True).num_rows == 50 + 650 - 40
    assert all_rows_by_hudi_rs(table) == all_rows(table)


@pytest.mark.parametrize("given", [None, 30_000])
def test_sorted_files_are_skipped_in_part(given: int | None, tmp_path: Path) -> None:
    options = {"lakeformat.parquet.row.group.rows": given} if given else {}
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **options)
    table.bulk_insert(rows(60_000))
    table.cluster("x")
    (file,) = table.snapshot().files
    footer = pq.read_metadata(tmp_path / "t" / file.path)
    groups = [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]
    assert (max(groups) > 20_000) == (given is not None)
    assert sum(groups) == 60_000
    where = "x between 10 and 20"
    assert f"row groups {1:>10,}" in table.explain(where=where)
    expected = sum(1 for x in rows(60_000).column("x").to_pylist() if x is not None and 10 <= x <= 20)
    assert table.to_arrow(where=where).num_rows == expected


def nulls_first(value: Any) -> tuple[Any, ...]:
    """Nulls first, NaN last."""
    if value is None:
        return (False,)
    nan = isinstance(value, float) and math.isnan(value)
    return True, nan, 0 if nan else value


@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize("by", ["id", "x", "y"])
def test_linear_files_follow_each_other(by: str, buffer: int, tmp_path: Path) -> None:
    table = scattered_table(tmp_path / "t", **{BUFFER: buffer})
    table.cluster(by, target_file_bytes=TINY)
    for files in table.snapshot().by_partition.values():
        found = sorted([nulls_first(value) for value in column_of(table, file, by)] for file in files)
        assert len(found) > 2
        assert list(itertools.chain.from_iterable(found)) == sorted(itertools.chain.from_iterable(found))


@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize("curve", ["z-order", "hilbert"])
def test_curved_files_are_narrow_in_both_columns(curve: str, buffer: int, tmp_path: Path) -> None:
    """A file of a partition cut in n holds about 1/sqrt(n) of each column's values, not all of them."""
    table = scattered_table(tmp_path / "t", count=3000, **{BUFFER: buffer})
    table.cluster(["x", "at.z"], curve=curve, target_file_bytes=8_000)
    files = [file for files in table.snapshot().by_partition.values() for file in files]
    widths = [len({value // 100 for value in column_of(table, file, "x") if value is not None}) / 10 for file in files]
    assert len(files) >= 12
    assert sum(widths) / len(widths) < 0.8


def test_small_files_come_together_in_their_order(tmp_path: Path) -> None:
    table = scattered_table(tmp_path / "t")
    before = all_rows(table)
    old = file_names(table)
    result = table.cluster()
    assert result.report["files"]["replaced"] == len(old) > 3
    assert len(file_names(table)) == 3
    assert all_rows(table) == all_rows_by_hudi_rs(table) == before
    assert table.cluster().skipped  # One file a partition: nothing is left to do.


def test_only_the_named_partitions(tmp_path: Path) -> None:
    table = scattered_table(tmp_path / "t")
    before, old = all_rows(table), table.snapshot().by_partition
    table.cluster(["x"], partitions=["e*"])
    new = table.snapshot().by_partition
    assert new["us"] == old["us"]
    assert len(new["eu"]) == 1
    assert all_rows(table) == before
    with pytest.raises(InvalidInputError, match="no partition 'mars'"):
        table.cluster(["x"], partitions="mars")


def test_what_a_clustering_leaves_out_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = scattered_table(tmp_path / "t", count=60, **{"hoodie.layout.optimize.strategy": "hilbert"})
    table.cluster(["x"], partitions=["eu", "mars", "x*"])
    assert "no partition matches mars, x*" in caplog.text
    assert "sort" not in caplog.text
    table.cluster()
    assert "hoodie.layout.optimize.strategy=hilbert sorts nothing" in caplog.text


def test_a_table_without_partitions_and_a_file_without_rows(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", rows(0).schema, record_key="id", **{"hoodie.parquet.small.file.limit": 0})
    table.bulk_insert(rows(50))
    table.bulk_insert(rows(100).slice(50))
    table.delete(rows(50).select(["id"]))
    before = all_rows(table)
    table.cluster(["x", "y"])
    assert len(file_names(table)) == 1
    assert all_rows(table) == all_rows_by_hudi_rs(table) == before
    table.delete(where="true")
    table.cluster(["x", "y"])
    assert file_names(table) == set()
    assert table.to_arrow().num_rows == 0


def sortable(table: lakeformat.Table) -> list[str]:
    return [field.name for field in table.schema if not (field.type.num_fields or str(field.type).startswith("bool"))]


@pytest.mark.parametrize("name", names("hudi_v6"))
def test_tables_of_hudi(name: str, tmp_path: Path) -> None:
    table = lakeformat.open(unpack(name, tmp_path), **{BUFFER: 1000 if "types" in name else 1 << 30})
    before = all_rows(table)
    schema_text = table.engine.store.commit(table.snapshot().timeline.commits[-1]).schema_text
    table.cluster(sortable(table)[:4])
    assert all_rows(table) == all_rows_by_hudi_rs(table) == before
    newest = table.engine.store.commit(table.snapshot().timeline.commits[-1])
    if "_hoodie_commit_time" in schema_text:
        assert from_avro(newest.schema_text, name="x") == table.snapshot().schema
    else:
        assert newest.schema_text == schema_text


# --- plans --------------------------------------------------------------------------------------------


def test_a_plan_waits_and_is_run(tmp_path: Path) -> None:
    table = scattered_table(tmp_path / "t")
    before, old = all_rows(table), file_names(table)
    planned = table.schedule_clustering(["x", "y"], curve="z-order", partitions="eu", target_file_bytes=TINY)
    assert planned is not None
    assert (all_rows(table), file_names(table)) == (before, old)
    assert all_rows_by_hudi_rs(table) == before
    assert table.schedule_clustering(["x"], partitions="eu") is None
    plan = plan_of(tmp_path / "t", planned)
    assert plan.params["hoodie.clustering.plan.strategy.sort.columns"] == "x,y"
    assert {one.partition_path for one in plan.file_groups} == {"eu"}

    in_plan = rows(600, seed=4).slice(0, 1)
    with pytest.raises(WriteConflictError, match=f"pending clustering {planned}"):
        table.upsert(in_plan)
    table.upsert(rows(600, seed=4).slice(1, 1))  # Another partition.
    inserted = table.insert(rows(601).slice(600))  # The plan's partition, but a new file group.
    assert inserted.report["files"]["created"] == 1
    before = all_rows(table)

    result = lakeformat.open(tmp_path / "t").run_clustering()
    assert result.instant_time == planned
    assert "z-order" in result.describe()
    assert all_rows(table) == all_rows_by_hudi_rs(table) == before
    assert {file.name.instant_time for file in table.snapshot().by_partition["eu"]} == {
        planned,
        inserted.instant_time,
    }
    table.upsert(in_plan)
    assert table.run_clustering().skipped


def test_a_plan_is_cancelled(tmp_path: Path) -> None:
    table = scattered_table(tmp_path / "t")
    planned = table.schedule_clustering("x")
    assert planned is not None
    with pytest.raises(InvalidInputError, match=f"pending are {planned}"):
        table.cancel_clustering("20200101000000000")
    table.cancel_clustering(planned)
    table.upsert(rows(600, seed=4))
    assert table.snapshot().timeline.pending == ()
    assert all_rows_by_hudi_rs(table) == all_rows(table)
    with pytest.raises(InvalidInputError, match="none is pending"):
        table.run_clustering(planned)


class Disturbed:
    """Rewrites as ever, but something happens before it answers."""

    def __init__(self, table: lakeformat.Table, act: Any) -> None:
        self.table, self.act = table, act

    def __call__(self, engine: Engine, groups: Sequence[Group], settings: RewriteSettings) -> Sequence[Written]:
        written = rewrite_here(engine, groups, settings)
        self.act(settings.instant_time)
        return written


@pytest.mark.parametrize(
    ("old", "new"), [(b"SparkSortAndSizeExecution", b"SparkBinaryCopyExecutions"), (b".parquet", b".parquot")]
)
def test_a_plan_that_cannot_be_run_does_not_stop_the_next(old: bytes, new: bytes, tmp_path: Path) -> None:
    """A way of execution that is not built; files that have been replaced."""
    path = tmp_path / "t"
    table = scattered_table(path, count=60)
    first, second = (table.schedule_clustering("x", partitions=region) for region in ("eu", "us"))
    file = path / ".hoodie" / f"{first}.replacecommit.requested"
    file.write_bytes(file.read_bytes().replace(old, new))
    assert table.run_clustering().instant_time == second
    if first in [instant.time for instant in table.snapshot().timeline.pending]:
        with pytest.raises(UnsupportedTableError, match="SparkBinaryCopy"):
            table.run_clustering()


def test_a_plan_that_rewrites_meta_columns_is_refused(tmp_path: Path) -> None:
    table = scattered_table(tmp_path / "t", count=60)
    planned = table.schedule_clustering("x")
    assert planned is not None
    plan = replace(plan_of(tmp_path / "t", planned), keeps_meta=False)
    (tmp_path / "t" / ".hoodie" / f"{planned}.replacecommit.requested").write_bytes(encode_clustering(plan))
    with pytest.raises(UnsupportedTableError, match="commit times"):
        table.run_clustering()


def session(table: lakeformat.Table, act: Any) -> ClusterSession:
    return ClusterSession(table.engine, table.options, Disturbed(table, act))


def unaware(path: Path, write: Any) -> Any:
    """A writer that knows of no plan: while it writes, the plan's files are out of its sight."""

    def act(instant: str) -> None:
        hidden = [*path.glob(f".hoodie/{instant}.*")]
        for file in hidden:
            file.rename(file.with_name(f"hidden-{file.name}"))
        write()
        for file in hidden:
            file.with_name(f"hidden-{file.name}").rename(file)

    return act


def assert_clean(table: lakeformat.Table, path: Path) -> None:
    assert table.snapshot().timeline.pending == ()
    stage = path / ".hoodie" / ".lakeformat" / "stage"
    assert not stage.exists() or [*stage.iterdir()] == []
    assert all_rows_by_hudi_rs(table) == all_rows(table)


def test_a_commit_that_comes_between_wins(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = scattered_table(path)
    act = unaware(path, lambda: table.upsert(rows(600, seed=5).slice(0, 5)))
    with pytest.raises(WriteConflictError, match="overlaps commit"):
        session(table, act).cluster(request_of(table.options, ["x"]))
    assert_clean(table, path)
    assert table.history()[0].operation == "upsert"


def test_a_plan_that_is_overtaken_is_rolled_back(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = scattered_table(path)
    planned = table.schedule_clustering(["x"])
    assert planned is not None
    unaware(path, lambda: table.upsert(rows(600, seed=5).slice(0, 5)))(planned)
    with pytest.raises(WriteConflictError, match=f"clustering {planned} was planned for .* rolled back"):
        table.run_clustering()
    assert_clean(table, path)
    assert not table.cluster(["x"]).skipped


def test_writes_beside_a_running_clustering(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = scattered_table(path)
    planned = table.schedule_clustering(["x"], partitions="us")
    assert planned is not None
    tried = []

    def meanwhile(_: str) -> None:
        other = lakeformat.open(path)
        other.upsert(rows(600, seed=5).slice(0, 1))
        with pytest.raises(WriteConflictError, match=planned):
            other.upsert(rows(600, seed=5).slice(1, 1))
        for refused in (other.cancel_clustering, other.run_clustering):
            with pytest.raises(WriteConflictError, match=r"running|runs"):
                refused(planned)
        assert other.run_clustering().skipped
        tried.append(True)

    session(table, meanwhile).run(planned)
    assert tried
    assert_clean(table, path)


def test_a_run_that_fails_leaves_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = scattered_table(path)
    before = all_rows(table)
    planned = table.schedule_clustering(["x"])

    def fail(_: str) -> None:
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        session(table, fail).run(planned)
    (pending,) = table.snapshot().timeline.pending
    assert (pending.time, pending.state) == (planned, State.REQUESTED)
    assert all_rows(table) == before
    assert table.run_clustering().instant_time == planned
    assert all_rows(table) == before
    with pytest.raises(OSError, match="no space"):
        session(table, fail).cluster(request_of(table.options, ["y"]))
    assert_clean(table, path)
    assert all_rows(table) == before


def test_who_was_taken_for_dead_publishes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = scattered_table(path)
    before = all_rows(table)
    planned = table.schedule_clustering(["x"])

    def die(_: str) -> None:
        store = TimelineStore(table.engine.storage)
        revert_run(store, *store.load().pending)

    with pytest.raises(WriteConflictError, match="took it for dead"):
        session(table, die).run(planned)
    assert all_rows(table) == before


# --- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"by": ["nope"]}, SchemaMismatchError, "'nope'"),
        ({"by": ["at"]}, SchemaMismatchError, r"'at'|struct"),
        ({"by": ["x", "x"]}, InvalidInputError, "different columns"),
        ({"by": ["x"], "curve": "peano"}, InvalidInputError, "peano"),
        ({"by": ["x"], "target_file_bytes": 0}, InvalidInputError, "no size"),
        ({"curve": "hilbert"}, InvalidInputError, "curve='hilbert' needs columns"),
        ({"by": ["x"], "partitions": []}, InvalidInputError, "no partition is named; .* leave partitions out"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: Any, error: type[Exception], text: str, tmp_path: Path) -> None:
    table = scattered_table(tmp_path / "t", count=60)
    with pytest.raises(error, match=text):
        table.cluster(**arguments)
    assert table.snapshot().timeline.pending == ()


def test_bucket_tables_and_other_ways_of_execution_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = scattered_table(path, count=60)
    with pytest.raises(InvalidOptionError, match="BUCKET"):
        lakeformat.open(path, **{"hoodie.index.type": "BUCKET"}).cluster("x")
    buckets = lakeformat.create(tmp_path / "b", rows(0).schema, record_key="id", **{"hoodie.index.type": "BUCKET"})
    buckets.upsert(rows(20))
    with pytest.raises(InvalidOptionError, match="BUCKET"):
        lakeformat.open(tmp_path / "b").cluster("x")
    planned = table.schedule_clustering(["x"])
    file = path / ".hoodie" / f"{planned}.replacecommit.requested"
    file.write_bytes(file.read_bytes().replace(b"SparkSortAndSizeExecution", b"SparkBinaryCopyExecutions"))
    with pytest.raises(UnsupportedTableError, match="SparkBinaryCopy"):
        table.run_clustering()
    assert planned is not None
    table.cancel_clustering(planned)


def test_what_cannot_be_run_can_be_cancelled(tmp_path: Path) -> None:
    """A plan blocks writes: it must be possible to be rid of it, whatever it says."""
    table = scattered_table(tmp_path / "t", count=60)
    planned = table.schedule_clustering(["x"])
    assert planned is not None
    buckets = lakeformat.open(tmp_path / "t", **{"hoodie.index.type": "BUCKET"})
    for refused in (buckets.cluster, buckets.schedule_clustering, buckets.run_clustering):
        with pytest.raises(InvalidOptionError, match="BUCKET"):
            refused()
    buckets.cancel_clustering(planned)

    planned = table.schedule_clustering(["x"])
    assert planned is not None
    plan = plan_of(tmp_path / "t", planned)
    nameless = replace(plan.groups[0].slices[0], file_id=cast(str, None))
    broken = replace(plan, groups=(replace(plan.groups[0], slices=(nameless,)),))
    file = tmp_path / "t" / ".hoodie" / f"{planned}.replacecommit.requested"
    file.write_bytes(encode_clustering(broken))
    with pytest.raises(CorruptTableError, match="cancel it"):
        table.run_clustering()
    table.cancel_clustering(planned)
    table.upsert(rows(60, seed=4))
    assert table.snapshot().timeline.pending == ()
