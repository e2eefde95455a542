"""Hudi's tables of every version and type: the rows equal those that their Hudi reads, at each instant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakeformat
from lakeformat import InstantNotAvailableError
from tests.helpers import hudi_rs
from tests.helpers.fixture_tables import names, read_expectations, unpack
from tests.read.test_fixture_tables import to_json_value

COLLECTIONS = (
    "hudi_mor_v6",
    "hudi_v8_v9",
    "hudi_upgraded",
    "hudi_life",
    "hudi_changes",
    "hudi_merge_rules",
    "own_histories",
)
#: Columns that the JSON files leave out.
UNSAID = frozenset({"_hoodie_commit_seqno", "_hoodie_file_name"})
#: Hudi 0.15.0 made it. 0.15.0 has two rules for late updates within the log; later releases and lakeformat have one.
OLD_RULE = "hudi_mor_v6/mor6_latest_within_log"
#: The table was upgraded while a compaction was pending: Hudi then loses the commits after the plan.
LOST_BY_HUDI = "hudi_upgraded/up_v6_v9_mor_pending"
Rows = list[dict[str, Any]]


def check_same_rows(found: Rows, wanted: Rows) -> None:
    """Compare rows without their order.

    Columns that a JSON row lacks are null; meta columns that all rows lack are ignored.
    """
    said = {name for row in wanted for name in row}
    shown = [
        {n: to_json_value(v) for n, v in row.items() if n in said or not n.startswith("_hoodie_")} for row in found
    ]
    columns = dict.fromkeys(name for row in shown for name in row)
    assert sorted(map(by_text, shown)) == sorted(by_text({**columns, **row}) for row in wanted)


def by_text(row: dict[str, Any]) -> list[tuple[str, str]]:
    return [(name, text_without_fraction(row[name])) for name in sorted(row)]


def text_without_fraction(value: Any) -> str:
    """Return a text without the fraction of whole seconds, which some JSON files leave out."""
    return repr(value.removesuffix(".000000") if isinstance(value, str) else value)


@pytest.mark.parametrize(
    "name", [n for collection in COLLECTIONS for n in names(collection) if n not in {OLD_RULE, LOST_BY_HUDI}]
)
def test_rows_equal_those_of_the_hudi_that_made_the_table(name: str, tmp_path: Path) -> None:
    folder, document = unpack(name, tmp_path), read_expectations(name)
    table = lakeformat.open(folder)
    check_same_rows(table.to_arrow(meta_columns=True).to_pylist(maps_as_pydicts="strict"), document["snapshot"])
    if "read_optimized" in document:
        older = lakeformat.open(folder, **{"hoodie.datasource.query.type": "read_optimized"})
        check_same_rows(
            older.to_arrow(meta_columns=True).to_pylist(maps_as_pydicts="strict"), document["read_optimized"]
        )
    for instant, rows in document.get("as_of", {}).items():
        if isinstance(rows, str):  # Hudi's error instead of rows.
            with pytest.raises(InstantNotAvailableError):
                table.to_arrow(as_of=instant)
        else:
            check_same_rows(table.to_arrow(as_of=instant, meta_columns=True).to_pylist(maps_as_pydicts="strict"), rows)


def test_merge_rule_of_later_hudi_releases_is_used(tmp_path: Path) -> None:
    table = lakeformat.open(unpack(OLD_RULE, tmp_path))
    for instant in (None, *read_expectations(OLD_RULE)["as_of"]):
        found = {row["_hoodie_record_key"]: row for row in hudi_rs.assert_same_rows(table, instant)}
    assert found["2"]["name"] == "late"


def test_rows_committed_after_the_plan_of_a_pending_compaction_survive_an_upgrade(tmp_path: Path) -> None:
    document = read_expectations(LOST_BY_HUDI)
    kept = {"name": "afterplan2", "price": 6.5, "ts": 500, "_hoodie_commit_time": "20261122152704661"}
    rows = [{**row, **kept} if row["_hoodie_record_key"] == "6" else row for row in document["snapshot"]]
    assert rows != document["snapshot"]
    table = lakeformat.open(unpack(LOST_BY_HUDI, tmp_path))
    check_same_rows(table.to_arrow(meta_columns=True).to_pylist(maps_as_pydicts="strict"), rows)
