"""Files with a pending clustering plan: every way of writing detects the plan before it writes, and undoes itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import lakeformat
from lakeformat.errors import WriteConflictError
from lakeformat.model.operation import Operation
from lakeformat.storage import LocalStorage
from tests.helpers.faulty import FaultyStorage
from tests.helpers.flights import Model, Write, copy_of, leftovers, open_at, rows_of
from tests.helpers.local_shuffle import write_shuffled


@dataclass(frozen=True)
class Way:
    """A write that touches planned files, and how it runs."""

    write: Write
    run: Callable[[Write, lakeformat.Table], object] = Write.run

    def __str__(self) -> str:
        return self.write.operation if self.run is Write.run else f"exchanged {self.write.operation}"


def in_tasks(operation: Operation) -> Callable[[Write, lakeformat.Table], object]:
    return lambda write, table: write_shuffled(table, [write.rows], operation)


def overwrite_staged(write: Write, table: lakeformat.Table) -> None:
    """Run the overwrite by the staged way."""
    options = table.options.with_values(**{"hoodie.combine.before.insert": True})
    write.run(lakeformat.Table(table.context.storage, options, clock=table.context.clock, ids=table.context.ids))


WAYS = (
    Way(Write("upsert", (1, 3, 4, 21, 24), "upserted")),
    Way(Write("delete", (0, 1, 3), "deleted")),
    Way(Write("overwrite", (1, 50, 51), "overwritten")),
    Way(Write("insert_overwrite", (2, 3, 54, 55), "overwritten")),
    Way(Write("insert_overwrite", (1, 3, 54, 55), "overwritten"), overwrite_staged),
    Way(Write("update", (0, 1, 3, 77), "updated")),
    Way(Write("delete where", (0, 1, 3, 77), "deleted")),
    Way(Write("merge", (1, 3, 4, 21, 24, 77), "merged")),
    Way(Write("delete partitions", (0, 1), "deleted")),
    Way(Write("upsert", (1, 3, 4, 21, 24), "upserted"), in_tasks(Operation.UPSERT)),
    Way(Write("delete", (0, 1, 3), "deleted"), in_tasks(Operation.DELETE)),
    Way(Write("overwrite", (1, 50, 51), "overwritten"), in_tasks(Operation.INSERT_OVERWRITE_TABLE)),
)


def make_planned(template: Path, folder: Path) -> tuple[LocalStorage, str]:
    """Return a copy of the table with a pending plan for the files of partition r1."""
    storage = copy_of(template, folder)
    instant_time = open_at(storage, "planner").schedule_clustering("v", partitions="r1")
    assert instant_time is not None
    return storage, instant_time


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_write_to_planned_file_groups_is_refused_before_any_file(
    way: Way, template: tuple[Path, Model], tmp_path: Path
) -> None:
    storage, plan = make_planned(template[0], tmp_path)
    recording = FaultyStorage(storage)
    with pytest.raises(WriteConflictError, match=f"pending clustering {plan} .*; run or cancel that clustering first$"):
        way.run(way.write, open_at(recording, "writer"))
    assert [call for call in recording.calls if call.name == "open_output" and call.path.endswith(".parquet")] == []
    assert rows_of(storage) == template[1]
    assert [name for name in leftovers(storage) if not name.startswith(plan)] == []
    open_at(storage, "canceller").cancel_clustering(plan)
    way.run(way.write, open_at(storage, "again"))
    assert rows_of(storage) == way.write.applied(template[1])


BESIDE = (
    Way(Write("upsert", (0, 3, 2, 21, 24, 22), "upserted")),  # 22 is a new key of the planned partition.
    Way(Write("insert_overwrite", (0, 3, 54, 56), "overwritten")),
    Way(Write("insert", (31, 34), "inserted")),
    Way(Write("bulk_insert", (40, 43), "bulk")),
    Way(Write("delete partitions", (0,), "deleted")),
    Way(Write("upsert", (0, 3, 2, 21, 24, 22), "upserted"), in_tasks(Operation.UPSERT)),
)


@pytest.mark.slow
@pytest.mark.parametrize("way", BESIDE, ids=str)
def test_write_outside_the_planned_file_groups_succeeds(way: Way, template: tuple[Path, Model], tmp_path: Path) -> None:
    storage, plan = make_planned(template[0], tmp_path)
    way.run(way.write, open_at(storage, "writer"))
    assert rows_of(storage) == way.write.applied(template[1])
    assert open_at(storage, "runner").run_clustering().instant_time == plan
    assert rows_of(storage) == way.write.applied(template[1])


@pytest.mark.slow
def test_merge_without_a_change_in_planned_file_groups_succeeds(template: tuple[Path, Model], tmp_path: Path) -> None:
    storage, _ = make_planned(template[0], tmp_path)
    source = Write("upsert", (1, 4, 2, 22), "merged")
    merge = open_at(storage, "writer").merge(source.rows).when_matched_update(["v"], where="target.region <> 'r1'")
    merge.when_not_matched_insert().execute()
    kept = {id_: row for id_, row in template[1].items() if id_ in {1, 4}}
    assert rows_of(storage) == source.applied(template[1]) | kept


@pytest.mark.slow
def test_plan_made_during_the_write_is_a_conflict_at_commit(template: tuple[Path, Model], tmp_path: Path) -> None:
    """The plan is another program's, which does not know our lock."""
    storage = copy_of(template[0], tmp_path)
    elsewhere, plan = make_planned(template[0], tmp_path)
    requested = f".hoodie/{plan}.replacecommit.requested"

    def put(_: object) -> bool:
        storage.create(requested, elsewhere.read(requested))
        return True

    with pytest.raises(WriteConflictError, match=f"pending clustering {plan} .*; run or cancel that clustering first$"):
        lakeformat.Table(storage).upsert(WAYS[0].write.rows, validators=[put])
    assert rows_of(storage) == template[1]
