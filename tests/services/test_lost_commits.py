"""A newest commit whose completed file is damaged or gone: nothing is undone unasked, and one call undoes it."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import CorruptTableError, InstantNotAvailableError
from lakeformat.services.doctor.findings import Kind
from lakeformat.storage import LocalStorage
from tests.helpers import hudi_rs
from tests.helpers.faulty import Call, FaultyStorage, once
from tests.helpers.flights import open_at
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", p="string", v="int64")
Model = dict[int, int]
ALONE = {"hoodie.clean.automatic": False, "lakeformat.write.retries": 3}


def batch(values: Model) -> pa.Table:
    return pa.table([list(values), [f"p{key % 2}" for key in values], list(values.values())], schema=SCHEMA)


def rows_of(path: Path) -> Model:
    """Return the rows, which must have no key twice."""
    rows = lakeformat.open(path).to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["v"] for row in rows}


def grow(path: Path, version: int, kind: str) -> list[Model]:
    """Write three commits. Return the rows after each of them."""
    table = lakeformat.create(
        path, SCHEMA, record_key="id", partition_by="p", table_type=kind, **{"hoodie.write.table.version": version}
    )
    states: list[Model] = [{}]
    for change in ({key: key for key in range(8)}, {1: 10, 2: 20, 8: 80}, {2: 200, 9: 90}):
        table.upsert(batch(change))
        states.append({**states[-1], **change})
    return states[1:]


def folder_of(path: Path) -> Path:
    return path / ".hoodie/timeline" if (path / ".hoodie/timeline").is_dir() else path / ".hoodie"


def completed(path: Path) -> list[Path]:
    """Return the completed files of the commits, oldest first."""
    return sorted(file for file in folder_of(path).iterdir() if re.fullmatch(r"[\d_]+\.(delta)?commit", file.name))


def rollbacks(path: Path) -> list[str]:
    return [file.name for file in folder_of(path).iterdir() if "rollback" in file.name]


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


TABLES = pytest.mark.parametrize(
    ("version", "kind"), [(6, "COPY_ON_WRITE"), (9, "MERGE_ON_READ"), (6, "MERGE_ON_READ"), (9, "COPY_ON_WRITE")]
)
HOW = pytest.mark.parametrize("harm", [truncate, Path.unlink, lambda file: file.write_bytes(b"")])


@TABLES
@HOW
@pytest.mark.parametrize("by", ["rollback", "repair"])
def test_newest_commit_without_its_file_is_undone_by_one_call(version, kind, harm, by, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "t"
    states = grow(path, version, kind)
    newest = completed(path)[-1]
    time = newest.name[:17]
    harm(newest)
    table = lakeformat.open(path, **ALONE)
    (found,) = table.check().of(Kind.DAMAGED_INSTANT)
    assert found.mends
    assert time in found.path
    assert "lakeformat rollback" in found.cure
    with pytest.raises(CorruptTableError, match=f"{time}.*lakeformat check says"):
        table.upsert(batch({1: 7}))
    assert not rollbacks(path)

    if by == "rollback":
        would = table.rollback(dry_run=True)
        assert (would.undone, would.target) == ((time,), completed(path)[1].name[:17])
        assert table.rollback().undone == would.undone
    else:
        assert table.repair(dry_run=True).of(Kind.DAMAGED_INSTANT)
        assert table.repair().of(Kind.DAMAGED_INSTANT)
    assert rows_of(path) == states[1]
    assert not lakeformat.open(path).check()
    lakeformat.open(path).upsert(batch({2: 5, 30: 6}))
    assert rows_of(path) == {**states[1], 2: 5, 30: 6}
    hudi_rs.assert_same_rows(lakeformat.open(path))


@TABLES
@HOW
def test_commit_without_its_file_between_others_is_undone_by_a_restore(version, kind, harm, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "t"
    states = grow(path, version, kind)
    first, middle, _ = completed(path)
    harm(middle)
    table = lakeformat.open(path, **ALONE)
    (found,) = table.check().of(Kind.DAMAGED_INSTANT)
    assert not found.mends
    assert f"restore {first.name[:17]}" in found.cure
    for refused in (lambda: table.upsert(batch({1: 7})), table.rollback):
        with pytest.raises(CorruptTableError, match=middle.name[:17]):
            refused()
    assert not table.repair()
    table.restore(first.name[:17])
    assert rows_of(path) == states[0]
    assert not lakeformat.open(path).check()
    lakeformat.open(path).upsert(batch({2: 5, 30: 6}))
    assert rows_of(path) == {**states[0], 2: 5, 30: 6}


def test_repair_spares_a_commit_that_another_process_has_made_in_place_of_the_damaged_one(tmp_path: Path) -> None:
    path, locks = tmp_path / "t", count(1)
    *_, before, _ = grow(path, 9, "COPY_ON_WRITE")
    truncate(completed(path)[-1])

    def other(_: Call) -> None:
        table = lakeformat.open(path, **ALONE)
        table.rollback()
        table.upsert(batch({3: 333}))

    meanwhile = once(lambda call: call.name == "lock" and next(locks) == 2, other)
    mending = open_at(FaultyStorage(LocalStorage(path), meanwhile=meanwhile), "mending")
    with pytest.raises(InstantNotAvailableError, match="cannot roll back: instant"):
        mending.repair()
    assert rows_of(path) == {**before, 3: 333}


@TABLES
def test_read_without_a_commit_between_others_is_refused(version: int, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    states = grow(path, version, kind)
    first, middle, _ = (file.name[:17] for file in completed(path))
    completed(path)[1].unlink()
    with pytest.raises(CorruptTableError, match=f"{middle}.*reads as of a commit before it are right"):
        rows_of(path)
    rows = lakeformat.open(path).read(as_of=first).to_arrow().to_pylist()
    assert {row["id"]: row["v"] for row in rows} == states[0]


def test_commit_on_which_others_rest_is_lost_whichever_program_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "t"
    grow(path, 9, "MERGE_ON_READ")
    first = completed(path)[0]
    first.unlink()
    (inflight,) = folder_of(path).glob(f"{first.name[:17]}*.inflight")
    inflight.write_bytes(b"")  # As Hudi's may be: it has no checksum of lakeformat.
    with pytest.raises(CorruptTableError, match=first.name[:17]):
        lakeformat.open(path).upsert(batch({1: 7}))
    (found,) = lakeformat.open(path).check().of(Kind.DAMAGED_INSTANT)
    assert first.name[:17] in found.path
    assert "only that helps" in found.cure


def test_log_file_that_is_shorter_than_the_metadata_table_says_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = lakeformat.create(
        path, SCHEMA, record_key="id", table_type="MERGE_ON_READ", **{"hoodie.metadata.enable": True}
    )
    for value in (1, 2):
        table.upsert(batch({1: value}))
    (log,) = path.glob(".*.log.*")
    truncate(log)
    with pytest.raises(CorruptTableError, match=f"{log.name} has 100 bytes of the"):
        rows_of(path)
    assert not lakeformat.open(path).check().of(Kind.METADATA_TABLE)


def test_check_looks_again_if_a_commit_is_archived_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "t"
    grow(path, 9, "COPY_ON_WRITE")
    for key in range(4):
        lakeformat.open(path, **ALONE).upsert(batch({key: 0}))
    oldest = completed(path)[0].name

    def archive(_: Call) -> None:
        keep = {"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 4, "hoodie.clean.commits.retained": 2}
        lakeformat.open(path, **keep).clean()
        lakeformat.open(path, **keep).archive()

    meanwhile = once(lambda call: call.name == "read" and call.path.endswith(oldest), archive)
    checked = open_at(FaultyStorage(LocalStorage(path), meanwhile=meanwhile), "checked")
    assert not checked.check()
    assert completed(path)[0].name != oldest
