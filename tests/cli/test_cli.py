"""The command line prints the content of the table. An error is one line with the exit code of its kind."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.cli.main import main
from lakeformat.cli.output import EXIT_CODES
from tests.helpers import hudi_rs
from tests.helpers.fixture_tables import unpack
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", part="string", price=pa.decimal128(10, 2), day="date32", tags=pa.list_(pa.string()))
LINES = '{"id": 1, "part": "b", "price": "7.50", "day": "2025-01-02", "tags": ["x"]}\n{"id": 9, "part": "b"}\n'


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Any:
    def command(*words: object) -> Answer:
        capfdbinary.readouterr()
        code = main([str(word) for word in words])
        sys.stdout.flush()
        found = capfdbinary.readouterr()
        return Answer(code, found.out.decode(errors="surrogateescape"), found.err.decode())

    return command


def some(first: int, last: int) -> pa.Table:
    rows = [
        {"id": at, "part": "ab"[at % 2], "price": at, "day": at, "tags": ["t"] * (at % 3)} for at in range(first, last)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = lakeformat.create(tmp_path / "t", SCHEMA, record_key="id", partition_by="part")
    table.bulk_insert(some(0, 8))
    return tmp_path / "t"


def ids(path: Path) -> list[int]:
    return sorted(row["id"] for row in hudi_rs.assert_same_rows(lakeformat.open(path)))


def test_commands_create_fill_and_read_a_table(run: Any, tmp_path: Path) -> None:
    path, file = tmp_path / "t", tmp_path / "rows.parquet"
    pq.write_table(some(0, 8), file)
    made = run("create", path, "--like", file, "--record-key", "id", "--partition-by", "part")
    assert (made.code, made.out) == (0, f"made an empty table at {path}\n")
    assert run("create", path, "--like", file, "--record-key", "id").code == 2
    assert run("insert", path, file, "--bulk").code == 0
    assert ids(path) == list(range(8))
    pq.write_table(some(6, 10), file)
    answer = json.loads(run("upsert", path, file, "--json").out)
    assert answer["rows"] == {"incoming": 4, "inserted": 2, "updated": 2, "deleted": 0}
    assert run("delete", path, "--where", "id < 3").code == 0
    assert ids(path) == list(range(3, 10))
    pq.write_table(some(3, 5).select(["id"]), file)
    assert run("delete", path, file).code == 0
    pq.write_table(some(20, 21), file)
    assert run("overwrite", path, file, "--partitions").code == 0
    assert ids(path) == [5, 7, 9, 20]
    assert run("cluster", path, "--by", "id").code == 0
    assert [entry["operation"] for entry in json.loads(run("history", path, "--json").out)] == [
        "cluster",
        "insert_overwrite",
        "delete",
        "delete",
        "upsert",
        "bulk_insert",
    ]


def parquet(rows: pa.Table, file: Path) -> None:
    pq.write_table(rows, file)


def arrow_file(rows: pa.Table, file: Path) -> None:
    pyarrow.feather.write_feather(rows, file, compression="uncompressed")


def arrow_stream(rows: pa.Table, file: Path) -> None:
    with pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_table(rows)


def csv(rows: pa.Table, file: Path) -> None:
    pyarrow.csv.write_csv(rows.drop_columns("tags"), file)


def json_lines(rows: pa.Table, file: Path) -> None:
    file.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows.to_pylist()))


def json_list(rows: pa.Table, file: Path) -> None:
    file.write_text(json.dumps(rows.to_pylist(), default=str))


@pytest.mark.parametrize(
    ("ending", "write"),
    [
        ("parquet", parquet),
        ("arrow", arrow_file),
        ("arrows", arrow_stream),
        ("csv", csv),
        ("jsonl", json_lines),
        ("json", json_list),
    ],
)
def test_upsert_reads_every_file_format(ending: str, write: Any, run: Any, path: Path, tmp_path: Path) -> None:
    file, rows = tmp_path / f"rows.{ending}", some(6, 12)
    write(rows, file)
    options = ["-o", "hoodie.write.set.null.for.missing.columns=true"] if ending == "csv" else []
    answer = run("upsert", path, file, "--json", *options)
    assert (answer.code, answer.err) == (0, "")
    assert json.loads(answer.out)["rows"]["updated"] == 2
    found = lakeformat.open(path).to_arrow(["id", "price", "day"], where="id >= 6").sort_by("id")
    assert found == rows.select(["id", "price", "day"]).cast(found.schema)


def test_standard_input_needs_a_format(run: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINES.encode())))
    assert "--format" in run("upsert", path, "-").err
    answer = run("upsert", path, "-", "--format", "json", "-o", "hoodie.write.set.null.for.missing.columns=true")
    assert answer.code == 0
    rows = lakeformat.open(path).to_arrow(["id", "tags", "price"], where="id in (1, 9)").sort_by("id").to_pylist()
    assert rows == [{"id": 1, "tags": ["x"], "price": Decimal("7.50")}, {"id": 9, "tags": None, "price": None}]


@pytest.mark.parametrize("kind", ["csv", "json", "arrow", "parquet"])
def test_read_writes_every_output_format(kind: str, run: Any, path: Path, tmp_path: Path) -> None:
    answer = run("read", path, "-f", kind, "--where", "id > 2", "--columns", "id,tags", "--limit", "4")
    data = answer.out.encode(errors="surrogateescape")
    if kind == "csv":
        rows = pyarrow.csv.read_csv(io.BytesIO(data)).to_pylist()
        rows = [{**row, "tags": json.loads(row["tags"])} for row in rows]
    elif kind == "json":
        rows = [json.loads(line) for line in data.splitlines()]
    elif kind == "arrow":
        rows = pa.ipc.open_stream(data).read_all().to_pylist()
    else:
        rows = pq.read_table(io.BytesIO(data)).to_pylist()
    assert len(rows) == 4
    assert all(row in some(3, 8).select(["id", "tags"]).to_pylist() for row in rows)
    into = run("read", path, "-f", kind, "--output", tmp_path / "out", "--where", "id > 2")
    assert (into.out, into.err) == ("", f"5 rows written to {tmp_path / 'out'}\n")


def test_read_on_a_terminal_shows_the_first_rows_and_says_so(run: Any, path: Path) -> None:
    lakeformat.open(path).insert(some(10, 40))
    answer = run("read", path)
    assert len(answer.out.splitlines()) == 22
    assert "the first 20 rows" in answer.err
    assert run("read", path, "--where", "id = 4", "--columns", "id,price,tags").out.split()[-3:] == [
        "4",
        "4.00",
        '["t"]',
    ]
    assert run("read", path, "--count").out == "38\n"
    assert json.loads(run("read", path, "--count", "--json", "--where", "id < 3").out) == {"rows": 3}


def test_read_as_of_and_since_return_past_rows_and_changes(run: Any, path: Path) -> None:
    table = lakeformat.open(path)
    first = table.history()[0].instant_time
    table.upsert(some(7, 10))
    assert run("read", path, "--as-of", first, "--count").out == "8\n"
    assert [json.loads(line)["id"] for line in run("read", path, "--since", first, "--json").out.splitlines()] == [
        8,
        7,
        9,
    ]
    assert run("read", path, "--since", first, "--as-of", first).code == 2


def test_show_prints_slices_timeline_commits_and_plans(run: Any, path: Path) -> None:
    instant = lakeformat.open(path).history()[0].instant_time
    slices = json.loads(run("show", "slices", path, "--json").out)
    assert {path / each["path"] for each in slices} == set(path.glob("*/*.parquet"))
    assert json.loads(run("show", "timeline", path, "--json").out) == [
        {"instant": instant, "action": "commit", "state": "completed", "completed": None}
    ]
    commit = json.loads(run("show", "commit", path, instant, "--json").out)
    assert commit["operation"] == "BULK_INSERT"
    assert sum(each["num_writes"] for each in commit["stats"]["a"]) == 4
    assert [run("show", what, path).code for what in ("slices", "timeline")] == [0, 0]
    assert run("show", "commit", path, instant).out.startswith("bulk_insert")
    assert run("show", "commit", path, "20200101000000000").code == 8
    assert run("show", "plan", path, instant).code == 8
    planned = lakeformat.open(path).schedule_clustering("id")
    assert len(json.loads(run("show", "plan", path, planned, "--json").out)["plan"]["groups"]) == 2


def test_plan_and_report_commands_write_nothing(run: Any, path: Path, tmp_path: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*") if file.is_file()}
    pq.write_table(some(6, 12), tmp_path / "rows.parquet")
    assert json.loads(run("plan", path, tmp_path / "rows.parquet", "--json").out)["incoming"] == 6
    assert json.loads(run("plan", path, "--where", "part = 'a'", "--json").out)["files_after_names"] == 1
    report = run("layout-report", path, "--by", "id,price", "--png", tmp_path / "layout.png", "--json")
    assert {each["name"] for each in json.loads(report.out)["layouts"]} == {"now", "linear", "z-order", "hilbert"}
    assert (tmp_path / "layout.png").read_bytes()[:4] == b"\x89PNG"
    assert before == {file: file.stat().st_mtime_ns for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", ["hudi_changes/v6_cow_archived", "hudi_v8_v9/v9_mor_compacted_partitioned"])
def test_describe_reads_tables_that_hudi_made(name: str, run: Any, tmp_path: Path) -> None:
    folder = unpack(name, tmp_path)
    found = json.loads(run("describe", folder, "--json").out)
    table = lakeformat.open(folder)
    kinds = {"COPY_ON_WRITE": "copy-on-write", "MERGE_ON_READ": "merge-on-read"}
    assert (found["version"], found["kind"]) == (table.config.version, kinds[table.config.table_type.value])
    assert [each["name"] for each in found["columns"]] == table.schema.names
    assert found["rows"] in (None, table.count())


REFUSED: dict[str, tuple[tuple[str, ...], int]] = {
    "no table": (("read", "nowhere"), 3),
    "unknown column": (("read", "{table}", "--columns", "idd"), 2),
    "unknown command": (("raed", "{table}"), 2),
    "unknown option": (("read", "{table}", "--were", "id > 2"), 2),
    "an option without a value": (("read", "{table}", "-o", "where"), 2),
    "an unknown option of the table": (("read", "{table}", "-o", "lakeformat.no.such=1"), 2),
    "an unknown form": (("read", "{table}", "-f", "xml"), 2),
    "rows of an unknown form": (("upsert", "{table}", "rows.csv", "--format", "xml"), 2),
    "no file": (("upsert", "{table}", "nowhere.parquet"), 2),
    "a file of another kind": (("upsert", "{table}", "{table}/.hoodie/hoodie.properties", "-f", "parquet"), 2),
    "no ending": (("upsert", "{table}", "rows"), 2),
    "a condition that is none": (("delete", "{table}", "--where", "id >"), 2),
    "neither keys nor condition": (("delete", "{table}"), 2),
    "an instant to come": (("read", "{table}", "--as-of", "never"), 2),
}


@pytest.mark.parametrize("case", REFUSED)
def test_errors_are_one_line_with_a_code(case: str, run: Any, path: Path) -> None:
    words, code = REFUSED[case]
    given = [word.replace("{table}", str(path)) for word in words]
    answer = run(*given)
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.startswith("lakeformat: ")
    assert answer.err.count("\n") == 1
    if case != "an unknown form":  # --json answers it.
        assert json.loads(run(*given, "--json").err)["exit_code"] == code


def test_every_kind_of_error_has_a_code() -> None:
    kinds = {kind for known, _ in EXIT_CODES.values() for kind in known}
    leaves = [getattr(lakeformat, name) for name in lakeformat.__all__ if name.endswith("Error")]
    assert [
        kind for kind in leaves if kind is not lakeformat.LakeformatError and not issubclass(kind, tuple(kinds))
    ] == []


def test_help_shows_an_example_of_every_command(run: Any) -> None:
    listed = run("--help").out
    for command in (
        "describe",
        "history",
        "read",
        "plan",
        "create",
        "upsert",
        "insert",
        "delete",
        "cluster",
        "clean",
        "compact",
    ):
        assert command in listed
        assert f"lakeformat {command} /data" in run(command, "--help").out
    assert run("--version").out == f"lakeformat {lakeformat.__version__}\n"


def test_help_imports_no_heavy_library() -> None:
    code = (
        "import sys; from lakeformat.cli.main import main; main(['--help']);"
        "print({'pyarrow', 'numpy', 'pyspark', 'sqlglot', 'fsspec', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


@pytest.mark.parametrize("words", [["describe"], ["read", "--where", "id > 1"]], ids=["describe", "read"])
def test_commands_do_not_import_pandas_and_functions_of_users_may(path: Path, words: list[str]) -> None:
    command, *more = words
    code = (
        "import sys; from lakeformat.cli.main import main;"
        f"sys.argv = {['lakeformat', command, str(path), *more]!r}; code = main();"
        "print(code, 'pandas' in sys.modules);"
        "import pandas as pd, pyarrow as pa;"
        "nulls = pa.Table.from_pandas(pd.DataFrame({'x': [1.0, None]}))['x'].null_count;"
        "print(nulls, pa.array(pd.Series([float('nan')])).null_count, pa.table({'x': [1]}).to_pandas().x.sum())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-2:] == ["0 False", "1 1 1"]


def test_maintenance_commands_run_the_services(run: Any, path: Path) -> None:
    table = lakeformat.open(path)
    for at in range(3):
        table.upsert(some(at, at + 2))
    planned = run("cluster", path, "--by", "id", "--schedule").out.strip()
    assert planned in run("show", "timeline", path).out
    assert run("cluster", path, "--cancel", planned).out == f"{planned} is gone\n"
    assert run("cluster", path, "--schedule", "--run", planned).code == 2
    again = json.loads(run("cluster", path, "--by", "id", "--schedule", "--json").out)["planned"]
    assert run("cluster", path, "--run", again).code == 0
    standing = {str(file.relative_to(path)) for file in path.glob("*/*.parquet")}
    would = run("clean", path, "--versions", "1", "--dry-run", "--json")
    files = {each["path"] for each in json.loads(would.out)["files"]}
    assert set() < files < standing == {str(file.relative_to(path)) for file in path.glob("*/*.parquet")}
    assert run("clean", path, "--versions", "1").out.startswith("clean ")
    assert {str(file.relative_to(path)) for file in path.glob("*/*.parquet")} == standing - files
    assert run("upgrade", path, "8").code == 0
    assert json.loads(run("describe", path, "--json").out)["version"] == 8
    assert run("upgrade", path, "7").code == 2
    assert run("archive", path, "--json").code == 0
    assert run("compact", path).err.count("\n") <= 1
    assert ids(path) == list(range(8))


def test_savepoint_restore_and_check_commands_work_together(run: Any, path: Path) -> None:
    first = lakeformat.open(path).history()[0].instant_time
    assert run("savepoint", path, "--comment", "before").out.startswith(f"savepoint {first}: 2 files (before)")
    assert [each["instant_time"] for each in json.loads(run("savepoint", path, "--list", "--json").out)] == [first]
    lakeformat.open(path).delete(where="id < 3")
    assert run("restore", path, first, "--yes").code == 0
    assert ids(path) == list(range(8))
    assert run("savepoint", path, "--delete", first).code == 0
    assert run("savepoint", path, "--list").out == "no savepoints\n"
    assert run("check", path).code == 0
    base = next(path.glob("a/*.parquet"))
    base.write_bytes(base.read_bytes()[:-9])
    found = run("check", path, "--json")
    assert found.code == 5
    assert str(base.relative_to(path)) in found.out
    assert run("repair", path).code == 0


def test_convert_makes_a_table_of_parquet_and_rollback_undoes_a_commit(run: Any, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    for day in ("2025-01-01", "2025-01-02"):
        (folder / f"day={day}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2]}), folder / f"day={day}" / "a.parquet")
    assert run("convert", folder, "--record-key", "id").out == f"{folder} is a table now: 2 files\n"
    assert run("convert", folder, "--record-key", "id").code == 2
    lakeformat.open(folder).delete(where="id = 1")
    assert lakeformat.open(folder).count() == 2
    assert run("rollback", folder, "--yes").code == 0
    assert lakeformat.open(folder).count() == 4
    output = run("describe", folder).out
    assert "copy-on-write" in output
    assert "day" in output
    assert run("expire-partitions", folder, "--days", "30", "--dry-run").code == 0
    assert lakeformat.open(folder).count() == 4
