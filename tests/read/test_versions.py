"""Time travel by version number: one meaning in Python, SQL, on the command line and in options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InstantNotAvailableError, InvalidOptionError, Table
from lakeformat.cli.main import main
from tests.helpers.tables import a_batch, a_schema

SCHEMA = a_schema(id="int64", v="int64")


def rows(*ids: int, v: int = 0) -> pa.Table:
    return a_batch(SCHEMA, id=ids, v=v)


@pytest.fixture(params=[6, 8, 9])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """Make three commits, of one, two and three rows, and a savepoint, which is not a commit."""
    options = {"hoodie.write.table.version": request.param, "hoodie.archive.automatic": False}
    options |= {"hoodie.clean.automatic": False, "hoodie.clean.commits.retained": 1}
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **options)
    for number in range(3):
        table.upsert(rows(number, v=number))
    table.savepoint()
    return table


#: Name -> the number of rows of a version, by one of the ways to read.
WAYS: dict[str, Callable[[Table, Any], int]] = {
    "to_arrow": lambda t, n: t.to_arrow(as_of=n).num_rows,
    "to_batches": lambda t, n: t.to_batches(as_of=n).read_all().num_rows,
    "to_pandas": lambda t, n: len(t.to_pandas(as_of=n)),
    "to_polars": lambda t, n: t.to_polars(as_of=n).height,
    "lazy polars": lambda t, n: t.to_polars(lazy=True, as_of=n).collect().height,
    "a dataset": lambda t, n: t.to_pyarrow_dataset(as_of=n).count_rows(),
    "duckdb": lambda t, n: len(t.to_duckdb(as_of=n).fetchall()),
    "count": lambda t, n: t.count(as_of=n),
    "read": lambda t, n: t.read(as_of=n).count(),
    "parts": lambda t, n: sum(lakeformat.read_part(part).read_all().num_rows for part in t.read(as_of=n).parts(4)),
    "files": lambda t, n: sum(t.files(as_of=n)["rows"].to_pylist()),
    "lakeformat.scan": lambda t, n: lakeformat.scan(t.path, as_of=n).count(),
    "versionAsOf": lambda t, n: lakeformat.open(t.path, versionAsOf=n).count(),
    "as.of.instant": lambda t, n: lakeformat.open(t.path, **{"as.of.instant": n}).count(),
    "sql": lambda t, n: lakeformat.sql(f"select * from t version as of {n}", t=t).num_rows,  # noqa: S608
}


@pytest.mark.parametrize("way", WAYS)
def test_version_is_the_number_of_a_commit_from_0(way: str, table: Table) -> None:
    assert [WAYS[way](table, number) for number in range(3)] == [1, 2, 3]
    with pytest.raises(InstantNotAvailableError, match=r"/t has no version 3; it has versions 0 to 2$"):
        WAYS[way](table, 3)


def test_history_shows_the_version_of_each_commit(table: Table) -> None:
    entries = table.history(actions=True)
    assert [each.version for each in entries if each.is_commit] == [2, 1, 0]
    assert [each.version for each in entries if not each.is_commit] == [None]
    assert [each.version for each in table.history(1)] == [2]
    for each in table.history():
        assert table.count(as_of=each.version) == table.count(as_of=each.instant_time)


@pytest.mark.parametrize("given", [1, "1", " 1 ", np.int64(1)])
def test_version_may_be_a_number_or_text(given: Any, table: Table) -> None:
    assert table.count(as_of=given) == 2
    instant = table.history()[1].instant_time
    assert table.count(as_of=int(instant)) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [True, 1.0, 20240101, "20240101", 1_700_000_000_000])
def test_other_numbers_are_not_versions(given: Any, table: Table) -> None:
    with pytest.raises(InvalidOptionError, match=r"is not an instant; .* or a version number of history\(\)"):
        table.count(as_of=given)
    with pytest.raises(InstantNotAvailableError, match="no version -1; it has versions 0 to 2"):
        table.count(as_of=-1)


def test_empty_table_has_no_version(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id")
    with pytest.raises(InstantNotAvailableError, match="no version 0; it has no commit yet"):
        table.count(as_of=0)


@pytest.mark.parametrize("to", [1, "1"])
def test_restore_takes_a_version(to: Any, table: Table) -> None:
    table.delete_savepoint(table.savepoints()[0].instant_time)
    instant = table.history()[1].instant_time
    assert table.restore(to, dry_run=True).target == instant
    assert table.restore(to).target == instant
    assert table.count() == 2
    assert [each.version for each in table.history()] == [1, 0]
    table.upsert(rows(7))
    assert table.history()[0].version == 2
    assert table.count(as_of=2) == 3


def test_archived_commits_keep_their_versions(table: Table) -> None:
    table.delete_savepoint(table.savepoints()[0].instant_time)
    for number in range(3, 9):
        table.upsert(rows(number))
    before = [(each.version, each.instant_time) for each in table.history()]
    table.archive(min_commits=3, max_commits=4)
    table.clean(versions=1)
    first = min(table.context.store.load().commit_times)
    assert first > before[-1][1]
    assert [(each.version, each.instant_time) for each in table.history()] == before
    assert [each.version for each in table.history(2)] == [8, 7]
    with pytest.raises(InstantNotAvailableError, match=r"cleaned|archived|deleted"):
        table.count(as_of=0)
    with pytest.raises(InstantNotAvailableError, match="oldest commit that is not archived"):
        table.restore(0)


def test_command_line_takes_and_shows_versions(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["read", table.path, "--as-of", "0", "--count"]) == 0
    assert capsys.readouterr().out == "1\n"
    assert main(["history", table.path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["version", "instant"]
    assert main(["history", table.path, "--commits", "--json"]) == 0
    assert [each["version"] for each in json.loads(capsys.readouterr().out)] == [2, 1, 0]
    table.delete_savepoint(table.savepoints()[0].instant_time)
    assert main(["restore", table.path, "0", "--yes"]) == 0
    assert table.count() == 1
