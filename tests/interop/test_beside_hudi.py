"""Writes beside live writers of Apache Hudi under a common lock: conflicts, heartbeats, and what each undoes.

Hudi is held up after it has written its files. The oracle is a dict from record key to row.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

import lakeformat
from lakeformat import WriteConflictError
from lakeformat.config.resolve import resolve
from lakeformat.storage import LocalStorage
from lakeformat.transaction.order.claims import DEAD_AFTER_MS, FOREIGN_GRACE_MS
from tests.helpers.faulty import FaultyStorage, once
from tests.helpers.hudi_spark import Hudi, HudiError, missing_parts
from tests.helpers.shared_hudi import find_missing_jars, held_up, s3_settings, zookeeper, zookeeper_lock
from tests.interop.test_versions_8_and_9 import SCHEMA, assert_all_read, batch, rows_of

pytestmark = pytest.mark.interop

#: Options of Hudi's jobs. Their metadata table is off, because lakeformat keeps only its list of files.
HUDI_JOB: Final = {
    "hoodie.write.table.version": "9",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.metadata.enable": "false",
}
#: Hudi's default, with which a job takes every pending instant of others for a dead write of its own.
SINGLE_WRITER: Final = {**HUDI_JOB, "hoodie.write.concurrency.mode": "single_writer"}
#: The keys of partition r0, and those of partition r1.
EVEN, ODD = range(0, 8, 2), range(1, 8, 2)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the host and port of a ZooKeeper server."""
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hudi]:
    """Yield a session of Hudi 1.2.0 that can be held up."""
    if missing := [*missing_parts("1.2.0"), *find_missing_jars()]:
        pytest.skip(f"{' and '.join(missing)} missing: run `make interop`; the last needs javac")
    with Hudi("1.2.0", tmp_path_factory.mktemp("hudi"), s3_settings("http://127.0.0.1:1")) as session:
        yield session


@pytest.fixture
def lock(server: str, tmp_path: Path) -> dict[str, str]:
    """Return the options of the common lock."""
    return zookeeper_lock(server, tmp_path.name)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a table of eight rows in two partitions, in one file each."""
    path = tmp_path / "t"
    table = lakeformat.create(
        path, SCHEMA, record_key="id", partition_by="region", ordering="ts", **{"hoodie.write.table.version": "9"}
    )
    table.upsert(batch(range(8), 1))
    return path


def pending_times(path: Path) -> list[str]:
    return [instant.time for instant in lakeformat.open(path).snapshot().timeline.pending]


def open_interrupted(path: Path, act: Callable[[], object], **options: object) -> lakeformat.Table:
    """Open a table. Its first write calls ``act`` as it opens its first file, when it holds no lock."""
    opening = once(lambda call: call.name == "open_output", lambda _: act())
    return lakeformat.Table(FaultyStorage(LocalStorage(str(path)), meanwhile=opening), resolve(options))


def set_age(file: Path, age_ms: int) -> None:
    then = time.time() - age_ms / 1000
    os.utime(file, (then, then))


def test_hudi_fails_with_our_instant_when_we_commit_first(
    path: Path, hudi: Hudi, lock: dict[str, str], tmp_path: Path
) -> None:
    with held_up(hudi, tmp_path / "gate", path, batch(EVEN, 3), "upsert", **HUDI_JOB, **lock) as theirs:
        ours = lakeformat.open(path, **lock).upsert(batch(range(0, 4, 2), 2)).instant_time
    with pytest.raises(HudiError, match=f"(?s)WriteConflictException.*{ours}"):
        theirs.result()
    assert_all_read(path, hudi, rows_of(range(8), 1) | rows_of(range(0, 4, 2), 2))
    hudi.write(path, batch(EVEN, 3), "upsert", **HUDI_JOB, **lock)
    assert_all_read(path, hudi, rows_of(ODD, 1) | rows_of(EVEN, 3))
    assert pending_times(path) == []


@pytest.mark.parametrize("retries", [0, 5])
def test_our_write_conflicts_when_hudi_commits_first(
    retries: int, path: Path, hudi: Hudi, lock: dict[str, str]
) -> None:
    """Another attempt starts from the rows of Hudi."""
    table = open_interrupted(
        path,
        lambda: hudi.write(path, batch(range(0, 4, 2), 2), "upsert", **HUDI_JOB, **lock),
        **{"lakeformat.write.retries": retries},
        **lock,
    )
    model = rows_of(range(8), 1) | rows_of(range(0, 4, 2), 2)
    if retries:
        table.upsert(batch(range(2, 6, 2), 3))
        model |= rows_of(range(2, 6, 2), 3)
    else:
        with pytest.raises(WriteConflictError) as caught:
            table.upsert(batch(range(2, 6, 2), 3))
        theirs = lakeformat.open(path).history()[0].instant_time
        assert f"overlaps commit {theirs}" in str(caught.value)
    assert_all_read(path, hudi, model)
    assert pending_times(path) == []


def test_both_commit_when_they_change_different_file_groups(
    path: Path, hudi: Hudi, lock: dict[str, str], tmp_path: Path
) -> None:
    """Each leaves the live instant of the other alone."""
    table = lakeformat.open(path, **lock)
    with held_up(hudi, tmp_path / "gate", path, batch(EVEN, 2), "upsert", **HUDI_JOB, **lock) as theirs:
        (live,) = pending_times(path)
        table.upsert(batch(ODD, 2))
        table.upsert(batch(ODD, 3))
        assert pending_times(path) == [live]
    theirs.result()
    assert_all_read(path, hudi, rows_of(EVEN, 2) | rows_of(ODD, 3))
    open_interrupted(path, lambda: hudi.write(path, batch(EVEN, 4), "upsert", **HUDI_JOB, **lock), **lock).upsert(
        batch(ODD, 4)
    )
    assert_all_read(path, hudi, rows_of(range(8), 4))
    assert pending_times(path) == []


@pytest.mark.parametrize(
    ("heartbeat_age_ms", "age_ms", "is_dead"),
    [
        (DEAD_AFTER_MS - 20_000, FOREIGN_GRACE_MS * 2, False),
        (DEAD_AFTER_MS + 10_000, 0, True),
        (None, FOREIGN_GRACE_MS - 30_000, False),
        (None, FOREIGN_GRACE_MS + 10_000, True),
    ],
    ids=["100 s", "130 s", "none, young", "none, old"],
)
def test_failed_write_of_hudi_is_rolled_back_once_it_is_dead(
    heartbeat_age_ms: int | None,
    age_ms: int,
    is_dead: bool,
    path: Path,
    hudi: Hudi,
    lock: dict[str, str],
    tmp_path: Path,
) -> None:
    """A write of Hudi that had a conflict leaves its instant and its files, without a heartbeat."""
    with held_up(hudi, tmp_path / "gate", path, batch(EVEN, 3), "upsert", **HUDI_JOB, **lock) as theirs:
        lakeformat.open(path, **lock).upsert(batch(EVEN, 2))
    with pytest.raises(HudiError, match="WriteConflictException"):
        theirs.result()
    (failed,) = pending_times(path)
    for name in (f"{failed}.commit.requested", f"{failed}.inflight"):
        set_age(path / ".hoodie/timeline" / name, age_ms)
    heartbeat = path / ".hoodie/.heartbeat" / failed
    assert not heartbeat.exists()
    if heartbeat_age_ms is not None:
        heartbeat.parent.mkdir(exist_ok=True)
        heartbeat.write_bytes(b"")
        set_age(heartbeat, heartbeat_age_ms)
    files = [file for file in path.rglob(f"*_{failed}.parquet") if ".hoodie" not in file.parts]
    assert files
    lakeformat.open(path, **lock).upsert(batch(ODD, 4))
    assert pending_times(path) == ([] if is_dead else [failed])
    assert [file.exists() for file in files] == [not is_dead] * len(files)
    assert_all_read(path, hudi, rows_of(EVEN, 2) | rows_of(ODD, 4))


@pytest.mark.parametrize("is_given", [True, False], ids=["common lock", "no lock of ours"])
def test_hudi_in_single_writer_mode_undoes_our_write_and_the_conflict_says_what_to_set(
    is_given: bool, path: Path, hudi: Hudi, lock: dict[str, str]
) -> None:
    table = open_interrupted(
        path,
        lambda: hudi.write(path, batch(EVEN, 2), "upsert", **SINGLE_WRITER),
        **{"lakeformat.write.retries": 0},
        **(lock if is_given else {}),
    )
    with pytest.raises(WriteConflictError, match=r"concurrency\.mode=optimistic_concurrency_control.*in all jobs"):
        table.upsert(batch(ODD, 3))
    assert_all_read(path, hudi, rows_of(ODD, 1) | rows_of(EVEN, 2))
    assert pending_times(path) == []
    table.upsert(batch(ODD, 3))
    assert_all_read(path, hudi, rows_of(ODD, 3) | rows_of(EVEN, 2))


def test_without_a_common_lock_we_do_not_change_what_hudi_is_changing(path: Path, hudi: Hudi, tmp_path: Path) -> None:
    """Hudi in single-writer mode checks no conflict, so its files would hide ours."""
    table = lakeformat.open(path, **{"lakeformat.write.retries": 0})
    with held_up(hudi, tmp_path / "gate", path, batch(EVEN, 2), "upsert", **SINGLE_WRITER) as theirs:
        (live,) = pending_times(path)
        with pytest.raises(WriteConflictError, match=f"{live}.*same hoodie.write.lock.provider in all jobs"):
            table.upsert(batch(range(2), 3))
        table.upsert(batch(ODD, 3))
    theirs.result()
    assert_all_read(path, hudi, rows_of(EVEN, 2) | rows_of(ODD, 3))
