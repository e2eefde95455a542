"""Change data: Hudi's own answers, tables that do not log changes, and changes that were cleaned away."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import InstantNotAvailableError, InvalidInputError, Table
from lakeformat.storage import LocalStorage
from tests.helpers.examples import examples
from tests.helpers.fixture_tables import names, read_expectations, unpack
from tests.helpers.tables import a_schema, a_table

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
KEY = ["_hoodie_partition_path", "_hoodie_record_key"]
#: A version that loses fills fields of the version that stays; the commit of the row does not change.
FILLED = {"hudi_merge_rules/v9_mor_debezium_postgres", "hudi_merge_rules/v9_mor_merge_into"}


def as_hudi_json(value: Any) -> Any:
    """Return a value as in the JSON of Hudi: days and microseconds, without nulls."""
    if isinstance(value, dict):
        return {key: as_hudi_json(each) for key, each in value.items() if each is not None}
    if isinstance(value, datetime):
        return int((value.replace(tzinfo=timezone.utc) - EPOCH).total_seconds() * 1_000_000)
    return (value - EPOCH.date()).days if isinstance(value, date) else value


def count_rows(rows: list[Any]) -> Counter[str]:
    return Counter(json.dumps(as_hudi_json(row), sort_keys=True) for row in rows)


@pytest.mark.parametrize("name", [name for name in names("hudi_changes") if read_expectations(name)["cdc"]])
def test_change_images_equal_hudis(name: str, tmp_path: Path) -> None:
    """The reader needs no change data, while Hudi fails if a commit wrote none into a file that it rewrote."""
    table, seen = lakeformat.open(unpack(name, tmp_path)), 0
    for read in read_expectations(name)["reads"]:
        if read["format"] == "cdc" and isinstance(read["rows"], list):
            found = table.changes(read["begin"], read["end"] or None, images=True).to_arrow()
            assert count_rows(plain(found)) == count_rows(read["rows"]), read
            seen += 1
    assert seen > 5


def text_of(row: Any) -> str:
    return json.dumps(row, sort_keys=True, default=repr)


def plain(rows: pa.Table) -> list[Any]:
    return rows.to_pylist(maps_as_pydicts="strict")


@pytest.mark.parametrize("name", ["hudi_changes/v6_cow_cdc", "hudi_changes/v9_cow_cdc_data_before"])
def test_logged_images_outlive_the_versions_before(name: str, tmp_path: Path) -> None:
    """Only the newest version of each file group is left, with the change data that its commit wrote."""
    table = lakeformat.open(unpack(name, tmp_path))
    asked = [read for read in read_expectations(name)["reads"] if read["format"] == "cdc" and read["end"]]
    live = {file.path for file in table.snapshot().files}
    newest = {file.name.instant_time for file in table.snapshot().files}
    for file in tmp_path.rglob("*.parquet"):
        path = str(file.relative_to(table.context.storage.location))
        if not path.startswith(".hoodie") and path not in live:
            file.unlink()
    seen = 0
    for read in asked:
        if (
            read["rows"]
            and {row["ts_ms"] for row in read["rows"]} <= newest
            and all(row["op"] == "u" for row in read["rows"])
        ):
            assert count_rows(plain(table.changes(read["begin"], read["end"], images=True).to_arrow())) == count_rows(
                read["rows"]
            )
            with pytest.raises(InstantNotAvailableError, match="cleaned away; begin at"):
                table.changes(read["begin"], read["end"], images=True).to_arrow(["_hoodie_record_key"])
            seen += 1
    assert seen


TABLES = [
    name
    for folder in ("hudi_changes", "hudi_mor_v6", "hudi_v8_v9", "hudi_merge_rules", "hudi_v6", "own_histories")
    for name in names(folder)
    if "archived" not in name and name not in FILLED
]


@pytest.mark.parametrize("name", TABLES)
def test_applied_changes_give_the_table(name: str, tmp_path: Path) -> None:
    table = lakeformat.open(unpack(name, tmp_path))
    rows = table.to_arrow(meta_columns=True)
    columns = [*KEY, *(name for name in rows.column_names if not name.startswith("_hoodie_"))]
    held: dict[tuple[str, ...], str] = {}  # Rows are texts, because NaN is not equal to itself.
    for change in plain(table.changes("000", images=True).to_arrow(columns)):
        image = change["before"] or change["after"]
        assert held.pop(tuple(image[name] for name in KEY), "null") == text_of(change["before"])
        if change["after"] is not None:
            held[tuple(change["after"][name] for name in KEY)] = text_of(change["after"])
    assert held == {tuple(row[name] for name in KEY): text_of(row) for row in plain(rows.select(columns))}


SCHEMA = a_schema(id="string", v="int64")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["upsert", "delete", "overwrite", "cluster", "update"]),
        st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9)),
    ),
    min_size=1,
    max_size=6,
)


def list_changes(before: dict[str, int], after: dict[str, int], touched: set[str]) -> list[tuple[str, Any, Any]]:
    """Return for each key that a commit touched: the change, and the row before and after."""
    rows = (((key, of[key]) if key in of else None for of in (before, after)) for key in touched)
    return [("u" if old and new else "i" if new else "d", old, new) for old, new in rows if old or new]


def rows_of(values: dict[str, int]) -> pa.Table:
    return pa.table({"id": list(values), "v": list(values.values())}, schema=SCHEMA)


MOR = {"table_type": "MERGE_ON_READ"}
KINDS: list[dict[str, Any]] = [
    {},
    {**MOR, "hoodie.write.table.version": 6},
    {**MOR, "hoodie.write.table.version": 9},
    {**MOR, "hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2},
]


@settings(max_examples=examples(30))
@given(STEPS, st.sampled_from(KINDS))
def test_change_images_of_any_range_equal_the_model(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], kind: dict[str, Any]
) -> None:
    """The model records the change of each key in each commit."""
    table = lakeformat.create(tmp_path_factory.mktemp("images") / "t", SCHEMA, record_key="id", **kind)
    held: dict[str, int] = {}
    history: list[tuple[str, list[tuple[str, Any, Any]]]] = [("000", [])]
    ends = ["000"]  # The completion time of each commit.
    for verb, values in steps:
        before = dict(held)
        if verb == "cluster" or not values:
            if not held:
                continue
            served = table.compact() if kind else table.cluster(by=["v"])
            if not served.skipped:
                history.append((served.instant_time, []))
                ends.append(table.changes("000", images=True).until)
            continue
        if verb == "update":
            touched = {key for key, value in held.items() if value > 4}
            held |= dict.fromkeys(touched, 1)
            instant = table.update({"v": 1}, where="v > 4").instant_time
        elif verb == "delete":
            touched = set(values)
            held = {key: value for key, value in held.items() if key not in values}
            instant = table.delete(rows_of(values).select(["id"])).instant_time
        else:
            touched = {*values, *held} if verb == "overwrite" else set(values)
            held = values if verb == "overwrite" else {**held, **values}
            instant = getattr(table, verb)(rows_of(values)).instant_time
        history.append((instant, list_changes(before, held, touched)))
        ends.append(table.changes("000", images=True).until)
    for start, since in enumerate(ends):
        for end in range(max(start, 1), len(ends)):
            wanted = Counter((time, *change) for time, changes in history[start + 1 : end + 1] for change in changes)
            assert Counter(read_images(table, since, ends[end])) == wanted


def test_slice_that_a_commit_appended_to_is_read_once(tmp_path: Path) -> None:
    opened: list[str] = []

    class Counting(LocalStorage):
        def open_input(self, path: str) -> Any:
            opened.append(path)
            return super().open_input(path)

    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **MOR)
    for values in ({"a": 1, "b": 2, "c": 3}, {"b": 3}, {"a": 7}):
        seen = table.upsert(rows_of(values)).instant_time
    table.delete(rows_of({"b": 0}).select(["id"]))
    changes = Table(Counting(str(tmp_path / "t")), table.options).changes(seen, images=True)
    opened.clear()
    assert [each["op"] for each in changes.to_arrow().to_pylist()] == ["d"]
    files = Counter(path for path in opened if path.endswith(".parquet"))
    assert list(files.values()) == [1]


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_change_images_of_every_kind_of_table(version: int, kind: str, tmp_path: Path) -> None:
    options = {"hoodie.write.table.version": version, "hoodie.datasource.write.table.type": kind}
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", **options)
    for values in ({"a": 1, "b": 2}, {"b": 3, "c": 4}):
        table.upsert(rows_of(values))
    seen = table.changes("000", images=True).until
    table.delete(rows_of({"b": 0}).select(["id"]))
    table.upsert(rows_of({"b": 9}))
    if kind == "MERGE_ON_READ":
        table.compact()
    table.upsert(rows_of({"a": 7}))
    since = [("d", ("b", 3), None), ("i", None, ("b", 9)), ("u", ("a", 1), ("a", 7))]
    first = [("i", None, ("a", 1)), ("i", None, ("b", 2)), ("i", None, ("c", 4)), ("u", ("b", 2), ("b", 3))]
    assert [change[1:] for change in read_images(table, seen)] == since
    assert sorted((change[1:] for change in read_images(table, "000", seen)), key=str) == sorted(first, key=str)


def read_images(table: Table, since: str, until: str | None = None) -> list[Any]:
    def image(row: Any) -> Any:
        return None if row is None else (row["id"], row["v"])

    changes = table.changes(since, until, images=True).to_arrow().to_pylist()
    return [(each["ts_ms"], each["op"], image(each["before"]), image(each["after"])) for each in changes]


def test_missing_earlier_version_is_reported(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id")
    first, second = (table.upsert(rows_of({"a": value})).instant_time for value in (1, 2))
    assert read_images(table, first) == [(second, "u", ("a", 1), ("a", 2))]
    (old,) = (tmp_path / "t").glob(f"*_{first}.parquet")
    old.unlink()
    with pytest.raises(InstantNotAvailableError, match=f"{first}.*commit {second} changed.*begin at {second} or later"):
        table.changes(first, images=True)
    assert read_images(table, second) == []
    assert table.changes(second, images=True).until == second
    archived = lakeformat.open(unpack("hudi_changes/v9_cow_archived", tmp_path))
    with pytest.raises(InstantNotAvailableError, match=r"commits up to 20261122152605546 have been archived; begin at"):
        archived.changes("000", images=True)


def test_columns_of_the_images(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id")
    assert table.changes("000", images=True).to_arrow().num_rows == 0
    table.upsert(rows_of({"a": 1}))
    changes = table.changes("000", images=True).to_arrow(["_hoodie_record_key", "v"]).to_pylist()
    assert changes[0]["after"] == {"_hoodie_record_key": "a", "v": 1}
    with pytest.raises(InvalidInputError, match=r"unknown column 'w'; the table has"):
        table.changes("000", images=True).to_arrow(["w"])


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ("id = 1", lambda row: row["id"] == 1),
        ("v is null", lambda row: row["v"] is None),
        ("v = 'x' and id < 2", lambda row: row["v"] == "x" and row["id"] < 2),
        ("id > 5", lambda row: False),
    ],
)
@pytest.mark.parametrize("columns", [None, ["v"], ["id"]])
def test_a_condition_chooses_changes_whose_row_matches_before_or_after(
    columns: list[str] | None, where: str, chosen: Any
) -> None:
    table = a_table(rows=pa.table({"id": range(4), "v": ["x", "x", None, "y"]}), operation="upsert")
    table.upsert(pa.table({"id": [1, 2], "v": pa.array([None, "z"])}))
    table.delete(pa.table({"id": [0, 2]}))
    images = table.changes("000", images=True)
    full, narrow = images.to_arrow(["id", "v"]).to_pylist(), images.to_arrow(columns).to_pylist()
    right = [
        shown
        for row, shown in zip(full, narrow, strict=True)
        if any(row[side] is not None and chosen(row[side]) for side in ("before", "after"))
    ]
    assert images.to_arrow(columns, where=where).to_pylist() == right
