"""The benchmark of TPC-H ``lineitem``: its batches hold what they promise, and engines end with DuckDB's rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from benchmarks.lineitem.__main__ import Judged, run_engine, table
from benchmarks.lineitem.data import GENERATOR, Data, prepare
from benchmarks.lineitem.steps import ENGINES, KEY_COLUMNS, KEYS, STEPS, WRITTEN
from benchmarks.results import EngineResult, Measured

SCALE = 0.01


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not GENERATOR.exists():
        pytest.skip("tpchgen-cli is not installed")
    return tmp_path_factory.mktemp("lineitem")


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "keys"), [("lakeformat", "time"), ("lakeformat", "random"), ("delta-rs", "time")])
def test_engine_ends_every_step_with_the_rows_that_duckdb_computes(engine: str, keys: str, root: Path) -> None:
    if engine == "delta-rs":
        pytest.importorskip("deltalake")
    data = prepare(root, SCALE, keys)
    run = run_engine(engine, data, root / engine, 60)
    assert run.result.failure == ""
    assert {name: step.answers[0] for name, step in run.result.steps.items()} == data.expected()
    assert all(step.figures[0][WRITTEN] > 0 for step in run.result.steps.values())
    assert "wrong" not in table({engine: run})


@pytest.mark.parametrize("keys", KEYS)
def test_batches_change_and_add_as_many_rows_as_they_promise(keys: str, root: Path) -> None:
    data = prepare(root, SCALE, keys)
    base = keys_of(data, "base")
    thousandth = len(base) / 1000
    for name, held, fresh in (("append", 0, 50), ("merge1", 5, 5), ("merge5", 50, 0), ("cdc", 6, 4)):
        batch = keys_of(data, name)
        assert len(batch) == pq.read_metadata(data.file(name)).num_rows, f"{name} has a key twice"
        assert len(batch & base) == pytest.approx(held * thousandth, abs=1)
        assert len(batch - base) == pytest.approx(fresh * thousandth, abs=1)
    operations = pc.value_counts(pq.read_table(data.file("cdc"))["op"]).to_pylist()
    assert {each["values"] for each in operations} == {"I", "U", "D"}


def test_time_ordered_keys_follow_the_ship_date_and_batches_concern_the_newest_tenth(root: Path) -> None:
    data = prepare(root, SCALE, "time")
    rows = pq.read_table(data.file("base"))
    order = rows.sort_by([(name, "ascending") for name in KEY_COLUMNS])
    assert order.equals(rows)
    assert rows["l_shipdate"].equals(rows.sort_by("l_shipdate")["l_shipdate"])
    oldest = rows.slice(rows.num_rows * 9 // 10, 1)["l_orderkey"][0].as_py()
    for name in ("append", "merge1", "merge5", "cdc"):
        assert min(order for order, _line in keys_of(data, name)) >= oldest


def test_wrong_content_shows_no_figures(root: Path) -> None:
    data = prepare(root, SCALE, "time")
    step = Measured([1.0], [1.0], [0], [1], [[1, 2, 3]], [{WRITTEN: 1}])
    run = Judged(EngineResult(steps={"merge1": step}), data.expected())
    assert run.wrong_steps() == ["merge1"]
    assert table({"lakeformat": run}).count("| wrong |") == 2


def test_every_engine_takes_all_steps() -> None:
    assert {spec.steps for spec in ENGINES.values()} == {tuple(step.name for step in STEPS)}


def keys_of(data: Data, name: str) -> set[tuple[int, int]]:
    columns = pq.read_table(data.file(name), columns=list(KEY_COLUMNS))
    return set(zip(*(columns[key].to_pylist() for key in KEY_COLUMNS), strict=True))
