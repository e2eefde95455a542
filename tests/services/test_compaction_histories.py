"""Tables that we write and compact, with and without pending plans, have the rows of a dict."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat.errors import LakeformatError
from tests.helpers import hudi_rs
from tests.helpers.tables import a_batch, a_schema

SCHEMA = a_schema(id="int64", region="string", v="string")
Model = dict[int, str]


def make_table(path: Path, version: int, index: str = "BLOOM") -> lakeformat.Table:
    options: dict[str, Any] = {
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.write.table.version": version,
        "hoodie.index.type": index,
        "hoodie.clean.automatic": False,
    }
    if index == "BUCKET":
        options["hoodie.bucket.index.num.buckets"] = 2
    lakeformat.create(path, SCHEMA, record_key="id", partition_by="region", **options)
    return lakeformat.open(path, **options)


def rows(ids: list[int], step: int) -> pa.Table:
    return a_batch(SCHEMA, id=ids, region=[f"r{id_ % 2}" for id_ in ids], v=f"step {step}")


def read_rows(table: lakeformat.Table) -> Model:
    found = lakeformat.open(table.context.storage.location).to_arrow(columns=["id", "v"])
    ids = found.column("id").to_pylist()
    assert len(set(ids)) == len(ids), "a key stands in two rows"
    return dict(zip(ids, found.column("v").to_pylist(), strict=True))


@pytest.mark.parametrize("version", [6, 9])
def test_key_reinserted_during_the_compaction_of_its_delete_is_kept(version: int, tmp_path: Path) -> None:
    """The log file of the key updates a row of the old base file. After the compaction, this row is gone."""
    table = make_table(tmp_path / "t", version)
    table.upsert(rows([1, 3, 5], 0))
    table.delete(rows([1], 1).select(["id", "region"]))
    table.schedule_compaction()
    table.upsert(rows([1], 2))
    table.run_compaction()
    table.upsert(rows([1], 3))
    assert read_rows(table) == {1: "step 3", 3: "step 0", 5: "step 0"}
    table.compact()
    assert read_rows(table) == {1: "step 3", 3: "step 0", 5: "step 0"}


OPERATIONS = ("upsert", "upsert", "delete", "insert", "compact", "schedule", "run")
STEPS = st.lists(
    st.tuples(st.sampled_from(OPERATIONS), st.sets(st.integers(0, 12), min_size=1, max_size=5)), max_size=9
)


def play(table: lakeformat.Table, model: Model, step: int, operation: str, ids: list[int]) -> None:
    match operation:
        case "upsert":
            table.upsert(rows(ids, step))
        case "insert":
            ids = [1000 * (step + 1) + id_ for id_ in ids]
            table.insert(rows(ids, step))
        case "delete":
            table.delete(rows(ids, step).select(["id", "region"]))
            for id_ in ids:
                model.pop(id_, None)
            return
        case _:
            {"compact": table.compact, "schedule": table.schedule_compaction, "run": table.run_compaction}[operation]()
            return
    model.update(dict.fromkeys(ids, f"step {step}"))


@pytest.mark.slow
@pytest.mark.parametrize("index", ["BLOOM", "BUCKET"])
@pytest.mark.parametrize("version", [6, 9])
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_random_histories_with_compactions_follow_the_model(
    version: int, index: str, steps: list[tuple[str, set[int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    table = make_table(tmp_path_factory.mktemp("history") / "t", version, index)
    model: Model = {}
    for step, (operation, ids) in enumerate([("upsert", {0, 1, 2}), *steps, ("compact", {0})]):
        play(table, model, step, operation, sorted(ids))
        assert read_rows(table) == model
    hudi_rs.assert_same_rows(lakeformat.open(table.context.storage.location))


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 9])
def test_writer_beside_compactions_loses_no_row(version: int, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", version)
    model: Model = {}
    play(table, model, 0, "upsert", list(range(12)))
    over = threading.Event()
    failures: list[BaseException] = []

    def compact() -> None:
        while not over.is_set():
            try:
                table.compact()
            except LakeformatError:
                continue  # The other writer was in the way; the next one continues.
            except BaseException as error:
                failures.append(error)
                return

    beside = threading.Thread(target=compact)
    beside.start()
    try:
        for step in range(1, 15):
            operation = "delete" if step % 4 == 3 else "upsert"
            play(table, model, step, operation, [(step * 5 + at * 7) % 30 for at in range(6)])
            assert read_rows(table) == model
    finally:
        over.set()
        beside.join()
    assert not failures
    table.compact()
    assert read_rows(table) == model
    assert "compact" in {entry.operation for entry in table.history()}
