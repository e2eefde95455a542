"""Damaged notes of lakeformat, in ``.hoodie/.lakeformat``: one line of ours, or no effect, and never a raw error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakeformat
from lakeformat.errors import CorruptTableError, LakeformatError
from lakeformat.transaction.order.decisions import STATE_PATH, read_state
from tests.helpers.damage import flips
from tests.helpers.faulty import UnlockedStorage
from tests.helpers.tables import a_batch, a_table

_JUNK = (
    b"",
    b"[]",
    b"{",
    b"3",
    b'"text"',
    b"null",
    b'{"token":',
    b"\xff\xfe",
    b"[" * 100_000,
    b"[1,[2]]",
    b'{"a":{"b":[]}}',
)


def assert_one_line(error: LakeformatError) -> None:
    assert "\n" not in str(error)
    assert len(str(error)) < 600


def all_files(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def note_of(token: object, *files: object) -> bytes:
    return json.dumps({"token": token, "files": files}).encode()


def test_damaged_note_of_an_adoption_moves_no_file(tmp_path: Path) -> None:
    """The source files are still in the folder, as after a crash, and the note is damaged."""
    path, note = tmp_path / "t", tmp_path / "t/.hoodie/.lakeformat/adopting"
    path.mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), path / "a.parquet")
    table = lakeformat.adopt(path, record_key="id")
    pq.write_table(pa.table({"id": [1, 2]}), path / "a.parquet")
    store = table.context.store
    token = store.read_commit(store.load().commits[-1]).extra["lakeformat_adopted"]
    own = next(each.name for each in path.glob("*.parquet") if each.name != "a.parquet")
    strange = (
        ".hoodie/hoodie.properties",
        "../x.parquet",
        "/etc/x.parquet",
        own,
        "",
        ".hoodie_partition_metadata",
        ".hoodie/a.parquet",
        "a//b.parquet",
    )
    notes = [note_of(token, {"path": name}) for name in strange]
    notes += [note_of(token, 3), note_of(token, {"path": 3}), note_of(3, {"path": "a.parquet"}), note_of(None), *_JUNK]
    for damaged in notes:
        note.write_bytes(damaged)
        before = all_files(path)
        with pytest.raises(CorruptTableError, match=r"t/\.hoodie/\.lakeformat/adopting is damaged") as refused:
            lakeformat.adopt(path, record_key="id")
        assert_one_line(refused.value)
        assert all_files(path) == before
    note.write_bytes(note_of(token, {"path": "a.parquet", "size_bytes": 1}))
    assert lakeformat.adopt(path, record_key="id").to_arrow(columns=["id"]).sort_by("id").to_pydict() == {"id": [1, 2]}
    assert not (path / "a.parquet").exists()


def test_state_file_has_a_checksum_and_an_older_one_is_read(tmp_path: Path) -> None:
    a_table(tmp_path / "t", rows=a_batch(id=range(3)))
    storage, file = UnlockedStorage(tmp_path / "t"), tmp_path / "t" / STATE_PATH
    lakeformat.Table(storage).upsert(a_batch(id=[1]))
    lakeformat.Table(storage).upsert(a_batch(id=[2]))
    state, _ = read_state(storage)
    line, _, data = file.read_bytes().partition(b"\n")
    for damaged in (*flips(line, most=300), *_JUNK):
        file.write_bytes(damaged + b"\n" + data)
        try:
            assert read_state(storage)[0] == state
        except CorruptTableError as refused:
            assert_one_line(refused)
    head: dict[str, Any] = json.loads(line)
    del head["checksum"]
    file.write_bytes(json.dumps(head).encode() + b"\n" + data)
    assert read_state(storage)[0] == state
    for name in head:
        for value in (None, "x", -1.5, [[1]], {"a": 1}):
            file.write_bytes(json.dumps({**head, name: value}).encode() + b"\n" + data)
            if [name, value] not in [["archived_to", "x"], ["moving", "x"], ["last", None]]:
                with pytest.raises(CorruptTableError):
                    read_state(storage)
    file.write_bytes(line + b"\n" + data)
    lakeformat.Table(storage).upsert(a_batch(id=[3]))
    assert read_state(storage)[0].number == state.number + 1


@pytest.mark.parametrize("note", ["cleaned", "clustered", "lock", "pending/20260101000000000", "index/x", "adopting"])
def test_other_notes_may_hold_anything(note: str, tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=a_batch(id=range(3)))
    file = tmp_path / "t/.hoodie/.lakeformat" / note
    file.parent.mkdir(parents=True, exist_ok=True)
    for number, junk in enumerate(_JUNK):
        file.write_bytes(junk)
        try:
            table.upsert(a_batch(id=[number]))
            table.check()
        except LakeformatError as refused:
            assert_one_line(refused)
    table.clean()
    table.cluster(by="id")
    assert sorted(table.to_arrow(columns=["id"]).column("id").to_pylist()) == [*range(len(_JUNK))]
