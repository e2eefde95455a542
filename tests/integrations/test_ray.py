"""Ray reads parts of a table, and writes its datasets in one commit. `make nightly` has an environment for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeformat import InvalidInputError, Table
from tests.helpers.engine_tables import SCHEMA, batch, has_log_files, in_order, is_clean, new_engine_table, opened
from tests.helpers.tables import a_table

pytestmark = pytest.mark.nightly

ray = pytest.importorskip("ray", reason="run make .venv-engines/.stamp")
pytest.importorskip("ray.data", reason="run make .venv-engines/.stamp")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Start Ray on this machine. Its workers find the tests' helpers by PYTHONPATH."""
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=200 << 20,
        runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


def read_table(*given: Any, **options: Any) -> Any:
    from lakeformat.integrations.ray import read_table

    return read_table(*given, **options)


def write_table(*given: Any, **options: Any) -> Any:
    from lakeformat.integrations.ray import write_table

    return write_table(*given, **options)


def arrow(dataset: Any) -> pa.Table:
    """Return the rows. Blocks without rows may have no columns."""
    blocks = ray.get(dataset.to_arrow_refs())
    return pa.concat_tables([block for block in blocks if block.num_rows] or blocks[:1])


def test_a_dataset_has_the_rows_of_the_table(table: Table) -> None:
    dataset = read_table(table, override_num_blocks=4)
    assert dataset.schema().base_schema == table.read().schema
    assert in_order(arrow(dataset)) == in_order(table.to_arrow())
    assert dataset.limit(5).count() == 5
    assert len(dataset.input_files()) >= 3


def test_rows_are_counted_without_reading_if_their_number_is_known(tmp_path: Path) -> None:
    for merge_on_read in (False, True):
        whole = {"lakeformat.read.split.bytes": 128 << 20}
        table = new_engine_table(tmp_path / str(merge_on_read), merge_on_read=merge_on_read, **whole)
        counted: list[int] = []
        files = opened(table, lambda: counted.append(read_table(table).count()))  # noqa: B023  Called at once.
        assert counted == [len(table)]
        assert bool(files) == has_log_files(table) == merge_on_read
        assert read_table(table, where="id > 150").count() == 12


def test_read_options_are_those_of_a_table(table: Table) -> None:
    first = table.history()[-1].instant_time
    assert in_order(arrow(read_table(table.location, as_of=first))) == in_order(table.to_arrow(as_of=first))
    assert read_table(table, ["s", "id"], where="id > 150").columns() == ["s", "id"]
    with pytest.raises(InvalidInputError, match="limit="):
        read_table(table, limit=3)


FILTERS: dict[str, Callable[[Any], Any]] = {
    "integers": lambda c: c("id") > 150,
    "NaN": lambda c: c("v") > 90,
    "null or": lambda c: c("s").is_null() | (c("id") == 3),
    "not": lambda c: ~(c("v") > 3),
    "not in": lambda c: c("s").not_in(["s1", "changed"]),
    "sum": lambda c: c("id") + c("v") > 20,
    "not equal": lambda c: c("v") != 1.0,
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_select_what_ray_selects_of_rows_in_memory(table: Table, name: str) -> None:
    from ray.data.expressions import col

    condition = FILTERS[name](col)
    theirs = ray.data.from_arrow(table.to_arrow()).filter(expr=condition).select_columns(["id"])
    ours = read_table(table).filter(expr=condition).select_columns(["id"])
    assert in_order(arrow(ours)) == in_order(arrow(theirs))


def test_a_filter_opens_few_files(table: Table) -> None:
    from ray.data.expressions import col

    found: list[pa.Table] = []
    query = read_table(table).filter(expr=(col("id") > 150) & (col("s") == "s1")).select_columns(["v", "id"])
    files = opened(table, lambda: found.append(arrow(query)))
    assert files == opened(table, lambda: table.count("id > 150 and s = 's1'"))
    assert in_order(found[0]) == in_order(table.to_arrow(["v", "id"], where="id > 150 and s = 's1'"))
    by_python = read_table(table).filter(lambda row: row["id"] > 150).select_columns(["id"])
    assert in_order(arrow(by_python)) == in_order(table.to_arrow(["id"], where="id > 150"))


def test_a_table_without_rows_is_a_dataset_without_rows(tmp_path: Path) -> None:
    dataset = read_table(a_table(tmp_path / "none", schema=SCHEMA))
    assert (dataset.count(), dataset.schema().names) == (0, SCHEMA.names)


def test_all_tasks_are_one_commit(table: Table) -> None:
    before = len(table.history())
    rows = pa.concat_tables([batch(5), batch(300)]).set_column(2, "s", pa.array(["new"] * 24))
    result = write_table(ray.data.from_arrow(rows).repartition(5), table)
    assert (result.operation, result.rows.updated, result.rows.inserted) == ("upsert", 7, 17)
    assert len(table.history()) == before + 1
    assert table.count("s = 'new'") == 24
    assert is_clean(table)


def test_operations_are_called_by_name(table: Table) -> None:
    write_table(read_table(table, ["id"], where="id = 3"), table, "delete")
    assert (len(table), table.count("id = 3")) == (35, 0)
    write_table(read_table(table, where="id > 200"), table.location, "insert_overwrite_table")
    assert sorted(table.to_arrow()["id"].to_pylist()) == list(range(201, 212))
    result = write_table(read_table(table), table, "bulk_insert", extra_metadata={"job": "7"})
    assert (len(table), table.history()[0].instant_time) == (22, result.instant_time)
    nothing = read_table(table).filter(lambda row: False)
    assert write_table(nothing, table).rows.incoming == 0
    assert len(table) == 22
    write_table(read_table(table, where="id < 0"), table, "insert_overwrite_table")
    assert len(table) == 0


def test_pandas_blocks_are_written(table: Table) -> None:
    dataset = read_table(table, where="id > 205").map_batches(lambda frame: frame.assign(s="pd"), batch_format="pandas")
    assert write_table(dataset, table).rows.updated == 6
    assert table.count("s = 'pd'") == 6
    assert table.read().schema == SCHEMA


def test_a_failed_task_leaves_the_table_as_it_was(table: Table) -> None:
    before, rows = table.history(), in_order(table.to_arrow())

    def fail(block: pa.Table) -> pa.Table:
        if block.num_rows and max(block["id"].to_pylist()) > 200:
            raise ValueError("one block")
        return block

    with pytest.raises(Exception, match="one block"):
        write_table(read_table(table, override_num_blocks=4).map_batches(fail, batch_format="pyarrow"), table)
    assert table.history() == before
    assert in_order(table.to_arrow()) == rows


def test_a_sink_discards_the_rows_of_its_tasks(table: Table) -> None:
    from ray.data._internal.execution.interfaces import TaskContext

    from lakeformat.integrations.ray import LakeformatDatasink

    sink = LakeformatDatasink(table)
    (written,) = sink.write([batch(5)], TaskContext(task_idx=3, op_name="Write"))
    assert (written.rows, written.order, is_clean(table)) == (12, (3, 0), False)
    sink.on_write_failed(ValueError("a task"))
    assert is_clean(table)
