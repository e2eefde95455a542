"""A writer that logs its changes dies at every one of its calls to storage: no change data is left of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.change_files import logged_changes
from tests.helpers.crashing import failures_of
from tests.helpers.faulty import Mode
from tests.helpers.flights import Write, copy_of, make_template, open_at

CDC = {"hoodie.table.cdc.enabled": "true"}
UPSERT = Write("upsert", (1, 3, 4, 21, 24), "upserted")
DELETE = Write("delete where", (0, 1, 3, 77), "deleted")


CASES = [
    pytest.param(version, write, mode, marks=pytest.mark.slow if on_every_run else pytest.mark.nightly)
    for version, write in (("9", UPSERT), ("6", UPSERT), ("6", DELETE))
    for mode in Mode
    for on_every_run in [(version, mode) == ("9", Mode.TORN) or (write is DELETE and mode is Mode.AFTER)]
]


@pytest.mark.parametrize(("version", "write", "mode"), CASES)
def test_a_crash_at_every_call(version: str, write: Write, mode: Mode, tmp_path: Path) -> None:
    template = make_template(tmp_path, version=version, more=CDC)
    undisturbed = copy_of(template[0], tmp_path)
    write.run(open_at(undisturbed, "writer"))
    assert len(logged_changes(Path(undisturbed.root))) > len(logged_changes(template[0]))
    assert failures_of(write, mode, template, tmp_path) == []
