"""Changes of a table's columns: the additions and widenings, the refusals, and what readers see."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import lakeformat
from lakeformat import InvalidOptionError, SchemaMismatchError
from lakeformat.write.rows.schema import evolve
from tests.helpers import hudi_rs

LEAVES = [
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.bool_(),
    pa.date32(),
    pa.decimal128(5, 2),
    pa.decimal128(9, 2),
    pa.decimal128(9, 4),
    pa.timestamp("us", "UTC"),
]


def fields(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    named = st.dictionaries(st.sampled_from("abcd"), kinds, min_size=1, max_size=4)
    return named.map(lambda found: [pa.field(name, kind) for name, kind in found.items()])


TYPES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        fields(inner).map(pa.struct),
        inner.map(lambda kind: pa.list_(pa.field("element", kind))),
        inner.map(lambda kind: pa.map_(pa.string(), kind)),
    ),
    max_leaves=4,
)
WHOLE, FRACTIONS = st.sampled_from([pa.int32(), pa.int64()]), st.sampled_from([pa.float32(), pa.float64()])
#: All types fit in three of the columns, so few examples are discarded. In the fourth, any type may meet any other.
COLUMNS = {"a": WHOLE, "b": fields(WHOLE).map(pa.struct), "c": FRACTIONS.map(pa.list_), "d": TYPES}
SCHEMAS = st.lists(st.sampled_from("abcd"), min_size=1, unique=True).flatmap(
    lambda names: st.tuples(*(COLUMNS[name].map(lambda kind, name=name: pa.field(name, kind)) for name in names)).map(
        pa.schema
    )
)


def evolve_or_discard(table: pa.Schema, incoming: pa.Schema) -> pa.Schema:
    """Return the evolved schema. Discard examples that do not fit."""
    try:
        return evolve(table, incoming, fill_missing=True)
    except SchemaMismatchError:
        assume(False)
        raise


@given(SCHEMAS, SCHEMAS)
def test_table_columns_keep_their_order_and_new_ones_follow(table: pa.Schema, incoming: pa.Schema) -> None:
    after = evolve_or_discard(table, incoming)
    assert after.names[: len(table.names)] == table.names
    assert after.names[len(table.names) :] == [name for name in incoming.names if name not in table.names]


@given(SCHEMAS, SCHEMAS)
def test_schema_evolution_is_idempotent(table: pa.Schema, incoming: pa.Schema) -> None:
    after = evolve_or_discard(table, incoming)
    assert evolve(after, incoming, fill_missing=True).equals(after)
    assert evolve(after, table, fill_missing=True).equals(after)


@given(SCHEMAS, SCHEMAS, SCHEMAS)
def test_evolution_in_two_steps_equals_one(table: pa.Schema, first: pa.Schema, second: pa.Schema) -> None:
    assert evolve_or_discard(evolve_or_discard(table, first), second).equals(
        evolve_or_discard(table, evolve_or_discard(first, second))
    )


INNER = pa.struct([("a", pa.int32()), ("b", pa.string())])
LESS, MORE, OTHER = (
    pa.struct([("a", pa.int64())]),
    pa.struct([*INNER, ("c", pa.bool_())]),
    pa.struct([("A", pa.int32())]),
)


@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda kind: kind, "s"),
        (lambda kind: pa.list_(pa.field("element", kind)), "s.element"),
        (lambda kind: pa.map_(pa.string(), kind), "s.value"),
    ],
    ids=["struct", "list", "map"],
)
def test_nested_fields_follow_the_rules_of_columns(wrap: Any, path: str) -> None:
    def step(kind: pa.DataType, *, fill: bool) -> pa.DataType:
        schema = evolve(pa.schema([("s", wrap(INNER))]), pa.schema([("s", wrap(kind))]), fill_missing=fill)
        return schema.field("s").type

    assert step(MORE, fill=False).equals(wrap(MORE))
    assert step(LESS, fill=True).equals(wrap(pa.struct([("a", pa.int64()), ("b", pa.string())])))
    with pytest.raises(SchemaMismatchError, match=f"no field '{path}.b'"):
        step(LESS, fill=False)
    with pytest.raises(SchemaMismatchError, match=f"'{path}.A' of the input is '{path}.a' in the table"):
        step(OTHER, fill=True)
    with pytest.raises(SchemaMismatchError, match=f"'{path}.a' is bool"):
        step(pa.struct([("a", pa.bool_()), ("b", pa.string())]), fill=True)


# --- through tables --------------------------------------------------------------------------------------

FILL = {"hoodie.write.set.null.for.missing.columns": True}
RECONCILE = {"hoodie.datasource.write.reconcile.schema": True}


def test_grown_table_is_read_by_hudi_rs_and_by_time_travel(tmp_path: Path) -> None:
    first = pa.table({"id": [1, 2, 3], "n": pa.array([1, 2, 3], pa.int32()), "s": pa.array([{"a": 1}] * 3)})
    lakeformat.create(tmp_path / "t", first.schema, record_key="id")
    table = lakeformat.open(tmp_path / "t", **FILL)
    table.upsert(first)
    old = table.history()[0].instant_time
    before = table.to_arrow(meta_columns=False)

    table.upsert(pa.table({"id": [2, 4], "n": pa.array([2**40, 4]), "s": pa.array([{"a": 5, "b": "x"}] * 2)}))
    table.upsert(pa.table({"extra": [1.5], "n": pa.array([7], pa.int32()), "id": [3]}))
    table.upsert(pa.table({"id": [5], "s": pa.array([{"a": 9, "b": None}], INNER), "n": pa.array([5], pa.int32())}))

    assert table.schema.names == ["id", "n", "s", "extra"]
    assert table.schema.field("n").type == pa.int64()
    rows = {row["id"]: row for row in hudi_rs.assert_same_rows(table)}
    assert [(rows[id_]["n"], rows[id_]["s"], rows[id_]["extra"]) for id_ in range(1, 6)] == [
        (1, {"a": 1, "b": None}, None),
        (2**40, {"a": 5, "b": "x"}, None),
        (7, None, 1.5),
        (4, {"a": 5, "b": "x"}, None),
        (5, {"a": 9, "b": None}, None),
    ]
    assert table.to_arrow(meta_columns=False, as_of=old).equals(before)


@pytest.mark.parametrize("options", [FILL, RECONCILE, {**FILL, **RECONCILE}, {**RECONCILE, next(iter(FILL)): False}])
def test_missing_columns_become_null_and_narrow_values_are_widened(tmp_path: Path, options: dict[str, Any]) -> None:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("x", pa.float64()), ("v", pa.string())])
    lakeformat.create(tmp_path / "t", schema, record_key="id")
    less = pa.table({"id": pa.array([1], pa.int32()), "x": pa.array([2], pa.int32()), "v": ["a"]})
    with pytest.raises(SchemaMismatchError, match="no column 'n'"):
        lakeformat.open(tmp_path / "t").upsert(less)
    table = lakeformat.open(tmp_path / "t", **options)
    table.upsert(less)
    assert table.schema.equals(schema)
    (row,) = hudi_rs.assert_same_rows(table)
    assert (row["id"], row["n"], row["x"], row["v"]) == (1, None, 2.0, "a")


def test_rows_must_have_the_schema_that_an_option_names(tmp_path: Path) -> None:
    fields = [{"name": name, "type": ["null", kind]} for name, kind in (("id", "int"), ("v", "string"))]
    named = {"hoodie.write.schema": json.dumps({"type": "record", "name": "r", "fields": fields})}
    rows = pa.table({"id": pa.array([1], pa.int32()), "v": ["a"]})
    table = lakeformat.create(tmp_path / "t", rows.schema, record_key="id", **named)
    table.upsert(rows)
    for other in (rows.append_column("x", pa.array([1])), rows.select(["id"]), rows.set_column(1, "v", pa.array([1]))):
        with pytest.raises(SchemaMismatchError, match=r"hoodie.write.schema has other columns or types than the rows"):
            table.upsert(other)
    table.delete(rows.select(["id"]))
    assert table.to_arrow().num_rows == 0
    with pytest.raises(InvalidOptionError, match="give an Avro record as JSON"):
        lakeformat.open(tmp_path / "t", **{"hoodie.write.schema": "{"}).upsert(rows)
