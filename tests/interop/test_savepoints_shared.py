"""Savepoints, restores and rollbacks, shared with Apache Hudi both ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.interop

SCHEMA: Final = a_schema(id="string", ts="int64", part="string", x="int64")
Rows = Mapping[str, int]


@dataclass(frozen=True)
class Kind:
    """A kind of table, and its options for both writers."""

    version: int
    is_mor: bool

    @property
    def ours(self) -> dict[str, str]:
        kind = "MERGE_ON_READ" if self.is_mor else "COPY_ON_WRITE"
        return {"hoodie.table.type": kind, "hoodie.write.table.version": str(self.version)}

    def theirs(self, hudi: Hudi) -> dict[str, str]:
        # The rollback of 0.15 fails beside a metadata table.
        plain = {"hoodie.metadata.enable": "false", "hoodie.compact.inline": "false"}
        kind = {"hoodie.datasource.write.table.type": self.ours["hoodie.table.type"]}
        if hudi.version == "0.15.0":
            return {**plain, **kind}
        return {**plain, **kind, "hoodie.write.table.version": str(self.version), "hoodie.write.auto.upgrade": "false"}


#: Every run tests the two kinds that differ most, nights test all.
KINDS: Final = [
    pytest.param(Kind(6, is_mor=False), id="v6-cow"),
    pytest.param(Kind(6, is_mor=True), id="v6-mor", marks=pytest.mark.nightly),
    pytest.param(Kind(8, is_mor=True), id="v8-mor", marks=pytest.mark.nightly),
    pytest.param(Kind(9, is_mor=False), id="v9-cow", marks=pytest.mark.nightly),
    pytest.param(Kind(9, is_mor=True), id="v9-mor"),
]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, hudi: Hudi) -> Kind:
    found: Kind = request.param
    return found


def rows(numbers: range, x: int) -> pa.Table:
    columns = [[f"k{n}" for n in numbers], [x] * len(numbers), [f"p{n % 2}" for n in numbers], [x] * len(numbers)]
    return pa.table(columns, schema=SCHEMA)


def state(found: pa.Table) -> Rows:
    keys, values = found.column("id").to_pylist(), found.column("x").to_pylist()
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, values, strict=True))


def make_table(path: Path, kind: Kind) -> lakeformat.Table:
    """Create a table with three writes of three ranges of keys."""
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="part", ordering="ts", **kind.ours)
    for number in range(3):
        table.upsert(rows(range(2 * number, 2 * number + 6), number))
    return table


def register_table(kind: Kind, hudi: Hudi, path: Path, name: str) -> str:
    hudi.run(f"create table {name} using hudi location '{path}'", settings=kind.theirs(hudi))
    return name


def assert_all_read(kind: Kind, hudi: Hudi, path: Path, expected: Rows) -> None:
    assert state(hudi.read(path, options=kind.theirs(hudi))) == state(lakeformat.open(path).to_arrow()) == expected


def test_hudi_restores_to_our_savepoint(kind: Kind, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make_table(path, kind)
    expected, instant = state(table.to_arrow()), table.history()[0].instant_time
    table.savepoint(comment="ours", user="me")
    for number in (7, 8):
        table.upsert(rows(range(number, number + 3), number))
    name = register_table(kind, hudi, path, f"ours_saved_{path.parent.name}")
    assert instant in str(hudi.sql(f"call show_savepoints(table => '{name}')").to_pylist())
    hudi.run(f"call rollback_to_savepoint(table => '{name}', instant_time => '{instant}')", settings=kind.theirs(hudi))
    assert_all_read(kind, hudi, path, expected)
    table.upsert(rows(range(2), 9))
    assert_all_read(kind, hudi, path, {**expected, "k0": 9, "k1": 9})
    hudi.run(f"call delete_savepoint(table => '{name}', instant_time => '{instant}')", settings=kind.theirs(hudi))
    assert table.savepoints() == ()


def test_hudi_writes_after_our_restore_and_rollback(kind: Kind, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make_table(path, kind)
    expected, instant = state(table.to_arrow()), table.history()[0].instant_time
    hudi.write(path, rows(range(4, 9), 5), "upsert", **kind.theirs(hudi))
    _ = table.compact() if kind.is_mor else table.cluster(by="x")
    table.overwrite(rows(range(3), 6))
    table.restore(instant)
    assert_all_read(kind, hudi, path, expected)
    hudi.write(path, rows(range(4, 9), 7), "upsert", **kind.theirs(hudi))
    assert_all_read(kind, hudi, path, {**expected, **{f"k{n}": 7 for n in range(4, 9)}})
    table.rollback()
    assert_all_read(kind, hudi, path, expected)
    hudi.write(path, rows(range(4, 9), 8), "upsert", **kind.theirs(hudi))
    assert_all_read(kind, hudi, path, {**expected, **{f"k{n}": 8 for n in range(4, 9)}})
    assert not table.check()


def test_we_restore_to_hudis_savepoint(kind: Kind, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = make_table(path, kind)
    hudi.write(path, rows(range(4, 9), 5), "upsert", **kind.theirs(hudi))
    expected, instant = state(table.to_arrow()), table.history()[0].instant_time
    name = register_table(kind, hudi, path, f"theirs_saved_{path.parent.name}")
    hudi.run(
        f"call create_savepoint(table => '{name}', commit_time => '{instant}', user => 'u', comments => 'c')",
        settings=kind.theirs(hudi),
    )
    (saved,) = table.savepoints()
    assert (saved.instant_time, saved.user, saved.comment) == (instant, "u", "c")
    for number in range(3):
        hudi.write(path, rows(range(number, number + 5), 6 + number), "upsert", **kind.theirs(hudi))
    assert len(table.restore(instant).undone) == 3
    assert_all_read(kind, hudi, path, expected)
    hudi.write(path, rows(range(20, 22), 9), "upsert", **kind.theirs(hudi))
    assert_all_read(kind, hudi, path, {**expected, "k20": 9, "k21": 9})
