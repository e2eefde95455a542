"""Processes that write one table at once, are killed and stopped, on each kind of storage.

An acknowledged write is visible, a refused write never is, a write without an answer is one of both. Nothing is lost,
doubled or left over, and a reader sees whole commits and never goes back.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import lakeformat
from tests.helpers import hudi_rs
from tests.helpers.fault_proxy import FaultPlan, fault_proxy
from tests.helpers.many_writers import Disturbances, Fleet, FleetResult, create_table, run_fleet
from tests.helpers.servers import start_server
from tests.helpers.tables import a_schema
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


@pytest.mark.budget(60)
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


#: A process that upserts rows one by one, and prints the key of each acknowledged row.
_ONE_BY_ONE = """
import json, sys, lakeformat
url, options, keys = json.loads(sys.argv[1])
table = lakeformat.open(url, storage_options=options)
for key in keys:
    table.upsert([{"id": key, "v": f"v{key}"}])
    print(key, flush=True)
"""


@pytest.mark.nightly
def test_four_processes_that_upsert_one_file_row_by_row_are_all_acknowledged() -> None:
    writers, writes = 4, 8
    with start_server("moto") as server:
        url = server.new_url()
        lakeformat.create(url, a_schema(id="int64", v="string"), record_key="id", storage_options=server.options)
        keys = [list(range(number * writes, (number + 1) * writes)) for number in range(writers)]
        texts = [json.dumps([url, server.options, each]) for each in keys]
        commands = [[sys.executable, "-c", _ONE_BY_ONE, text] for text in texts]
        running = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for command in commands
        ]
        answers = [process.communicate() for process in running]
        acknowledged = [[int(line) for line in out.split()] for out, _ in answers]
        rows = lakeformat.open(url, storage_options=server.options).to_arrow().to_pylist()
        stored = {row["id"]: row["v"] for row in rows}
        assert len(rows) == len(stored)
        assert not {key for each in acknowledged for key in each} - stored.keys()
        assert acknowledged == keys, [errors[-500:] for _, errors in answers]
        assert stored == {key: f"v{key}" for each in keys for key in each}
