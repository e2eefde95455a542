"""The Delta log beside a table through its life: what deltalake and polars read equals the table, after each step."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

import lakeformat
from lakeformat import Table
from lakeformat.beside.delta_log import read_log
from lakeformat.concurrency import run_all
from lakeformat.storage import LocalStorage
from tests.helpers.beside_tables import ENCODED, HIVE_STYLE, PARTS, draw_step, new_followed_table, some_rows
from tests.helpers.delta_reader import assert_delta_shows
from tests.helpers.faulty import MODES, Call, Crash, Fault, FaultyStorage, Mode


def new_table(folder: Path, version: int = 6, **options: Any) -> Table:
    return new_followed_table(folder, "delta", version, **options)


@pytest.mark.parametrize(
    ("seed", "version", "options", "steps"),
    [
        (1, 6, {}, 4),
        (2, 9, HIVE_STYLE, 4),
        (3, 6, {"partition_by": ()}, 4),
        pytest.param(4, 9, ENCODED, 30, marks=pytest.mark.slow),
        pytest.param(5, 6, HIVE_STYLE, 30, marks=pytest.mark.slow),
        pytest.param(6, 9, {"partition_by": ()}, 30, marks=pytest.mark.slow),
    ],
)
def test_after_each_step_of_a_life_delta_shows_the_rows(
    tmp_path: Path, seed: int, version: int, options: dict[str, Any], steps: int
) -> None:
    table, dice = new_table(tmp_path, version, **options), random.Random(seed)
    table.insert(some_rows(list(range(20)), 0))
    for time in range(1, steps + 1):
        draw_step(table, dice, time)()
        assert_delta_shows(table, with_polars=time % 4 == 0)
    assert not table.check()


def test_a_version_is_named_by_its_instant(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    instants = [table.upsert(some_rows([1, 2], time)).instant_time for time in range(3)]
    history = DeltaTable(table.location).history()
    assert [each["lakeformat.instant"] for each in reversed(history)] == instants


def test_readers_skip_the_files_that_bounds_rule_out(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.insert(some_rows(list(range(8)), 0))
    delta = DeltaTable(table.location)
    actions = pa.table(delta.get_add_actions(flatten=True))
    assert actions.num_rows == len(PARTS)
    chosen = delta.to_pyarrow_dataset().get_fragments(filter=pc.field("part") == "plain")
    assert len(list(chosen)) == 1


def test_after_many_versions_a_checkpoint_has_them(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for time in range(20):
        table.upsert(some_rows([time % 5], time))
    log = read_log(table.context.storage)
    assert (log.version, log.checkpoint) == (19, 19)
    for path in (Path(table.location) / "_delta_log").glob("*.json"):
        if int(path.stem) < log.checkpoint:
            path.unlink()
    assert_delta_shows(table, with_polars=True)
    table.cluster(by="ts")  # Hides files that only the checkpoint names: a later sync would have named them again.
    assert_delta_shows(table)


@pytest.mark.slow
def test_old_versions_go_when_their_files_do(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"hoodie.cleaner.commits.retained": 3})
    for time in range(61):
        table.upsert(some_rows([time % 5], time))
    names = sorted(path.name for path in (Path(table.location) / "_delta_log").glob("*.json"))
    assert names[0] == f"{39:020d}.json"
    assert [int(name[:20]) for name in names] == list(range(39, 61))
    assert_delta_shows(table)
    assert DeltaTable(table.location, version=60).version() == 60


def _puts_version(_: int, call: Call) -> bool:
    return call.changes and call.path.startswith("_delta_log/")


@pytest.mark.parametrize("mode", MODES)
def test_a_writer_that_dies_at_the_sync_is_made_up_by_the_next_one(tmp_path: Path, mode: Mode) -> None:
    table = new_table(tmp_path)
    table.insert(some_rows([1, 2, 3], 0))
    storage = table.context.storage
    assert isinstance(storage, LocalStorage)
    with pytest.raises(Crash):
        Table(FaultyStorage(storage, Fault(_puts_version, mode)), table.options).upsert(some_rows([2], 1))
    assert table.count(where="ts = 1") == 1
    table.upsert(some_rows([3], 2))
    assert_delta_shows(table)


def test_two_writers_lose_no_version(tmp_path: Path) -> None:
    new_table(tmp_path).insert(some_rows([0], 0))

    def write(keys: range) -> None:
        table = lakeformat.open(tmp_path / "t", **{"lakeformat.beside": "delta"})
        for key in keys:
            table.insert(some_rows([key], key))

    run_all(write, [range(1, 6), range(11, 16)], threads=2)
    table = lakeformat.open(tmp_path / "t")
    assert_delta_shows(table)
    assert table.count() == 11


def test_a_sync_without_a_change_adds_no_version(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.insert(some_rows([1], 0))
    assert "nothing has changed" in str(table.sync("delta"))
    assert DeltaTable(table.location).version() == 0
