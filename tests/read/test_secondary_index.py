"""A read by the value of a column with a secondary index opens only the files that hold it, and loses no row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat

FILES = 8
SCHEMA = pa.schema(
    {"id": pa.int64(), "part": pa.string(), "city": pa.string(), "n": pa.int32(), "at": pa.timestamp("us", "UTC")}
)
#: Values in each file around the wanted ones, so that bounds rule out no file.
AROUND = ("", "zz")
Row = dict[str, Any]


def row(number: int, part: int, city: str | None) -> Row:
    return {"id": number, "part": f"p{part}", "city": city, "n": number % 10 * 7, "at": number % 10 * 10**6}


def make_table(path: Path, kind: str) -> lakeformat.Table:
    options = {"hoodie.write.table.version": 9, "hoodie.parquet.small.file.limit": 0}
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="part", table_type=kind, **options)
    rows = [row(part * 10 + at, part, city) for part in range(FILES) for at, city in enumerate(AROUND)]
    rows += [row(2, 0, "oslo"), row(12, 1, "rome"), row(22, 2, "rome"), row(32, 3, "a$b"), row(43, 4, None)]
    table.upsert(pa.Table.from_pylist(rows, SCHEMA))
    for name in ("city", "n", "at"):
        table.create_index(f"by_{name}", [name])
    table.upsert(pa.Table.from_pylist([row(22, 2, "oslo"), row(52, 5, "rome")], SCHEMA))
    table.delete([{"id": 12, "part": "p1"}])
    return table


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_only_the_files_of_a_value_are_opened(kind: str, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", kind)
    whole = lakeformat.open(tmp_path / "t", **{"hoodie.metadata.enable": False})
    for where, files in (
        ("city = 'oslo'", 2),
        ("city = 'rome'", 1),
        ("city = 'nowhere'", 0),
        ("city in ('oslo', 'a$b') and id >= 0", 3),
        ("'a$b' <=> city", 1),
        ("city = 'oslo' and n = 14", 4),
        ("n = 21", 1),
        ("at = timestamp '1970-01-01 00:00:03'", 1),
        ("city = 'oslo' or city = 'rome'", FILES + 1),
        ("city is null", 1),
        ("city != 'oslo'", FILES + 1),
    ):
        found = table.to_arrow(["id"], where=where, verify=True)["id"].to_pylist()
        assert sorted(found) == sorted(whole.to_arrow(["id"], where=where)["id"].to_pylist()), where
        assert table.read(where=where).plan().files_after_stats <= files, where
    assert whole.read(where="city = 'rome'").plan().files_after_stats > 1


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_other_states_of_the_table_are_read_without_it(kind: str, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", kind)
    first = table.history()[-1].instant_time
    assert table.to_arrow(["id"], where="city = 'rome'", as_of=first)["id"].to_pylist() == [12, 22]
    optimized = lakeformat.open(tmp_path / "t", **{"hoodie.datasource.query.type": "read_optimized"})
    wanted = [12, 22] if kind == "MERGE_ON_READ" else [52]
    assert sorted(optimized.to_arrow(["id"], where="city = 'rome'")["id"].to_pylist())[:2] == wanted


def test_log_files_that_are_not_merged_are_read_without_it(tmp_path: Path) -> None:
    """The index knows rows as they are merged: the file of a replaced value must be opened, too."""
    make_table(tmp_path / "t", "MERGE_ON_READ")
    unmerged = lakeformat.open(tmp_path / "t", **{"hoodie.datasource.merge.type": "skip_merge"})
    rows = unmerged.to_arrow(["id", "city"]).to_pylist()
    expected = sorted(row["id"] for row in rows if row["city"] == "rome")
    assert expected == [12, 22, 52]
    assert sorted(unmerged.to_arrow(["id"], where="city = 'rome'")["id"].to_pylist()) == expected


def test_a_damaged_index_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = make_table(tmp_path / "t", "COPY_ON_WRITE")
    for file in (tmp_path / "t/.hoodie/metadata/secondary_index_by_city").glob("*.hfile"):
        file.write_bytes(b"x" * file.stat().st_size)
    assert sorted(table.to_arrow(["id"], where="city = 'oslo'")["id"].to_pylist()) == [2, 22]
    assert "its secondary indexes are not used" in caplog.text
