"""Random SQL statements leave the same rows in a table through ``lakeformat.sql`` as in duckdb itself."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInputError
from tests.helpers.random_sql import (
    COLUMNS,
    other_rows,
    random_change,
    random_query,
    refusals,
    rows_as_text,
    start_rows,
)

KINDS = {
    "cow": {"record_key": "id"},
    "cow in partitions": {"record_key": "id", "partition_by": "part"},
    "cow without keys": {},
    "mor in partitions": {"record_key": "id", "partition_by": "part", "table_type": "MERGE_ON_READ"},
    "mor without keys": {"table_type": "MERGE_ON_READ"},
}
FIRST_KINDS = ("cow in partitions", "mor in partitions")


class Oracle:
    """The same rows in duckdb alone."""

    def __init__(self, rows: pa.Table, other: pa.Table, zone: str) -> None:
        self.connection = duckdb.connect()
        self.connection.execute(f"set TimeZone = '{zone}'")
        for name, given in (("t", rows), ("other", other)):
            self.connection.register(f"given_{name}", given)
            self.connection.execute(f"create table {name} as from given_{name}")

    def rows(self, text: str) -> list[str] | None:
        """Return the answer of a query, None if duckdb refuses the query."""
        try:
            return rows_as_text(self.connection.sql(text).to_arrow_table())
        except duckdb.Error:
            return None

    def run(self, text: str) -> bool:
        """Run a statement in a transaction of its own. Return whether duckdb accepted it."""
        self.connection.execute("begin")
        try:
            self.connection.execute(text)
        except duckdb.Error:
            self.connection.execute("rollback")
            return False
        return True

    def end(self, *, keep: bool) -> None:
        self.connection.execute("commit" if keep else "rollback")


def check_query(text: str, oracle: Oracle, **how: Any) -> bool:
    wanted = oracle.rows(text)
    if wanted is None:
        with pytest.raises(InvalidInputError):
            lakeformat.sql(text, **how)
        return False
    assert rows_as_text(lakeformat.sql(text, **how)) == wanted, text
    return True


def check_change(text: str, oracle: Oracle, t: lakeformat.Table, **how: Any) -> bool:
    ran, refused = oracle.run(text), ""
    try:
        lakeformat.sql(text, t=t, **how)
    except InvalidInputError as error:
        refused = str(error)
    if refused:
        assert not ran or re.search(refusals(), refused), f"{text}: {refused}"
        if ran:
            oracle.end(keep=False)
        return False
    assert ran, text
    oracle.end(keep=True)
    assert rows_as_text(t.to_arrow(COLUMNS.names)) == oracle.rows("select * from t"), text
    return True


def play(kind: str, seed: int, steps: int, path: Path) -> int:
    random = Random(f"{kind} {seed}")
    rows, other = start_rows(random, range(30)), other_rows(random)
    zone = random.choice(["UTC", "Asia/Tokyo", "America/Los_Angeles"])
    table = lakeformat.create(path, COLUMNS, **KINDS[kind])
    table.bulk_insert(rows)
    oracle = Oracle(rows, other, zone)
    how = {"t": table, "other": other, "time_zone": zone}
    done = 0
    for step in range(steps):
        done += check_query(random_query(random), oracle, **how)
        done += check_change(random_change(random, 1000 + step), oracle, **how)
    return done


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in FIRST_KINDS else pytest.mark.slow) for kind in KINDS]
)
def test_random_statements_equal_duckdb(kind: str, tmp_path: Path) -> None:
    assert play(kind, 1, 8, tmp_path / "t") > 4


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (4, 5))])
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_statements_equal_duckdb(kind: str, seed: int, tmp_path: Path) -> None:
    assert play(kind, seed, 16, tmp_path / "t") > 8
