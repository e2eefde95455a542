"""Columns that are renamed, dropped, moved, re-typed and added. The oracle is a model that knows columns by number."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidInputError, SchemaMismatchError, Table, WriteConflictError
from lakeformat.codec.internal_schema import decode_history, encode_history
from lakeformat.model.operation import Operation
from lakeformat.storage import LocalStorage
from tests.helpers.faulty import Crash, Fault, FaultyStorage, Mode, at, once
from tests.helpers.fixture_tables import unpack
from tests.helpers.refusal import check_message
from tests.helpers.tables import a_schema

KINDS: Final = [(version, kind) for version in (6, 9) for kind in ("COPY_ON_WRITE", "MERGE_ON_READ")]
every_kind = pytest.mark.parametrize(("version", "kind"), KINDS)
SCHEMA: Final = a_schema(
    id="int64",
    part="string",
    n="int32",
    v="string",
    s=pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string())]),
)

Row = dict[str, Any]


def new_table(folder: Path, version: int = 9, kind: str = "COPY_ON_WRITE", **options: Any) -> Table:
    more = {"hoodie.write.table.version": version, "hoodie.datasource.write.table.type": kind, **options}
    return lakeformat.create(folder / "t", SCHEMA, record_key="id", partition_by="part", **more)


def a_row(key: int, **values: Any) -> Row:
    return {"id": key, "part": "ab"[key % 2], "n": key, "v": f"v{key}", "s": {"a": key, "b": f"b{key}"}, **values}


def rows_of(table: Table, **asked: Any) -> list[Row]:
    return sorted(table.to_arrow(**asked).to_pylist(), key=lambda row: row["id"])


@dataclass
class Model:
    """A table in memory: each row maps the number of a column to its value.

    Attributes:
        names: the columns: number -> name, in their order.
        before: for each commit, the rows that a reader saw after it.
    """

    names: dict[int, str]
    types: dict[int, pa.DataType]
    rows: dict[int, dict[int, Any]] = field(default_factory=dict)
    before: dict[str, list[Row]] = field(default_factory=dict)
    last: int = 100

    def read(self) -> list[Row]:
        return [{name: row.get(number) for number, name in self.names.items()} for _, row in sorted(self.rows.items())]


class History:
    """A random history of writes and changes of columns, made on a table and on a model of it."""

    def __init__(self, table: Table, seed: int) -> None:
        self.table, self.random = table, np.random.default_rng(seed)
        numbers = dict(enumerate(SCHEMA.names))
        self.model = Model(numbers, {number: SCHEMA.field(name).type for number, name in numbers.items()})

    def free(self) -> list[int]:
        """Return the columns that may be changed."""
        return [number for number, name in self.model.names.items() if name not in {"id", "part"}]

    def value(self, number: int, key: int) -> Any:
        kind = self.model.types[number]
        some = int(self.random.integers(0, 1000))
        if pa.types.is_struct(kind):
            return {"a": some, "b": f"b{some}"}
        return some if pa.types.is_integer(kind) else f"t{some}" if pa.types.is_string(kind) else some / 2

    def upsert(self) -> None:
        keys = self.random.choice(30, int(self.random.integers(1, 8)), replace=False).tolist()
        rows = {
            key: {
                number: key if name == "id" else "ab"[key % 2] if name == "part" else self.value(number, key)
                for number, name in self.model.names.items()
            }
            for key in keys
        }
        self.model.rows |= rows
        columns = {
            name: pa.array([row[number] for row in rows.values()], self.model.types[number])
            for number, name in self.model.names.items()
        }
        self.table.upsert(pa.table(columns))

    def delete(self) -> None:
        key = int(self.random.integers(0, 30))
        self.model.rows.pop(key, None)
        self.table.delete(where=f"id = {key}")

    def update(self) -> None:
        number = next((each for each in self.free() if pa.types.is_string(self.model.types[each])), None)
        if number is not None:
            self.table.update({self.model.names[number]: "set"}, where="id < 5")
            for key, row in self.model.rows.items():
                if key < 5:
                    row[number] = "set"

    def rename(self) -> None:
        self.model.last += 1
        number, new = int(self.random.choice(self.free())), f"c{self.model.last}"
        self.table.alter().rename(self.model.names[number], new).execute()
        self.model.names = {each: new if each == number else name for each, name in self.model.names.items()}

    def swap(self) -> None:
        """Exchange the names of two columns."""
        one, other = (int(each) for each in self.random.choice(self.free(), 2, replace=False))
        names = self.model.names
        change = self.table.alter().rename(names[one], "between").rename(names[other], names[one])
        change.rename("between", names[other]).execute()
        names[one], names[other] = names[other], names[one]

    def drop_and_add(self) -> None:
        """Drop a column, and add one of the same name that is empty."""
        if len(self.free()) < 2:
            return
        number, kind = int(self.random.choice(self.free())), (pa.int64(), pa.string())[self.random.integers(0, 2)]
        name = self.model.names.pop(number)
        self.table.alter().drop(name).add(name, kind).execute()
        self.model.last += 1
        self.model.names[self.model.last], self.model.types[self.model.last] = name, kind

    def add(self) -> None:
        self.model.last += 1
        number, name = self.model.last, f"c{self.model.last}"
        self.table.alter().add(name, pa.float64(), first=True).execute()
        self.model.names, self.model.types[number] = {number: name, **self.model.names}, pa.float64()

    def widen(self) -> None:
        number = next((each for each in self.free() if self.model.types[each] == pa.int32()), None)
        if number is not None:
            self.table.alter().retype(self.model.names[number], pa.int64()).execute()
            self.model.types[number] = pa.int64()

    def to_text(self) -> None:
        number = next((each for each in self.free() if pa.types.is_integer(self.model.types[each])), None)
        if number is not None:
            self.table.alter().retype(self.model.names[number], "string").execute()
            self.model.types[number] = pa.string()
            for row in self.model.rows.values():
                row[number] = None if row.get(number) is None else str(row[number])

    def service(self) -> None:
        self.table.compact() if self.table.config.takes_logs else self.table.cluster()

    def run(self, steps: int) -> None:
        actions: list[Callable[[], None]] = [
            self.upsert, self.upsert, self.upsert, self.delete, self.update, self.rename, self.swap,
            self.drop_and_add, self.add, self.widen, self.to_text, self.service,
        ]  # fmt: skip
        self.upsert()
        for number in self.random.integers(0, len(actions), steps).tolist():
            actions[number]()
            assert rows_of(self.table) == self.model.read(), actions[number].__name__
            assert self.table.schema.names == [*self.model.names.values()]
            self.model.before[self.table.snapshot().instant_time or ""] = self.model.read()


@pytest.mark.slow
@every_kind
@pytest.mark.parametrize("seed", range(4))
def test_random_histories_read_as_the_model_says(version: int, kind: str, seed: int, tmp_path: Path) -> None:
    table = new_table(tmp_path, version, kind, **{"hoodie.clean.automatic": "false"})
    history = History(table, seed)
    history.run(25)
    for time, wanted in history.model.before.items():
        assert rows_of(table, as_of=time) == wanted, time
    assert not table.check()


@every_kind
def test_filters_on_altered_columns_find_every_row(version: int, kind: str, tmp_path: Path) -> None:
    """Bounds in files go by the old names and types: 9 is less than 10, but '9' is greater than '10'."""
    table = new_table(tmp_path, version, kind)
    table.upsert([a_row(key) for key in range(5, 15)])
    table.alter().retype("n", "string").rename("v", "w").add("v", "string").execute()
    assert [row["id"] for row in rows_of(table, where="n > '5'")] == [6, 7, 8, 9]
    assert [row["id"] for row in rows_of(table, where="w = 'v7'")] == [7]
    assert rows_of(table, where="v = 'v7'") == []
    assert [row["id"] for row in rows_of(table, where="v is null and n = '12'")] == [12]


def test_changes_inside_structs_lists_and_maps(tmp_path: Path) -> None:
    inner = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string())])
    schema = pa.schema([
        pa.field("id", pa.int64()),
        pa.field("s", pa.struct([pa.field("a", pa.int32()), pa.field("t", inner)])),
        pa.field("l", pa.list_(inner)),
        pa.field("m", pa.map_(pa.string(), inner)),
    ])  # fmt: skip
    table = lakeformat.create(tmp_path / "t", schema, record_key="id")
    nothing = {"id": 2, "s": None, "l": [None, {"x": 3, "y": None}], "m": [("k", None)]}
    whole = {
        "id": 1,
        "s": {"a": 1, "t": {"x": 2, "y": "q"}},
        "l": [{"x": 1, "y": "r"}, None],
        "m": [("k", {"x": 1, "y": "z"})],
    }
    table.upsert([whole, nothing, {"id": 3, "s": {"a": None, "t": None}, "l": None, "m": None}])
    change = table.alter().rename("s.t.y", "yy").drop("s.t.x").add("s.t.x", pa.string(), first=True).drop("s.a")
    change.rename("l.element.x", "xx").retype("l.element.xx", pa.int64()).drop("m.value.x").execute()
    wanted = [
        {"id": 1, "s": {"t": {"x": None, "yy": "q"}}, "l": [{"xx": 1, "y": "r"}, None], "m": [("k", {"y": "z"})]},
        {"id": 2, "s": None, "l": [None, {"xx": 3, "y": None}], "m": [("k", None)]},
        {"id": 3, "s": {"t": None}, "l": None, "m": None},
    ]
    assert rows_of(table) == wanted
    table.upsert([wanted[0] | {"id": 4}])
    table.delete(where="id = 3")
    assert rows_of(table) == [*wanted[:2], wanted[0] | {"id": 4}]


@every_kind
def test_stored_rows_get_the_default_of_a_new_column(version: int, kind: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, version, kind)
    table.upsert([a_row(1), a_row(2)])
    table.alter().add("x", "int64", default=5).add("y", "string", first=True, default="z").rename("v", "w").execute()
    assert [(row["y"], row["x"], row["w"]) for row in rows_of(table)] == [("z", 5, "v1"), ("z", 5, "v2")]
    with pytest.raises(InvalidInputError, match=r"'s\.c' cannot have a default"):
        table.alter().add("s.c", "int64", default=1)


def test_a_struct_whose_fields_are_all_new(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.upsert([a_row(1), a_row(2, s=None)])
    table.alter().add("s.c", "string").drop("s.a", "s.b").execute()
    assert [row["s"] for row in rows_of(table)] == [{"c": None}, None]


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda alter: alter.rename("vv", "w"), ["no column 'vv'", "did you mean 'v'?"]),
        (lambda alter: alter.rename("v", "n"), ["'n' is there already"]),
        (lambda alter: alter.rename("v", "N"), ["'N' is there already"]),
        (lambda alter: alter.rename("v", "a.b"), ["'a.b' is no name"]),
        (lambda alter: alter.rename("id", "key"), ["'id' is part of the record key"]),
        (lambda alter: alter.drop("part"), ["'part' is a partition column"]),
        (lambda alter: alter.retype("ts", "string"), ["'ts' is the ordering column"]),
        (lambda alter: alter.drop("_hoodie_record_key"), ["meta column"]),
        (lambda alter: alter.drop("s.c"), ["no column 's.c'", "a, b"]),
        (lambda alter: alter.drop("v.c"), ["'v' is string and has no fields"]),
        (lambda alter: alter.drop("s.a", "s.b"), ["'s.b' is the only field of 's'"]),
        (lambda alter: alter.retype("v", "int64"), ["'v' is string, which cannot become long"]),
        (lambda alter: alter.retype("n", "nonsense"), ["'nonsense' is no Arrow type"]),
        (lambda alter: alter.add("v", "string"), ["'v' is there already"]),
        (lambda alter: alter.add("x", "string", after="y"), ["no column 'y'"]),
        (lambda alter: alter.add("x", "string", after="v", first=True), ["first and after"]),
        (lambda alter: alter.move("v"), ["names no place"]),
        (lambda alter: alter, ["nothing is to be altered"]),
    ],
)
def test_a_change_that_does_not_fit_is_refused(change: Callable[[Any], Any], parts: list[str], tmp_path: Path) -> None:
    schema = pa.schema([*SCHEMA, pa.field("ts", pa.int64())])
    table = lakeformat.create(tmp_path / "t", schema, record_key="id", partition_by="part", ordering="ts")
    table.upsert([a_row(1, ts=1)])
    before = table.history()
    with pytest.raises(InvalidInputError) as caught:
        change(table.alter()).execute()
    check_message(caught, InvalidInputError, *parts)
    assert len(table.history()) == len(before)
    assert not (tmp_path / "t" / ".hoodie" / ".schema").exists()


def test_a_type_without_a_name_in_hudi_is_refused(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", a_schema(id="int64", t=pa.timestamp("us")), record_key="id")
    with pytest.raises(SchemaMismatchError) as caught:
        table.alter().rename("t", "at").execute()
    check_message(caught, SchemaMismatchError, "'t' is timestamp[us]", "schema on read cannot store")


def test_old_columns_are_read_before_a_change_and_by_changes_across_it(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    first = table.upsert([a_row(1)]).instant_time
    table.alter().rename("v", "w").drop("n").execute()
    table.upsert([{"id": 2, "part": "a", "w": "x", "s": None}])
    assert table.to_arrow(as_of=first).column_names == SCHEMA.names
    changed = table.changes(since="000").to_arrow().to_pylist()
    assert {row["id"]: row["w"] for row in changed} == {1: "v1", 2: "x"}


def test_restore_brings_the_old_columns_back(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    first = table.upsert([a_row(1)]).instant_time
    table.alter().rename("v", "w").execute()
    table.restore(first)
    assert rows_of(table) == [a_row(1)]
    table.upsert([a_row(2)])
    table.alter().rename("v", "z").execute()
    assert [row["z"] for row in rows_of(table)] == ["v1", "v2"]


#: Writes that fit a table whose column ``n`` was widened and whose column ``v`` was moved, and the rows they leave.
BESIDE: Final[dict[str, tuple[Callable[[Table], Any], list[Row]]]] = {
    "upsert": (lambda table: table.upsert([a_row(1, v="x"), a_row(3)]), [a_row(1, v="x"), a_row(2), a_row(3)]),
    "upsert of a stream": (
        lambda table: table.upsert(pa.Table.from_pylist([a_row(1, v="x")], SCHEMA).to_reader()),
        [a_row(1, v="x"), a_row(2)],
    ),
    "insert": (lambda table: table.insert([a_row(3)]), [a_row(1), a_row(2), a_row(3)]),
    "bulk insert": (lambda table: table.bulk_insert([a_row(3)]), [a_row(1), a_row(2), a_row(3)]),
    "overwrite": (lambda table: table.overwrite([a_row(3)]), [a_row(3)]),
    "insert overwrite": (lambda table: table.insert_overwrite([a_row(3)]), [a_row(2), a_row(3)]),
    "delete": (lambda table: table.delete([{"id": 1, "part": "b"}]), [a_row(2)]),
    "delete of partitions": (lambda table: table.delete_partitions("b"), [a_row(2)]),
    "delete by condition": (lambda table: table.delete(where="n = 1"), [a_row(2)]),
    "update": (lambda table: table.update({"v": "x"}, where="n = 1"), [a_row(1, v="x"), a_row(2)]),
    "merge": (
        lambda table: table.merge([a_row(1, v="x"), a_row(3)]).when_matched_update().execute(),
        [a_row(1, v="x"), a_row(2)],
    ),
}


@pytest.mark.parametrize("verb", BESIDE)
@pytest.mark.parametrize(("version", "kind"), KINDS[1:3])
def test_a_write_that_runs_during_a_change_is_planned_again(version: int, kind: str, verb: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, version, kind)
    table.upsert([a_row(1), a_row(2)])
    storage = LocalStorage(tmp_path / "t")
    theirs = once(
        lambda call: call.changes and call.path.endswith(".inflight"),
        lambda _: Table(storage).alter().retype("n", "int64").move("v", first=True).execute(),
    )
    run, left = BESIDE[verb]
    run(Table(FaultyStorage(storage, meanwhile=theirs)))
    assert rows_of(table) == left
    if verb != "overwrite":  # It replaces the columns, too.
        assert table.schema.field("n").type == pa.int64()
    assert not table.check()


@every_kind
def test_a_write_that_does_not_fit_the_changed_columns_is_refused(version: int, kind: str, tmp_path: Path) -> None:
    table = new_table(tmp_path, version, kind)
    table.upsert([a_row(1)])
    storage = LocalStorage(tmp_path / "t")
    theirs = once(
        lambda call: call.name == "open_output" and not call.path.startswith(".hoodie"),
        lambda _: Table(storage).alter().rename("v", "w").execute(),
    )
    with pytest.raises(SchemaMismatchError, match="the input has no column 'w'"):
        Table(FaultyStorage(storage, meanwhile=theirs)).upsert([a_row(1, v="lost"), a_row(2)])
    assert rows_of(table) == [{"w" if name == "v" else name: value for name, value in a_row(1).items()}]
    assert not table.check()


def test_a_change_waits_for_a_planned_compaction(tmp_path: Path) -> None:
    table = new_table(tmp_path, 9, "MERGE_ON_READ")
    table.upsert([a_row(1)])
    table.upsert([a_row(1, v="x")])
    table.schedule_compaction()
    with pytest.raises(WriteConflictError, match="is planned"):
        table.alter().rename("v", "w").execute()
    table.compact()
    table.alter().rename("v", "w").execute()
    assert rows_of(table)[0]["w"] == "x"


@pytest.mark.parametrize(("version", "kind"), [(6, "MERGE_ON_READ"), (9, "COPY_ON_WRITE")])
@pytest.mark.parametrize("mode", [Mode.BEFORE, Mode.AFTER])
def test_a_change_that_dies_is_whole_or_not_there(version: int, kind: str, mode: Mode, tmp_path: Path) -> None:
    table = new_table(tmp_path, version, kind)
    table.upsert([a_row(1)])
    recording = FaultyStorage(_copy(tmp_path, "calls"))
    Table(recording).alter().rename("v", "w").execute()
    old, new = [a_row(1)], [{"w" if name == "v" else name: value for name, value in a_row(1).items()}]
    seen: set[bool] = set()
    for number, call in enumerate(recording.calls):
        if not call.changes:
            continue
        storage = _copy(tmp_path, f"{number}")
        with pytest.raises(Crash):
            Table(FaultyStorage(storage, Fault(at(number), mode))).alter().rename("v", "w").execute()
        found = rows_of(Table(storage))
        assert found in (old, new)
        seen.add(found == new)
        column = "w" if found == new else "v"
        Table(storage).upsert(
            [{name: value for name, value in found[0].items() if name != column} | {"id": 2, column: "next"}]
        )
        assert [row[column] for row in rows_of(Table(storage))] == ["v1", "next"]
        Table(storage).alter().rename(column, "z").execute()
        assert [row["z"] for row in rows_of(Table(storage))] == ["v1", "next"]
        assert not Table(storage).check()
    assert False in seen


def _copy(folder: Path, name: str) -> LocalStorage:
    shutil.copytree(folder / "t", folder / name)
    return LocalStorage(folder / name)


@pytest.mark.parametrize("name", ["v6_evolved_mor", "v9_evolved_nested_cow", "v6_altered_cow", "v9_altered_mor"])
def test_schemas_are_stored_as_hudi_stores_them(name: str, tmp_path: Path) -> None:
    for path in (unpack(f"own_kinds/{name}", tmp_path) / ".hoodie" / ".schema").glob("*.schemacommit"):
        data = path.read_bytes()
        assert encode_history(decode_history(data, name=str(path))) == data


def test_columns_get_the_ids_that_hudi_gives_them(tmp_path: Path) -> None:
    folder = unpack("own_kinds/v6_altered_cow", tmp_path)
    first = min((folder / ".hoodie" / ".schema").glob("*.schemacommit"))
    theirs = decode_history(first.read_bytes(), name="theirs")[-1]
    table = lakeformat.open(folder)
    before = min(entry.instant_time for entry in table.history())
    schema = lakeformat.open(folder).snapshot(before).schema
    assert schema is not None
    made = lakeformat.create(tmp_path / "ours", schema, record_key="id")
    made.alter().rename("name", "title").execute()
    path = next((tmp_path / "ours" / ".hoodie" / ".schema").glob("*.schemacommit"))
    assert decode_history(path.read_bytes(), name="ours")[-1] == theirs


def test_column_statistics_of_the_metadata_table_end_with_a_rename(tmp_path: Path) -> None:
    statistics = {"hoodie.metadata.enable": "true", "hoodie.metadata.index.column.stats.enable": "true"}
    table = new_table(tmp_path, **statistics)
    table.upsert([a_row(key) for key in range(5)])
    assert "column_stats" in table.config.metadata_partitions
    table.alter().rename("v", "w").add("v", "string").execute()
    table.upsert([a_row(9, w="w9")])
    assert "column_stats" not in lakeformat.open(tmp_path / "t").config.metadata_partitions
    assert [row["id"] for row in rows_of(table, where="w = 'v3'")] == [3]
    assert [row["id"] for row in rows_of(table, where="v = 'v9'")] == [9]
    assert not table.check()


@pytest.mark.parametrize("operation", ["alter_schema", "cluster", "compact", Operation.CLUSTER])
def test_rows_are_not_written_by_the_operation_of_a_service(operation: Operation | str, tmp_path: Path) -> None:
    table = new_table(tmp_path)
    for write in (table.write, table.plan):
        with pytest.raises(InvalidInputError, match="is not one that writes rows"):
            write([a_row(1)], operation)
    assert not table.history()
