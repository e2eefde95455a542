"""Keys of several fields whose texts in Hudi's encoding are equal: no row is lost or doubled in silence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakeformat
from lakeformat import InvalidInputError, Table
from lakeformat.keys.record_keys import record_keys
from lakeformat.model.keys import KeyGeneratorKind, KeySettings
from lakeformat.write.rows.key_texts import find_unclear_keys
from tests.helpers.refusal import check_refused
from tests.helpers.tables import a_schema, a_table

FIELDS = ("a", "b", "s.c")
SCHEMA = a_schema(a="string", b="string", v="int64")
#: Pairs of keys with one text.
ALIKE: list[tuple[tuple[Any, Any], tuple[Any, Any]]] = [
    (("x,b:y", "z"), ("x", "y,b:z")),
    (("q", None), ("q", "__null__")),
    (("", "q"), ("__empty__", "q")),
]
#: Keys that have a text of their own, although they hold what separates fields.
CLEAR: list[tuple[Any, Any]] = [("x,y", "b:z"), ("12:30", ",b"), ("a:1", "a:2,a:3"), (None, "null"), ("_null_", "")]
WRITES: dict[str, Callable[[Table, pa.Table], Any]] = {
    "upsert": lambda table, rows: table.upsert(rows),
    "insert": lambda table, rows: table.insert(rows),
    "bulk_insert": lambda table, rows: table.bulk_insert(rows),
    "overwrite": lambda table, rows: table.overwrite(rows),
    "delete": lambda table, rows: table.delete(rows),
    "merge": lambda table, rows: table.merge(rows).when_matched_update().when_not_matched_insert().execute(),
}


def rows_of(keys: list[tuple[Any, Any]]) -> pa.Table:
    a, b = zip(*keys, strict=True)
    return pa.table({"a": a, "b": b, "v": range(len(keys))}, schema=SCHEMA)


@pytest.mark.parametrize("name", WRITES)
def test_keys_with_one_text_are_refused_by_every_write(name: str, tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=SCHEMA, keys=["a", "b"])
    table.insert(rows_of(CLEAR))
    for pair in ALIKE:
        texts = ("unclear", "lakeformat.write.unclear.keys=merge")
        with check_refused(table, InvalidInputError, *texts, "row 0" if pair[0][1] else "row 1"):
            WRITES[name](table, rows_of(list(pair)))
        hostile = next(key for key in pair if any(str(value)[:2] in {"__", "x,"} for value in key))
        with check_refused(table, InvalidInputError, *texts, "row 0"):
            WRITES[name](table, rows_of([hostile]))


@pytest.mark.parametrize("name", WRITES)
def test_keys_with_separators_and_a_text_of_their_own_are_written(name: str, tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=SCHEMA, keys=["a", "b"])
    table.insert(rows_of(CLEAR))
    WRITES[name](table, rows_of(CLEAR))
    left = table.to_arrow(["a", "b"]).to_pylist()
    assert len({tuple(row.values()) for row in left}) == (0 if name == "delete" else len(CLEAR))


def test_the_message_names_both_rows_and_the_field(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=SCHEMA, keys=["a", "b"])
    with check_refused(table, InvalidInputError, "row 1", "'a'", "',b:'", "'a:x,b:y,b:z'", "row 2"):
        table.upsert(rows_of([("k", "l"), *ALIKE[0]]))
    with check_refused(table, InvalidInputError, "row 1", "'b'", "'__null__'", "row 0"):
        table.upsert(rows_of(list(ALIKE[1])))


def test_unclear_rows_are_put_aside_or_merged_as_hudi_does(tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", schema=SCHEMA, keys=["a", "b"])
    rows = rows_of([("k", "l"), (None, None), *ALIKE[0], *ALIKE[1]])
    aside = lakeformat.open(table.location, bad_rows="aside")
    aside.upsert(rows)
    assert sorted(aside.to_arrow()["v"].to_pylist()) == [0, 4]
    reasons = {row["row_number"]: row["reason"] for row in aside.bad_rows(["row_number", "reason"]).to_pylist()}
    assert reasons == {1: "no_key", 2: "unusable_key", 3: "unusable_key", 5: "unusable_key"}
    lakeformat.open(table.location, unclear_keys="merge").upsert(rows.filter(pa.compute.is_valid(rows["a"])))
    assert sorted(table.to_arrow()["v"].to_pylist()) == [0, 3, 5]


TEXTS = st.one_of(
    st.none(),
    st.sampled_from(["__null__", "__empty__", "", ",b:", ",s.c:", "x,b:y,s.c:"]),
    st.text(alphabet="ab:,.s_c", max_size=6),
)


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS).filter(any), min_size=1, max_size=40))
def test_two_keys_with_one_text_are_never_both_clear(keys: list[tuple[str | None, ...]]) -> None:
    a, b, c = (pa.array(values, pa.string()) for values in zip(*keys, strict=True))
    rows = pa.table({"a": a, "b": b.dictionary_encode(), "s": pa.StructArray.from_arrays([c], ["c"])})
    settings = KeySettings(KeyGeneratorKind.COMPLEX, FIELDS)
    texts = record_keys(rows, settings)
    unclear = {int(at) for found in find_unclear_keys(rows, texts, settings) for at in found.rows}
    clear: dict[str, set[tuple[str | None, ...]]] = {}
    for at, (text, key) in enumerate(zip(texts.to_pylist(), keys, strict=True)):
        if at not in unclear:
            clear.setdefault(text, set()).add(key)
    assert all(len(values) == 1 for values in clear.values())


def test_fields_that_are_not_text_never_make_a_key_unclear() -> None:
    names = ("a", "a,b", "b")
    rows = pa.table([pa.array([1, None, 3]), pa.array([1.5, 2.5, None]), pa.array([None, True, False])], list(names))
    settings = KeySettings(KeyGeneratorKind.COMPLEX, names)
    texts = record_keys(rows, settings)
    assert texts.to_pylist()[0] == "a:1,a,b:1.5,b:__null__"
    assert find_unclear_keys(rows, texts, settings) == []
