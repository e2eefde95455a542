"""Savepoints and restores by Hudi are read, and our restores in Hudi's tables give the rows that Hudi gave."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import lakeformat
from lakeformat.codec.timeline_files.recovery import decode_savepoint
from lakeformat.errors import InvalidInputError
from lakeformat.model.files import LogFileName
from lakeformat.model.instant import Action, State
from tests.helpers import fixture_tables

_LEFT_OUT = ("_hoodie_commit_seqno", "_hoodie_file_name")


def rows_of(table: lakeformat.Table, **asked: Any) -> list[dict[str, Any]]:
    """Return the rows in the order of the fixtures."""
    rows = table.to_arrow(**asked, meta_columns=True).drop_columns(list(_LEFT_OUT)).to_pylist()
    return sorted(rows, key=lambda row: (row["_hoodie_partition_path"], row["_hoodie_record_key"]))


def open_fixture(name: str, folder: Path) -> tuple[lakeformat.Table, dict[str, Any]]:
    return lakeformat.open(fixture_tables.unpack(name, folder)), fixture_tables.read_expectations(name)


#: Tables for which the fixtures have Hudi's answers at instants before the last.
TRAVELLED = [
    (name, instant)
    for name in fixture_tables.names("hudi_life")
    for instant, rows in fixture_tables.read_expectations(name)["as_of"].items()
    if isinstance(rows, list) and instant in {i["instant"] for i in fixture_tables.read_expectations(name)["timeline"]}
]


@pytest.mark.parametrize(("name", "instant"), TRAVELLED)
def test_restore_returns_the_rows_that_hudi_read_at_the_instant(name: str, instant: str, tmp_path: Path) -> None:
    table, expectations = open_fixture(name, tmp_path)
    saved = [save.instant_time for save in table.savepoints() if save.instant_time > instant]
    for save in saved:
        with pytest.raises(InvalidInputError, match="held by a savepoint"):
            table.restore(instant)
        table.delete_savepoint(save)
    done = table.restore(instant)
    assert rows_of(table) == expectations["as_of"][instant]
    timeline = table.context.store.load()
    assert timeline.commits[-1].time == instant
    assert timeline.pending == ()
    assert not timeline.of_action(Action.ROLLBACK) or done.undone == ()


@pytest.mark.parametrize("name", fixture_tables.names("hudi_life"))
def test_savepoint_names_the_files_that_hudi_names(name: str, tmp_path: Path) -> None:
    table, _ = open_fixture(name, tmp_path)
    store = table.context.store
    hudis = {i.time: i for i in store.load().of_action(Action.SAVEPOINT) if i.state is State.COMPLETED}
    for time, instant in hudis.items():
        before = decode_savepoint(store.read(instant), name=time)
        table.delete_savepoint(time)
        ours = table.savepoint(time, comment="why", user="who")
        assert (ours.comment, ours.user) == ("why", "who")
        theirs = {f"{path}/{file}" if path else file for path, names in before.files.items() for file in names}
        assert bases(theirs) == bases(ours.files)
        assert slices(ours.files) <= slices(theirs), "Hudi adds log files that came later"
        assert table.savepoints() == (ours,)


def bases(paths: Iterable[str]) -> set[str]:
    return {path for path in paths if path.endswith(".parquet")}


def slices(paths: Iterable[str]) -> set[tuple[str, str]]:
    """Return (folder, file id) and instant of log files: in version 6, these name the slices."""
    logs = ((path.rpartition("/")[0], LogFileName.match(path.rpartition("/")[2])) for path in paths)
    return {(f"{folder}/{log.file_id}", log.instant_time) for folder, log in logs if log is not None}
