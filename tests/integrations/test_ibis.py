"""ibis reads a table as a pyarrow dataset through DuckDB. `make nightly` has an environment for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakeformat import Table
from tests.helpers.engine_tables import has_log_files, in_order, new_engine_table, opened

pytestmark = pytest.mark.nightly

ibis = pytest.importorskip("ibis", reason="run make .venv-engines/.stamp")


def test_an_expression_has_the_rows_of_the_table(table: Table) -> None:
    rows = ibis.memtable(table.to_pyarrow_dataset())
    assert in_order(rows.to_pyarrow()) == in_order(table.to_arrow())
    counts = rows.group_by("s").aggregate(n=rows.count()).execute()
    assert int(counts["n"].sum()) == rows.count().execute() == len(table)
    first = table.history()[-1].instant_time
    past = ibis.memtable(table.to_pyarrow_dataset(as_of=first))
    assert in_order(past.to_pyarrow()) == in_order(table.to_arrow(as_of=first))


def test_a_filter_opens_few_files(table: Table) -> None:
    rows = ibis.memtable(table.to_pyarrow_dataset())
    found: list[Any] = []
    query = rows.filter(rows.id > 150, rows.s == "s1").select("id", "v")
    files = opened(table, lambda: found.append(query.to_pyarrow()))
    assert in_order(found[0]) == in_order(table.to_arrow(["id", "v"], where="id > 150 and s = 's1'"))
    assert files == opened(table, lambda: table.count("id > 150 and s = 's1'"))
    assert len(files) == (3 if has_log_files(table) else 1)


def test_joins_of_two_tables_run_in_duckdb(table: Table, tmp_path: Path) -> None:
    other = new_engine_table(tmp_path / "other", merge_on_read=False)
    one, two = (ibis.memtable(each.to_pyarrow_dataset()) for each in (table, other))
    assert one.join(two, "id").count().execute() == len(table)
