"""``kill -9`` of a process that clusters: the next one continues at once. Beside a living one, it has to wait."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import lakeformat
from lakeformat.errors import WriteConflictError
from lakeformat.model.operation import Operation
from lakeformat.storage import LocalStorage
from lakeformat.timeline.store import TimelineStore
from tests.helpers import hudi_rs
from tests.helpers.flights import Model, Write, copy_of, grow_old, leftovers, open_at, rows_of
from tests.helpers.local_shuffle import write_shuffled

#: A program that runs ``cluster`` or ``run_plan`` and then pauses forever in the middle of the rewrite.
CLUSTERS_AND_WAITS = """
import signal, sys
import lakeformat
from lakeformat.services.cluster.local_rewriter import rewrite_in_process
from lakeformat.services.cluster.run import ClusterSession, make_cluster_request

def stays(context, groups, settings):
    rewrite_in_process(context, groups, settings)
    print(settings.instant_time, flush=True)
    signal.pause()

table = lakeformat.open(sys.argv[1])
session = ClusterSession(table.context, table.options, stays)
session.run(sys.argv[2]) if len(sys.argv) > 2 else session.cluster(make_cluster_request(table.options, "v"))
"""

WRITES = (
    Write("upsert", (1, 3, 4, 21, 24), "upserted"),
    Write("delete", (0, 1, 3), "deleted"),
    Write("overwrite", (1, 50, 51), "overwritten"),
    Write("insert_overwrite", (1, 3, 54, 55), "overwritten"),
    Write("update", (0, 1, 3, 77), "updated"),
    Write("delete where", (0, 1, 3, 77), "deleted"),
    Write("merge", (1, 3, 4, 21, 24, 77), "merged"),
    Write("delete partitions", (0, 1), "deleted"),
)


@contextmanager
def clustering(storage: LocalStorage, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a process in the middle of a clustering, and its instant."""
    command = [sys.executable, "-c", CLUSTERS_AND_WAITS, storage.root, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def kill_clustering(template: Path, folder: Path, *arguments: str) -> tuple[Path, str]:
    storage = copy_of(template, folder)
    with clustering(storage, *arguments) as (_, instant_time):
        pass
    assert list(Path(storage.root, ".hoodie", ".lakeformat", "stage").rglob("*.parquet"))
    assert TimelineStore(storage).load().pending[0].time == instant_time
    return Path(storage.root), instant_time


@pytest.fixture(scope="module")
def dead(template: tuple[Path, Model], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a table whose clustering was killed, and the instant of the clustering."""
    return kill_clustering(template[0], tmp_path_factory.mktemp("dead"))


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.operation)
def test_write_after_a_killed_clustering_succeeds_at_once(
    write: Write, dead: tuple[Path, str], template: tuple[Path, Model], tmp_path: Path
) -> None:
    storage = copy_of(dead[0], tmp_path)
    write.run(open_at(storage, "next"))
    assert rows_of(storage) == write.applied(template[1])
    assert leftovers(storage) == []
    hudi_rs.assert_same_rows(lakeformat.Table(storage))


def test_shuffled_write_after_a_killed_clustering_succeeds_at_once(
    dead: tuple[Path, str], template: tuple[Path, Model], tmp_path: Path
) -> None:
    """The write reads the table before it gets the lock, and then clears the remains of the dead clustering."""
    storage = copy_of(dead[0], tmp_path)
    write_shuffled(open_at(storage, "next"), [WRITES[0].rows], Operation.UPSERT)
    assert rows_of(storage) == WRITES[0].applied(template[1])
    assert leftovers(storage) == []


def cancel(table: lakeformat.Table, instant_time: str) -> None:
    table.cancel_clustering(instant_time)
    assert table.snapshot().timeline.pending == ()


def run(table: lakeformat.Table, instant_time: str) -> None:
    assert table.run_clustering(instant_time).instant_time == instant_time


def cluster_again(table: lakeformat.Table, instant_time: str) -> None:
    assert table.cluster("v").instant_time > instant_time


@pytest.mark.parametrize("act", [cancel, run, cluster_again])
def test_killed_clustering_can_be_cancelled_run_or_replaced_at_once(
    act: Callable[[lakeformat.Table, str], None], dead: tuple[Path, str], template: tuple[Path, Model], tmp_path: Path
) -> None:
    storage = copy_of(dead[0], tmp_path)
    act(open_at(storage, "next"), dead[1])
    assert rows_of(storage) == template[1]
    assert leftovers(storage) == []
    WRITES[0].run(open_at(storage, "after"))
    assert rows_of(storage) == WRITES[0].applied(template[1])


def test_scheduled_plan_survives_its_killed_run(template: tuple[Path, Model], tmp_path: Path) -> None:
    """The refused writer can at once do what its error says."""
    storage = copy_of(template[0], tmp_path)
    planned = open_at(storage, "planner").schedule_clustering("v")
    assert planned is not None
    root, _ = kill_clustering(Path(storage.root), tmp_path, planned)
    storage = LocalStorage(str(root))
    with pytest.raises(WriteConflictError, match=f"clustering {planned} .*; run or cancel that clustering first$"):
        WRITES[0].run(open_at(storage, "next"))
    run(open_at(storage, "again"), planned)
    WRITES[0].run(open_at(storage, "after"))
    assert rows_of(storage) == WRITES[0].applied(template[1])
    assert leftovers(storage) == []


@pytest.mark.slow
def test_living_clustering_is_left_alone(template: tuple[Path, Model], tmp_path: Path) -> None:
    """A process that holds the claim is alive, even if its heartbeats look old."""
    storage = copy_of(template[0], tmp_path)
    message = r"running: wait for it, then run the write again$"
    with clustering(storage) as (process, instant_time):
        grow_old(Path(storage.root))
        for write in WRITES:
            with pytest.raises(WriteConflictError, match=message):
                write.run(open_at(storage, write.operation))
        for verb in (lakeformat.Table.cancel_clustering, lakeformat.Table.run_clustering):
            with pytest.raises(WriteConflictError, match=r"runs in another process; wait for it$"):
                verb(open_at(storage, "other"), instant_time)
        assert process.poll() is None
        assert [instant.time for instant in TimelineStore(storage).load().pending] == [instant_time]
        assert rows_of(storage) == template[1]
    WRITES[0].run(open_at(storage, "next"))
    assert rows_of(storage) == WRITES[0].applied(template[1])
    assert leftovers(storage) == []
