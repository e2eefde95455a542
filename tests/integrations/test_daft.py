"""daft reads parts of a table, and writes its frames in one commit. `make nightly` has an environment for it."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import InvalidInputError, Table
from tests.helpers.engine_tables import SCHEMA, batch, has_log_files, in_order, is_clean, opened
from tests.helpers.tables import a_table

pytestmark = pytest.mark.nightly

daft = pytest.importorskip("daft", reason="run make .venv-engines/.stamp")


def read_table(*given: Any, **options: Any) -> Any:
    from lakeformat.integrations.daft import read_table

    return read_table(*given, **options)


def write_table(*given: Any, **options: Any) -> Any:
    from lakeformat.integrations.daft import write_table

    return write_table(*given, **options)


def test_a_frame_has_the_rows_of_the_table(table: Table) -> None:
    frame = read_table(table)
    assert frame.schema() == daft.Schema.from_pyarrow_schema(table.read().schema)
    assert in_order(frame.to_arrow()) == in_order(table.to_arrow())
    assert frame.count_rows() == len(table)
    assert frame.limit(5).count_rows() == 5


def test_read_options_are_those_of_a_table(table: Table) -> None:
    first = table.history()[-1].instant_time
    assert in_order(read_table(table.location, as_of=first).to_arrow()) == in_order(table.to_arrow(as_of=first))
    assert read_table(table, ["s", "id"], where="id > 150").column_names == ["s", "id"]
    with pytest.raises(InvalidInputError, match="limit="):
        read_table(table, limit=3)


NAN = math.nan
FILTERS: dict[str, Callable[[Any], Any]] = {
    "integers": lambda c: c("id") > 150,
    "exchanged sides": lambda c: daft.lit(150) < c("id"),
    "a float for an integer": lambda c: c("id") > 150.5,
    "NaN is greater": lambda c: c("v") > 90,
    "NaN is not less": lambda c: c("v") <= 2.5,
    "NaN is equal": lambda c: c("v") == NAN,
    "between": lambda c: c("v").between(2.0, math.inf),
    "null or": lambda c: c("s").is_null() | (c("id") == 3),
    "not": lambda c: ~((c("id") > 5) & c("v").not_null()),
    "not equal": lambda c: c("s") != "s1",
    "in": lambda c: c("s").is_in(["changed", "s2"]),
    "function": lambda c: c("s").startswith("s1") & (c("id") < 150),
    "two columns": lambda c: c("id") > c("v"),
    "greater than every integer": lambda c: c("id") < 2**40,
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_select_what_daft_selects_of_rows_in_memory(table: Table, name: str) -> None:
    condition = FILTERS[name](daft.col)
    theirs = daft.from_arrow(table.to_arrow()).where(condition)
    for columns in (["id", "v", "s"], ["id"]):
        ours = read_table(table).where(condition).select(*columns).to_arrow()
        assert in_order(ours) == in_order(theirs.select(*columns).to_arrow())


def test_a_filter_opens_few_files(table: Table) -> None:
    query = read_table(table).where((daft.col("id") > 150) & (daft.col("v") > 1)).select("s")
    assert opened(table, query.collect) == opened(table, lambda: table.count("id > 150 and v > 1"))
    assert len(opened(table, read_table(table, where="id > 150").collect)) == (3 if has_log_files(table) else 1)
    assert len(opened(table, read_table(table).collect)) == 3


def test_times_and_dates_are_translated(tmp_path: Path) -> None:
    zoned = dt.datetime(2025, 1, 2, tzinfo=dt.timezone.utc)
    days = [dt.date(2025, 1, 2), dt.date(2025, 1, 3)]
    rows = pa.table({"id": [1, 2], "at": [zoned, zoned + dt.timedelta(days=1)], "day": days})
    table = a_table(tmp_path / "times", rows=rows)
    for condition in (daft.col("day") > dt.date(2025, 1, 2), daft.col("at") > zoned):
        assert read_table(table).where(condition).to_pydict()["id"] == [2]


def test_a_table_without_rows_is_a_frame_without_rows(tmp_path: Path) -> None:
    assert read_table(a_table(tmp_path / "none", schema=SCHEMA)).to_arrow().num_rows == 0


def test_all_tasks_are_one_commit(table: Table) -> None:
    before = len(table.history())
    rows = pa.concat_tables([batch(5), batch(300)]).set_column(2, "s", pa.array(["new"] * 24))
    result = write_table(daft.from_arrow(rows), table)
    assert (result.operation, result.rows.updated, result.rows.inserted) == ("upsert", 7, 17)
    assert len(table.history()) == before + 1
    assert table.count("s = 'new'") == 24
    assert is_clean(table)


def test_a_sink_returns_the_commit_as_a_frame(table: Table) -> None:
    from lakeformat.integrations.daft import LakeformatSink

    rows = read_table(table, ["id"], where="id = 3")
    answer = rows.write_sink(LakeformatSink(table, "delete")).to_pydict()
    assert answer == {"instant_time": [table.history()[0].instant_time], "operation": ["delete"], "rows": [1]}
    assert table.count("id = 3") == 0


def test_a_table_is_overwritten_by_its_own_rows(table: Table) -> None:
    write_table(read_table(table).where(daft.col("id") > 200), table, "insert_overwrite_table")
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(201, 212))


def test_a_failed_task_leaves_the_table_as_it_was(table: Table) -> None:
    before, rows = table.history(), in_order(table.to_arrow())

    @daft.func(return_dtype=daft.DataType.int64())
    def fail(value: int) -> int:
        if value > 200:
            raise ValueError("one row")
        return value

    with pytest.raises(Exception, match="one row"):
        write_table(read_table(table).with_column("id", fail(daft.col("id"))), table)
    assert table.history() == before
    assert in_order(table.to_arrow()) == rows


def test_a_sink_discards_the_rows_of_its_tasks(table: Table) -> None:
    from daft.recordbatch import MicroPartition

    from lakeformat.integrations.daft import LakeformatSink

    sink = LakeformatSink(table)
    (written,) = sink.write(iter([MicroPartition.from_arrow(batch(5))]))
    assert (written.rows_written, is_clean(table)) == (12, False)
    sink.discard()
    assert is_clean(table)
