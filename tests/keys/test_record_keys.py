from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.errors import InvalidInputError, InvalidOptionError, SchemaMismatchError
from lakeformat.keys.record_keys import record_keys
from lakeformat.model.keys import KeyGeneratorKind, KeySettings, PartitionField

NON_PARTITIONED = KeyGeneratorKind.NON_PARTITIONED


def simple(*fields: str) -> KeySettings:
    return KeySettings(NON_PARTITIONED, fields)


def complex_(*fields: str, prefixed: bool = False) -> KeySettings:
    partition = (PartitionField("p"),)
    return KeySettings(KeyGeneratorKind.COMPLEX, fields, partition, single_key_prefixed=prefixed)


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()])
def test_a_string_key_is_the_column_itself(type_: pa.DataType) -> None:
    rows = pa.record_batch({"id": pa.array(["a", "b"], type_)})
    keys = record_keys(rows, simple("id"))
    assert keys.type == type_
    assert keys.buffers()[2].address == rows.column("id").buffers()[2].address


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (7, "7"),
        ("k001", "k001"),
        (True, "true"),
        (1.5, "1.5"),
        (1e10, "1.0E10"),
        (Decimal("3.10"), "3.10"),
        (dt.date(2024, 1, 2), "2024-01-02"),
        (dt.datetime(2024, 1, 2, 3, 4, 5, 678_000, dt.timezone.utc), "1704164645678000"),
    ],
)
def test_key_of_one_field_of_any_type(value: object, key: str) -> None:
    rows = pa.table({"id": pa.chunked_array([pa.array([value]), pa.array([value])])})
    assert record_keys(rows, simple("id")).to_pylist() == [key, key]
    assert record_keys(rows.to_batches()[0], simple("id")).to_pylist() == [key]


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        (simple("k1", "k2"), ["k1:c:d,e,k2:5", "k1:a,k2:__null__", "k1:__empty__,k2:-1"]),
        (complex_("k2", "k1"), ["k2:5,k1:c:d,e", "k2:__null__,k1:a", "k2:-1,k1:__empty__"]),
    ],
)
def test_key_of_several_fields(settings: KeySettings, keys: list[str]) -> None:
    rows = pa.table({"k1": ["c:d,e", "a", ""], "k2": pa.array([5, None, -1])})
    assert record_keys(rows, settings).to_pylist() == keys
    assert record_keys(rows.to_batches()[0], settings).to_pylist() == keys


def test_large_and_usual_strings_mix() -> None:
    rows = pa.table({"a": pa.array(["x"], pa.large_string()), "b": ["y"]})
    assert record_keys(rows, simple("a", "b")).to_pylist() == ["a:x,b:y"]


def test_complex_key_of_one_field_is_bare_or_prefixed() -> None:
    rows = pa.table({"id": ["a", "b"]})
    assert record_keys(rows, complex_("id")).to_pylist() == ["a", "b"]
    assert record_keys(rows, complex_("id", prefixed=True)).to_pylist() == ["id:a", "id:b"]


def test_key_of_nested_fields() -> None:
    structs = pa.array([{"b": {"c": 1}}, {"b": {"c": 2}}])
    rows = pa.table({"a": structs, "d.e": ["x", "y"]})
    assert record_keys(rows, simple("a.b.c")).to_pylist() == ["1", "2"]
    assert record_keys(rows, simple("a.b.c", "d.e")).to_pylist() == ["a.b.c:1,d.e:x", "a.b.c:2,d.e:y"]
    assert record_keys(rows.to_batches()[0], simple("a.b.c")).to_pylist() == ["1", "2"]


def test_the_child_of_a_null_parent_is_null() -> None:
    rows = pa.table({"a": pa.array([{"b": "x"}, None])})
    with pytest.raises(InvalidInputError, match=re.escape("'a.b' is null at row 1")):
        record_keys(rows, simple("a.b"))


@pytest.mark.parametrize("rows", [0, 3])
def test_number_of_keys_equals_number_of_rows(rows: int) -> None:
    table = pa.table({"a": pa.array(range(rows), pa.int64()), "b": ["x"] * rows})
    assert len(record_keys(table, simple("a"))) == rows
    assert len(record_keys(table.slice(0, 0), simple("a", "b"))) == 0


@pytest.mark.parametrize(
    ("columns", "settings", "reason"),
    [
        ({"id": ["a", None]}, simple("id"), "record key column 'id' is null at row 1"),
        ({"id": ["a", "b", ""]}, simple("id"), "record key column 'id' is empty at row 2"),
        ({"id": pa.array([None, 1])}, simple("id"), "record key column 'id' is null at row 0"),
        ({"id": pa.array([None], pa.null())}, simple("id"), "'id' is null at row 0"),
        ({"id": ["a", None]}, complex_("id", prefixed=True), "'id' is null at row 1"),
        ({"a": ["x", ""], "b": [1, None]}, simple("a", "b"), "(a, b) are null or empty at row 1"),
        ({"id": [b"x"]}, simple("id"), "record key column 'id': a binary column"),
        ({"a": [[1]], "b": ["x"]}, simple("a", "b"), "record key column 'a': a list<"),
    ],
)
def test_invalid_key_values_are_refused(columns: dict[str, object], settings: KeySettings, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(reason)):
        record_keys(pa.table(columns), settings)


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("flight_ids", "record key column 'flight_ids' is not in the input; did you mean 'flight_id'?"),
        ("zzz", "set another record key"),
        ("nest.zzz", "'nest.zzz' is not in the input"),
        ("nest.innre", "did you mean 'nest.inner'?"),
        ("flight_id.x", "'flight_id.x' is not in the input"),
        ("twice", "'twice' occurs more than once"),
    ],
)
def test_missing_columns_are_named(field: str, reason: str) -> None:
    columns = [pa.array(["a"]), pa.array([{"inner": 1}]), pa.array([1]), pa.array([2])]
    rows = pa.table(columns, names=["flight_id", "nest", "twice", "twice"])
    with pytest.raises(SchemaMismatchError, match=re.escape(reason)):
        record_keys(rows, simple(field))


def test_a_table_without_key_fields_has_no_keys_to_make() -> None:
    with pytest.raises(InvalidOptionError, match=re.escape("recordkey.field")):
        record_keys(pa.table({"id": ["a"]}), simple())


values = st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=5))


@given(st.lists(st.tuples(values, values).filter(any)))
def test_composite_keys_are_hudis(pairs: list[tuple[str | None, str | None]]) -> None:
    def part(value: str | None) -> str:
        return "__null__" if value is None else value or "__empty__"

    rows = pa.table(
        {
            "f1": pa.array([one for one, _ in pairs], pa.string()),
            "f2": pa.array([two for _, two in pairs], pa.string()),
        }
    )
    keys = record_keys(rows, simple("f1", "f2")).to_pylist()
    assert keys == [f"f1:{part(one)},f2:{part(two)}" for one, two in pairs]
