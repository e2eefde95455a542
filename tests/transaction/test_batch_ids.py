"""A batch that is sent twice is written once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import InvalidOptionError, Table
from lakeformat.config.resolve import resolve
from lakeformat.model.operation import Operation
from lakeformat.storage import MemoryStorage, SystemClock
from lakeformat.transaction.order.batch_ids import BATCHES_KEY
from lakeformat.write.intake import create_table
from tests.helpers import hudi_rs
from tests.helpers.examples import examples
from tests.helpers.tables import a_batch, a_schema, a_table

SCHEMA = a_schema(id="int64", v="string")
OPERATIONS = [Operation.UPSERT, Operation.INSERT, Operation.BULK_INSERT, Operation.DELETE]


def batch(number: int) -> pa.Table:
    return a_batch(SCHEMA, id=number, v=str(number))


def batch_options(app: str, number: int) -> dict[str, str]:
    return {"lakeformat.batch.app": app, "lakeformat.batch.id": str(number)}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_replayed_batch_publishes_nothing(tmp_path: Path, operation: Operation) -> None:
    lakeformat.create(tmp_path / "t", SCHEMA, record_key="id")
    table = lakeformat.open(tmp_path / "t", **batch_options("job", 3))
    first = table.write(batch(1), operation)
    assert first.skipped == ""
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    again = table.write(batch(2), operation)
    assert "batch 3 of 'job'" in again.skipped
    assert str(again) == f"{operation.value} skipped: {again.skipped}"
    assert again.instant_time == first.instant_time
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before
    older = lakeformat.open(tmp_path / "t", **batch_options("job", 2)).write(batch(2), operation)
    assert "its last one is 3" in older.skipped
    assert lakeformat.open(tmp_path / "t", **batch_options("job", 4)).write(batch(2), operation).skipped == ""
    assert len(table.history()) == 2


SENT = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 6), st.sampled_from(OPERATIONS[:3])), max_size=12
)


@settings(max_examples=examples(25), deadline=None)
@given(SENT)
def test_batches_of_each_app_are_written_once_in_order(sent: list[tuple[str | None, int, Operation]]) -> None:
    storage = MemoryStorage()
    base = {"recordkey": "id", "name": "t"}
    create_table(Table(storage, resolve(base)).context.store, resolve(base), SCHEMA, SystemClock())
    last: dict[str, int] = {}
    wanted = []
    for at, (app, number, operation) in enumerate(sent):
        options = {**base, **batch_options(app, number)} if app else base
        result = Table(storage, resolve(options)).write(batch(at), operation)
        is_new = app is None or number > last.get(app, -1)
        assert bool(result.skipped) is not is_new
        if is_new:
            wanted.append(at)
            last.update({app: number} if app else {})
    table = Table(storage, resolve(base))
    assert len(table.history()) == len(wanted)
    if wanted:
        assert sorted(table.to_arrow(["id"])["id"].to_pylist()) == wanted
        newest = table.context.store.read_commit(table.context.store.load().commits[-1]).extra
        assert json.loads(newest.get(BATCHES_KEY, "{}")) == last


def test_the_last_ids_survive_when_older_commits_leave_the_timeline(tmp_path: Path) -> None:
    lakeformat.create(tmp_path / "t", SCHEMA, record_key="id")
    lakeformat.open(tmp_path / "t", **batch_options("job", 7)).upsert(batch(1))
    lakeformat.open(tmp_path / "t").upsert(batch(1))
    first = min((tmp_path / "t" / ".hoodie").glob("*.commit"))
    for path in (tmp_path / "t" / ".hoodie").glob(f"{first.stem}.*"):
        path.unlink()
    assert lakeformat.open(tmp_path / "t", **batch_options("job", 7)).upsert(batch(2)).skipped
    hudi_rs.assert_same_rows(lakeformat.open(tmp_path / "t"))


@pytest.mark.parametrize("version", [6, 9])
def test_a_batch_that_a_restore_has_undone_is_written_again(tmp_path: Path, version: int) -> None:
    """One table object has seen the batch's commit before, and may not take its id for a written one."""
    table = a_table(tmp_path / "t", schema=SCHEMA, version=version)
    first = table.upsert(batch(0)).instant_time
    table.savepoint(first)
    sender = Table(table.context.storage, resolve(batch_options("job", 7)))
    assert not sender.upsert(batch(1)).skipped
    assert sender.upsert(batch(1)).skipped
    table.restore(first)
    assert not sender.upsert(batch(1)).skipped
    assert {row["id"] for row in hudi_rs.assert_same_rows(table)} == {0, 1}


@pytest.mark.parametrize("operation", [Operation.UPSERT, Operation.BULK_INSERT])
def test_one_of_several_writers_of_a_batch_writes_it(tmp_path: Path, operation: Operation) -> None:
    lakeformat.create(tmp_path / "t", SCHEMA, record_key="id")

    def send(number: int) -> str:
        return lakeformat.open(tmp_path / "t", **batch_options("job", 1)).write(batch(number), operation).skipped

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(send, range(6)))
    assert sum(not answer for answer in answers) == 1
    table = lakeformat.open(tmp_path / "t")
    assert len(hudi_rs.assert_same_rows(table)) == 1
    assert len(table.history()) == 1


@pytest.mark.parametrize("half", [{"lakeformat.batch.app": "x"}, {"lakeformat.batch.id": "1"}])
def test_batch_id_without_app_is_refused(tmp_path: Path, half: dict[str, str]) -> None:
    lakeformat.create(tmp_path / "t", SCHEMA, record_key="id")
    with pytest.raises(InvalidOptionError, match="need each other"):
        lakeformat.open(tmp_path / "t", **half).upsert(batch(1))
