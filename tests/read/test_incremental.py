"""Incremental queries against Hudi's own answers, a model, and the guarantees for a reader that follows a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakeformat
from lakeformat import InstantNotAvailableError, InvalidOptionError, Table, UnsupportedTableError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.instant import Action, Instant, State
from lakeformat.storage.local import LocalStorage
from lakeformat.storage.port import FileInfo
from tests.helpers.examples import examples
from tests.helpers.fixture_tables import names, read_expectations, unpack
from tests.helpers.tables import a_schema, a_table
from tests.read.test_hudi_fixtures import check_same_rows

TYPE, BEGIN = "hoodie.datasource.query.type", "hoodie.datasource.read.begin.instanttime"
END, FULL_SCAN = "hoodie.datasource.read.end.instanttime", "hoodie.datasource.read.incr.fallback.fulltablescan.enable"
HOLES = "hoodie.read.timeline.holes.resolution.policy"
END_COLUMNS = "hoodie.datasource.read.schema.use.end.instanttime"

#: For ranges that include archived commits, Hudi leaves rows out (0.15.0 most, 1.2.0 those that changed later). Range
#: -> the number of rows; None if files of its end have been cleaned away.
ARCHIVED: dict[tuple[str, str, str | None], int | None] = {
    ("v6_cow_archived", "000", "20261122151705176"): None,
    ("v6_cow_archived", "000", None): 8,
    ("v6_cow_archived", "000", "20261122151709561"): 7,
    ("v6_cow_archived", "20261122151643987", "20261122151646499"): None,
    ("v9_cow_archived", "000", "20261122152609312"): 6,
    ("v9_cow_archived", "000", "20261122152559784"): None,
    ("v9_cow_archived", "20261122152559784", "20261122152600899"): None,
}


@pytest.mark.parametrize("name", names("hudi_changes"))
def test_incremental_ranges_equal_hudis(name: str, tmp_path: Path) -> None:
    folder, document = unpack(name, tmp_path), read_expectations(name)
    for read in document["reads"]:
        if read["format"] != "latest_state":
            continue
        options = {TYPE: "incremental", BEGIN: read["begin"], **read["options"]}
        options |= {END: read["end"]} if read["end"] else {}
        case = (folder.name, read["begin"], read["end"])
        table = lakeformat.open(folder, **options)
        if case not in ARCHIVED or FULL_SCAN in read["options"]:
            check_same_rows(table.to_arrow(meta_columns=True).to_pylist(maps_as_pydicts="strict"), read["rows"])
        elif ARCHIVED[case] is None:
            with pytest.raises(InstantNotAvailableError, match=f"{FULL_SCAN}=true"):
                table.to_arrow()
        else:
            assert table.to_arrow().num_rows == ARCHIVED[case]


def rows(values: dict[str, int]) -> pa.Table:
    return pa.table({"id": list(values), "v": pa.array(values.values(), pa.int64())})


def new_table(folder: Path) -> Table:
    return a_table(folder / "t", schema=a_schema(id="string", v="int64"))


KEYS = st.sampled_from("abcdef")
STEPS = st.lists(
    st.tuples(st.sampled_from(["upsert", "delete", "overwrite", "cluster"]), st.dictionaries(KEYS, st.integers(0, 99))),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(25))
@given(STEPS)
def test_incremental_read_of_any_range_equals_the_model(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any]
) -> None:
    """The model stores, after each commit, the last commit and the value of each key."""
    table = new_table(tmp_path_factory.mktemp("incremental"))
    states: list[tuple[str, dict[str, tuple[str, int]]]] = [("000", {})]
    for verb, values in steps:
        held = dict(states[-1][1])
        if verb == "cluster":
            if not held:
                continue
            instant = table.cluster(by=["v"]).instant_time
        elif not values:
            continue
        elif verb == "delete":
            instant = table.delete(rows(values).select(["id"])).instant_time
            held = {key: value for key, value in held.items() if key not in values}
        else:
            instant = getattr(table, verb)(rows(values)).instant_time
            held = {} if verb == "overwrite" else held
            held |= {key: (instant, value) for key, value in values.items()}
        states.append((instant, held))
    for begin, _ in states:
        for end, held in states[1:]:
            changes = table.changes(begin, end)
            found = {row["id"]: row["v"] for row in changes.to_arrow(["id", "v"]).to_pylist()}
            assert found == {key: value for key, (instant, value) in held.items() if begin < instant <= end}
            if begin < end:
                assert changes.until == end


@pytest.mark.parametrize("kind", [{}, {"table_type": "MERGE_ON_READ"}], ids=["copy-on-write", "merge-on-read"])
def test_past_range_has_the_columns_of_today(kind: dict[str, str], tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", **kind)
    first = table.upsert(rows({"a": 1})).instant_time
    second = table.upsert(rows({"a": 2, "b": 1})).instant_time
    table.upsert([{"id": "b", "v": 3, "w": "new"}])
    answers = sorted(table.changes(first, second).to_arrow().to_pylist(), key=lambda row: row["id"])
    assert answers == [{"id": "a", "v": 2, "w": None}, {"id": "b", "v": 1, "w": None}]
    assert table.changes(first, second).to_arrow(where="w is not null").num_rows == 0
    then = lakeformat.open(tmp_path / "t", **{END_COLUMNS: "true"}).changes(first, second)
    assert then.to_arrow().schema.names == ["id", "v"]
    asked = lakeformat.open(tmp_path / "t", **{TYPE: "incremental", BEGIN: first, END: second})
    assert asked.to_arrow().schema.names == ["id", "v", "w"]


def test_consecutive_ranges_return_every_row_once(tmp_path: Path) -> None:
    table, seen, since = new_table(tmp_path), [], "000"
    for number in range(3):
        table.upsert(rows({f"k{number}": number}))
        changes = table.changes(since)
        seen += changes.to_arrow(where="v >= 0")["id"].to_pylist()
        since = changes.until
    assert seen == ["k0", "k1", "k2"]
    nothing = table.changes(since)
    assert (nothing.until, nothing.to_arrow().num_rows) == (since, 0)


def test_pending_older_commit_ends_the_range(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    first = table.upsert(rows({"a": 1})).instant_time
    late = Instant(str(int(first) + 1), Action.COMMIT, State.REQUESTED)
    table.upsert(rows({"b": 2}))
    table.context.store.request(late)
    changes = table.changes("000")
    assert (changes.until, changes.to_arrow()["id"].to_pylist()) == (first, ["a"])
    with pytest.raises(InstantNotAvailableError, match=f"{late.time}.* is pending"):
        lakeformat.open(tmp_path / "t", **{HOLES: "FAIL"}).changes("000")


def test_cleaned_files_fail_only_ranges_that_need_them(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("v", pa.int64()), ("p", pa.string())])
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", partition_by="p")
    first, second, _ = (
        table.upsert(pa.table({"id": [key], "v": [value], "p": [part]}, schema=schema)).instant_time
        for key, value, part in (("a", 1, "x"), ("b", 2, "y"), ("a", 3, "x"))
    )
    (old,) = (tmp_path / "t" / "x").glob(f"*_{first}.parquet")
    old.unlink()
    assert table.changes(first, second).to_arrow()["id"].to_pylist() == ["b"]
    assert sorted(table.changes("000").to_arrow()["id"].to_pylist()) == ["a", "b"]
    with pytest.raises(InstantNotAvailableError, match=f"{old.name}.*cleaned away.*{FULL_SCAN}=true"):
        table.changes("000", second)
    fallback = lakeformat.open(tmp_path / "t", **{FULL_SCAN: "true"})
    assert fallback.changes("000", second).to_arrow()["id"].to_pylist() == ["b"]


@dataclass(frozen=True)
class Busy(TableContext):
    """A context in which another writer commits whenever a snapshot of the table is taken."""

    write: Callable[[], object]

    def snapshot(self, *arguments: Any, **named: Any) -> Snapshot:
        self.write()
        return super().snapshot(*arguments, **named)


def test_commit_completed_during_planning_is_in_the_next_range(tmp_path: Path) -> None:
    table, numbers = new_table(tmp_path), iter(range(9))
    table.upsert(rows({"first": 0}))
    context, writer = table.context, lakeformat.open(tmp_path / "t")
    table.context = Busy(
        context.storage, context.clock, context.ids, True, lambda: writer.upsert(rows({f"k{next(numbers)}": 1}))
    )
    seen, since = [], "000"
    for _ in range(3):
        changes = table.changes(since)
        seen.append(sorted(changes.to_arrow()["id"].to_pylist()))
        since = changes.until
    assert seen == [["first"], ["k0"], ["k1"]]


@dataclass(frozen=True)
class Listing(LocalStorage):
    """A storage that records the folders that are listed."""

    listed: list[str] = field(default_factory=list)

    def list(self, path: str) -> Sequence[FileInfo]:
        self.listed.append(path)
        return super().list(path)

    def list_at_once(self, path: str) -> Sequence[FileInfo]:
        self.listed.append(path)
        return super().list_at_once(path)


def test_the_timeline_is_listed_once_for_a_range(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert(rows({"a": 1}))
    storage = Listing(str(tmp_path / "t"))
    table.context = TableContext(storage, table.context.clock, table.context.ids, use_index=False)
    table.changes("000")
    assert storage.listed[: storage.listed.index("")] == [".hoodie"]


def test_table_without_meta_columns_is_refused(tmp_path: Path) -> None:
    folder = unpack("own_kinds/v9_virtual_mor", tmp_path)
    with pytest.raises(UnsupportedTableError, match=r"populate\.meta\.fields=false.*read snapshots"):
        lakeformat.open(folder).changes("000")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({TYPE: "incremental"}, f"the option is {BEGIN}"),
        ({TYPE: "incremental", BEGIN: "yesterday"}, "'yesterday' is not an instant"),
        ({TYPE: "incremental", BEGIN: "000", END: "soon"}, "'soon' is not an instant"),
        ({TYPE: "incremental", BEGIN: "000", "as.of.instant": "20260101000000000"}, f"end its range by {END}"),
    ],
)
def test_bad_bounds_are_refused(options: dict[str, str], message: str, tmp_path: Path) -> None:
    new_table(tmp_path).upsert(rows({"a": 1}))
    with pytest.raises(InvalidOptionError, match=message):
        lakeformat.open(tmp_path / "t", **options).to_arrow()


def test_cdc_format_option_on_a_row_read_is_refused(tmp_path: Path) -> None:
    new_table(tmp_path)
    options = {TYPE: "incremental", BEGIN: "000", "hoodie.datasource.query.incremental.format": "cdc"}
    with pytest.raises(InvalidOptionError, match=r"gives changes, not rows: call changes\(images=True\)"):
        lakeformat.open(tmp_path / "t", **options).to_arrow()
