"""Processes that write one table at once, are killed and stopped, on each kind of storage.

An acknowledged write is visible, a refused write never is, a write without an answer is one of both. Nothing is lost,
doubled or left over, and a reader sees whole commits and never goes back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import lakeformat
from tests.helpers import hudi_rs
from tests.helpers.fault_proxy import FaultPlan, fault_proxy
from tests.helpers.many_writers import Disturbances, Fleet, FleetResult, create_table, run_fleet
from tests.helpers.servers import start_server
from tests.simulation.history import Outcome

Recorder = Callable[[str, object], None]
#: A writer counts as dead two seconds after its last heartbeat.
SHORT_LIVES = {"hoodie.client.heartbeat.interval_in_ms": 1000, "hoodie.client.heartbeat.tolerable.misses": 2}
#: Longer than two times the age at which a writer counts as dead.
STOP_SECONDS = 5.0
#: Time after which a client gives up a request. Clients of other servers wait much longer.
CLIENT_SECONDS = 3.0


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


def run_on_server(name: str, fleet: Fleet, rate: float, folder: Path, record_property: Recorder) -> FleetResult:
    """Run writers on a server, behind a proxy that spoils this share of their requests."""
    with start_server(name) as server:
        url = server.new_url()
        create_table(url, server.options)
        with fault_proxy(server.endpoint, FaultPlan(rate=rate, seed=fleet.seed)) as proxy:
            options = server.through(proxy.url).with_timeout(CLIENT_SECONDS)
            fleet = replace(fleet, url=url, storage_options=options, direct_options=server.options)
            result = run_fleet(fleet, folder, deliver=proxy.deliver)
        record(result, record_property)
        record_property("spoilt requests", proxy.faults.total())
    assert result.problems == []
    return result


@pytest.mark.nightly
def test_processes_on_s3_with_lost_answers_lose_nothing(tmp_path: Path, record_property: Recorder) -> None:
    disturbances = Disturbances(kills=2, stops=1, stop_seconds=STOP_SECONDS, jump_ms=600_000)
    fleet = Fleet("", 4, 8, options=SHORT_LIVES, disturbances=disturbances, seed=2)
    result = run_on_server("moto", fleet, 0.1, tmp_path, record_property)
    assert (result.kills, result.stops) == (2, 1)
    assert result.outcomes[Outcome.ACKNOWLEDGED] > 16, result


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", ["moto", "versitygw", "azurite"])
def test_eight_processes_with_lost_answers_lose_nothing(name: str, tmp_path: Path, record_property: Recorder) -> None:
    """Each fifth request is spoilt; writers are killed, stopped for two lives, and their clocks jump ten minutes."""
    disturbances = Disturbances(kills=16, stops=8, stop_seconds=2 * STOP_SECONDS, mean_seconds=5.0, jump_ms=600_000)
    options = {**SHORT_LIVES, "hoodie.client.heartbeat.interval_in_ms": 2000}
    fleet = Fleet("", 8, 50, options=options, disturbances=disturbances, seed=3)
    result = run_on_server(name, fleet, 0.2, tmp_path, record_property)
    assert (result.kills, result.stops) == (16, 8)
    assert result.outcomes[Outcome.ACKNOWLEDGED] > 200, result


@pytest.mark.nightly
def test_eight_processes_on_a_local_disk_lose_nothing(tmp_path: Path, record_property: Recorder) -> None:
    table, journals = tmp_path / "table", tmp_path / "journals"
    journals.mkdir()
    create_table(str(table), {})
    disturbances = Disturbances(kills=16, stops=8, stop_seconds=STOP_SECONDS, jump_ms=600_000)
    result = run_fleet(Fleet(str(table), 8, 50, options=SHORT_LIVES, disturbances=disturbances, seed=4), journals)
    record(result, record_property)
    assert result.problems == []
    assert result.outcomes[Outcome.ACKNOWLEDGED] > 200, result
    hudi_rs.assert_same_rows(lakeformat.open(str(table)))
