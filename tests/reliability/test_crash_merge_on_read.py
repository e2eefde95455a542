"""A writer of a merge-on-read table dies at every one of its calls to storage: its log files must not be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeformat.codec.log_block import BlockKind
from lakeformat.files.log_reader import read_blocks
from lakeformat.storage import LocalStorage
from lakeformat.table_state.file_groups import list_files
from tests.helpers.crashing import crashed, failures_of
from tests.helpers.faulty import Mode
from tests.helpers.flights import NEXT, Model, Write, copy_of, make_template, open_at, rows_of

UPSERT = Write("upsert", (1, 3, 4, 21, 24), "upserted")
DELETE = Write("delete", (0, 1, 3), "deleted")
OTHERS = (Write("insert_overwrite", (1, 3, 54, 55), "overwritten"), Write("delete partitions", (0, 1), "deleted"))
SLOW = pytest.mark.slow


def made(folder: Path, version: str) -> tuple[Path, Model]:
    return make_template(folder, version=version, table_type="MERGE_ON_READ")


@pytest.mark.parametrize(
    "mode", [Mode.AFTER, pytest.param(Mode.TORN, marks=SLOW), pytest.param(Mode.BEFORE, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("version", ["6", pytest.param("9", marks=SLOW)])
@pytest.mark.parametrize("write", [UPSERT, pytest.param(DELETE, marks=SLOW)], ids=lambda one: one.operation)
def test_a_crash_at_every_call(write: Write, version: str, mode: Mode, tmp_path: Path) -> None:
    assert failures_of(write, mode, made(tmp_path, version), tmp_path) == []


@pytest.mark.nightly
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("version", ["6", "8", "9"])
@pytest.mark.parametrize("write", OTHERS, ids=lambda write: write.operation)
def test_other_operations(write: Write, version: str, mode: Mode, tmp_path: Path) -> None:
    assert failures_of(write, mode, made(tmp_path, version), tmp_path) == []


def test_what_a_dead_writer_appended_stays_and_a_command_block_takes_it_back(tmp_path: Path) -> None:
    path, before = made(tmp_path, "6")
    storage = copy_of(path, tmp_path)
    calls = 0
    while crashed(UPSERT, storage := copy_of(path, tmp_path), calls, Mode.AFTER):
        appended = {log.path for log in list_files(storage).logs} - {
            log.path for log in list_files(LocalStorage(str(path))).logs
        }
        if len(appended) > 1:
            break
        calls += 1
    assert rows_of(storage) == before
    NEXT.run(open_at(storage, "next"))
    assert rows_of(storage) == NEXT.applied(before)
    logs = list_files(storage).logs
    assert appended <= {log.path for log in logs}
    commands = [log for log in logs if [b.kind for b in read_blocks(storage, log)] == [BlockKind.COMMAND]]
    assert len(commands) == len(appended)
