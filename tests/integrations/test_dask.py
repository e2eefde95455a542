"""dask reads parts of a table, and writes its partitions in one commit. `make nightly` has an environment for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import InvalidInputError, InvalidOptionError, Table
from tests.helpers.engine_tables import SCHEMA, batch, in_order, is_clean, opened
from tests.helpers.tables import a_table

pytestmark = pytest.mark.nightly

dask = pytest.importorskip("dask", reason="run make .venv-engines/.stamp")
dd = pytest.importorskip("dask.dataframe", reason="run make .venv-engines/.stamp")
pd = pytest.importorskip("pandas")


def read_table(*given: Any, **options: Any) -> Any:
    from lakeformat.integrations.dask import read_table

    return read_table(*given, **options)


def write_table(*given: Any, **options: Any) -> Any:
    from lakeformat.integrations.dask import write_table

    return write_table(*given, **options)


def arrow(frame: Any) -> pa.Table:
    return pa.Table.from_pandas(frame.compute(), preserve_index=False)


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_a_frame_has_the_rows_of_the_table(table: Table, scheduler: str) -> None:
    with dask.config.set(scheduler=scheduler):
        frame = read_table(table)
        assert frame.npartitions == len(table.read().parts()) > 2
        assert not frame.known_divisions
        assert in_order(arrow(frame)) == in_order(table.to_arrow())
        assert arrow(frame).schema.remove_metadata() == table.read().schema
        assert frame.dtypes.astype(str).to_dict() == frame.compute().dtypes.astype(str).to_dict()
        assert len(frame) == len(table)


def test_read_options_are_those_of_a_table(table: Table) -> None:
    first = table.history()[-1].instant_time
    assert in_order(arrow(read_table(table.location, as_of=first))) == in_order(table.to_arrow(as_of=first))
    assert list(read_table(table, ["s", "id"], meta_columns=True).columns) == ["s", "id"]
    with pytest.raises(InvalidInputError, match="limit="):
        read_table(table, limit=3)


def test_a_condition_opens_few_files_and_a_selection_reads_few_columns(table: Table) -> None:
    frame = read_table(table, where="id > 150")
    found: list[Any] = []
    assert len(opened(table, lambda: found.append(arrow(frame)))) == 1
    assert in_order(found[0]) == in_order(table.to_arrow(where="id > 150"))
    selected = read_table(table)[["id"]].optimize()
    assert "columns=['id']" in str(selected.expr.tree_repr()).replace('"', "'")
    assert selected["id"].sum().compute() == sum(table.to_arrow()["id"].to_pylist())
    assert read_table(table)["s"].compute().isna().sum() == table.to_arrow()["s"].null_count


def test_a_table_without_rows_is_a_frame_without_rows(tmp_path: Path) -> None:
    frame = read_table(a_table(tmp_path / "none", schema=SCHEMA))
    assert len(frame) == 0
    assert list(frame.columns) == SCHEMA.names


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_all_partitions_are_one_commit(table: Table, scheduler: str) -> None:
    before = len(table.history())
    rows = pa.concat_tables([batch(5), batch(300)]).set_column(2, "s", pa.array(["new"] * 24))
    frame = dd.from_pandas(rows.to_pandas(types_mapper=pd.ArrowDtype), npartitions=5)
    with dask.config.set(scheduler=scheduler):
        result = write_table(frame, table)
    assert (result.operation, result.rows.updated, result.rows.inserted) == ("upsert", 7, 17)
    assert len(table.history()) == before + 1
    assert table.count("s = 'new'") == 24
    assert is_clean(table)


def test_operations_are_called_by_name(table: Table) -> None:
    frame = read_table(table, where="id < 100")
    write_table(frame[frame["id"] == 3], table, "delete")
    assert (len(table), table.count("id = 3")) == (35, 0)
    write_table(read_table(table, where="id > 200"), table.location, "insert_overwrite_table")
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(201, 212))
    result = write_table(frame, table, "bulk_insert", extra_metadata={"job": "7"})
    assert table.history()[0].instant_time == result.instant_time
    with pytest.raises(InvalidInputError, match="did you mean 'upsert'"):
        write_table(frame, table, "upsrt")
    with pytest.raises(InvalidOptionError, match="combine"):
        write_table(frame, table, combin=True)


def test_the_last_partition_wins_and_null_columns_get_the_tables_type(table: Table) -> None:
    frame = pd.DataFrame({"id": [7, 8, 7, 8], "v": [1.0, 2.0, 3.0, 4.0], "s": [None, None, "last", None]})
    write_table(dd.from_pandas(frame, npartitions=2), table)
    rows = table.to_arrow(where="id in (7, 8)").to_pylist()
    assert sorted((row["id"], row["v"], row["s"]) for row in rows) == [(7, 3.0, "last"), (8, 4.0, None)]


def test_an_index_is_written_only_if_the_table_has_its_column(table: Table) -> None:
    frame = pd.DataFrame({"id": [1001, 1002, 1003], "v": [1.0, 2.0, 3.0], "s": ["a", "b", "c"]})
    write_table(dd.from_pandas(frame, npartitions=1).set_index("id"), table)
    halved = dd.from_pandas(frame, npartitions=1)
    write_table(halved[halved["v"] > 1.5], table)
    assert table.read().schema == SCHEMA
    assert table.count("id > 1000") == 3


def test_a_failed_task_leaves_the_table_as_it_was(table: Table) -> None:
    before, rows = table.history(), in_order(table.to_arrow())

    def fail(frame: Any) -> Any:
        if (frame["id"] > 200).any():
            raise ValueError("one partition")
        return frame

    frame = read_table(table)
    # With other schedulers a task may still run when another one has failed.
    with dask.config.set(scheduler="synchronous"), pytest.raises(ValueError, match="one partition"):
        write_table(frame.map_partitions(fail, meta=frame._meta), table)
    assert table.history() == before
    assert in_order(table.to_arrow()) == rows
    assert is_clean(table)
