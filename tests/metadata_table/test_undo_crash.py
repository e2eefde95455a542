"""Rollbacks and restores die at every call to storage: the table and its metadata table are right before or after."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import lakeformat
from lakeformat.metadata_table.compaction import last_compaction
from lakeformat.metadata_table.names import FOLDER
from lakeformat.storage import LocalStorage
from tests.helpers.faulty import Crash, Fault, FaultyStorage, Mode, at
from tests.helpers.fixture_tables import unpack
from tests.helpers.flights import open_at
from tests.helpers.hudi_view import find_disagreements, open_hudi_view
from tests.metadata_table.test_fixtures import open_table
from tests.metadata_table.test_kept import LAYOUTS, assert_kept, changed, rows_of

UNDOS: dict[str, Callable[[lakeformat.Table], object]] = {
    "rollback": lambda table: table.rollback(),
    "restore": lambda table: table.restore(table.history()[2].instant_time),
    "restore_merged": lambda table: table.restore(table.history()[4].instant_time),
}
#: The case that does not run by night only.
SHORT = ("v9_mor_compacted", "rollback", Mode.AFTER)
CASES = [
    pytest.param(
        name,
        undo,
        mode,
        marks=pytest.mark.slow if (name, undo, mode) == SHORT else pytest.mark.nightly,
        id=f"{name}-{undo}-{mode.name}",
    )
    for name in LAYOUTS
    for undo in UNDOS
    for mode in (Mode.AFTER, Mode.TORN)
]


def prepare(name: str, undo: str, folder: Path) -> Path:
    """Return a table with commits to undo. Of a merged restore, a clean has compacted the metadata table since."""
    path = unpack(f"hudi_metadata/{name}", folder)
    rows = lakeformat.open(path).to_arrow(where="region <> 'mars'")
    table = lakeformat.open(path)
    table.overwrite(rows)
    for number in range(4):
        table.upsert(changed(rows.slice(number, 2 + number)))
    metadata = open_table(path)
    while undo == "restore_merged" and metadata and last_compaction(metadata) < table.history()[2].instant_time:
        table.delete(rows.slice(0, 1))
        table.upsert(changed(rows.slice(0, 2)))
        metadata = open_table(path)
    return path


@pytest.mark.parametrize(("name", "undo", "mode"), CASES)
def test_undo_that_dies_at_any_call_leaves_the_metadata_table_right(
    name: str, undo: str, mode: Mode, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path = prepare(name, undo, tmp_path)
    before = rows_of(lakeformat.open(path))
    recording = FaultyStorage(LocalStorage(str(shutil.copytree(path, tmp_path / "recorded"))))
    UNDOS[undo](open_at(recording, "writer"))
    after = rows_of(lakeformat.open(tmp_path / "recorded"))
    assert_kept(tmp_path / "recorded")
    deaths = [number for number, call in enumerate(recording.calls) if call.changes]
    assert any(FOLDER in recording.calls[number].path for number in deaths)
    rows = lakeformat.open(path).to_arrow()
    for number in deaths:
        copy = shutil.copytree(path, tmp_path / f"{number}")
        with pytest.raises(Crash):
            UNDOS[undo](open_at(FaultyStorage(LocalStorage(str(copy)), Fault(at(number), mode)), "writer"))
        seen = rows_of(lakeformat.open(copy))
        assert seen in (before, after), recording.calls[number]
        next_writer = open_at(LocalStorage(str(copy)), "next")
        next_writer.upsert(changed(rows.slice(7, 1)))
        assert find_disagreements(next_writer) == [], recording.calls[number]
        assert open_hudi_view(next_writer) is not None, recording.calls[number]
        assert rows_of(lakeformat.open(copy)).keys() == seen.keys() | set(rows.slice(7, 1)["id"].to_pylist())
        shutil.rmtree(copy)
    record_property("crashes", len(deaths))
