"""Damage that `test_bad_day` does not have: several files at once, plans, services, folders, on tables with services.

A test follows the findings of `check` until there are none, or until only a copy helps. Then the rows are those of one
commit of a dictionary, and the table can be written, cleaned, archived and saved.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import lakeformat
from lakeformat import CorruptTableError
from lakeformat.services.doctor.findings import Finding
from lakeformat.storage import LocalStorage
from tests.services.test_bad_day import SCHEMA, SHORT, Model, batch

pytestmark = pytest.mark.slow

COMMIT = r"[\d_]+\.(delta)?commit"
COMPACTION = r"[\d_]+\.commit"
CLUSTERING = r"[\d_]+\.replacecommit"
Harm = Callable[[Path], object]


def grow(path: Path, version: int, kind: str) -> list[Model]:
    """Write ten commits, beside a savepoint, a rollback, and for merge-on-read a clustering and a compaction."""
    more = {"hoodie.metadata.enable": True} if version > 6 else {}
    table = lakeformat.create(
        path,
        SCHEMA,
        record_key="id",
        partition_by="p",
        table_type=kind,
        **{"hoodie.write.table.version": version, **SHORT, **more},
    )
    states: list[Model] = [{}]
    for at in range(10):
        change = {at: at * 10, at + 1: at * 10 + 1, at + 2: at * 10 + 2, 100 + at: at}
        made = table.upsert(batch(change)).instant_time
        states.append({**states[-1], **change})
        if at == 4:
            table.savepoint(made)
        if at == 5:
            table.upsert(batch({99: 1}))
            table.rollback()
        if kind == "MERGE_ON_READ" and at in {7, 8}:
            assert not (table.cluster() if at == 7 else table.compact()).skipped
    return states[1:]


def timeline(path: Path) -> Path:
    return path / ".hoodie/timeline" if (path / ".hoodie/timeline").is_dir() else path / ".hoodie"


def find(path: Path, pattern: str, at: int = -1) -> Path:
    """Return a file of the timeline, by a pattern of its name and its place among those that have it."""
    return sorted(file for file in timeline(path).iterdir() if re.fullmatch(pattern, file.name))[at]


def parts_of(path: Path, instant: Path) -> list[Path]:
    """Return the pending files of a commit."""
    times = (file for file in timeline(path).iterdir() if file.name.startswith(instant.name[:17]))
    return [file for file in times if re.fullmatch(r"\d+(\.\w*commit|\.clustering)?\.(requested|inflight)", file.name)]


def lose(*files: Path) -> None:
    for file in files:
        file.unlink()


def garble(*files: Path) -> None:
    for file in files:
        file.write_bytes(b"\x00\xff no plan {]")


def truncate(*files: Path) -> None:
    for file in files:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def data(path: Path, pattern: str, at: int) -> Path:
    files = (file for file in path.glob("p*/*") if re.search(pattern, file.name))
    return sorted(files, key=lambda file: (max(re.findall(r"\d{17}", file.name)), file.name))[at]


def half(folder: Path) -> None:
    lose(*sorted(file for file in folder.rglob("*") if file.is_file())[::2])


@dataclass(frozen=True)
class Case:
    """Damage of a table, with the cures that `check` names, one after the other.

    Attributes:
        given_up: how many of the newest states of rows are given up at most.
        only: the kinds of tables that have these files: ``6C``, ``6M``, ``9C``, ``9M``; all by default.
        reads_wrong: whether reads do not notice: all traces of a commit are gone at once.
    """

    harm: Harm
    cures: tuple[str, ...]
    given_up: int = 0
    only: str = "6C 6M 9C 9M"
    reads_wrong: bool = False


CASES: Mapping[str, Case] = {
    "two newest commits lost": Case(
        lambda t: lose(find(t, COMMIT), find(t, COMMIT, -2)), ("restore",), 3, only="6C 9C"
    ),
    "newest commit and compaction lost": Case(
        lambda t: lose(find(t, COMMIT), find(t, COMPACTION)), ("repair", "compact"), 1, only="6M 9M"
    ),
    "newest commit lost, the one before truncated": Case(
        lambda t: (lose(find(t, COMMIT)), truncate(find(t, COMMIT, -2))), ("restore",), 3
    ),
    "newest commit lost with a data file": Case(
        lambda t: (lose(find(t, COMMIT)), lose(data(t, r"^[^.].*parquet|\.log\.", -1))), ("repair",), 1
    ),
    "middle commit lost, its inflight file empty": Case(
        lambda t: [
            each.write_bytes(b"")
            for each in parts_of(t, find(t, COMMIT, -3))
            if each.name.endswith("inflight") and not find(t, COMMIT, -3).unlink()  # type: ignore[func-returns-value]
        ],
        ("restore",), 4, "6C 9C",
    ),
    "middle commit lost, its inflight file lost": Case(
        lambda t: lose(*(f for f in parts_of(t, find(t, COMMIT, -3)) if "inflight" in f.name), find(t, COMMIT, -3)),
        ("restore",), 4, "6C 9C",
    ),
    "all files of a middle commit lost": Case(
        lambda t: lose(*parts_of(t, find(t, COMMIT, -3)), find(t, COMMIT, -3)), ("restore", "repair"), 4, "6C 9C", True
    ),
    "newest commit truncated after a clustering": Case(lambda t: truncate(find(t, COMMIT)), ("repair",), 1),
    "half a metadata table": Case(lambda t: half(t / ".hoodie/metadata"), ("repair",), only="9C 9M"),
    "metadata table lost": Case(lambda t: shutil.rmtree(t / ".hoodie/metadata"), ("repair",), only="9C 9M"),
    "clean and its plan garbled": Case(
        lambda t: garble(*(find(t, rf"[\d_]+\.clean{end}") for end in ("", ".requested", ".inflight"))), ("repair",)
    ),
    "clean lost, its plan garbled": Case(
        lambda t: (lose(find(t, r"[\d_]+\.clean")), garble(find(t, r"\d+\.clean\.requested"))), ("repair",)
    ),
    "rollback and its plan garbled": Case(
        lambda t: garble(find(t, r"[\d_]+\.rollback"), find(t, r"\d+\.rollback\.requested")), ("repair",)
    ),
    "rollback lost, its plan garbled": Case(
        lambda t: (lose(find(t, r"[\d_]+\.rollback")), garble(find(t, r"\d+\.rollback\.requested"))), ("repair",)
    ),
    "rollback lost, its plan lost": Case(
        lambda t: lose(find(t, r"[\d_]+\.rollback"), find(t, r"\d+\.rollback\.requested")), ("repair",)
    ),
    "savepoint lost": Case(lambda t: lose(find(t, r"[\d_]+\.savepoint")), ("repair",)),
    "savepoint and its commit truncated": Case(
        lambda t: truncate(find(t, r"[\d_]+\.savepoint"), find(t, COMMIT, 0)), ("copy",)
    ),
    "markers of all partitions lost": Case(lambda t: lose(*t.glob("p*/.hoodie_partition_metadata")), ("repair",)),
    "markers of all partitions garbled": Case(lambda t: garble(*t.glob("p*/.hoodie_partition_metadata")), ()),
    "old base file of a savepoint": Case(lambda t: lose(data(t, r"^[^.].*parquet", 0)), ("unsave",), only="6C 6M"),
    "old base file of a savepoint, metadata table": Case(
        lambda t: lose(data(t, r"^[^.].*parquet", 0)), ("repair", "unsave"), only="9C 9M"
    ),
    "newest log file truncated": Case(lambda t: truncate(data(t, r"\.log\.", -1)), ("rollback",), 1, "6M 9M"),
    "old log file truncated": Case(lambda t: truncate(data(t, r"\.log\.", 0)), (), only="6M 9M"),
    "clustering lost, others rest on it": Case(lambda t: lose(find(t, CLUSTERING)), ("copy",), 0, "6M 9M"),
    "clustering truncated": Case(lambda t: truncate(find(t, CLUSTERING)), ("copy",), 0, "6M 9M"),
    "plan of a clustering garbled": Case(
        lambda t: garble(find(t, r"\d+\.(replacecommit|clustering)\.requested")), (), only="6M 9M"
    ),
    "plan of a compaction garbled": Case(lambda t: garble(find(t, r"\d+\.compaction\.requested")), (), only="6M 9M"),
    "compaction lost": Case(lambda t: lose(find(t, COMPACTION)), ("compact",), only="6M 9M"),
    "properties and newest commit": Case(
        lambda t: (lose(t / ".hoodie/hoodie.properties"), truncate(find(t, COMMIT))), ("repair",), 1
    ),
    "archive file empty": Case(
        lambda t: sorted((timeline(t) / "history").glob("*.parquet"))[-1].write_bytes(b""), ("copy",), only="9C 9M"
    ),
    "all that lakeformat keeps beside": Case(lambda t: shutil.rmtree(t / ".hoodie/.lakeformat"), ()),
    "markers and heartbeats": Case(
        lambda t: [shutil.rmtree(t / ".hoodie" / name, ignore_errors=True) for name in (".temp", ".heartbeat", ".aux")],
        (),
    ),
}  # fmt: skip
PARAMETERS = [
    pytest.param(table, name, id=f"{table}-{name}") for name, case in CASES.items() for table in case.only.split()
]
KINDS = {"C": "COPY_ON_WRITE", "M": "MERGE_ON_READ"}


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, list[Model]]]:
    folder, made = tmp_path_factory.mktemp("worse"), {}
    for table in ("6C", "6M", "9C", "9M"):
        states = grow(folder / table, int(table[0]), KINDS[table[1]])
        made[table] = folder / table, states
    hour_ago = time.time() - 3600  # Writers of that age are dead.
    for file in folder.rglob("*"):
        os.utime(file, (hour_ago, hour_ago))
    return made


def read(path: Path) -> Model:
    rows = lakeformat.open(path).to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows), "a key occurs twice"
    return {row["id"]: row["v"] for row in rows}


def follow(path: Path, found: list[Finding]) -> str:
    """Do what the findings say. Return what that was."""
    texts = " ".join(each.cure for each in found)
    if any(each.mends for each in found):
        assert lakeformat.repair(path)
        return "repair"
    if run := re.search(r"lakeformat compact TABLE --run (\d+)", texts):
        lakeformat.open(path).run_compaction(run[1])
        return "compact"
    if "lakeformat rollback" in texts:
        lakeformat.open(path).rollback()
        return "rollback"
    if targets := re.findall(r"lakeformat restore (\d+)", texts):
        for saved in set(re.findall(r"savepoint TABLE --delete (\d+)", texts)):
            lakeformat.open(path).delete_savepoint(saved)
        lakeformat.open(path).restore(min(targets))
        return "restore"
    if saved := set(re.findall(r"delete_savepoint\('(\d+)'\)", texts)):
        lakeformat.open(path).delete_savepoint(*saved)
        return "unsave"
    assert "copy" in texts
    return "copy"


@pytest.mark.parametrize(("table", "name"), PARAMETERS)
def test_damage_has_a_way_out(
    table: str, name: str, grown: dict[str, tuple[Path, list[Model]]], tmp_path: Path
) -> None:
    case, (template, states), path = CASES[name], grown[table], tmp_path / "t"
    shutil.copytree(template, path)
    case.harm(path)
    if not case.reads_wrong:
        try:
            assert read(path) in states[-3:]  # Without the newest commits, but never without one in between.
        except CorruptTableError:
            assert case.cures
    done: list[str] = []
    while (found := list(lakeformat.Table(LocalStorage(path)).check())) and "copy" not in done:
        assert len(done) < 3, found
        done.append(follow(path, found))
    assert tuple(done) == case.cures
    if "copy" in done:
        return
    (given_up,) = [at for at in range(case.given_up + 1) if read(path) == states[-1 - at]][:1]
    assert given_up or not case.given_up
    opened = lakeformat.open(path)
    opened.upsert(batch({3: 3000, 50: 1}))
    assert read(path) == {**states[-1 - given_up], 3: 3000, 50: 1}
    opened.clean()
    opened.archive()
    opened.savepoint()
    assert not opened.check()
