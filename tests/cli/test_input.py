"""Rows from files: texts become values of the table's columns, several files are one input; columns by name."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "day": pa.date32(),
        "at": pa.timestamp("us"),
        "moment": pa.timestamp("us", "UTC"),
        "n": pa.int32(),
        "x": pa.float64(),
        "ok": pa.bool_(),
        "price": pa.decimal128(10, 2),
        "name": pa.string(),
    }
)
TEXTS = {
    "id": "7",
    "day": "2025-11-20",
    "at": "2025-11-20 10:00:00.5",
    "moment": "2025-11-20T10:00:00Z",
    "n": "-3",
    "x": "0.25",
    "ok": "true",
    "price": "1.20",
    "name": "12",
}
VALUES = {
    "id": 7,
    "day": datetime.date(2025, 11, 20),
    "at": datetime.datetime(2025, 11, 20, 10, 0, 0, 500000),
    "moment": datetime.datetime(2025, 11, 20, 10, tzinfo=datetime.timezone.utc),
    "n": -3,
    "x": 0.25,
    "ok": True,
    "price": decimal.Decimal("1.20"),
    "name": "12",
}
NULLS = dict.fromkeys(TEXTS, None) | {"id": "8"}
KINDS = ("parquet", "csv", "json", "arrow")


def make_table(path: Path) -> lakeformat.Table:
    return lakeformat.create(path, SCHEMA, record_key="id")


def write_file(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows of texts in the format of the file's name."""
    table = pa.Table.from_pylist(rows, pa.schema([(name, pa.string()) for name in rows[0]]))
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    elif path.suffix == ".json":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        lines = [",".join("" if value is None else f'"{value}"' for value in row.values()) for row in rows]
        path.write_text("\n".join([",".join(rows[0]), *lines]) + "\n")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_texts_become_values_of_the_columns(kind: str, run: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    answer = run("upsert", tmp_path / "t", write_file(tmp_path / f"rows.{kind}", [TEXTS, NULLS]))
    assert answer.code == 0, answer.err
    assert table.to_arrow().sort_by("id").to_pylist() == [VALUES, dict.fromkeys(TEXTS, None) | {"id": 8}]


def test_texts_in_dictionaries_become_values(run: Any, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", {"id": "int64", "n": "int64"}, record_key="id")
    rows = pa.table({"id": pa.array([1, 2, 3]), "n": pa.array(["5", "6", "5"]).dictionary_encode()})
    pq.write_table(rows, tmp_path / "rows.parquet")
    assert run("upsert", tmp_path / "t", tmp_path / "rows.parquet").code == 0
    assert table.to_arrow(["n"]).column(0).to_pylist() == [5, 6, 5]


UNFIT = {
    "day": ("2025-02-30", "20.11.2025", ""),
    "at": ("2025-11-20T10:00:00Z", "soon"),
    "moment": ("2025-11-20 10:00:00",),
    "n": ("3.5", "3000000000", "three"),
    "x": ("1e400", "12345678901234567890.5", "one"),
    "ok": ("yes",),
    "price": ("1.239", "123456789.00", "cheap"),
}
CASES = [(kind, column, value) for kind in KINDS for column, values in UNFIT.items() for value in values]


@pytest.mark.parametrize(("kind", "column", "value"), CASES)
def test_error_names_row_column_and_value(kind: str, column: str, value: str, run: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    rows = [{**TEXTS, "id": str(number)} for number in range(5)]
    rows[3][column] = value
    answer = run("upsert", tmp_path / "t", write_file(tmp_path / f"rows.{kind}", rows))
    if kind == "csv" and value in {"1e400", "12345678901234567890.5"}:  # The nearest number, as ever for CSV.
        assert answer.code == 0
        return
    assert answer.code == 2
    assert f"rows.{kind}: row 4, column '{column}': '{value}' is not a value of type" in answer.err
    assert "bad_rows=aside" in answer.err
    assert table.count() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_rows_with_unfit_texts_are_put_aside_on_request(kind: str, run: Any, tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    rows = [{**TEXTS, "id": str(number), "day": "never" if number % 2 else "2025-11-20"} for number in range(6)]
    first, second = (write_file(tmp_path / f"{name}.{kind}", part) for name, part in (("a", rows[:4]), ("b", rows[4:])))
    answer = run("upsert", tmp_path / "t", first, second, "-o", "bad_rows=aside")
    assert answer.code == 0, answer.err
    assert table.to_arrow(["id"]).sort_by("id").column(0).to_pylist() == [0, 2, 4]
    aside = table.bad_rows().sort_by("row_number")
    assert aside["row_number"].to_pylist() == [1, 3, 5]


def test_python_does_not_cast_texts(tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", {"id": "int64", "day": "date32"}, record_key="id")
    with pytest.raises(lakeformat.SchemaMismatchError, match="column 'day' is string in the input and date32"):
        table.upsert(pa.table({"id": [1], "day": ["2025-11-20"]}))


@pytest.mark.parametrize("verb", ["insert", "upsert", "overwrite", "delete", "plan"])
@pytest.mark.parametrize("how", ["names", "folder", "folder/", "star", "deep"])
def test_several_files_are_one_input(verb: str, how: str, run: Any, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", pa.table({"id": [1, 2, 3, 4]}), record_key="id", insert=True)
    data = tmp_path / "data"
    data.mkdir()
    pq.write_table(pa.table({"id": [3]}), data / "b.parquet")
    (data / "a.csv").write_text("id\n4\n")
    (data / "_SUCCESS").write_text("")
    (data / ".hidden.csv").write_text("id\n1\n")
    (data / "notes.txt").write_text("x")
    given = {
        "names": [data / "a.csv", data / "b.parquet"],
        "folder": [data],
        "folder/": [f"{data}/"],
        "star": [f"{data}/*.csv", f"{data}/[b].parquet"],
        "deep": [f"{tmp_path}/**/*.csv", f"{data}/?.parquet"],
    }[how]
    commits = len(table.history())
    answer = run(verb, tmp_path / "t", *given, "--json")
    assert answer.code == 0, answer.err
    said = json.loads(answer.out)
    assert (said["incoming"] if verb == "plan" else said["rows"]["incoming"]) == 2
    ids = sorted(table.to_arrow(["id"]).column(0).to_pylist())
    assert ids == {"delete": [1, 2], "overwrite": [3, 4], "insert": [1, 2, 3, 3, 4, 4]}.get(verb, [1, 2, 3, 4])
    assert len(table.history()) == commits + (verb != "plan")


def test_files_with_other_columns_are_joined_by_name(run: Any, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", {"id": "int64", "n": "int64", "name": "string"}, record_key="id")
    (tmp_path / "a.csv").write_text("id,n,name\n1,5,y\n")
    (tmp_path / "b.json").write_text('{"name": "x", "id": 2}\n')
    assert run("insert", tmp_path / "t", tmp_path / "a.csv", tmp_path / "b.json").code == 0
    rows = table.to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": 1, "n": 5, "name": "y"}, {"id": 2, "n": None, "name": "x"}]


def test_column_that_a_file_lacks_is_null_only_on_request(run: Any, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", {"id": "int64", "n": "int64"}, record_key="id")
    (tmp_path / "a.csv").write_text("id,n\n1,5\n")
    (tmp_path / "b.csv").write_text("id\n2\n")
    words = ("upsert", tmp_path / "t", tmp_path / "a.csv", tmp_path / "b.csv")
    answer = run(*words)
    assert (answer.code, table.count()) == (2, 0)
    assert "b.csv has no column 'n', which other files have" in answer.err
    assert run(*words, "-o", "hoodie.write.set.null.for.missing.columns=true").code == 0
    assert table.to_arrow().sort_by("id").to_pylist() == [{"id": 1, "n": 5}, {"id": 2, "n": None}]
    assert run("delete", tmp_path / "t", tmp_path / "a.csv", tmp_path / "b.csv").code == 0
    assert table.count() == 0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("none/*.csv", "no file fits"),
        ("empty", "holds no file of rows"),
        ("empty/*.csv", "no file fits"),
        ("nowhere", "there is no file"),
        ("nowhere/", "holds no file of rows"),
    ],
)
def test_input_without_files_is_refused(given: str, said: str, run: Any, tmp_path: Path) -> None:
    make_table(tmp_path / "t")
    (tmp_path / "empty").mkdir()
    answer = run("upsert", tmp_path / "t", f"{tmp_path}/{given}")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert said in answer.err


def test_files_whose_columns_contradict_are_refused(run: Any, tmp_path: Path) -> None:
    lakeformat.create(tmp_path / "t", {"id": "int64"}, record_key="id")
    (tmp_path / "a.csv").write_text("id,new\n1,5\n")
    (tmp_path / "b.csv").write_text("id,new\n2,x\n")
    answer = run("upsert", tmp_path / "t", tmp_path / "a.csv", tmp_path / "b.csv")
    assert answer.code == 2
    assert "b.csv: column 'new' is string, and int64 in the files before" in answer.err


def test_name_with_a_bracket_is_a_file(run: Any, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", {"id": "int64"}, record_key="id")
    (tmp_path / "a[1].csv").write_text("id\n1\n")
    assert run("upsert", tmp_path / "t", tmp_path / "a[1].csv").code == 0
    assert table.count() == 1


def test_create_takes_columns(run: Any, tmp_path: Path) -> None:
    words = ["id:bigint", "day:date", "price:decimal(10, 2)", "at:timestamp", "n:int32", "tags:array<string>"]
    given = [word for column in words for word in ("--column", column)]
    assert run("create", tmp_path / "t", *given, "--record-key", "id").code == 0
    assert lakeformat.open(tmp_path / "t").schema.equals(
        pa.schema(
            {
                "id": pa.int64(),
                "day": pa.date32(),
                "price": pa.decimal128(10, 2),
                "at": pa.timestamp("us", "UTC"),
                "n": pa.int32(),
                "tags": pa.list_(pa.string()),
            }
        )
    )


def test_create_takes_columns_beside_those_of_a_file(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,day\n1,x\n")
    given = ["--like", tmp_path / "a.csv", "--column", "day:date", "--column", "n:int64"]
    assert run("create", tmp_path / "t", *given, "--record-key", "id").code == 0
    schema = lakeformat.open(tmp_path / "t").schema
    assert [(field.name, str(field.type)) for field in schema] == [
        ("id", "int64"),
        ("day", "date32[day]"),
        ("n", "int64"),
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "--like FILE or --column NAME:TYPE"),
        (["--column", "id"], "'id' has no type; write name:type"),
        (["--column", "id:nonsense"], "nonsense"),
        (["--column", "id:bigint", "--column", "id:int"], "column 'id' is given twice"),
    ],
)
def test_columns_that_are_none_are_refused(given: list[str], said: str, run: Any, tmp_path: Path) -> None:
    answer = run("create", tmp_path / "t", *given)
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert said in answer.err
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("value", ["'z'", '"z"'])
def test_update_with_quotes_around_a_text_is_warned_about(
    value: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = lakeformat.create(tmp_path / "t", pa.table({"id": [1], "v": ["a"]}), record_key="id", insert=True)
    table.update({"v": value}, where="id = 1")
    (record,) = [each for each in caplog.records if "quotes" in each.message]
    assert f"column 'v' gets the text {value} with its quotes" in record.message
    table.update({"v": "it's"})
    assert len([each for each in caplog.records if "quotes" in each.message]) == 1


def test_a_csv_that_is_not_utf_8_is_named_with_its_cure(run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("id,shop\n1,Zürich\n".encode("latin-1"))
    refused = run("create", tmp_path / "t", "--like", tmp_path / "a.csv")
    assert (refused.code, f"{tmp_path}/a.csv is not UTF-8" in refused.err) == (2, True)
    assert run("create", tmp_path / "t", "--column", "id:bigint", "--column", "shop:string").code == 0
    found = run("insert", tmp_path / "t", tmp_path / "a.csv")
    assert found.code == 2
    assert f"{tmp_path}/a.csv is not UTF-8" in found.err
    assert "iconv" in found.err


@pytest.mark.parametrize(("text", "said"), [("id;a\n1;x,y\n", "';'"), ("id\ta\n1\tx,y\n", "tabs")])
def test_a_csv_with_other_separators_is_named(text: str, said: str, run: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    found = run("create", tmp_path / "t", "--like", tmp_path / "a.csv")
    assert found.code == 2
    assert f"{tmp_path}/a.csv: its values are separated by {said}, not by commas" in found.err
