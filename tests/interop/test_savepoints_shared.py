"""Savepoints, restores and rollbacks, shared with Apache Hudi both ways."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi

pytestmark = pytest.mark.interop

SCHEMA: Final = pa.schema({"id": pa.string(), "ts": pa.int64(), "part": pa.string(), "x": pa.int64()})
#: 0.15's rollback fails beside a metadata table.
PLAIN: Final = {"hoodie.metadata.enable": "false"}
Rows = Mapping[str, int]


def rows(numbers: range, x: int) -> pa.Table:
    columns = [[f"k{n}" for n in numbers], [x] * len(numbers), [f"p{n % 2}" for n in numbers], [x] * len(numbers)]
    return pa.table(columns, schema=SCHEMA)


def state(found: pa.Table) -> Rows:
    keys, values = found.column("id").to_pylist(), found.column("x").to_pylist()
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, values, strict=True))


def made(path: Path, **options: str) -> lakeformat.Table:
    """Three writes of ours, of three ranges of keys."""
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="part", ordering="ts", **options)
    for number in range(3):
        table.upsert(rows(range(2 * number, 2 * number + 6), number))
    return table


def known_as(hudi: Hudi, path: Path, name: str) -> str:
    hudi.run(f"create table {name} using hudi location '{path}'", settings=PLAIN)
    return name


def assert_all_read(hudi: Hudi, path: Path, expected: Rows) -> None:
    assert state(hudi.read(path, options=PLAIN)) == state(lakeformat.open(path).to_arrow()) == expected


def test_hudi_sees_our_savepoint_and_goes_back_to_it(hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(path)
    expected, instant = state(table.to_arrow()), table.history()[0].instant_time
    table.savepoint(comment="ours", user="me")
    for number in (7, 8):
        table.upsert(rows(range(number, number + 3), number))
    name = known_as(hudi, path, "ours_saved")
    assert instant in str(hudi.sql(f"call show_savepoints(table => '{name}')").to_pylist())
    hudi.run(f"call rollback_to_savepoint(table => '{name}', instant_time => '{instant}')", settings=PLAIN)
    assert_all_read(hudi, path, expected)
    table.upsert(rows(range(2), 9))
    assert_all_read(hudi, path, {**expected, "k0": 9, "k1": 9})
    hudi.run(f"call delete_savepoint(table => '{name}', instant_time => '{instant}')", settings=PLAIN)
    assert table.savepoints() == ()


def test_hudi_goes_on_after_our_restore_and_rollback(hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(path)
    expected, instant = state(table.to_arrow()), table.history()[0].instant_time
    hudi.write(path, rows(range(4, 9), 5), "upsert", **PLAIN)
    table.cluster(by="x")
    table.overwrite(rows(range(3), 6))
    table.restore(instant)
    assert_all_read(hudi, path, expected)
    hudi.write(path, rows(range(4, 9), 7), "upsert", **PLAIN)
    assert_all_read(hudi, path, {**expected, **{f"k{n}": 7 for n in range(4, 9)}})
    table.rollback()
    assert_all_read(hudi, path, expected)
    hudi.write(path, rows(range(4, 9), 8), "upsert", **PLAIN)
    assert_all_read(hudi, path, {**expected, **{f"k{n}": 8 for n in range(4, 9)}})
    assert not table.check()


def test_we_go_back_to_hudis_savepoint(hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = made(path)
    hudi.write(path, rows(range(4, 9), 5), "upsert", **PLAIN)
    expected, instant = state(table.to_arrow()), table.history()[0].instant_time
    name = known_as(hudi, path, "theirs_saved")
    hudi.run(f"call create_savepoint(table => '{name}', commit_time => '{instant}', user => 'u', comments => 'c')")
    (saved,) = table.savepoints()
    assert (saved.instant_time, saved.user, saved.comment) == (instant, "u", "c")
    for number in range(3):
        hudi.write(path, rows(range(number, number + 5), 6 + number), "upsert", **PLAIN)
    assert len(table.restore(instant).undone) == 3
    assert_all_read(hudi, path, expected)
    hudi.write(path, rows(range(20, 22), 9), "upsert", **PLAIN)
    assert_all_read(hudi, path, {**expected, "k20": 9, "k21": 9})
