"""Iceberg's metadata beside a table through its life: what pyiceberg reads equals the table, after each step."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestEntryStatus

import lakeformat
from lakeformat import Table
from lakeformat.concurrency import run_all
from lakeformat.storage import LocalStorage
from tests.helpers.beside_tables import ENCODED, HIVE_STYLE, PARTS, draw_step, new_followed_table, some_rows
from tests.helpers.delta_reader import assert_delta_shows
from tests.helpers.faulty import MODES, Call, Crash, Fault, FaultyStorage, Mode
from tests.helpers.iceberg_reader import assert_iceberg_shows, assert_snapshots_show, open_iceberg


def new_table(folder: Path, version: int = 6, **options: Any) -> Table:
    return new_followed_table(folder, "iceberg", version, **options)


@pytest.mark.parametrize(
    ("seed", "version", "options", "steps"),
    [
        (1, 9, {}, 4),
        (2, 6, {**HIVE_STYLE, "lakeformat.beside": "delta,iceberg"}, 3),
        pytest.param(3, 6, {"partition_by": ()}, 30, marks=pytest.mark.slow),
        pytest.param(4, 9, ENCODED, 30, marks=pytest.mark.slow),
        pytest.param(5, 6, HIVE_STYLE, 30, marks=pytest.mark.slow),
        pytest.param(6, 9, {"partition_by": ()}, 30, marks=pytest.mark.slow),
    ],
)
def test_after_each_step_of_a_life_iceberg_shows_the_rows(
    tmp_path: Path, seed: int, version: int, options: dict[str, Any], steps: int
) -> None:
    table, dice = new_table(tmp_path, version, **options), random.Random(seed)
    table.insert(some_rows(list(range(20)), 0))
    for time in range(1, steps + 1):
        draw_step(table, dice, time)()
        assert_iceberg_shows(table, with_polars=time % 4 == 0)
    table.insert(some_rows([1000], 1000))  # A clean changes no rows, so it does not sync.
    assert assert_snapshots_show(table) > 0
    if "delta" in options.get("lakeformat.beside", ""):
        assert_delta_shows(table)
    assert not table.check()


def test_a_snapshot_is_named_by_its_instant_and_older_ones_stay_readable(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    instants = [table.upsert(some_rows([1, 2], time)).instant_time for time in range(3)]
    table.alter().add("w", "int32").execute()
    snapshots = open_iceberg(table.location).snapshots()
    assert [each.summary and each.summary["lakeformat.instant"] for each in snapshots][:3] == instants
    assert assert_snapshots_show(table) == 4


def test_snapshots_go_when_their_files_do(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"hoodie.clean.automatic": False})
    for time in range(6):
        table.upsert(some_rows([1], time))
    table.clean(commits=2)
    table.upsert(some_rows([2], 6))
    assert assert_snapshots_show(table) == 3
    table.restore(table.history()[1].instant_time)
    shown = [each.summary and each.summary["lakeformat.instant"] for each in open_iceberg(table.location).snapshots()]
    assert shown[-1] == shown[-2] == table.history()[0].instant_time  # The one of the undone instant is gone.
    assert assert_snapshots_show(table) == 3


def test_partitions_are_values_that_the_files_have(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.insert(some_rows(list(range(8)), 0))
    iceberg = open_iceberg(table.location)
    assert {entry["partition"]["part"] for entry in iceberg.inspect.files().to_pylist()} == set(PARTS)
    assert len(list(iceberg.scan(row_filter="part = 'plain'").plan_files())) == 1


def test_a_commit_writes_only_the_manifests_of_files_that_change(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"hoodie.parquet.small.file.limit": 0})
    for key in range(4):
        table.insert(some_rows([key], 0))
    table.upsert(some_rows([2], 1))
    iceberg = open_iceberg(table.location)
    newest = iceberg.current_snapshot()
    assert newest is not None
    manifests = newest.manifests(iceberg.io)
    assert [each.added_snapshot_id == newest.snapshot_id for each in manifests] == [True, True, False, False, False]
    entries = [entry.status for each in manifests[:2] for entry in each.fetch_manifest_entry(iceberg.io, False)]
    assert entries == [ManifestEntryStatus.ADDED, ManifestEntryStatus.DELETED]


def test_many_small_manifests_become_one(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"hoodie.parquet.small.file.limit": 0, "partition_by": ()})
    for key in range(22):
        table.insert(some_rows([key], 0))
    iceberg = open_iceberg(table.location)
    newest = iceberg.current_snapshot()
    assert newest is not None
    assert len(newest.manifests(iceberg.io)) < 5
    assert_iceberg_shows(table)


def _puts_version(_: int, call: Call) -> bool:
    return call.changes and call.path.endswith(".metadata.json")


def _puts_hint(_: int, call: Call) -> bool:
    return call.changes and call.path.endswith("version-hint.text")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", [_puts_version, _puts_hint])
def test_a_writer_that_dies_at_the_sync_is_made_up_by_the_next_one(tmp_path: Path, mode: Mode, where: Any) -> None:
    table = new_table(tmp_path)
    table.insert(some_rows([1, 2, 3], 0))
    storage = table.context.storage
    assert isinstance(storage, LocalStorage)
    with pytest.raises(Crash):
        Table(FaultyStorage(storage, Fault(where, mode)), table.options).upsert(some_rows([2], 1))
    assert table.count(where="ts = 1") == 1
    table.sync("iceberg")
    assert_iceberg_shows(table)


def test_two_writers_lose_no_version(tmp_path: Path) -> None:
    new_table(tmp_path).insert(some_rows([0], 0))

    def write(keys: range) -> None:
        table = lakeformat.open(tmp_path / "t", **{"lakeformat.beside": "iceberg"})
        for key in keys:
            table.insert(some_rows([key], key))

    run_all(write, [range(1, 5), range(11, 15)], threads=2)
    table = lakeformat.open(tmp_path / "t")
    table.sync("iceberg")
    assert_iceberg_shows(table)
    assert table.count() == 9


def test_a_sync_without_a_change_adds_no_snapshot(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.insert(some_rows([1], 0))
    assert "nothing has changed" in str(table.sync("iceberg"))
    assert len(open_iceberg(table.location).snapshots()) == 1
