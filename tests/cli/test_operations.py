"""The commands of an operator: their output, their questions and their exit codes."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lakeformat
from lakeformat import Table
from lakeformat.cli.output import DUPLICATES
from lakeformat.services.doctor.findings import Kind

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = {"id": "int64", "p": "string", "v": "string"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = lakeformat.create(tmp_path / "t", COLUMNS, record_key="id", partition_by="p")
    table.upsert(rows(0, 1, 2))
    return table


def rows(*ids: int, value: str = "x") -> list[dict[str, object]]:
    return [{"id": at, "p": "a", "v": value} for at in ids]


def test_duplicate_keys_are_reported_apart_from_damage_and_dedupe_removes_them(run: Any, table: Table) -> None:
    path = table.location
    assert run("check", path).code == 0
    table.insert(rows(1, 2, value="y"))
    found = run("check", path, "--json")
    assert found.code == DUPLICATES == 11
    (finding,) = json.loads(found.out)["findings"]
    assert (finding["kind"], finding["rows"]) == ("key_twice", 2)
    assert "lakeformat dedupe" in finding["cure"]
    listed = run("dedupe", path)
    assert listed.code == 0
    assert [line.split()[1] for line in listed.out.splitlines() if line.endswith("goes")] == ["1", "2"]
    assert "--yes" in listed.err
    assert table.count() == 5
    done = json.loads(run("dedupe", path, "--yes", "--json").out)
    assert (done["keys"], done["rows"], len(done["duplicates"])) == (2, 2, 4)
    assert {row["record_key"] for row in done["duplicates"] if not row["kept"]} == {"1", "2"}
    assert (run("check", path).code, table.count()) == (0, 3)
    assert sorted(table.to_arrow()["v"].to_pylist()) == ["x", "y", "y"]
    assert run("dedupe", path).out == "dedupe: no key comes twice\n"


def test_check_exit_code_is_damage_even_beside_duplicate_keys(run: Any, table: Table) -> None:
    table.insert(rows(1))
    table.insert([{"id": 9, "p": "b", "v": "x"}])
    base = next(Path(table.location).glob("b/*.parquet"))
    base.unlink()
    found = run("check", table.location, "--json")
    assert (found.code, [each["kind"] for each in json.loads(found.out)["findings"]]) == (
        5,
        ["missing", "file_index", "key_twice"],
    )


def test_the_kinds_of_findings_are_listed_in_the_docs() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    assert [kind.name.lower() for kind in Kind if f"`{kind.name.lower()}`" not in page] == []


def test_the_exit_codes_are_listed_in_the_docs(run: Any) -> None:
    page = " ".join((ROOT / "docs" / "command-line.md").read_text(encoding="utf-8").split())
    shown = " ".join(run("--help").out.split())
    assert [f"{code}" for code in (*range(12), 130) if f"; {code} " not in page and f": {code} " not in page] == []
    assert [f"{code}" for code in (*range(12), 130) if f"; {code} " not in shown and f": {code} " not in shown] == []


# --- questions ------------------------------------------------------------------------------------------


def test_restore_without_a_terminal_asks_for_the_yes_flag(run: Any, table: Table) -> None:
    first = table.history()[0].instant_time
    last = table.upsert(rows(3)).instant_time
    for words in (("restore", table.location, first), ("rollback", table.location)):
        answer = run(*words)
        assert (answer.code, answer.out) == (2, "")
        assert last in answer.err
        assert answer.err.endswith("give --yes\n")
    assert table.count() == 4
    assert run("restore", table.location, first, "--yes").code == 0
    assert table.count() == 3


def test_restore_checks_the_instant_before_it_asks(run: Any, table: Table) -> None:
    for yes in ((), ("--yes",)):
        bogus = run("restore", table.location, "bogus", *yes)
        assert (bogus.code, "bogus is not a commit" in bogus.err, "undo" in bogus.err) == (8, True, False)
    newest = table.history()[0].instant_time
    nothing = run("restore", table.location, newest)
    assert (nothing.code, "nothing to undo" in nothing.out) == (0, True)
    table.savepoint()
    held = run("rollback", table.location)
    assert (held.code, "savepoint" in held.err) == (2, True)


@pytest.mark.budget(10)
@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 130, 4), (b"y\n", 0, 3)])
def test_rollback_on_a_terminal_names_the_commits_and_obeys_the_answer(
    answer: bytes, code: int, left: int, table: Table
) -> None:
    last = table.upsert(rows(3)).instant_time
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "lakeformat", "rollback", table.location]
    asked = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    os.write(ours, answer)
    _, err = asked.communicate(timeout=120)
    os.close(ours)
    os.close(theirs)
    assert (asked.returncode, table.count()) == (code, left)
    assert f"undo commit {last} of {table.location} for good" in err.decode()


def test_dry_run_of_restore_and_rollback_changes_nothing(table: Table) -> None:
    first = table.history()[0].instant_time
    later = [table.upsert(rows(at)).instant_time for at in (3, 4)]
    before = sorted(str(path) for path in Path(table.location).rglob("*"))
    assert table.restore(first, dry_run=True).undone == (later[1], later[0])
    assert table.rollback(dry_run=True).undone == (later[1],)
    assert str(table.rollback(dry_run=True)).startswith("dry run: would undo 1, back to")
    assert sorted(str(path) for path in Path(table.location).rglob("*")) == before


class _Keyboard(io.RawIOBase):
    """An input on which somebody presses Ctrl-C."""

    def readable(self) -> bool:
        return True

    def readinto(self, _: Any) -> int:
        raise KeyboardInterrupt


def test_ctrl_c_is_answered_and_changes_nothing(run: Any, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(_Keyboard())))
    said = run("upsert", table.location, "-", "--format", "csv")
    assert (said.code, said.out, said.err) == (130, "", "lakeformat: stopped\n")
    assert (table.count(), len(table.history())) == (3, 1)


# --- outputs --------------------------------------------------------------------------------------------


def test_history_lists_services_between_commits(run: Any, table: Table) -> None:
    table.update({"v": "y"}, where="id = 1")
    kept = table.savepoint(comment="before").instant_time
    lost = table.upsert(rows(3)).instant_time
    table.rollback()
    lines = run("history", table.location).out.splitlines()[2:]
    assert [next(filter(str.isalpha, line.split())) for line in lines] == ["rollback", "savepoint", "update", "upsert"]
    assert f"undid {lost}" in lines[0]
    assert "before" in lines[1]
    listed = json.loads(run("history", table.location, "--json").out)
    assert [(each["operation"], each["detail"]) for each in listed[:2]] == [
        ("rollback", f"undid {lost}"),
        ("savepoint", "keeps this commit: before"),
    ]
    assert [each["instant_time"] for each in json.loads(run("history", table.location, "--commits", "--json").out)] == [
        each.instant_time for each in table.history()
    ]
    assert listed[2]["instant_time"] == kept


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_describe_says_the_same_as_text_and_as_json(kind: str, run: Any, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", COLUMNS, record_key="id", partition_by="p", table_type=kind)
    table.insert(rows(*range(1234)))
    facts = json.loads(run("describe", table.location, "--json").out)
    text = run("describe", table.location).out
    lines = dict(line.split(maxsplit=1) for line in text.splitlines()[:9] if line.strip())
    assert (facts["rows"], lines["rows"]) == (1234, "1,234")
    assert facts["kind"] == kind.lower().replace("_", "-")
    assert facts["kind"] in lines["table"]
    assert facts["location"] == lines["at"]
    assert [each["name"] for each in facts["columns"]] == list(COLUMNS)
    assert not {"bytes", "type", "state", "last_commit"} & set(facts)
    table.upsert(rows(1, value="y"))
    known = json.loads(run("describe", table.location, "--json").out)["rows"]
    assert known == (None if kind == "MERGE_ON_READ" else 1234)


def test_upgrade_prints_its_result(run: Any, table: Table) -> None:
    assert run("upgrade", table.location, "9").out.startswith("the table is of version 9 now, and was of version 6; ")
    assert run("upgrade", table.location, "9").out == "the table is of version 9 already\n"
    assert run("upgrade", table.location, "8").out.startswith("the table is of version 8 now, and was of version 9")


def test_empty_commit_file_gets_the_same_advice_from_read_and_check(run: Any, table: Table) -> None:
    commit = next(Path(table.location).glob(".hoodie/*.commit"))
    commit.write_bytes(b"")
    read = run("read", table.location)
    checked = json.loads(run("check", table.location, "--json").out)["findings"][0]
    assert (read.code, checked["kind"]) == (5, "damaged_instant")
    cure = read.err.partition("; ")[2].strip()
    assert cure == "restore it from a copy; lakeformat check says what else helps"
    assert "restore it from a copy; lakeformat rollback, or repair --yes, gives up" in checked["cure"]


@pytest.mark.parametrize(
    ("command", "said"),
    [("expire-partitions", "older than their retention"), ("repair", "only a list is printed"), ("dedupe", "--yes")],
)
def test_help_says_what_the_command_does(command: str, said: str, run: Any) -> None:
    assert said in " ".join(run(command, "--help").out.split())


def test_alter_changes_columns_one_by_one(run: Any, table: Table) -> None:
    table.upsert(rows(7))
    answer = run("alter", table.location, "rename column v to title", "add column note string first", "--json")
    assert (answer.code, len(json.loads(answer.out))) == (0, 2)
    assert table.schema.names == ["note", "id", "p", "title"]
    assert run("alter", table.location, "drop column nothing").code != 0
    assert json.loads(run("read", table.location, "--where", "id = 7", "--json").out)["title"] == "x"
