"""Writers at the same time, in threads and in processes: each acknowledged write is stored exactly once."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.storage import LocalStorage
from tests.helpers import hudi_rs
from tests.helpers.flights import Model, copy_of, leftovers, make_template, rows_of

WRITERS, WRITES_EACH = 4, 6
SHARED = 1000  # A key that all writers write.

#: The program of a writer: it upserts keys of its own and a key that all share, and prints acknowledged writes.
SCRIPT = """
import json, sys
import pyarrow as pa
import lakeformat

path, writer, writes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
table = lakeformat.open(path)
for number in range(writes):
    id_ = 10_000 * (writer + 1) + number
    rows = {"id": [id_, 1000], "region": [f"r{id_ % 3}", "r1"], "v": [f"{writer}-{number}"] * 2}
    try:
        table.upsert(pa.table(rows))
    except lakeformat.LakeformatError as error:
        print(json.dumps({"refused": str(error)}), flush=True)
    else:
        print(json.dumps({"id": id_, "v": f"{writer}-{number}"}), flush=True)
"""


def rows_for(writer: int, number: int) -> tuple[int, pa.Table]:
    """Return the rows that the script writes."""
    id_ = 10_000 * (writer + 1) + number
    return id_, pa.table({"id": [id_, SHARED], "region": [f"r{id_ % 3}", "r1"], "v": [f"{writer}-{number}"] * 2})


def assert_all_there(storage: LocalStorage, before: Model, acknowledged: dict[int, str]) -> None:
    found = rows_of(storage)
    shared = found.pop(SHARED)
    assert shared[1] in acknowledged.values()
    assert found == before | {id_: (f"r{id_ % 3}", v) for id_, v in acknowledged.items()}
    assert leftovers(storage) == []
    hudi_rs.assert_same_rows(lakeformat.Table(storage))


@pytest.mark.slow
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_threads_lose_no_acknowledged_write(table_type: str, tmp_path: Path) -> None:
    path, before = make_template(tmp_path, table_type=table_type)
    storage = copy_of(path, tmp_path)

    def write(writer: int) -> dict[int, str]:
        table = lakeformat.open(storage.root)
        acknowledged = {}
        for number in range(WRITES_EACH):
            id_, rows = rows_for(writer, number)
            table.upsert(rows)
            acknowledged[id_] = f"{writer}-{number}"
        return acknowledged

    with ThreadPoolExecutor(WRITERS) as pool:
        acknowledged = {id_: v for outputs in pool.map(write, range(WRITERS)) for id_, v in outputs.items()}
    assert len(acknowledged) == WRITERS * WRITES_EACH
    assert_all_there(storage, before, acknowledged)


@pytest.mark.slow
def test_processes_beside_a_reader_lose_no_acknowledged_write(template: tuple[Path, Model], tmp_path: Path) -> None:
    """A reader beside the writers sees only whole commits: the keys that it sees never become fewer."""
    path, before = template
    storage = copy_of(path, tmp_path)
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, storage.root, str(writer), str(WRITES_EACH)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for writer in range(WRITERS - 1)
    ]
    seen: set[int] = set(before)
    while any(writer.poll() is None for writer in writers):
        now = set(rows_of(storage))
        assert seen <= now
        seen = now
    lines = [json.loads(line) for writer in writers for line in writer.communicate()[0].splitlines()]
    assert [line for line in lines if "refused" in line] == []
    assert len(lines) == (WRITERS - 1) * WRITES_EACH
    assert_all_there(storage, before, {line["id"]: line["v"] for line in lines})


def test_killed_writer_leaves_a_whole_table(template: tuple[Path, Model], tmp_path: Path) -> None:
    """The kernel releases a dead process's lock, and the next write undoes its pending write at once."""
    path, before = template
    storage = copy_of(path, tmp_path)
    expected = dict(before)
    for writer in range(3):
        command = [sys.executable, "-c", SCRIPT, storage.root, str(writer), "1000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            outputs = [json.loads(process.stdout.readline()) for _ in range(2 + writer)]
            process.kill()  # This is somewhere in the middle of the next write.
            outputs += [json.loads(line) for line in process.stdout.read().splitlines()]
        expected |= {line["id"]: (f"r{line['id'] % 3}", line["v"]) for line in outputs}
        found = rows_of(storage)
        # The writer may die between the commit and its output: the rows are written, but not acknowledged.
        unsaid = {id_: row for id_, row in found.items() if id_ not in expected and id_ != SHARED}
        assert len(unsaid) <= 1
        expected |= unsaid
        assert {id_: row for id_, row in found.items() if id_ != SHARED} == expected
    _, rows = rows_for(3, 0)
    lakeformat.open(storage.root).upsert(rows)
    assert_all_there(storage, expected, {rows_for(3, 0)[0]: "3-0"})
