"""Merge functions of the user: their arguments, their permitted results, and how wrong ones are refused."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakeformat
from lakeformat import InvalidInputError, InvalidOptionError
from lakeformat.errors import LakeformatError
from lakeformat.merge import Merger
from tests.helpers.hudi_rs import assert_same_rows
from tests.helpers.merge_tables import contents, in_memory, on_disk, rows_of

PLAIN = pa.schema({"id": pa.string(), "ts": pa.int64(), "n": pa.int64(), "text": pa.string()})


def row(key: str, ts: int, n: int | None, text: str | None = None) -> dict[str, Any]:
    return {"id": key, "ts": ts, "n": n, "text": text}


def batch(*rows: dict[str, Any]) -> pa.Table:
    return rows_of(*rows, schema=PLAIN)


def largest(stored: pa.Table, incoming: pa.Table) -> pa.Table:
    """Return the incoming rows with the greater ``n``."""
    return incoming.set_column(2, "n", pc.max_element_wise(stored["n"], incoming["n"]))


def test_merger_receives_pairs_and_returns_the_rows(tmp_path: Path) -> None:
    seen: list[tuple[list[Any], list[Any], bool]] = []

    def watched(stored: pa.Table, incoming: pa.Table) -> pa.Table:
        seen.append((stored.to_pylist(), incoming.to_pylist(), stored.schema == incoming.schema == PLAIN))
        return largest(stored, incoming)

    table = on_disk(tmp_path, PLAIN, ordering="ts")
    table.upsert(batch(row("a", 5, 5, "old"), row("b", 5, 5), row("c", 5, 5)))
    result = table.upsert(batch(row("b", 4, 9), row("a", 1, 3, None), row("d", 1, 1), row("b", 3, 0)), merger=watched)
    assert seen == [([row("a", 5, 5, "old"), row("b", 5, 5)], [row("a", 1, 3), row("b", 4, 9)], True)]
    assert contents(table) == {
        "a": {"ts": 1, "n": 5},
        "b": {"ts": 4, "n": 9},
        "c": {"ts": 5, "n": 5},
        "d": {"ts": 1, "n": 1},
    }
    updated = {r["id"] for r in assert_same_rows(table) if r["_hoodie_commit_time"] == result.instant_time}
    assert updated == {"a", "b", "d"}
    assert (result.report["rows"]["updated"], result.report["rows"]["inserted"]) == (2, 1)


def test_merger_deletes_by_adding_the_delete_flag() -> None:
    def sparing(stored: pa.Table, incoming: pa.Table) -> pa.Table:
        return stored.append_column("_hoodie_is_deleted", pc.is_null(incoming["n"]))

    table = in_memory(PLAIN)
    table.upsert(batch(row("a", 1, 1, "x"), row("b", 1, 1, "x")))
    result = table.upsert(batch(row("a", 2, None), row("b", 2, 2), row("c", 2, None)), merger=sparing)
    assert contents(table) == {"b": {"ts": 1, "n": 1, "text": "x"}, "c": {"ts": 2}}
    assert table.schema.names == PLAIN.names
    assert result.report["rows"]["deleted"] == 1
    everything = table.upsert(batch(row("b", 2, None), row("c", 2, None)), merger=sparing)
    assert everything.report["rows"]["deleted"] == 2
    assert contents(table) == {}


def test_merger_is_not_called_for_incoming_deletes() -> None:
    table = in_memory()
    whole = {"id": "a", "ts": 1, "n": 1, "text": "", "st": None, "_hoodie_is_deleted": False}
    table.upsert(rows_of(whole))

    def never(stored: pa.Table, incoming: pa.Table) -> pa.Table:
        raise AssertionError(stored, incoming)

    table.upsert(rows_of({**whole, "_hoodie_is_deleted": True}), merger=never)
    assert contents(table) == {}


def test_merger_is_not_called_without_a_stored_row() -> None:
    table = in_memory(PLAIN, merger="nowhere:nothing")
    table.insert(batch(row("a", 1, 1)))
    table.bulk_insert(batch(row("b", 1, 1)))
    table.delete(pa.table({"id": ["b"]}))
    assert contents(table) == {"a": {"ts": 1, "n": 1}}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Create a module of the user that can be imported by name, and return the name."""
    (tmp_path / "my_rules.py").write_text(
        "import pyarrow.compute as pc\n"
        "class Rules:\n"
        "    @staticmethod\n"
        "    def largest(stored, incoming):\n"
        "        return incoming.set_column(2, 'n', pc.max_element_wise(stored['n'], incoming['n']))\n"
        "largest, number = Rules.largest, 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_rules", raising=False)
    return "my_rules"


@pytest.mark.parametrize("name", ["largest", "Rules.largest"])
def test_merger_given_by_name_is_imported_at_use(name: str, module: str, tmp_path: Path) -> None:
    table = on_disk(tmp_path, PLAIN)
    table.upsert(batch(row("a", 5, 5)))
    lakeformat.open(tmp_path / "t", merger=f"{module}:{name}").upsert(batch(row("a", 4, 4)))
    table.upsert(batch(row("a", 3, 3)), merger=f"{module}:{name}")
    assert contents(table) == {"a": {"ts": 3, "n": 5}}
    merger = Merger(f"{module}:{name}")
    assert pickle.loads(pickle.dumps(merger)) == merger  # noqa: S301  Our own bytes.


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere:f", "cannot be imported (ModuleNotFoundError"),
        ("my_rules:smallest", "cannot be imported (AttributeError"),
        ("my_rules:number", "is int, not a function"),
        ("my_rules.largest", "write package.module:function"),
        (":f", "write package.module:function"),
        ("my_rules:", "write package.module:function"),
    ],
)
def test_merger_name_that_cannot_be_imported_is_refused(name: str, words: str, module: str) -> None:
    table = in_memory(PLAIN)
    with pytest.raises(InvalidOptionError) as caught:
        table.upsert(batch(row("a", 5, 5)), merger=name)
    assert words in str(caught.value)
    assert name in str(caught.value)
    assert table.history() == []


def raising(stored: pa.Table, incoming: pa.Table) -> pa.Table:
    raise KeyError("price")


#: Two strings of bytes that are not UTF-8.
NOT_TEXT = pa.StringArray.from_buffers(2, pa.array([0, 1, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe"))

BAD: list[tuple[Callable[[pa.Table, pa.Table], Any], str]] = [
    (raising, "raised KeyError: 'price'; nothing was written"),
    (lambda stored, incoming: None, "returned NoneType; return a pyarrow Table"),
    (lambda stored, incoming: incoming.slice(1), "returned 1 rows for 2"),
    (lambda stored, incoming: incoming.drop_columns(["n"]), "other columns than it was given (n int64)"),
    (lambda stored, incoming: incoming.append_column("x", incoming["n"]), "other columns than it was given (x int64)"),
    (lambda stored, incoming: incoming.select(["ts", "id", "n", "text"]), "in another order"),
    (lambda stored, incoming: incoming.set_column(2, "n", incoming["n"].cast("int32")), "n int32, n int64"),
    (lambda stored, incoming: incoming.set_column(3, "text", NOT_TEXT), "returned damaged values in 'text'"),
    (lambda stored, incoming: incoming.set_column(0, "id", pc.utf8_upper(incoming["id"])), "changed 'id'"),
    (lambda stored, incoming: incoming.append_column("_hoodie_is_deleted", incoming["n"]), "make it boolean"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_merger_with_a_bad_result_is_named_and_nothing_is_published(case: int) -> None:
    function, words = BAD[case]
    table = in_memory(PLAIN)
    table.upsert(batch(row("a", 1, 1), row("b", 1, 1)))
    before = table.to_arrow()
    with pytest.raises(LakeformatError) as caught:
        table.upsert(batch(row("a", 2, 2), row("b", 2, 2)), merger=function)
    assert type(caught.value) is InvalidInputError
    message = str(caught.value)
    assert words in message
    assert f"test_mergers:{function.__qualname__}" in message
    assert "\n" not in message
    assert table.to_arrow().equals(before)
    table.upsert(batch(row("a", 2, 2), row("b", 2, 2)), merger=largest)
    assert contents(table) == {"a": {"ts": 2, "n": 2}, "b": {"ts": 2, "n": 2}}


def test_a_merger_and_a_partial_update_contradict_each_other() -> None:
    table = in_memory(PLAIN, partial_update=True)
    with pytest.raises(InvalidOptionError, match=r"partial\.update and .*merger contradict"):
        table.upsert(batch(row("a", 1, 1)), merger=largest)


def test_merger_that_changes_a_nested_key_is_refused() -> None:
    schema = pa.schema({"k": pa.struct({"id": pa.string()}), "n": pa.int64()})
    table = in_memory(schema, recordkey="k.id")
    rows = pa.Table.from_pylist([{"k": {"id": "a"}, "n": 1}], schema)
    table.upsert(rows)
    table.upsert(rows, merger=lambda stored, incoming: incoming)
    other = pa.Table.from_pylist([{"k": {"id": "b"}, "n": 1}], schema)
    with pytest.raises(InvalidInputError, match=r"changed 'k\.id'"):
        table.upsert(rows, merger=lambda stored, incoming: other)
