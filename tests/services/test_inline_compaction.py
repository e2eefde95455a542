"""Compaction after writes, by Hudi's options."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakeformat
from lakeformat.errors import InvalidOptionError
from lakeformat.model.instant import Action
from lakeformat.services.after_write import check_services, run_due_services
from tests.helpers.appending import Append
from tests.helpers.fixture_tables import unpack

SIX, NINE = "hudi_mor_v6/mor6_partitioned_deletes", "hudi_v8_v9/v9_mor_compacted_partitioned"
COMMITS = "hoodie.compact.inline.max.delta.commits"


def append_and_serve(table: lakeformat.Table) -> str | None:
    """Append a deltacommit, check that it is visible, and return what the services report about compaction."""
    written = Append(table).run()
    done = run_due_services(table.context, table.options)
    assert written.seen()
    return done and done["compaction"]


def compactions(table: lakeformat.Table) -> int:
    return sum(entry.operation == "compact" for entry in table.history())


@pytest.mark.parametrize("name", [SIX, NINE])
def test_inline_compaction_runs_every_given_number_of_deltacommits(name: str, tmp_path: Path) -> None:
    table = lakeformat.open(unpack(name, tmp_path))
    table.compact()
    before = compactions(table)
    table = lakeformat.open(table.context.storage.location, **{"hoodie.compact.inline": True, COMMITS: 3})
    said = [append_and_serve(table) for _ in range(6)]
    assert [bool(one) for one in said] == [False, False, True, False, False, True]
    assert compactions(table) == before + 2
    assert not table.snapshot().live.has_logs


@pytest.mark.parametrize("name", [SIX, NINE])
def test_scheduled_plan_is_run_by_the_next_inline_compaction(name: str, tmp_path: Path) -> None:
    table = lakeformat.open(unpack(name, tmp_path))
    table.compact()
    before, location = compactions(table), table.context.storage.location
    table = lakeformat.open(location, **{"hoodie.compact.schedule.inline": True, COMMITS: 2})
    said = [append_and_serve(table) for _ in range(4)]
    (planned,) = (one.time for one in table.snapshot().timeline.pending if one.action is Action.COMPACTION)
    assert said == [None, f"scheduled {planned}", None, None]  # Beside a pending plan, no second plan is made.
    table = lakeformat.open(location, **{"hoodie.compact.inline": True, COMMITS: 100})
    assert f"compact {planned}" in str(append_and_serve(table))
    assert compactions(table) == before + 1
    assert not table.snapshot().timeline.pending


def test_failed_inline_compaction_is_logged_and_does_not_undo_the_write(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = unpack(SIX, tmp_path)
    table = lakeformat.open(folder, **{"hoodie.compact.inline": True, COMMITS: 1})
    pending = Append(table).begin()
    assert "failed: WriteConflictError" in str(append_and_serve(table))
    assert f"{pending.time}.deltacommit.inflight is pending" in caplog.text
    pending.finish()
    assert append_and_serve(table)
    assert not table.snapshot().live.has_logs


def test_both_switches_are_refused_and_copy_on_write_is_left_alone(tmp_path: Path) -> None:
    both = {"hoodie.compact.inline": True, "hoodie.compact.schedule.inline": True}
    table = lakeformat.open(unpack("hudi_v6/cow_part_hive", tmp_path), **both)
    with pytest.raises(InvalidOptionError, match="set one of them"):
        check_services(table.context.storage, table.options, table.snapshot(), table.snapshot().columns(""))
    one = lakeformat.open(table.context.storage.location, **{"hoodie.compact.inline": True})
    assert run_due_services(one.context, one.options) is None
