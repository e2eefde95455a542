"""The choice of files to clean, compared with Apache Hudi: each clean on a fixture's timeline is planned again by us.

The table is set back to the moment before that clean: later instants are removed, and the files that it and later ones
deleted exist again by name. Our plan must then delete the same files as Hudi.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import lakeformat
from lakeformat.codec.timeline_files.clean import decode_clean_plan
from lakeformat.codec.timeline_files.recovery import decode_savepoint
from lakeformat.config.resolve import resolve
from lakeformat.file_system_view.context import open_context
from lakeformat.model.instant import Action, State
from lakeformat.storage import LocalStorage
from tests.helpers.fixture_tables import FIXTURES, read_expectations, unpack

TABLES = sorted(f"hudi_life/{path.stem}" for path in (FIXTURES / "hudi_life").glob("*.zip"))


def retained(about: str) -> int | None:
    found = re.search(r"clean retained (\d+)|retain_commits (\d+)", about)
    return int(found[1] or found[2]) if found else None


CLEANED = [name for name in TABLES if retained(read_expectations(name)["about"])]


def set_back(root: Path) -> list[tuple[str, dict[str, tuple[str, ...]]]]:
    """Take every clean off the timeline. Return each with the files that it deleted, oldest first."""
    store = open_context(str(root), resolve({})).store
    timeline, found = store.load(), []
    for clean in timeline.of_action(Action.CLEAN):
        plan = store.read_clean_plan(clean)
        found.append((clean.time, dict(plan.files)))
        for path, names in plan.files.items():
            for name in names:
                (root / path).mkdir(exist_ok=True)
                (root / path / ".hoodie_partition_metadata").touch()
                (root / path / name).touch()
        for stage in (clean, clean.at(State.INFLIGHT), clean.at(State.REQUESTED)):
            (root / store.path(stage)).unlink()
    return found


@pytest.mark.parametrize("name", CLEANED)
def test_clean_deletes_the_files_that_hudi_deleted(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path)
    commits = retained(read_expectations(name)["about"])
    cleans = set_back(root)
    deleted = {f"{path}/{file}".lstrip("/") for _, files in cleans for path, names in files.items() for file in names}
    result = lakeformat.open(root).clean(commits=commits, dry_run=True)
    assert {file.path for file in result.files} == deleted
    assert deleted


@pytest.mark.parametrize("name", TABLES)
def test_clean_of_a_table_that_hudi_cleaned_changes_no_row(name: str, tmp_path: Path) -> None:
    """We find nothing to clean after Hudi. If we retain fewer commits, the newest rows and savepoints stay."""
    root, expectations = unpack(name, tmp_path), read_expectations(name)
    table = lakeformat.open(root)
    if (commits := retained(expectations["about"])) and expectations["timeline"][-1]["action"] == "clean":
        assert table.clean(commits=commits).skipped
    table.clean(commits=1)
    table.clean(versions=1)
    rows = table.to_arrow(meta_columns=True)
    wanted = [(row["_hoodie_record_key"], row["_hoodie_commit_time"], row["name"]) for row in expectations["snapshot"]]
    columns = [rows.column(column).to_pylist() for column in ("_hoodie_record_key", "_hoodie_commit_time", "name")]
    assert sorted(zip(*columns, strict=True)) == sorted(wanted)
    store = open_context(str(root), resolve({})).store
    for savepoint in store.load().of_action(Action.SAVEPOINT):
        saved = decode_savepoint(store.read(savepoint), name="s")
        assert all((root / path / file).exists() for path, files in saved.files.items() for file in files)


def test_pending_clean_of_hudi_is_finished(tmp_path: Path) -> None:
    root = unpack("hudi_life/v8_cow_cleaned_archived", tmp_path)
    store = open_context(str(root), resolve({})).store
    clean = store.load().of_action(Action.CLEAN)[-1]
    plan = decode_clean_plan(store.read(clean.at(State.REQUESTED)), name="plan")
    (name,) = plan.files[""]
    (root / name).touch()
    (root / store.path(clean)).unlink()
    table = lakeformat.Table(LocalStorage(str(root)))
    assert "is pending" in table.clean(commits=2).skipped  # It may be running.
    (root / store.path(clean.at(State.INFLIGHT))).unlink()
    for path in (root / ".hoodie" / "timeline").glob("*.clean.*"):
        os.utime(path, (1, 1))
    assert table.clean(commits=2).skipped == "nothing to delete"
    assert not (root / name).exists()
    done = store.load().of_action(Action.CLEAN)[-1]
    assert (done.time, done.state) == (clean.time, State.COMPLETED)
    assert store.read_clean(done) is not None
