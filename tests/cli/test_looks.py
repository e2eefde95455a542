"""Commands that look at a table, SQL, and hints for the commands of other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lakeformat


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = lakeformat.create(tmp_path / "t", {"id": "int64", "p": "string", "v": "string"}, record_key="id")
    table.upsert([{"id": at, "p": "a", "v": "x"} for at in range(4)])
    table.upsert([{"id": 1, "p": "a", "v": "y"}, {"id": 2, "p": "a", "v": "z"}])
    table.delete([{"id": 1, "p": "a"}])
    return tmp_path / "t"


def test_count_counts_rows_and_matches(run: Any, path: Path) -> None:
    assert run("count", path).out == "3\n"
    assert run("count", path, "--where", "v = 'z'", "--json").out == '{\n  "rows": 1\n}\n'
    assert run("count", path, "--as-of", "0").out == "4\n"


def test_schema_lists_columns_with_their_types(run: Any, path: Path) -> None:
    assert json.loads(run("schema", path, "--json").out) == [
        {"name": "id", "type": "int64"},
        {"name": "p", "type": "string"},
        {"name": "v", "type": "string"},
    ]


def test_files_are_those_on_disk(run: Any, path: Path) -> None:
    (line,) = run("files", path, "--json").out.splitlines()
    file = json.loads(line)
    assert (path / file["path"]).stat().st_size == file["size_bytes"]
    assert file["rows"] == 3


def test_changes_of_one_key_tell_its_life(run: Any, path: Path) -> None:
    found = [json.loads(line) for line in run("changes", path, "--where", "id = 1", "--json").out.splitlines()]
    assert [(each["op"], *((each[at] or {}).get("v") for at in ("before", "after"))) for each in found] == [
        ("i", None, "x"),
        ("u", "x", "y"),
        ("d", "y", None),
    ]


def test_sql_asks_and_changes_tables_by_name(run: Any, path: Path) -> None:
    asked = run("sql", "select v, count(*) n from t group by v order by v", "--table", f"t={path}", "--format", "csv")
    assert asked.out.splitlines() == ['"v","n"', '"x",2', '"z",1']
    changed = run("sql", "delete from t where id = 0", "-t", f"t={path}", "--json")
    assert json.loads(changed.out)["rows"]["deleted"] == 1
    assert lakeformat.open(path).count() == 2


@pytest.mark.parametrize("words", [("files",), ("changes",), ("sql", "select * from t where id = 2")])
def test_commands_that_print_rows_show_each_value_on_a_line(words: tuple[str, ...], run: Any, path: Path) -> None:
    named = ("-t", f"t={path}") if words[0] == "sql" else (path,)
    lines = run(*words, *named, "--vertical").out.splitlines()
    assert lines[0] == "row 1"
    assert all(line.startswith("  ") for line in lines[1:] if line and not line.startswith("row "))


@pytest.mark.parametrize(
    ("asked", "own"),
    [("vacuum", "clean"), ("optimize", "cluster"), ("ls", "files"), ("log", "history"), ("drop", "delete the folder")],
)
def test_commands_of_other_programs_are_answered_with_ours(asked: str, own: str, run: Any) -> None:
    found = run(asked)
    assert (found.code, own in found.err) == (2, True)


def test_help_and_version_have_their_usual_short_forms(run: Any) -> None:
    assert run("-h").out == run("--help").out
    assert run("version").out == run("--version").out == f"lakeformat {lakeformat.__version__}\n"


@pytest.mark.parametrize(
    ("words", "own"),
    [
        (("create", "x", "--key", "id"), "--record-key"),
        (("read", "x", "--filter", "id = 1"), "--where"),
        (("read", "x", "--version", "3"), "--as-of"),
    ],
)
def test_options_of_other_programs_are_answered_with_ours(words: tuple[str, ...], own: str, run: Any) -> None:
    found = run(*words)
    assert (found.code, f"; here it is called {own}; see lakeformat {words[0]} --help" in found.err) == (2, True)


def test_an_option_that_the_command_lacks_is_not_proposed(run: Any, path: Path) -> None:
    assert "here it is called" not in run("count", path, "--key", "id").err


def test_no_command_prints_the_help_and_nothing_else(run: Any) -> None:
    found = run()
    assert (found.code, "Usage" in found.out, found.err) == (2, True, "")


def test_help_names_the_extra_that_sql_needs(run: Any) -> None:
    assert "lakeformat[sql]" in run("sql", "--help").out


def test_changes_for_people_show_the_key_and_the_values_that_differ(run: Any, path: Path) -> None:
    _, _, *rows = run("changes", path, "--where", "id = 1").out.splitlines()
    assert [(line.split()[0], line.split(maxsplit=3)[2], line.split(maxsplit=3)[3]) for line in rows] == [
        ("insert", "1", "p=a, v=x"),
        ("update", "1", "v: x → y"),
        ("delete", "1", "p=a, v=y"),
    ]


def test_changes_are_limited_where_people_look(run: Any, tmp_path: Path) -> None:
    lakeformat.create(tmp_path / "t", {"id": "int64"}, record_key="id").insert([{"id": at} for at in range(50)])
    shown = run("changes", tmp_path / "t")
    assert (len(shown.out.splitlines()), "the first 20 changes" in shown.err) == (22, True)
    more = run("changes", tmp_path / "t", "--limit", 30)
    assert (len(more.out.splitlines()), more.err) == (32, "")
    assert len(run("changes", tmp_path / "t", "--json").out.splitlines()) == 50
    assert len(run("changes", tmp_path / "t", "--json", "--limit", 7).out.splitlines()) == 7
