"""Writers continue beside a compaction: their appends are in the new slices or refused, and never lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import lakeformat
from lakeformat.errors import WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.model.instant import Action, Instant, State
from lakeformat.services.compact.rewrite import CompactSettings, SliceToCompact, compact_in_process
from lakeformat.services.compact.run import CompactSession
from lakeformat.transaction.order.written_file import WrittenFile
from tests.helpers import hudi_rs
from tests.helpers.appending import Append, slices
from tests.helpers.fixture_tables import unpack
from tests.services.test_compaction_histories import make_table, rows

SIX, NINE = "hudi_mor_v6/mor6_partitioned_deletes", "hudi_v8_v9/v9_mor_compacted_partitioned"
EACH = pytest.mark.parametrize("name", [SIX, NINE])


def open_fixture(name: str, tmp_path: Path) -> lakeformat.Table:
    return lakeformat.open(unpack(name, tmp_path))


def session(table: lakeformat.Table, meanwhile: Callable[[], object]) -> CompactSession:
    """Return a compaction that calls a function after it wrote its files and before its commit."""

    def compactor(
        context: TableContext, slices: Sequence[SliceToCompact], settings: CompactSettings
    ) -> list[WrittenFile]:
        written = compact_in_process(context, slices, settings)
        meanwhile()
        return written

    return CompactSession(table.context, table.options, compactor)


def count(table: lakeformat.Table) -> int:
    return int(table.to_arrow().num_rows)


@EACH
def test_log_files_written_after_the_plan_stay_in_the_new_slice(name: str, tmp_path: Path) -> None:
    table = open_fixture(name, tmp_path)
    rows = count(table)
    table.schedule_compaction()
    before = Append(table, "before the run").run()
    assert before.seen()
    during = Append(table, "during the run")
    session(table, during.run).run()
    assert during.seen()
    assert count(table) == rows
    assert sorted(len(piece.logs) for piece in slices(table))[-2:] == [0, 2]
    table.compact()
    assert during.seen()
    assert not table.snapshot().live.has_logs
    hudi_rs.assert_same_rows(lakeformat.open(table.context.storage.location))


@pytest.mark.parametrize("began_before", [True, False])
def test_version_6_write_unaware_of_the_plan_is_kept(began_before: bool, tmp_path: Path) -> None:
    """The log file of a version 6 write belongs to the old slice, which the plan of another program closes."""
    table = open_fixture(SIX, tmp_path)
    last = table.context.store.load().last_time
    time = table.schedule_compaction()
    assert time is not None
    early = Append(table, "early", time=str(int(str(last if began_before else time)) + 1))
    with pytest.raises(WriteConflictError, match=f"compaction {time} has not merged .*which commit {early.time}"):
        session(table, early.finish).run()
    assert early.seen()
    assert table.run_compaction().instant_time == time  # A log file that the plan does not name is merged, too.
    assert early.seen()
    assert not table.snapshot().live.has_logs


def test_layout_2_write_during_the_run_belongs_to_the_new_slice(tmp_path: Path) -> None:
    table = open_fixture(NINE, tmp_path)
    early = Append(table, "early").begin()
    time = table.schedule_compaction()
    session(table, early.finish).run()
    assert early.seen()
    assert sorted(len(piece.logs) for piece in slices(table)) == [0, 1]
    assert early.time < str(time)


def test_compaction_is_not_planned_or_cancelled_beside_a_version_6_write(tmp_path: Path) -> None:
    table = open_fixture(SIX, tmp_path)
    time = table.schedule_compaction()
    assert time is not None
    pending = Append(table).begin()
    with pytest.raises(WriteConflictError, match=f"{pending.time}.deltacommit.inflight is pending"):
        table.cancel_compaction(time)
    pending.finish()
    assert table.run_compaction().instant_time == time
    pending = Append(table).begin()
    for act in (table.schedule_compaction, table.compact):
        with pytest.raises(WriteConflictError, match=f"{pending.time}.deltacommit.inflight is pending"):
            act()


def test_archiving_during_a_compaction_keeps_its_files(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", 6)
    for step in range(6):
        table.upsert(rows([1], step))
    table.clean(commits=1)
    first = table.snapshot().timeline.commits[0].time
    session(table, lambda: table.archive(min_commits=2)).run(plans=True)
    assert first not in table.snapshot().timeline.commit_times
    assert count(table) == 1


@EACH
def test_compaction_plan_is_run_by_one_process_at_a_time(name: str, tmp_path: Path) -> None:
    table = open_fixture(name, tmp_path)
    rows = count(table)
    time = table.schedule_compaction()
    other = lakeformat.open(table.context.storage.location)

    def meanwhile() -> None:
        with pytest.raises(WriteConflictError, match=f"compaction {time} runs in another process; wait for it"):
            other.run_compaction(time)
        with pytest.raises(WriteConflictError, match=f"compaction {time} runs in another process"):
            other.cancel_compaction(str(time))
        assert other.run_compaction().skipped == "no compaction is pending"
        assert other.schedule_compaction() is None

    session(table, meanwhile).run(time)
    assert count(table) == rows


@EACH
def test_failed_run_leaves_the_plan_pending(name: str, tmp_path: Path) -> None:
    table = open_fixture(name, tmp_path)
    rows = count(table)
    time = table.schedule_compaction()

    def fails() -> None:
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError):
        session(table, fails).run()
    assert count(table) == rows
    hoodie = Path(table.context.storage.location, ".hoodie")
    assert not list(hoodie.rglob("*.compaction.inflight"))[1 if name == NINE else 0 :]
    assert not list((hoodie / ".lakeformat").rglob("*.parquet"))
    assert table.run_compaction().instant_time == time
    assert count(table) == rows


@EACH
def test_dead_run_of_another_program_is_restarted_if_named(name: str, tmp_path: Path) -> None:
    """The half-written base file of the dead run is deleted. A run that may be alive is left alone."""
    table = open_fixture(name, tmp_path)
    rows = count(table)
    time = table.schedule_compaction()
    assert time is not None
    store = table.context.store
    inflight = Path(table.context.storage.location, store.layout.path(Instant(time, Action.COMPACTION, State.INFLIGHT)))
    inflight.touch()
    piece = next(one for one in slices(table) if one.logs)
    half = Path(
        table.context.storage.location, piece.group.partition_path, f"{piece.group.file_id}_7-8-9_{time}.parquet"
    )
    half.write_bytes(b"half")
    assert table.run_compaction().skipped
    with pytest.raises(WriteConflictError, match="if that program has died, run it by name 10 minutes after it began"):
        table.run_compaction(time)
    assert half.exists()
    os.utime(inflight, (1, 1))
    assert table.run_compaction().skipped
    assert table.run_compaction(time).instant_time == time
    assert count(table) == rows
    assert not half.exists()
    hudi_rs.assert_same_rows(lakeformat.open(table.context.storage.location))
