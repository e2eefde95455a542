"""Metadata tables that are damaged or out of step: one line says so, rows are right, and a write or repair ends it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import lakeformat
from lakeformat.metadata_table.names import FOLDER
from tests.helpers import hudi_rs
from tests.helpers.fixture_tables import unpack
from tests.helpers.hudi_view import find_disagreements
from tests.metadata_table.test_kept import LAYOUTS, changed, rows_of


def cut_files(path: Path) -> None:
    """Cut the newest base file, or else all log files, of the list of files."""
    files = [file for file in (path / FOLDER / "files").iterdir() if not file.name.endswith(".crc")]
    for file in [file for file in files if file.suffix == ".hfile"] or files:
        file.write_bytes(file.read_bytes()[:-9])


def lose_group(path: Path) -> None:
    """Remove the last file group: only instants of the metadata table tell that there was another."""
    groups: dict[str, list[Path]] = {}
    for file in (path / FOLDER / "record_index").glob("*record-index-*"):
        groups.setdefault(file.name.removeprefix(".").partition("_")[0], []).append(file)
    for file in groups[max(groups)]:
        file.unlink()


def swap_group(path: Path) -> None:
    """Put the files of one file group under the number of another, so that look-ups would miss its keys."""
    folder = path / FOLDER / "record_index"
    for file in folder.glob("*record-index-0002-0_*"):
        file.unlink()
    for file in list(folder.glob("*record-index-0001-0_*")):
        shutil.copy(file, file.with_name(file.name.replace("record-index-0001", "record-index-0002")))


def deltacommits(path: Path) -> list[Path]:
    return sorted(file for file in (path / FOLDER / ".hoodie").rglob("2*.deltacommit"))


def fall_behind(path: Path) -> None:
    """Remove the last deltacommit."""
    deltacommits(path)[-1].unlink()


def run_ahead(path: Path) -> None:
    """Add a deltacommit of an instant that the table does not have, after all that may be archived."""
    last = deltacommits(path)[-1]
    time = last.name[:17]
    shutil.copy(last, last.with_name(last.name.replace(time, f"{int(time) - 1}")))


DAMAGES: dict[str, Callable[[Path], None]] = {
    each.__name__: each for each in (cut_files, lose_group, swap_group, fall_behind, run_ahead)
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", [LAYOUTS[0], pytest.param(LAYOUTS[1], marks=pytest.mark.slow), LAYOUTS[2]])
def test_rows_are_right_and_the_damage_ends(
    name: str, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = unpack(f"hudi_metadata/{name}", tmp_path)
    before = rows_of(lakeformat.open(path))
    lakeformat.open(path).upsert(changed(lakeformat.open(path).to_arrow().slice(0, 2)))
    lakeformat.open(path).upsert(changed(lakeformat.open(path).to_arrow().slice(2, 2)))
    expected = rows_of(lakeformat.open(path))
    assert expected.keys() == before.keys()
    DAMAGES[damage](path)
    caplog.clear()
    shutil.rmtree(path / ".hoodie/.lakeformat/index", ignore_errors=True)
    with caplog.at_level(logging.WARNING, "lakeformat"):
        assert rows_of(lakeformat.open(path)) == expected
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == (damage not in {"lose_group", "swap_group"})  # A read does not need the record index.
    assert not any("\n" in line for line in lines)
    caplog.clear()
    rows = lakeformat.open(path).to_arrow()
    lakeformat.open(path).delete(rows.slice(4, 3))
    table = lakeformat.open(path)
    table.repair()
    assert rows_of(table) == {key: row for key, row in expected.items() if key not in rows["id"].to_pylist()[4:7]}
    assert table.check().findings == ()
    if damage != "swap_group":  # Only look-ups, and the next compaction, read all blocks of the record index.
        assert find_disagreements(table) == []
    hudi_rs.assert_same_rows(table)
