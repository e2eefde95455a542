"""Processes that write one table at once, are killed and stopped, on each kind of storage.

An acknowledged write is visible, a refused write never is, a write without an answer is one of both. Nothing is lost,
doubled or left over, and a reader sees whole commits and never goes back.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lakeformat
from tests.helpers import hudi_rs
from tests.helpers.many_writers import Disturbances, Fleet, FleetResult, create_table, run_fleet
from tests.simulation.history import Outcome

Recorder = Callable[[str, object], None]
#: A writer counts as dead two seconds after its last heartbeat.
SHORT_LIVES = {"hoodie.client.heartbeat.interval_in_ms": 1000, "hoodie.client.heartbeat.tolerable.misses": 2}
#: Longer than two times the age at which a writer counts as dead.
STOP_SECONDS = 5.0


def record(result: FleetResult, record_property: Recorder) -> None:
    """Report the figures of a run for the page of reliability figures."""
    for outcome in Outcome:
        record_property(f"writes {outcome.value}", result.outcomes[outcome])
    record_property("writers killed", result.kills)
    record_property("writers stopped", result.stops)
    record_property("reads beside them", result.reads)


@pytest.mark.slow
def test_killed_and_stopped_processes_on_a_local_disk_lose_nothing(tmp_path: Path, record_property: Recorder) -> None:
    table, journals = tmp_path / "table", tmp_path / "journals"
    journals.mkdir()
    create_table(str(table), {})
    disturbances = Disturbances(kills=3, stops=2, stop_seconds=STOP_SECONDS, jump_ms=600_000)
    fleet = Fleet(str(table), 4, 8, options=SHORT_LIVES, disturbances=disturbances, seed=1)
    result = run_fleet(fleet, journals)
    record(result, record_property)
    assert result.problems == []
    assert (result.kills, result.stops) == (3, 2)
    assert result.outcomes[Outcome.ACKNOWLEDGED] > 16, result
    hudi_rs.assert_same_rows(lakeformat.open(str(table)))
