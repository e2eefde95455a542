"""Every file of a table, lost or damaged one at a time: what `check` says about it, and what its cure brings back.

`CASES` is the table: a file, how it is harmed, and how the table comes back. A test does what the cure says. Then the
rows are those of one commit of a dictionary, the newest that can be proved, and the next write is right.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.services.doctor.findings import Finding
from lakeformat.storage import LocalStorage, ObjectStorage
from lakeformat.storage.port import Storage
from tests.helpers.damage import flip
from tests.helpers.faulty import UnlockedStorage
from tests.helpers.s3_server import BUCKET, Network, s3_server
from tests.helpers.tables import a_schema

SCHEMA = a_schema(id="int64", p="string", v="int64")
SHORT = {"hoodie.keep.min.commits": 4, "hoodie.keep.max.commits": 5, "hoodie.clean.commits.retained": 3}
Model = dict[int, int]

HARMS: Mapping[str, Callable[[bytes], bytes | None]] = {
    "deleted": lambda data: None,
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "flipped": lambda data: flip(data, 4 * len(data)) if data else b"",
}


@dataclass(frozen=True)
class Case:
    """One file of a table.

    Attributes:
        pattern: regular expression of its path.
        newest: whether it is the newest file of that pattern, or else the one in the middle.
        cure: how the table comes back: ``none needed``, ``repair``, ``rollback``, ``restore``, ``delete`` (the file) or
            ``copy``.
        given_up: how many of the newest commits are given up at most.
        silent: harms that change no row, so that `check` need not name them. A flipped bit may hit what is never read.
        copies: harms after which only a copy helps.
    """

    pattern: str
    newest: bool
    cure: str
    given_up: int = 0
    silent: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()


ALL = tuple(HARMS)
COMMIT = r".hoodie/(timeline/)?[\d_]+\.(delta)?commit"
BASE = r"p\d/[^/.]+\.parquet"
#: What is the same in each kind of table.
COMMON = (
    Case(COMMIT, True, "repair", 1, ("flipped",)),
    Case(COMMIT, True, "rollback", 1, ("flipped",)),
    Case(COMMIT, False, "restore", 9, ("flipped",)),
    Case(r".hoodie/(timeline/)?\d+(\.(delta)?commit)?\.(requested|inflight)", True, "none needed", 0, ALL),
    Case(r".hoodie/(timeline/)?\d+(\.(delta)?commit)?\.(requested|inflight)", False, "none needed", 0, ALL),
    Case(r".hoodie/(timeline/)?\d+\.clean\.(requested|inflight)", True, "none needed", 0, ALL),
    Case(r".hoodie/(timeline/)?[\d_]+\.clean", True, "repair", 0, ("deleted", "empty", "flipped")),
    Case(r".hoodie/(timeline/)?[\d_]+\.rollback", True, "repair", 0, ("deleted",)),
    Case(r".hoodie/(timeline/)?\d+\.rollback\.(requested|inflight)", True, "none needed", 0, ALL),
    Case(r".hoodie/(timeline/)?[\d_]+\.savepoint", True, "repair", 0, ("deleted", "flipped"), ("flipped",)),
    Case(r".hoodie/hoodie.properties", True, "repair", 0, ("flipped",)),
    Case(r".hoodie/.lakeformat/properties", True, "none needed", 0, ALL),
    Case(r".hoodie/.lakeformat/cleaned", True, "none needed", 0, ALL),
    Case(r".hoodie/.lakeformat/lock", True, "none needed", 0, ALL),
    Case(r"p\d/.hoodie_partition_metadata", True, "repair", 0, ("empty", "truncated", "flipped")),
)
CASES: Mapping[tuple[int, str], tuple[Case, ...]] = {
    (6, "COPY_ON_WRITE"): (
        *COMMON,
        Case(BASE, True, "rollback", 1, ()),
        Case(r".hoodie/archived/.*", True, "copy", 0, ("deleted", "flipped")),
        Case(r".hoodie/.lakeformat/index/manifest.*", True, "none needed", 0, ALL),
        Case(r".hoodie/.lakeformat/index/shard.*", True, "none needed", 0, ALL),
    ),
    (9, "MERGE_ON_READ"): (
        *COMMON,
        Case(r"p\d/\..*\.log\..*", True, "rollback", 1, ()),
        Case(r".hoodie/timeline/history/.*\.parquet", True, "copy", 0, ("flipped",)),
        Case(r".hoodie/timeline/history/manifest_\d+", True, "copy", 0, ("flipped",)),
        Case(r".hoodie/timeline/history/manifest_\d+", False, "none needed", 0, ALL),
        Case(r".hoodie/timeline/history/_version_", True, "copy", 0, ALL),
        Case(r".hoodie/metadata/.hoodie/hoodie.properties", True, "repair", 0, ALL),
        Case(r".hoodie/metadata/files/.*\.hfile", True, "repair", 0, ALL),
        Case(r".hoodie/metadata/files/.*\.log\..*", True, "repair", 0, ALL),
        Case(r".hoodie/metadata/.hoodie/timeline/[\d_]+\.deltacommit", True, "repair", 0, ALL),
    ),
}


#: What is there on storage without locks alone: the file in which writers decide.
STATE = Case(r".hoodie/.lakeformat/state", True, "delete", 0, ("deleted",))


def batch(values: Model) -> pa.Table:
    return pa.table([list(values), [f"p{key % 2}" for key in values], list(values.values())], schema=SCHEMA)


class Place:
    """A table at a path or URL, and its files."""

    def __init__(self, url: str, storage: Storage, options: Mapping[str, Any]) -> None:
        self.url, self.storage, self.options = url, storage, dict(options)

    def open(self) -> lakeformat.Table:
        return lakeformat.Table(self.storage, lakeformat.open(self.url, **self.options).options)

    def check(self) -> lakeformat.Findings:
        return lakeformat.Table(self.storage).check()

    def repair(self) -> lakeformat.Findings:
        return lakeformat.Table(self.storage).repair()

    def files(self, folder: str = "") -> Iterator[str]:
        for entry in self.storage.list(folder):
            if entry.is_folder:
                yield from self.files(entry.path)
            else:
                yield entry.path

    def copy_from(self, other: Place) -> None:
        for path in other.files():
            self.storage.replace(path, other.storage.read(path))

    def rows(self) -> Model:
        rows = self.open().to_arrow().to_pylist()
        assert len({row["id"] for row in rows}) == len(rows), "a key occurs twice"
        return {row["id"]: row["v"] for row in rows}


def grow(place: Place, version: int, kind: str) -> list[Model]:
    """Write twelve commits, one of which is rolled back, beside a savepoint. Return the rows after each commit."""
    more = {"hoodie.metadata.enable": True} if version > 6 else {}
    made = lakeformat.create(
        place.url,
        SCHEMA,
        record_key="id",
        partition_by="p",
        table_type=kind,
        **{"hoodie.write.table.version": version, "lakeformat.file.index.commits": 1, **SHORT, **more},
        **place.options,
    )
    table = lakeformat.Table(place.storage, made.options)
    states: list[Model] = [{}]
    for at in range(12):
        change = {at: at * 10, at + 1: at * 10 + 1, at + 2: at * 10 + 2}
        time = table.upsert(batch(change)).instant_time
        states.append({**states[-1], **change})
        if at == 6:
            table.savepoint(time)
        if at == 7:
            table.upsert(batch({99: 1}))
            table.rollback()
    return states[1:]


def cure(place: Place, case: Case, harm: str, path: str, data: bytes, found: Sequence[Finding]) -> None:
    """Do what the cure of the finding says."""
    texts = " ".join(finding.cure for finding in found)
    for time in re.findall(r"savepoint TABLE --delete (\d+)", texts):
        place.open().delete_savepoint(time)
    how = case.cure if harm not in case.copies else "copy"
    if "as it was decided" in texts:  # On storage without locks the last decision holds the bytes of its file.
        how = "repair"
    elif "only that helps" in texts or "nothing else helps" in texts:  # The state before has been cleaned away.
        how = "copy"
    match how:
        case "repair":
            assert "repair --yes" in texts
            assert place.repair()
        case "rollback":
            assert "lakeformat rollback" in texts
            place.open().rollback()
        case "restore":
            target = re.search(r"lakeformat restore (\d+)", texts)
            assert target is not None
            place.open().restore(target[1])
        case "delete":
            assert "stop all writers, delete it" in texts
            place.storage.delete(path)
        case "copy":
            assert "copy" in texts
            place.storage.replace(path, data)


def find_file(place: Place, case: Case) -> str | None:
    files = sorted(path for path in place.files() if re.fullmatch(case.pattern, path))
    by_instant = sorted(files, key=lambda path: (max(re.findall(r"\d{17}", path), default=""), path))
    if not files or (not case.newest and len(files) < 3):
        return None
    return by_instant[-1 if case.newest else len(files) // 2]


def live_through(place: Place, states: Sequence[Model], case: Case, harm: str) -> None:
    path = find_file(place, case)
    assert path is not None, case
    data = place.storage.read(path)
    harmed = HARMS[harm](data)
    if harmed is None:
        place.storage.delete(path)
    else:
        place.storage.replace(path, harmed)
    found = list(place.check())
    if found:
        assert case.cure != "none needed", found
        cure(place, case, harm, path, data, found)
        after = list(place.check())
        assert not after, (found, after)
    else:
        assert harm in case.silent, f"check is silent about {path}"
    given_up = [at for at in range(case.given_up + 1) if place.rows() == states[-1 - at]]
    assert given_up
    assert not (found == [] and given_up[0])
    change = {3: 3000, 50: 1}
    place.open().upsert(batch(change))
    assert place.rows() == {**states[-1 - given_up[0]], **change}


@pytest.fixture(scope="module")
def s3() -> Iterator[Mapping[str, Any]]:
    with s3_server(Network()) as options:
        yield options


PARAMETERS = [
    pytest.param(table, case, harm, id=f"{table[0]}-{case.pattern}-{case.newest}-{case.cure}-{harm}")
    for table, cases in CASES.items()
    for case in cases
    for harm in HARMS
    if harm != "flipped" or (".log" not in case.pattern and case.pattern != BASE)  # Tests of bytes flip these.
]  # fmt: skip
NUMBERS = count()
WITHOUT_LOCKS = [
    *PARAMETERS,
    *(pytest.param(table, STATE, harm, id=f"{table[0]}-{STATE.pattern}-{harm}") for table in CASES for harm in HARMS),
]


def by_night(few: Callable[..., bool]) -> list[Any]:
    """Return the cases of storage without locks, and leave all but a few to the night."""
    return [
        pytest.param(*each.values, id=each.id, marks=() if few(*each.values) else pytest.mark.nightly)
        for each in WITHOUT_LOCKS
    ]


#: Returns the place of a table that has grown, and its rows after each commit.
Grown = Callable[[tuple[int, str]], tuple[Place, list[Model]]]


def grow_once(make_place: Callable[[str], Place]) -> Grown:
    @cache
    def grown(table: tuple[int, str]) -> tuple[Place, list[Model]]:
        place = make_place(f"day-{table[0]}")
        return place, grow(place, *table)

    return grown


def local(path: Path) -> Place:
    return Place(str(path), LocalStorage(str(path)), {})


def unlocked(path: Path) -> Place:
    return Place(str(path), UnlockedStorage(str(path)), {})


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    return grow_once(lambda name: local(tmp_path_factory.mktemp(name) / "t"))


@pytest.mark.parametrize(("table", "case", "harm"), PARAMETERS)
def test_file_that_is_harmed(table: tuple[int, str], case: Case, harm: str, grown: Grown, tmp_path: Path) -> None:
    template, states = grown(table)
    place = local(tmp_path / "t")
    place.copy_from(template)
    live_through(place, states, case, harm)


@pytest.fixture(scope="module")
def grown_without_locks(tmp_path_factory: pytest.TempPathFactory) -> Grown:
    return grow_once(lambda name: unlocked(tmp_path_factory.mktemp(name) / "t"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "case", "harm"), by_night(lambda _, case, harm: case is STATE or (case in COMMON[:2] and harm != "empty"))
)
def test_file_that_is_harmed_without_locks(
    table: tuple[int, str], case: Case, harm: str, grown_without_locks: Grown, tmp_path: Path
) -> None:
    template, states = grown_without_locks(table)
    if find_file(template, case) is None:
        pytest.skip("there is no such file on storage without locks")
    place = unlocked(tmp_path / "t")
    place.copy_from(template)
    live_through(place, states, case, harm)


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("lost", ["claim", "requested", "inflight"])
@pytest.mark.parametrize("table", CASES)
def test_dead_writer_that_loses_a_file_is_undone(
    table: tuple[int, str], lost: str, harm: str, grown: Grown, tmp_path: Path
) -> None:
    template, states = grown(table)
    place = local(tmp_path / "t")
    place.copy_from(template)
    newest = find_file(place, CASES[table][0]) or ""
    place.storage.delete(newest)
    time = newest.rpartition("/")[2][:17]
    claim = f".hoodie/.lakeformat/pending/{time}"
    place.storage.replace(claim, json.dumps({"kind": "process", "lakeformat.token": "0" * 32}).encode())
    pending = [path for path in place.files() if re.fullmatch(rf".*/{time}\S*\.{lost}", path)]
    path = claim if lost == "claim" else pending[0]
    harmed = HARMS[harm](place.storage.read(path))
    if harmed is None:
        place.storage.delete(path)
    else:
        place.storage.replace(path, harmed)
    for each in (file for file in place.files() if time in file):  # A damaged claim shows a dead writer later.
        os.utime(tmp_path / "t" / each, (1, 1))
    assert any("repair --yes" in finding.cure for finding in place.check())
    assert place.repair()
    assert not place.check()
    assert place.rows() == states[-2]
    place.open().upsert(batch({3: 3000}))
    assert place.rows() == {**states[-2], 3: 3000}


@pytest.fixture(scope="module")
def grown_on_s3(s3: Mapping[str, Any]) -> Grown:
    return grow_once(lambda name: on_s3(name, s3))


def on_s3(name: str, s3: Mapping[str, Any]) -> Place:
    url = f"s3://{BUCKET}/{name}"
    return Place(url, ObjectStorage(url, dict(s3)), {"storage_options": dict(s3)})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "case", "harm"),
    by_night(lambda table, case, harm: table[0] > 6 and case is COMMON[0] and harm in {"deleted", "truncated"}),
)
def test_file_that_is_harmed_on_s3(
    table: tuple[int, str], case: Case, harm: str, grown_on_s3: Grown, s3: Mapping[str, Any]
) -> None:
    template, states = grown_on_s3(table)
    if find_file(template, case) is None:
        pytest.skip("there is no such file on an object store")
    place = on_s3(f"copy-{next(NUMBERS)}", s3)
    place.copy_from(template)
    live_through(place, states, case, harm)
