"""Clustering of merge-on-read tables lays out the merged rows of base and log files, and changes no row."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import lakeformat
from lakeformat.errors import InvalidOptionError, WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.index.bucket import has_bucket_files
from lakeformat.model.service_plans import ClusteringPlan
from lakeformat.services.cluster.local_rewriter import Group, rewrite_in_process
from lakeformat.services.cluster.run import ClusterSession, make_cluster_request
from lakeformat.services.cluster.settings import RewriteSettings
from lakeformat.transaction.order.written_file import WrittenFile
from tests.helpers.clustered import SCHEMA, all_rows, all_rows_by_hudi_rs, column_of, rows, sortable
from tests.helpers.fixture_tables import unpack
from tests.services.test_compaction import NOT_BY_HUDI_RS, TABLES

BUFFER = "lakeformat.clustering.buffer.bytes"
TINY = 4000
BOTH = pytest.mark.parametrize("version", [6, 9])


def make(path: Path, version: int, **options: object) -> lakeformat.Table:
    """Create a table with several slices in each of three partitions, some with log files of updates and deletes."""
    made = {"table_type": "MERGE_ON_READ", "hoodie.write.table.version": version}
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="region", **made)
    whole = rows(300)
    for start in (0, 100, 200):
        table.bulk_insert(whole.slice(start, 100))
    table.upsert(rows(300, seed=1).slice(80, 40))
    table.delete(whole.slice(90, 20).select(["id", "region"]))
    return lakeformat.open(path, **options)


def reopen(table: lakeformat.Table) -> lakeformat.Table:
    return lakeformat.open(table.context.storage.location)


def plan_of(table: lakeformat.Table) -> tuple[str, ClusteringPlan]:
    (instant,) = table.snapshot().timeline.pending
    requested = table.context.store.read_requested_replace(instant)
    assert requested is not None
    assert requested.plan is not None
    return instant.time, requested.plan


def assert_clean(table: lakeformat.Table) -> None:
    assert table.snapshot().timeline.pending == ()
    assert all_rows_by_hudi_rs(table) == all_rows(table)


def session(table: lakeformat.Table, meanwhile: Callable[[str], object]) -> ClusterSession:
    """Return a clustering that calls a function after its rewrite and before its commit."""

    def rewriter(context: TableContext, groups: Sequence[Group], settings: RewriteSettings) -> Sequence[WrittenFile]:
        written = rewrite_in_process(context, groups, settings)
        meanwhile(settings.instant_time)
        return written

    return ClusterSession(table.context, table.options, rewriter)


def make_unaware_writer(table: lakeformat.Table, write: Callable[[], object]) -> Callable[[str], None]:
    """Return a function in which a writer that knows of no plan writes: the plan's files are hidden meanwhile."""
    folder = Path(table.context.storage.location) / ".hoodie"

    def act(instant: str) -> None:
        hidden = [*folder.glob(f"{instant}.*"), *folder.glob(f"timeline/{instant}.*")]
        for file in hidden:
            file.rename(file.with_name(f"hidden-{file.name}"))
        write()
        for file in hidden:
            file.with_name(f"hidden-{file.name}").rename(file)

    return act


@pytest.mark.parametrize("name", TABLES)
def test_clustering_of_hudi_merge_on_read_tables_keeps_rows(name: str, tmp_path: Path) -> None:
    table = lakeformat.open(unpack(name, tmp_path))
    if has_bucket_files(table.snapshot().each_slice()):
        with pytest.raises(InvalidOptionError, match="cannot be clustered"):
            table.cluster()
        return
    before = all_rows(table)
    waiting = "pending" in name
    result = table.cluster(sortable(table)[:3])
    assert all_rows(table) == before
    assert not result.skipped or waiting
    assert waiting or not table.snapshot().live.has_logs
    if not waiting and name not in NOT_BY_HUDI_RS:
        assert all_rows_by_hudi_rs(table) == before


@BOTH
@pytest.mark.parametrize("buffer", [1 << 30, 1000])
@pytest.mark.parametrize(
    "curve", ["z-order", None, *(pytest.param(name, marks=pytest.mark.slow) for name in ("linear", "hilbert"))]
)
def test_clustering_by_each_layout_keeps_rows(curve: str | None, buffer: int, version: int, tmp_path: Path) -> None:
    table = make(tmp_path / "t", version, **{BUFFER: buffer})
    before = all_rows(table)
    by = None if curve is None else ["x", "y"]
    result = table.cluster(by, curve=curve, target_file_bytes=TINY)
    assert result.operation == "cluster"
    assert all_rows(table) == all_rows_by_hudi_rs(table) == before
    assert not table.snapshot().live.has_logs
    files = table.snapshot().files
    assert {file.name.instant_time for file in files} == {result.instant_time}
    assert len(files) > len({file.partition_path for file in files})
    if curve == "linear":
        for file in files:
            values = column_of(table, file, "x")
            assert values == sorted(values, key=lambda x: (x is not None, x))


@pytest.mark.slow
@BOTH
def test_a_plan_names_log_files_and_its_slices_are_closed(version: int, tmp_path: Path) -> None:
    table = make(tmp_path / "t", version)
    before = all_rows(table)
    planned = table.schedule_clustering(["x"], partitions="eu")
    time, plan = plan_of(table)
    assert time == planned
    live = {piece.group: [log.path for log in piece.logs] for piece in table.snapshot().slices["eu"]}
    root = table.context.storage.location
    assert {one.group: [*one.delta_paths] for group in plan.groups for one in group.slices} == {
        group: [f"{root}/{path}" for path in logs] for group, logs in live.items()
    }
    assert any(live.values())
    with pytest.raises(WriteConflictError, match=f"pending clustering {planned}"):
        table.upsert(rows(300, seed=4).slice(0, 1))
    with pytest.raises(WriteConflictError, match=f"pending clustering {planned}"):
        table.update({"x": 1}, where="region = 'eu'")
    table.compact()  # This compacts the other partitions.
    assert {piece.group.partition_path for piece in table.snapshot().each_slice() if piece.logs} == {"eu"}
    assert all_rows(table) == before
    assert table.run_clustering().instant_time == planned
    assert all_rows(table) == before
    table.upsert(rows(300, seed=4).slice(0, 1))
    assert_clean(table)


@BOTH
def test_slices_of_a_pending_compaction_are_left_out(version: int, tmp_path: Path) -> None:
    table = make(tmp_path / "t", version)
    planned = table.schedule_compaction()
    in_compaction = {piece.group for piece in table.snapshot().each_slice() if piece.logs}
    before = all_rows(table)
    table.cluster(["x"])
    assert all_rows(table) == before
    live = {piece.group for piece in table.snapshot().each_slice()}
    assert in_compaction < live
    assert table.run_compaction().instant_time == planned
    assert all_rows(table) == before
    assert_clean(table)


@BOTH
@pytest.mark.parametrize("append", [0, 1])
def test_commit_to_log_files_wins_over_a_running_clustering(append: int, version: int, tmp_path: Path) -> None:
    """A program that knows of no plan updates or deletes rows that are being laid out."""
    table = make(tmp_path / "t", version)
    other, changed = reopen(table), rows(300, seed=5).slice(0, 5)
    acts = (lambda: other.upsert(changed), lambda: other.delete(changed.select(["id", "region"])))
    with pytest.raises(WriteConflictError, match="overlaps commit"):
        session(table, make_unaware_writer(table, acts[append])).cluster(make_cluster_request(table.options, ["x"]))
    assert_clean(table)
    assert table.history()[0].operation == ("upsert", "delete")[append]
    assert not table.cluster(["x"]).skipped
    assert_clean(table)


@BOTH
def test_plan_whose_slices_were_appended_to_is_rolled_back(version: int, tmp_path: Path) -> None:
    table = make(tmp_path / "t", version)
    planned = table.schedule_clustering(["x"])
    assert planned is not None
    make_unaware_writer(table, lambda: reopen(table).upsert(rows(300, seed=5).slice(0, 5)))(planned)
    before = all_rows(table)
    with pytest.raises(WriteConflictError, match=rf"clustering {planned} was planned before .*\.log\..*rolled back"):
        table.run_clustering()
    assert_clean(table)
    assert not table.cluster(["x"]).skipped
    assert all_rows(table) == before


@BOTH
def test_plan_with_a_missing_log_file_stays_pending(version: int, tmp_path: Path) -> None:
    table = make(tmp_path / "t", version)
    planned = table.schedule_clustering(["x"])
    _, plan = plan_of(table)
    (one, *_) = (one for group in plan.groups for one in group.slices if one.log_names)
    log, kept = Path(one.delta_paths[0]), tmp_path / "kept"
    shutil.move(log, kept)
    with pytest.raises(lakeformat.CorruptTableError, match=log.name.replace(".", r"\.")):
        table.run_clustering()
    shutil.move(kept, log)
    assert table.run_clustering().instant_time == planned


@BOTH
def test_clustering_of_a_group_without_rows_leaves_no_file(version: int, tmp_path: Path) -> None:
    table = make(tmp_path / "t", version)
    table.delete(where="region = 'us'")
    before = all_rows(table)
    table.cluster(["x"])
    assert "us" not in {file.partition_path for file in table.snapshot().files}
    assert all_rows(table) == all_rows_by_hudi_rs(table) == before
    table.upsert(rows(300, seed=7))
    table.delete(where="region = 'us'")
    table.cluster()
    table.cluster(target_file_bytes=TINY)
    assert set(table.to_arrow(columns=["region"]).column("region").to_pylist()) == {"eu", "asia"}
    assert_clean(table)


def test_inline_clustering_runs_after_writes(tmp_path: Path) -> None:
    options = {"hoodie.clustering.inline": True, "hoodie.clustering.inline.max.commits": 2}
    table = make(tmp_path / "t", 9, **options, **{"hoodie.clustering.plan.strategy.sort.columns": "x"})
    result = table.upsert(rows(300, seed=8).slice(0, 10))
    assert "clustering" in result.report["services"], result.report
    assert not table.snapshot().live.has_logs
    assert table.to_arrow().num_rows == 280
    assert_clean(table)
