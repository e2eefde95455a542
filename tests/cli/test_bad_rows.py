"""The command line puts bad values and lines of CSV and JSON aside, and lists what was put aside."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.cli.main import main
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="string", n="int32", at=pa.timestamp("us"), d=pa.decimal128(6, 2), f="float64", t="string")
CSV = """id,n,at,d,f,t
a,1,2024-01-01,1.25,NaN,"x
y"
b,many,2024-01-01,,,
c,2
,3,,,,
d,4,soon,,,
e,99999999999,,,,
f,"5",,1.255,,
g, 6 ,,, 1e3 ,NULL
"""
GOOD = [{"id": "a", "n": 1, "t": "x\ny"}, {"id": "g", "n": 6, "t": None}]
JSON = """{"id": "a", "n": 1}
{"id": "b", "n": "many"}
{"id":
[1]
{"id": null, "n": 3}
{"id": "c", "d": "1.239"}
{"id": "d", "at": "2024-01-01 00:00:00"}
{"id": "e", "at": "soon"}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    lakeformat.create(tmp_path / "t", SCHEMA, record_key="id")
    return tmp_path / "t"


def rows_of(path: Path, columns: list[str]) -> list[dict[str, Any]]:
    return sorted(lakeformat.open(path).to_arrow(columns).to_pylist(), key=lambda row: row["id"])


def aside_of(path: Path) -> set[tuple[Any, ...]]:
    rows = lakeformat.open(path).bad_rows(["reason", "column_name", "row_number"]).to_pylist()
    return {tuple(row.values()) for row in rows}


def test_bad_values_and_lines_of_csv_are_put_aside(path: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(CSV)
    assert main(["upsert", str(path), str(tmp_path / "rows.csv")]) == 2
    assert lakeformat.open(path).count() == 0
    assert main(["upsert", str(path), str(tmp_path / "rows.csv"), "-o", "bad_rows=aside"]) == 0
    assert rows_of(path, ["id", "n", "t"]) == GOOD
    assert aside_of(path) == {
        ("unfit_value", "n", 1),
        ("damaged_line", "", None),
        ("no_key", "id", 2),
        ("unfit_value", "at", 3),
        ("unfit_value", "n", 4),
        ("unfit_value", "d", 5),
    }
    assert lakeformat.open(path).history()[0].report["rows"] == {  # type: ignore[index]
        "incoming": 8, "set_aside": 6, "inserted": 2, "updated": 0, "deleted": 0,
    }  # fmt: skip


def test_good_csv_reads_the_same_with_and_without_the_option(path: Path, tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_text("".join(CSV.splitlines(keepends=True)[at] for at in (0, 1, 2, 9)))
    seen = []
    for option in ("bad_rows=fail", "bad_rows=aside"):
        assert main(["overwrite", str(path), str(tmp_path / "good.csv"), "-o", option]) == 0
        seen.append(repr(rows_of(path, SCHEMA.names)))
    assert seen[0] == seen[1]
    assert aside_of(path) == set()


def test_bad_values_and_lines_of_json_are_put_aside(path: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(JSON)
    settings = ["-o", "bad_rows=aside", "-o", "hoodie.write.set.null.for.missing.columns=true"]
    assert main(["upsert", str(path), str(tmp_path / "rows.jsonl"), *settings]) == 0
    assert [row["id"] for row in rows_of(path, ["id"])] == ["a", "d"]
    assert aside_of(path) == {
        ("unfit_value", "n", 1),
        ("damaged_line", "", None),
        ("no_key", "id", 2),
        ("unfit_value", "d", 3),
        ("unfit_value", "at", 5),
    }


def test_bad_rows_are_listed_for_people_and_programs(
    path: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text(CSV)
    main(["upsert", str(path), str(tmp_path / "rows.csv"), "-o", "bad_rows=aside"])
    capfd.readouterr()
    assert main(["bad-rows", str(path), "--where", "reason = 'no_key'", "--columns", "message,row_json", "--json"]) == 0
    (row,) = map(json.loads, capfd.readouterr().out.splitlines())
    assert row["message"] == "record key column 'id' is null or empty"
    assert json.loads(row["row_json"])["n"] == 3
    assert main(["bad-rows", str(path), "--columns", "reason"]) == 0
    assert capfd.readouterr().out.count("unfit_value") == 4


INNER = pa.struct({"d": pa.decimal128(30, 10), "days": pa.list_(pa.date32())})
OF_JSON = (
    '{"id": "a", "c": {"d": 12345678901234567890.123456789, "days": ["2024-01-02"], "new": 7}}',
    '{"id": "b", "c": {"D": 7}}',
    '{"id": "c", "c": {"d": 1, "d": 2}}',
)


def test_json_keeps_every_field_and_digit_or_puts_the_row_aside(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", a_schema(id="string", c=INNER), record_key="id")
    for lines, code in ((OF_JSON[:1], 0), (OF_JSON[1:2], 2), (OF_JSON[2:], 2), (OF_JSON, 0)):
        (tmp_path / "rows.json").write_text("\n".join(lines))
        given = ["-o", "bad_rows=aside"] if lines == OF_JSON else []
        assert main(["upsert", str(tmp_path / "t"), str(tmp_path / "rows.json"), *given]) == code
    value = {"d": Decimal("12345678901234567890.1234567890"), "days": [date(2024, 1, 2)], "new": 7}
    assert table.to_arrow().to_pylist() == [{"id": "a", "c": value}]
    assert {reason for reason, _, _ in aside_of(tmp_path / "t")} == {"unfit_value", "damaged_line"}


def test_words_of_csv_are_texts_and_numbers(tmp_path: Path) -> None:
    schema = a_schema(id="string", t="string", f="float64")
    for option in ("bad_rows=aside", "bad_rows=fail"):
        table = lakeformat.create(tmp_path / option, schema, record_key="id")
        (tmp_path / "rows.csv").write_text('id,t,f\na,NA,NaN\nb,n/a,\nc,"NULL",1\nd,,inf\n')
        assert main(["upsert", str(tmp_path / option), str(tmp_path / "rows.csv"), "-o", option]) == 0
        rows = table.to_arrow().sort_by("id").to_pylist()
        assert [row["t"] for row in rows] == ["NA", "n/a", "NULL", None]
        assert str([row["f"] for row in rows]) == "[nan, None, 1.0, inf]"
