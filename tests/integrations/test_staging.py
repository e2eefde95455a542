"""Rows that several tasks stage are one commit. The engines' own tests run in `make nightly`."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import (
    InvalidInputError,
    InvalidOptionError,
    SchemaMismatchError,
    StorageError,
    Table,
    TableNotFoundError,
)
from lakeformat.integrations.staging import Stage, StagedFile, StagedWrite
from lakeformat.storage import LocalStorage
from tests.helpers import hudi_rs
from tests.helpers.engine_tables import is_clean
from tests.helpers.faulty import FaultyStorage, once
from tests.helpers.tables import a_batch, a_table


@pytest.fixture(params=[False, True], ids=["copy-on-write", "merge-on-read"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return a_table(tmp_path / "t", rows=a_batch(id=range(4), v="old"), merge_on_read=request.param)


def start(table: Any, operation: str | None = None, **arguments: Any) -> StagedWrite:
    return StagedWrite(table, operation, arguments)


def stage_in_task(stage: Stage, rows: pa.Table, task: int) -> list[StagedFile]:
    return stage.write([rows.slice(0, 1), rows.slice(1)], task)


def values(table: Table) -> list[tuple[int, str]]:
    return sorted((row["id"], row["v"]) for row in table.to_arrow().to_pylist())


def test_rows_of_other_processes_are_one_commit(table: Table) -> None:
    write = pickle.loads(pickle.dumps(start(table)))  # noqa: S301  Our own bytes.
    mine = start(table)
    assert not hasattr(write, "_table")
    tasks = [a_batch(id=[3, 4], v="new"), a_batch(id=[5], v="new")]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        files = [*pool.map(stage_in_task, [mine.stage] * 2, tasks, range(2))]
    assert values(table) == [(n, "old") for n in range(4)]
    result = mine.commit(file for some in files for file in some)
    assert (result.operation, result.rows.incoming, result.rows.inserted) == ("upsert", 3, 2)
    assert values(table) == [(0, "old"), (1, "old"), (2, "old"), (3, "new"), (4, "new"), (5, "new")]
    assert len(table.history()) == 2
    assert is_clean(table)
    hudi_rs.assert_same_rows(table)


def test_the_row_of_the_later_task_wins(table: Table) -> None:
    write = start(table)
    later, earlier = (write.stage.write([a_batch(id=[1], v=f"task {task}")], task) for task in (2, 1))
    write.commit([*later, *earlier])
    assert (1, "task 2") in values(table)


def test_a_run_whose_files_are_not_passed_on_is_not_written(table: Table) -> None:
    write = start(table, "insert")
    write.stage.write([a_batch(id=[8], v="first run")], 0)
    write.commit(write.stage.write([a_batch(id=[8], v="second run")], 0))
    assert [value for key, value in values(table) if key == 8] == ["second run"]


def test_a_task_that_fails_leaves_no_file(table: Table) -> None:
    write = start(table)

    def rows() -> Iterator[pa.Table]:
        yield a_batch(id=[9], v="new")
        raise ValueError("a task")

    with pytest.raises(ValueError, match="a task"):
        write.stage.write(rows())
    assert not list(Path(table.location).rglob("*.arrow"))
    write.stage.discard()
    assert is_clean(table)
    assert len(table.history()) == 1


def test_columns_of_nulls_and_columns_that_differ_are_joined(table: Table) -> None:
    write = start(table)
    parts = [pa.table({"id": [1], "v": pa.nulls(1)}), pa.table({"id": [2], "v": ["x"]}), pa.table({"id": [3]})]
    write.commit(write.stage.write(parts))
    assert table.to_arrow(where="id in (1, 3)")["v"].null_count == 2
    assert table.count("v = 'x'") == 1
    write = start(table)
    files = write.stage.write([pa.table({"id": [1], "v": ["x"]}), pa.table({"id": [2], "v": [[1]]})])
    with pytest.raises(SchemaMismatchError, match="of different types"):
        write.commit(files)
    assert is_clean(table)


def test_no_rows_write_what_no_rows_of_a_table_write(table: Table) -> None:
    assert start(table).commit([]).rows.incoming == 0
    write = start(table, "insert_overwrite_table")
    write.commit(write.stage.write([pa.table({})]))
    assert len(table) == 0


def test_a_conflict_is_repeated_with_the_same_rows(tmp_path: Path) -> None:
    other = a_table(tmp_path / "t", rows=a_batch(p="a", v="old"), keys=(), partition_by="p")
    meddling = once(lambda call: call.name == "move", lambda _: other.insert(a_batch(p="a", v="theirs")))
    table = Table(FaultyStorage(LocalStorage(tmp_path / "t"), meanwhile=meddling))
    write = start(table, "insert_overwrite")
    write.commit(write.stage.write([a_batch(p="a", v="ours")]))
    assert table.to_arrow(["p", "v"]).to_pylist() == [{"p": "a", "v": "ours"}]
    assert len(table.history()) == 3
    assert is_clean(table)


def test_staged_rows_that_are_gone_are_one_line(table: Table) -> None:
    write = start(table)
    files = write.stage.write([a_batch(id=[9], v="new")])
    write.stage.discard()
    with pytest.raises(StorageError, match="which a task of this write made, is gone; run the write again"):
        write.commit(files)
    assert len(table.history()) == 1


def test_what_can_be_refused_is_refused_before_tasks_run(table: Table, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'upsert'"):
        start(table, "upsrt")
    with pytest.raises(InvalidOptionError, match="did you mean 'combine'"):
        start(table, combin=True)
    with pytest.raises(TableNotFoundError):
        start(tmp_path / "none")
    keyless = a_table(tmp_path / "keyless", rows=a_batch(v=["a"]), keys=())
    write = start(keyless)
    assert write.commit(write.stage.write([a_batch(v=["b"])])).operation == "insert"
