"""Tables under a global index, written in turn by us and by Apache Hudi: keys move, and no key is doubled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakeformat
from tests.helpers import hudi_rs
from tests.helpers.hudi_spark import Hudi, the_rest_by_night
from tests.helpers.table_cases import FIRST, PLAIN, REGIONS, plain_row

pytestmark = pytest.mark.interop

#: Key -> its folder, and its edition.
Held = dict[str, tuple[str, int]]


def move_rows(numbers: range, edition: int, by: int) -> pa.Table:
    """Return rows whose region is not that of their number."""
    rows = (plain_row(number, edition) for number in numbers)
    return pa.Table.from_pylist(
        [{**row, "region": REGIONS[(REGIONS.index(row["region"]) + by) % len(REGIONS)]} for row in rows], PLAIN
    )


def apply_upsert(held: Held, batch: pa.Table, *, moves: bool) -> Held:
    """Return the rows after an upsert. Every edition is newer than the stored one."""
    return held | {
        row["id"]: (row["region"] if moves or row["id"] not in held else held[row["id"]][0], row["ts"])
        for row in batch.to_pylist()
    }


def by_key(table: pa.Table) -> Held:
    found = {row["id"]: (row["_hoodie_partition_path"], row["ts"]) for row in table.to_pylist()}
    assert len(found) == table.num_rows, "a key is doubled"
    return found


def options(kind: str, *, moves: bool) -> dict[str, Any]:
    switch = kind.removeprefix("GLOBAL_").lower()
    return {"hoodie.index.type": kind, f"hoodie.{switch}.index.update.partition.path": str(moves).lower()}


def assert_filters_go_by_what_is_stored(table: lakeformat.Table) -> None:
    """Check that filters use the stored region, even if the row is in the folder of another region."""
    whole = table.to_arrow(["id", "region"])
    listing = lakeformat.open(table.context.storage.location, **{"lakeformat.file.index": False})
    for region in REGIONS:
        wanted = sorted(whole.filter(pc.equal(whole["region"], region))["id"].to_pylist())
        for reader in (table, listing):
            found = reader.to_arrow(["id"], where=f"region = '{region}'", verify=True)
            assert sorted(found["id"].to_pylist()) == wanted
            assert found.equals(reader.to_arrow(["id"], where=f"region = '{region}'"))


@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("kind", the_rest_by_night(["GLOBAL_SIMPLE", "GLOBAL_BLOOM"], {"GLOBAL_BLOOM"}))
def test_keys_move_between_partitions_and_writers(kind: str, moves: bool, hudi: Hudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    ours = lakeformat.create(
        path, PLAIN, record_key="id", partition_by="region", ordering="ts", **options(kind, moves=moves)
    )
    theirs = {**options("GLOBAL_SIMPLE", moves=moves), "hoodie.metadata.enable": "false"}
    held: Held = {}
    for edition, (numbers, by) in enumerate(
        ((FIRST, 0), (range(0, 90, 2), 1), (range(0, 120, 3), 2), (range(150, 200), 1), (range(0, 200, 5), 3)), start=1
    ):
        batch = move_rows(numbers, edition, by)
        if edition % 2:
            ours.upsert(batch)
        else:
            hudi.write(path, batch, "upsert", **theirs)
        held = apply_upsert(held, batch, moves=moves)
        assert by_key(ours.to_arrow(meta_columns=True)) == held, f"edition {edition}"
        assert by_key(hudi.read(path)) == held, f"edition {edition}"
        hudi_rs.assert_same_rows(ours)
        assert_filters_go_by_what_is_stored(ours)

    gone = move_rows(range(0, 60, 4), 9, 0)
    ours.delete(gone.select(["id"]))
    held = {key: place for key, place in held.items() if key not in set(gone["id"].to_pylist())}
    hudi.delete(path, move_rows(range(61, 120, 4), 9, 0), **theirs)
    held = {key: place for key, place in held.items() if key not in {f"key-{n:04}" for n in range(61, 120, 4)}}
    assert by_key(ours.to_arrow(meta_columns=True)) == held
    assert by_key(hudi.read(path)) == held
