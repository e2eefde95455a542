"""Tables whose partitions have their own numbers of buckets: by Hudi's options, or by the rule of its procedure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import lakeformat
from lakeformat import CorruptTableError, InvalidOptionError
from lakeformat.index.bucket import bucket_of
from lakeformat.model.bucket_rule import BucketRule
from tests.helpers.fixture_tables import read_expectations, unpack
from tests.helpers.tables import a_schema, a_table

PLACE = "hudi_rest/"
EXPRESSIONS, COUNT = "hoodie.bucket.index.partition.expressions", "hoodie.bucket.index.num.buckets"
BUCKET = {"hoodie.index.type": "BUCKET", "lakeformat.compact.auto": "false"}
#: The options with which Hudi wrote the tables that store no rule.
RULE = {**BUCKET, EXPRESSIONS: "a.*,4;b,1", COUNT: "2"}
#: Fixture -> options of our writes.
TABLES: dict[str, Mapping[str, str]] = {
    "v9_cow_partition_buckets": RULE,
    "v6_mor_partition_buckets": RULE,
    "v9_cow_partition_buckets_sql": {},
    "v9_mor_partition_buckets_sql": {"lakeformat.compact.auto": "false"},
}
RULES = Path(".hoodie/.bucket_index/partition_bucket_index_meta/configs")
SCHEMA = a_schema(id="int64", v="int64", p="string")


def rows_of(path: Path) -> dict[int, str]:
    rows = lakeformat.open(path).to_arrow(columns=["id", "name"]).to_pylist()
    found = {row["id"]: row["name"] for row in rows}
    assert len(found) == len(rows), "a row is doubled"
    return found


def counts_of(path: Path) -> dict[str, int]:
    """Return the greatest bucket number of each partition, plus one."""
    found: dict[str, int] = {}
    for piece in lakeformat.open(path).files().to_pylist():
        number = bucket_of(piece["file_id"])
        assert number is not None
        found[piece["partition_path"]] = max(found.get(piece["partition_path"], 0), number + 1)
    return found


@pytest.mark.parametrize("name", TABLES)
def test_each_write_meets_the_rows_of_hudi(name: str, tmp_path: Path) -> None:
    path, options = unpack(PLACE + name, tmp_path), TABLES[name]
    model = {row["id"]: row["name"] for row in read_expectations(PLACE + name)["snapshot"]}
    parts = {row["id"]: row["part"] for row in read_expectations(PLACE + name)["snapshot"]}
    table = lakeformat.open(path, **options)
    # Hudi's procedure has left partition b as it was, with another number of buckets than its rule says.
    others = {i: part for i, part in parts.items() if part != "b" or not name.endswith("_sql")}
    stored: list[dict[str, Any]] = [{"id": i, "name": f"x{i}", "ts": 9, "part": part} for i, part in others.items()]
    fresh = [{"id": i, "name": f"y{i}", "ts": 9, "part": f"a{i % 3}"} for i in range(100, 160)]
    fresh += [{"id": i, "name": f"y{i}", "ts": 9, "part": "cde"[i % 3]} for i in range(200, 230)]
    table.upsert(stored)
    table.upsert(fresh)
    model |= {row["id"]: row["name"] for row in [*stored, *fresh]}
    assert rows_of(path) == model
    table.upsert([{**row, "name": "z", "ts": 10} for row in fresh])
    table.delete([{"id": row["id"], "ts": 11, "part": row["part"]} for row in fresh[::2]])
    model |= {row["id"]: "z" for row in fresh}
    model = {key: value for key, value in model.items() if key not in {row["id"] for row in fresh[::2]}}
    assert rows_of(path) == model
    table.insert_overwrite([{"id": 300, "name": "o", "ts": 1, "part": "a1"}])
    model = {key: value for key, value in model.items() if parts.get(key) != "a1"}
    model = {key: value for key, value in model.items() if not (100 <= key < 160 and key % 3 == 1)} | {300: "o"}
    assert rows_of(path) == model
    count = 8 if name.endswith("_sql") else 4
    for part, most in counts_of(path).items():
        is_single = part == "b" and not name.endswith("_sql")
        wanted = 1 if is_single else count if "a" in part.removeprefix("part=") else 2
        assert most <= wanted


@pytest.mark.parametrize("name", [name for name in TABLES if name.endswith("_sql")])
def test_a_partition_that_does_not_follow_its_rule_is_refused(name: str, tmp_path: Path) -> None:
    path = unpack(PLACE + name, tmp_path)
    before = rows_of(path)
    with pytest.raises(InvalidOptionError, match=r"part=b/.* holds keys of other buckets"):
        lakeformat.open(path).upsert([{"id": 6, "name": "x", "ts": 9, "part": "b"}])
    assert rows_of(path) == before


@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("merge_on_read", [False, True])
def test_a_new_table_has_the_buckets_of_its_rule(merge_on_read: bool, version: int, tmp_path: Path) -> None:
    path = tmp_path / "t"
    rows = [{"id": i, "v": i, "p": ("a1", "b", "ab", "c")[i % 4]} for i in range(200)]
    given = {**BUCKET, EXPRESSIONS: "b,1;a,8", COUNT: "3"}
    table = a_table(path, schema=SCHEMA, partition_by="p", merge_on_read=merge_on_read, version=version, **given)
    table.upsert(rows)
    table.upsert([{**row, "v": -1} for row in rows])
    assert counts_of(path) == {"a1": 8, "b": 1, "ab": 1, "c": 3}
    found = lakeformat.open(path).to_arrow()
    assert found.num_rows == len(rows)
    assert set(found["v"].to_pylist()) == {-1}
    with pytest.raises(InvalidOptionError, match="are buckets, and new ones must be, too"):
        lakeformat.open(path).upsert(rows)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"hoodie.index.type": "SIMPLE"}, "needs BUCKET"),
        ({**BUCKET, COUNT: "8"}, "num.buckets differs from the rule"),
        ({**BUCKET, EXPRESSIONS: "b,1"}, "expressions differs from the rule"),
    ],
)
def test_options_that_contradict_the_stored_rule_are_refused(
    options: Mapping[str, str], text: str, tmp_path: Path
) -> None:
    path = unpack(f"{PLACE}v9_cow_partition_buckets_sql", tmp_path)
    before = sorted(path.rglob("*"))
    with pytest.raises(InvalidOptionError, match=text):
        lakeformat.open(path, **options).upsert([{"id": 1, "name": "x", "ts": 9, "part": "a1"}])
    assert sorted(path.rglob("*")) == before


def test_a_rule_of_a_pending_instant_does_not_count_yet_and_damage_is_named(tmp_path: Path) -> None:
    path = unpack(f"{PLACE}v9_cow_partition_buckets_sql", tmp_path)
    (path / ".hoodie/timeline/20261129065729139.replacecommit.requested").write_bytes(b"")
    newer = path / RULES / "20261129065729139.hashing_config"
    newer.write_text(json.dumps({"expressions": "a,1", "defaultBucketNumber": 1, "rule": "regex"}))
    row = [{"id": 1, "name": "again", "ts": 9, "part": "a1"}]
    lakeformat.open(path).upsert(row)
    assert rows_of(path)[1] == "again"
    newer.unlink()
    (older,) = (path / RULES).glob("*.hashing_config")
    older.write_text("{")
    with pytest.raises(CorruptTableError, match=r"hashing_config is no rule"):
        lakeformat.open(path).upsert(row)


@pytest.mark.parametrize("text", ["a", "a,0", "a,x", "(,3", "a,100001"])
def test_bad_expressions_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOptionError, match="expression"):
        a_table(tmp_path / "t", schema=SCHEMA, **{**BUCKET, EXPRESSIONS: text})


def test_the_first_expression_that_is_found_decides() -> None:
    # The numbers of Hudi 1.2.0 for these rules: one bucket each for b, ba, cb, ab and abc.
    rule = BucketRule.parse("b,1;ab,2;a.*,4", 7)
    assert [rule.buckets_of(path) for path in ("b", "ba", "cb", "ab", "abc")] == [1, 1, 1, 1, 1]
    assert [rule.buckets_of(path) for path in ("a", "xa1", "c", "")] == [4, 4, 7, 7]
