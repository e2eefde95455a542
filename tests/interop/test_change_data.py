"""Tables that log their changes, written in turns with Apache Hudi: its CDC query and ours return the same changes.

The turns avoid known differences: Hudi cannot read a range in which its operation insert has packed rows into a small
file; 0.15.0 returns the last row of a replaced file group as often as the group has rows; 1.2.0 reads no log files of
tables of version 6.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import Table
from tests.helpers.hudi_spark import Hudi
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.interop

SCHEMA: Final = a_schema(id="string", region="string", ts="int64", v="int64")
CDC: Final = "hoodie.table.cdc.enabled"
MODE: Final = "hoodie.table.cdc.supplemental.logging.mode"
QUERY: Final = {
    "hoodie.datasource.query.type": "incremental",
    "hoodie.datasource.query.incremental.format": "cdc",
}
#: No writer cleans: the changes of the first commits are read at the end.
KEPT: Final = {"hoodie.clean.automatic": "false"}
BEGIN: Final = "hoodie.datasource.read.begin.instanttime"
END: Final = "hoodie.datasource.read.end.instanttime"
COW: Final = "COPY_ON_WRITE"
MOR: Final = "MERGE_ON_READ"
MODES: Final = ("OP_KEY_ONLY", "DATA_BEFORE", "DATA_BEFORE_AFTER")
OFTEN: Final = {
    ("0.15.0", "6", COW, "DATA_BEFORE"),
    ("1.2.0", "9", COW, "DATA_BEFORE_AFTER"),
    ("1.2.0", "9", MOR, "OP_KEY_ONLY"),
    ("1.2.0", "8", COW, "OP_KEY_ONLY"),
}
CASES: Final = [
    case
    for case in itertools.product(("0.15.0", "1.2.0"), ("6", "8", "9"), (COW, MOR), MODES)
    if (case[0] != "0.15.0" or case[1] == "6") and case[:3] != ("1.2.0", "6", MOR)
]


def rows(keys: str, ts: int, v: int | None) -> pa.Table:
    regions = ["r1" if key < "m" else "r2" for key in keys]
    return pa.table([[*keys], regions, [ts] * len(keys), [v] * len(keys)], schema=SCHEMA)


def plain_image(image: Any) -> Any:
    found = json.loads(image) if isinstance(image, str) else image
    if found is None:
        return None
    return {name: value for name, value in found.items() if value is not None and not name.startswith("_hoodie")}


def changes_as_text(changes: pa.Table) -> list[str]:
    documents = (
        {**row, "before": plain_image(row["before"]), "after": plain_image(row["after"])} for row in changes.to_pylist()
    )
    return sorted(json.dumps(row, sort_keys=True) for row in documents)


def assert_same_changes(hudi: Hudi, table: Table, path: Path) -> None:
    """Compare the changes of all commits, of the last three, and of those before the last three."""
    bounds = sorted(instant.completed_at for instant in table.snapshot().timeline.commits)
    middle = bounds[-4] if len(bounds) > 3 else "000"
    for begin, end in [("000", None), (middle, None), ("000", middle)]:
        asked = {**QUERY, BEGIN: begin, **({END: end} if end else {})}
        ours = changes_as_text(table.changes(begin, end, images=True).to_arrow())
        assert changes_as_text(hudi.read(path, options=asked)) == ours, (begin, end)


@pytest.mark.parametrize(
    ("hudi", "version", "kind", "mode"),
    [pytest.param(*case, marks=() if case in OFTEN else pytest.mark.nightly, id="-".join(case)) for case in CASES],
    indirect=["hudi"],
)
def test_both_read_the_change_data_of_alternating_writes(
    hudi: Hudi, version: str, kind: str, mode: str, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    options = {"hoodie.write.table.version": version, "table_type": kind, CDC: "true", MODE: mode, **KEPT}
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="region", ordering="ts", **options)
    theirs = {
        "hoodie.datasource.write.table.type": kind,
        "hoodie.compact.inline": "false",
        "hoodie.clean.automatic": "false",
    }
    if hudi.version != "0.15.0":
        theirs |= {"hoodie.write.table.version": version, "hoodie.table.ordering.fields": "ts"}
    table.insert(rows("abcdxy", 1, 1))
    table.upsert(rows("aex", 2, None))
    table.delete(where="id = 'b'")
    table.upsert(rows("d", 0, 9))
    assert_same_changes(hudi, table, path)
    hudi.write(path, rows("cez", 3, 3), "upsert", **theirs)
    hudi.delete(path, rows("x", 4, 0), **theirs)
    table.update({"v": 7}, where="region = 'r1'")
    table.insert(rows("fw", 5, 5))
    assert_same_changes(hudi, table, path)
    if kind == MOR:
        table.compact()
    table.merge(rows("ag", 6, 6)).when_matched_delete().when_not_matched_insert().execute()
    hudi.write(path, rows("fh", 7, 7), "upsert", **theirs)
    table.delete(rows("wyz", 8, 0).select(["id", "region"]))
    assert_same_changes(hudi, table, path)
    held: dict[str, Any] = {}
    for change in sorted(table.changes("000", images=True).to_arrow().to_pylist(), key=lambda each: each["ts_ms"]):
        assert held.pop((change["after"] or change["before"])["id"], None) == change["before"]
        if change["after"] is not None:
            held[change["after"]["id"]] = change["after"]
    assert held == {row["id"]: row for row in table.to_arrow(meta_columns=False).to_pylist()}
