"""Clustering plans: scheduling, running, cancelling, and what happens beside other writers.

`schedule_clustering` puts a plan on the timeline: a requested replacecommit that names the file groups to rewrite.
From then on, writes to these file groups are refused until the plan is run or cancelled. `cluster` schedules a plan and
runs it at once; if another commit changes the file groups meanwhile, that commit wins and the plan is rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import lakeformat
from lakeformat.codec.timeline_files.service_plans import encode_clustering
from lakeformat.errors import (
    CorruptTableError,
    InvalidInputError,
    InvalidOptionError,
    UnsupportedTableError,
    WriteConflictError,
)
from lakeformat.file_system_view.context import TableContext
from lakeformat.model.instant import State
from lakeformat.model.service_plans import ClusteringPlan
from lakeformat.services.cluster.local_rewriter import Group, rewrite_in_process
from lakeformat.services.cluster.run import ClusterSession, make_cluster_request
from lakeformat.services.cluster.settings import RewriteSettings
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.written_file import WrittenFile
from lakeformat.transaction.undo.rollback import revert_run
from tests.helpers.clustered import all_rows, all_rows_by_hudi_rs, file_names, rows, scattered_table

#: Bytes: a target that leaves several files in a partition.
TINY = 4_000


def plan_of(path: Path, instant: str) -> ClusteringPlan:
    """Read the plan of an instant from the timeline."""
    store = TimelineStore(lakeformat.open(path).context.storage)
    found = next(one for one in store.load().instants if one.time == instant)
    requested = store.read_requested_replace(found)
    assert requested is not None
    assert requested.plan is not None
    return requested.plan


def plan_file(path: Path, instant: str | None) -> Path:
    """Return the file of the plan, to be changed by a test."""
    return path / ".hoodie" / f"{instant}.replacecommit.requested"


def assert_clean(table: lakeformat.Table, path: Path) -> None:
    """Check that no instant is pending, no staged file is left, and hudi-rs reads the rows that lakeformat reads."""
    assert table.snapshot().timeline.pending == ()
    stage = path / ".hoodie" / ".lakeformat" / "stage"
    assert not stage.exists() or [*stage.iterdir()] == []
    assert all_rows_by_hudi_rs(table) == all_rows(table)


# --- a plan is scheduled, run, cancelled --------------------------------------------------------------


@pytest.mark.slow
def test_scheduled_plan_blocks_writes_to_its_file_groups_until_it_is_run(tmp_path: Path) -> None:
    table = scattered_table(tmp_path / "t")
    before, old = all_rows(table), file_names(table)
    planned = table.schedule_clustering(["x", "y"], curve="z-order", partitions="eu", target_file_bytes=TINY)
    assert planned is not None

    # Scheduling changes neither rows nor files, and file groups are in one plan only.
    assert (all_rows(table), file_names(table)) == (before, old)
    assert all_rows_by_hudi_rs(table) == before
    assert table.schedule_clustering(["x"], partitions="eu") is None
    plan = plan_of(tmp_path / "t", planned)
    assert plan.params["hoodie.clustering.plan.strategy.sort.columns"] == "x,y"
    assert {one.partition_path for one in plan.file_groups} == {"eu"}

    # Updates of planned file groups are refused. Other partitions, and new file groups in the same one, are not.
    in_plan = rows(600, seed=4).slice(0, 1)
    with pytest.raises(WriteConflictError, match=f"pending clustering {planned}"):
        table.upsert(in_plan)
    table.upsert(rows(600, seed=4).slice(1, 1))
    inserted = table.insert(rows(601).slice(600))
    assert inserted.report["files"]["created"] == 1
    before = all_rows(table)

    # Any process can run the plan. Its files get the instant of the plan.
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


def test_cancelled_plan_blocks_no_write(tmp_path: Path) -> None:
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


# --- a plan that cannot be run ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"), [(b"SparkSortAndSizeExecution", b"SparkBinaryCopyExecutions"), (b".parquet", b".parquot")]
)
def test_plan_that_cannot_be_run_does_not_stop_the_next_plan(old: bytes, new: bytes, tmp_path: Path) -> None:
    """The plan names an execution strategy that is not built, or files that have been replaced."""
    path = tmp_path / "t"
    table = scattered_table(path, count=60)
    first, second = (table.schedule_clustering("x", partitions=region) for region in ("eu", "us"))
    file = plan_file(path, first)
    file.write_bytes(file.read_bytes().replace(old, new))
    assert table.run_clustering().instant_time == second
    if first in [instant.time for instant in table.snapshot().timeline.pending]:
        with pytest.raises(UnsupportedTableError, match="SparkBinaryCopy"):
            table.run_clustering()


def test_plan_that_rewrites_meta_columns_is_refused(tmp_path: Path) -> None:
    table = scattered_table(tmp_path / "t", count=60)
    planned = table.schedule_clustering("x")
    assert planned is not None
    plan = replace(plan_of(tmp_path / "t", planned), keeps_meta=False)
    plan_file(tmp_path / "t", planned).write_bytes(encode_clustering(plan))
    with pytest.raises(UnsupportedTableError, match="commit times"):
        table.run_clustering()


def test_plan_with_an_unknown_execution_strategy_is_refused_and_can_be_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = scattered_table(path, count=60)
    planned = table.schedule_clustering(["x"])
    file = plan_file(path, planned)
    file.write_bytes(file.read_bytes().replace(b"SparkSortAndSizeExecution", b"SparkBinaryCopyExecutions"))
    with pytest.raises(UnsupportedTableError, match="SparkBinaryCopy"):
        table.run_clustering()
    assert planned is not None
    table.cancel_clustering(planned)


def test_plan_that_cannot_be_run_can_be_cancelled(tmp_path: Path) -> None:
    """A plan blocks writes, so it must be possible to cancel it, whatever it contains."""
    table = scattered_table(tmp_path / "t", count=60)
    planned = table.schedule_clustering(["x"])
    assert planned is not None
    buckets = lakeformat.open(tmp_path / "t", **{"hoodie.index.type": "BUCKET"})
    for verb in (buckets.cluster, buckets.schedule_clustering, buckets.run_clustering):
        with pytest.raises(InvalidOptionError, match="BUCKET"):
            verb()
    buckets.cancel_clustering(planned)

    planned = table.schedule_clustering(["x"])
    assert planned is not None
    plan = plan_of(tmp_path / "t", planned)
    nameless = replace(plan.groups[0].slices[0], file_id=cast(str, None))
    broken = replace(plan, groups=(replace(plan.groups[0], slices=(nameless,)),))
    plan_file(tmp_path / "t", planned).write_bytes(encode_clustering(broken))
    with pytest.raises(CorruptTableError, match="cancel it"):
        table.run_clustering()
    table.cancel_clustering(planned)
    table.upsert(rows(60, seed=4))
    assert table.snapshot().timeline.pending == ()


# --- other writers during a clustering ----------------------------------------------------------------


class Disturbed:
    """A rewriter of file groups after whose work something happens, before the clustering commits."""

    def __init__(self, table: lakeformat.Table, act: Callable[[str], object]) -> None:
        self.table, self.act = table, act

    def __call__(
        self, context: TableContext, groups: Sequence[Group], settings: RewriteSettings
    ) -> Sequence[WrittenFile]:
        written = rewrite_in_process(context, groups, settings)
        self.act(settings.instant_time)
        return written


def session(table: lakeformat.Table, act: Callable[[str], object]) -> ClusterSession:
    """Return a clustering during which ``act`` is called with the instant of the plan."""
    return ClusterSession(table.context, table.options, Disturbed(table, act))


def unaware(path: Path, write: Callable[[], Any]) -> Callable[[str], None]:
    """Return an action that writes as a program that does not know the plan: the files of the plan are hidden."""

    def act(instant: str) -> None:
        hidden = [*path.glob(f".hoodie/{instant}.*")]
        for file in hidden:
            file.rename(file.with_name(f"hidden-{file.name}"))
        write()
        for file in hidden:
            file.with_name(f"hidden-{file.name}").rename(file)

    return act


def test_commit_to_the_same_file_groups_wins_over_a_running_clustering(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = scattered_table(path)
    act = unaware(path, lambda: table.upsert(rows(600, seed=5).slice(0, 5)))
    with pytest.raises(WriteConflictError, match="overlaps commit"):
        session(table, act).cluster(make_cluster_request(table.options, ["x"]))
    assert_clean(table, path)
    assert table.history()[0].operation == "upsert"


def test_plan_whose_file_groups_have_changed_is_rolled_back(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = scattered_table(path)
    planned = table.schedule_clustering(["x"])
    assert planned is not None
    unaware(path, lambda: table.upsert(rows(600, seed=5).slice(0, 5)))(planned)
    with pytest.raises(WriteConflictError, match=f"clustering {planned} was planned for .* rolled back"):
        table.run_clustering()
    assert_clean(table, path)
    assert not table.cluster(["x"]).skipped


def test_running_clustering_refuses_other_writes_to_its_file_groups_only(tmp_path: Path) -> None:
    """Beside the run, the plan can be neither cancelled nor run a second time."""
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
        for verb in (other.cancel_clustering, other.run_clustering):
            with pytest.raises(WriteConflictError, match=r"running|runs"):
                verb(planned)
        assert other.run_clustering().skipped
        tried.append(True)

    session(table, meanwhile).run(planned)
    assert tried
    assert_clean(table, path)


# --- a run that fails ---------------------------------------------------------------------------------


def test_run_that_fails_leaves_the_plan_to_be_run_later(tmp_path: Path) -> None:
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

    # `cluster` made its plan itself, so it takes the plan back.
    with pytest.raises(OSError, match="no space"):
        session(table, fail).cluster(make_cluster_request(table.options, ["y"]))
    assert_clean(table, path)
    assert all_rows(table) == before


def test_run_that_was_rolled_back_by_another_process_publishes_nothing(tmp_path: Path) -> None:
    """The other process took this one for dead, because its heartbeat had stopped."""
    path = tmp_path / "t"
    table = scattered_table(path)
    before = all_rows(table)
    planned = table.schedule_clustering(["x"])

    def roll_back(_: str) -> None:
        store = TimelineStore(table.context.storage)
        revert_run(store, *store.load().pending)

    with pytest.raises(WriteConflictError, match="took it for dead"):
        session(table, roll_back).run(planned)
    assert all_rows(table) == before
