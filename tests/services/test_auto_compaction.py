"""Slices that are compacted automatically: when, which, and when not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.config.compaction_options import AutoCompaction
from lakeformat.config.resolve import resolve
from lakeformat.errors import StorageError
from lakeformat.model.instant import Action, State
from lakeformat.services.after_write import Executors, run_due_services
from lakeformat.services.compact.plan import CompactLimits, plan_compaction
from lakeformat.storage.local import LocalStorage
from lakeformat.transaction.order.written_file import WrittenFile
from tests.helpers.appending import Append, slices
from tests.helpers.fixture_tables import unpack
from tests.helpers.tables import a_batch, a_schema, a_table
from tests.services.test_compaction_plan import MB, a_slice

FILES = "lakeformat.compact.auto.log.files"
SCHEMA = a_schema(id="int64", p="string", v="int64")


def rows(ids: range | list[int], value: int) -> pa.Table:
    """Return rows of two partitions."""
    return a_batch(SCHEMA, id=ids, p=[str(at % 2) for at in ids], v=value)


def new_table(path: Path, version: int, **options: Any) -> lakeformat.Table:
    """Create a table of two slices with forty rows."""
    a_table(path, schema=SCHEMA, partition_by="p", merge_on_read=True, version=version)
    table = lakeformat.open(path, **options)
    table.insert(rows(range(40), 0))
    return table


def compactions(table: lakeformat.Table) -> int:
    """Count the compactions in the history of the table."""
    return sum(entry.operation == "compact" for entry in table.history())


def most_logs(table: lakeformat.Table) -> int:
    """Return the greatest number of log files of a slice."""
    return max(len(piece.logs) for piece in slices(table))


def plan_slice_ids(*pieces: Any, **options: Any) -> list[str]:
    """Return the ids of the slices that an automatic plan takes."""
    said = resolve(options)
    auto = AutoCompaction.of(said.__getitem__, said.is_set)
    limits = CompactLimits.of_options(said.with_values(**auto.as_options()), date(2025, 11, 20))
    plan = plan_compaction(pieces, (), limits)
    return [] if plan is None else [each.file_id for each in plan.operations]


def test_slice_with_many_log_files_is_compacted_with_those_of_half_as_many() -> None:
    few, half, many = (a_slice(name, base=MB, logs=(9,) * count) for name, count in (("f", 15), ("h", 16), ("m", 32)))
    assert plan_slice_ids(few, half) == []
    assert plan_slice_ids(few, half, many) == ["m", "h"]
    assert plan_slice_ids(few, half, **{FILES: 10}) == ["h", "f"]


def test_slices_with_log_files_larger_than_the_base_file_are_compacted() -> None:
    small, large = a_slice("s", base=MB, logs=(50 * MB,)), a_slice("l", base=100 * MB, logs=(50 * MB, 50 * MB))
    assert plan_slice_ids(small, a_slice("b", base=200 * MB, logs=(100 * MB,))) == []
    assert plan_slice_ids(small, large) == ["l"]
    assert plan_slice_ids(a_slice("n", logs=(65 * MB,))) == ["n"]


def test_one_commit_compacts_within_its_byte_limit() -> None:
    pieces = [a_slice(f"{at}", base=100 * MB, logs=(MB,) * 40) for at in range(9)]
    assert len(plan_slice_ids(*pieces, **{"lakeformat.compact.auto.megabytes": 500})) == 3


@pytest.mark.parametrize("version", [6, 8, 9])
def test_upserts_alone_keep_log_files_few(tmp_path: Path, version: int) -> None:
    table = new_table(tmp_path / "t", version, **{FILES: 4})
    model = dict.fromkeys(range(40), 0)
    for at in range(1, 14):
        table.upsert(rows([at, at + 1], at))
        model |= {at: at, at + 1: at}
        assert most_logs(table) < 4
    assert compactions(table) == 3
    assert dict(zip(*table.to_arrow(["id", "v"]).to_pydict().values(), strict=True)) == model
    assert not table.check()


@pytest.mark.parametrize(
    "options",
    [
        {"lakeformat.compact.auto": False},
        {"hoodie.compact.inline": False},
        {"hoodie.compact.schedule.inline": False},
        {"hoodie.compact.inline.max.delta.commits": 1},
    ],
)
def test_explicit_compaction_options_switch_automatic_compaction_off(tmp_path: Path, options: dict[str, Any]) -> None:
    table = new_table(tmp_path / "t", 9, **{FILES: 2}, **options)
    for at in range(5):
        table.upsert(rows([1], at))
    assert (compactions(table), most_logs(table)) == (0, 5)


def test_pending_compaction_plan_is_left_to_its_owner(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", 9, **{FILES: 2})
    table.upsert(rows([1], 1))
    plan = table.schedule_compaction()
    for at in range(4):
        table.upsert(rows([1], at))
    assert [one.time for one in table.snapshot().timeline.pending if one.action is Action.COMPACTION] == [plan]
    assert compactions(table) == 0
    table.run_compaction(plan)
    table.upsert(rows([1], 9))
    assert (compactions(table), most_logs(table)) == (2, 0)


def test_slices_with_foreign_commits_are_not_compacted_automatically(tmp_path: Path) -> None:
    table = lakeformat.open(unpack("hudi_v8_v9/v9_mor_compacted_partitioned", tmp_path), **{FILES: 2})
    before = compactions(table)
    for _ in range(3):
        Append(table).run()
    key = table.to_arrow().slice(0, 1).drop_columns([name for name in table.schema.names if name.startswith("_hoodie")])
    table.upsert(key)
    assert compactions(table) == before


def test_failed_compaction_is_run_after_the_next_write(tmp_path: Path) -> None:
    table = new_table(tmp_path / "t", 9, **{"lakeformat.compact.auto": False})
    for at in range(3):
        table.upsert(rows([1], at))
    table = lakeformat.open(tmp_path / "t", **{FILES: 3})
    done = run_due_services(table.context, table.options, Executors(compactor=_fails))
    (pending,) = table.snapshot().timeline.pending
    assert (pending.action, pending.state) == (Action.COMPACTION, State.REQUESTED)
    assert "no space left" in str(done)
    table.upsert(rows([2], 8))
    assert not table.snapshot().timeline.pending
    assert compactions(table) == 1


class Opening(LocalStorage):
    """A storage that records the paths of the opened files."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.opened: list[str] = []

    def open_input(self, path: str) -> Any:
        self.opened.append(path)
        return super().open_input(path)


def test_cost_of_a_commit_does_not_grow_with_the_archive(tmp_path: Path) -> None:
    limits = {"hoodie.clean.commits.retained": 2, "hoodie.keep.min.commits": 4, "hoodie.keep.max.commits": 5}
    limits |= {FILES: 6, "hoodie.timeline.compaction.batch.size": 1000}
    new_table(tmp_path / "t", 9)
    storage = Opening(str(tmp_path / "t"))
    table = lakeformat.Table(storage, resolve(limits))
    for at in range(36):
        if at == 24:
            storage.opened.clear()
        table.upsert(rows([1, 2], at))
    archive = list((tmp_path / "t/.hoodie/timeline/history").glob("*.parquet"))
    assert len(archive) > 15
    read = [path for path in storage.opened if "/history/" in path]
    assert len(read) / 12 < len(archive) / 2


def _fails(*arguments: Any) -> Sequence[WrittenFile]:
    raise StorageError("no space left on device")


@pytest.mark.nightly
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_file_count_after_2000_commits_equals_that_after_800(tmp_path: Path, kind: str) -> None:
    lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", partition_by="p", table_type=kind)
    table = lakeformat.open(tmp_path / "t")
    table.insert(rows(range(400), 0))
    counts = []
    for at in range(2000):
        table.upsert(rows([at * 7 % 400, at * 11 % 400 + 400], at))
        counts.append(sum(path.is_file() for path in (tmp_path / "t").rglob("*")) if at % 10 == 9 else 0)
    # Up to the 400th commit each one adds keys, so base files are rewritten and log files are few.
    assert max(counts[-200:]) <= 1.2 * max(counts[600:800])
    assert kind == "COPY_ON_WRITE" or most_logs(table) < 32
