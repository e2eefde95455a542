"""Tables whose columns lakeformat and Hudi alter in turn: both read the rows of a model, and write to them."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi

pytestmark = [pytest.mark.interop]

ON_READ: Final = {"hoodie.schema.on.read.enable": "true"}
INNER: Final = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string())])
SCHEMA: Final = pa.schema([
    pa.field("id", pa.int32()),
    pa.field("name", pa.string()),
    pa.field("ts", pa.int64()),
    pa.field("amount", pa.decimal128(10, 2)),
    pa.field("place", pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.string()), pa.field("c", INNER)])),
    pa.field("lines", pa.list_(INNER)),
    pa.field("tags", pa.map_(pa.string(), INNER)),
    pa.field("at", pa.timestamp("us", "UTC")),
    pa.field("day", pa.date32()),
    pa.field("share", pa.float32()),
    pa.field("ok", pa.bool_()),
    pa.field("raw", pa.binary()),
])  # fmt: skip


def first_row(key: int) -> dict[str, Any]:
    return {
        "id": key,
        "name": f"n{key}",
        "ts": key,
        "amount": decimal.Decimal(f"{key}.25"),
        "place": {"a": key, "b": f"b{key}", "c": {"x": key, "y": "in"}},
        "lines": [{"x": key, "y": f"y{key}"}],
        "tags": [("k", {"x": key, "y": "t"})],
        "at": datetime(2026, 1, 1, tzinfo=timezone.utc),
        "day": date(2026, 1, key),
        "share": key / 2,
        "ok": True,
        "raw": b"ab",
    }


def altered_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the first schema as it reads after `alter`."""
    place = row["place"]
    return {
        "id": row["id"],
        "ts": row["ts"],
        "title": row["name"],
        "amount": row["amount"],
        "place": {"z": None, "a": place["a"], "bb": place["b"], "c": {"x": place["c"]["x"], "why": place["c"]["y"]}},
        "lines": [{"xx": line["x"], "y": line["y"]} for line in row["lines"]],
        "tags": [(key, {"x": value["x"], "yy": value["y"]}) for key, value in row["tags"]],
        "at": row["at"],
        "day": row["day"],
        "share": row["share"],
        "raw": row["raw"],
        "ok": None,
    }


def alter(table: lakeformat.Table) -> None:
    """Change columns at every depth; ``ok`` is dropped and comes again with another type."""
    change = table.alter().rename("name", "title").move("title", after="ts")
    change = change.rename("place.b", "bb").rename("place.c.y", "why").add("place.z", pa.int32(), first=True)
    change = change.rename("lines.element.x", "xx").rename("tags.value.y", "yy")
    change.retype("share", pa.float64()).retype("amount", pa.decimal128(12, 2)).drop("ok").add("ok", "string").execute()


def ours(path: Path) -> list[dict[str, Any]]:
    rows = lakeformat.open(path).to_arrow(meta_columns=False).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def theirs(hudi: Hudi, path: Path) -> list[dict[str, Any]]:
    rows = hudi.read(path, options=ON_READ)
    names = [name for name in rows.schema.names if not name.startswith("_hoodie")]
    return sorted(rows.select(names).to_pylist(), key=lambda row: row["id"])


def check(hudi: Hudi, path: Path, model: dict[int, dict[str, Any]]) -> None:
    """Check that both read the model's rows, with the columns in its order."""
    wanted = [model[key] for key in sorted(model)]
    assert ours(path) == wanted
    assert theirs(hudi, path) == wanted
    assert [*ours(path)[0]] == [*theirs(hudi, path)[0]] == [*wanted[0]]
    assert not lakeformat.open(path).check()


def new_row(key: int) -> dict[str, Any]:
    row = altered_row(first_row(key))
    return row | {"title": f"new{key}", "ok": "yes", "place": row["place"] | {"z": key}, "share": 0.1}


KINDS: Final = [
    pytest.param("0.15.0", 6, "COPY_ON_WRITE", marks=pytest.mark.nightly),
    pytest.param("0.15.0", 6, "MERGE_ON_READ", marks=pytest.mark.nightly),
    pytest.param("1.2.0", 6, "MERGE_ON_READ", marks=pytest.mark.nightly),
    ("1.2.0", 9, "COPY_ON_WRITE"),
    ("1.2.0", 9, "MERGE_ON_READ"),
]


@pytest.fixture
def row_reader(hudi: Hudi) -> Iterator[Hudi]:
    """Yield a Hudi that reads Parquet row by row: its vectorized reader refuses changes inside nested columns."""
    hudi.run("set spark.sql.parquet.enableVectorizedReader=false")
    yield hudi
    hudi.run("set spark.sql.parquet.enableVectorizedReader=true")


@pytest.mark.parametrize(("hudi", "version", "kind"), KINDS, indirect=["hudi"])
def test_columns_that_both_alter(row_reader: Hudi, version: int, kind: str, tmp_path: Path) -> None:
    path, hudi = tmp_path / "t", row_reader
    options = {"hoodie.write.table.version": version, "hoodie.datasource.write.table.type": kind}
    table = lakeformat.create(path, SCHEMA, record_key="id", ordering="ts", **options)
    table.upsert([first_row(key) for key in range(1, 6)])
    alter(table)
    model = {key: altered_row(first_row(key)) for key in range(1, 6)}
    check(hudi, path, model)

    def upsert(*rows: dict[str, Any]) -> None:
        table.upsert([*rows])
        model.update({row["id"]: row for row in rows})

    upsert(new_row(2), new_row(7))
    table.delete(where="id = 1")
    table.update({"title": "set"}, where="id = 3")
    del model[1]
    model[3] = model[3] | {"title": "set"}
    check(hudi, path, model)

    schema = lakeformat.open(path).schema
    written = new_row(4) | {"title": "by Hudi"}
    more = {**ON_READ, "hoodie.datasource.write.reconcile.schema": "true", "hoodie.write.table.version": str(version)}
    hudi.write(path, pa.Table.from_pylist([written], schema=schema), "upsert", **more)
    model[4] = written
    check(hudi, path, model)

    hudi.run(
        f"create table altered_{version}_{kind} using hudi location '{path}'",
        "set hoodie.schema.on.read.enable=true",
        "set hoodie.datasource.write.schema.allow.auto.evolution.column.drop=true",
        f"set hoodie.write.table.version={version}",
        f"alter table altered_{version}_{kind} rename column title to label",
        f"alter table altered_{version}_{kind} rename column place.c.why to reason",
        f"alter table altered_{version}_{kind} drop column raw",
    )
    check(hudi, path, {key: again(row) for key, row in model.items()})
    model = {key: again(row) for key, row in model.items()}
    upsert(again(new_row(5)), again(new_row(8)))
    if kind == "MERGE_ON_READ":
        table.compact()
        check(hudi, path, model)
    table.cluster()
    check(hudi, path, model)


def again(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row as it reads after Hudi's changes."""
    inner = row["place"]["c"]
    place = row["place"] | {"c": {"x": inner["x"], "reason": inner["why"]}}
    named = {"label" if name == "title" else name: value for name, value in row.items() if name != "raw"}
    return named | {"place": place}
