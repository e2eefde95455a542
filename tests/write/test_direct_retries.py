"""Conflicts of writes that stream their rows into files: the rows are read again where they are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

import lakeformat
from lakeformat import Table
from lakeformat.errors import WriteConflictError
from lakeformat.storage import LocalStorage
from lakeformat.write.rows.arrow_input import can_be_read_again
from tests.helpers.faulty import Call, FaultyStorage, once
from tests.helpers.tables import a_batch

OURS = a_batch(p=["a"], v=["ours"])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Create a table without a record key. Another writer inserts into partition a before our first file goes there."""
    other = lakeformat.create(tmp_path / "t", {"p": "string", "v": "string"}, partition_by="p")
    other.insert(a_batch(p=["a", "b"], v=["old"] * 2))

    def is_placed(call: Call) -> bool:
        return call.name == "move"

    meddling = once(is_placed, lambda _: other.insert(a_batch(p=["a"], v=["theirs"])))
    return Table(FaultyStorage(LocalStorage(tmp_path / "t"), meanwhile=meddling))


def rows(table: Table) -> list[tuple[str, str]]:
    return sorted((row["p"], row["v"]) for row in table.to_arrow(["p", "v"]).to_pylist())


FORMS = {
    "table": OURS,
    "batches": OURS.to_batches(),
    "dicts": OURS.to_pylist(),
    "columns": OURS.to_pydict(),
    "polars": pl.from_arrow(OURS),
    "pandas": OURS.to_pandas(),
}


@pytest.mark.parametrize("form", FORMS)
def test_overwrite_with_rows_in_memory_is_repeated(form: str, table: Table) -> None:
    table.insert_overwrite(FORMS[form])
    assert rows(table) == [("a", "ours"), ("b", "old")]
    assert str(table.check()) == "nothing is wrong"


def test_overwrite_of_the_table_by_sql_is_repeated(table: Table) -> None:
    lakeformat.sql("insert overwrite t select 'a' as p, 'ours' as v", t=table)
    assert rows(table) == [("a", "ours"), ("b", "old")]


def stream() -> Iterator[pa.RecordBatch]:
    yield from OURS.to_batches()


@pytest.mark.parametrize("form", ["reader", "iterator"])
def test_conflict_of_a_stream_says_that_its_rows_are_read(form: str, table: Table) -> None:
    with pytest.raises(WriteConflictError, match="came as a stream, which has been read: give them anew") as caught:
        table.insert_overwrite(OURS.to_reader() if form == "reader" else stream())
    assert "\n" not in str(caught.value)
    assert rows(table) == [("a", "old"), ("a", "theirs"), ("b", "old")]
    table.insert_overwrite(stream())
    assert rows(table) == [("a", "ours"), ("b", "old")]


def test_only_rows_in_memory_can_be_read_again() -> None:
    for form in FORMS.values():
        assert can_be_read_again(form)
    for other in (OURS.to_reader(), stream(), pl.LazyFrame(), iter(OURS.to_batches())):
        assert not can_be_read_again(other)
