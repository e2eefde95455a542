"""Writes beside live writers of Apache Hudi under a common lock: conflicts, heartbeats, and what each undoes.

Hudi is held up after it has written its files. The oracle is a dict from record key to row.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import lakeformat
from lakeformat import WriteConflictError
from lakeformat.storage import LocalStorage
from lakeformat.transaction.claims import DEAD_AFTER_MS, FOREIGN_GRACE_MS
from tests.helpers.faulty import Call, FaultyStorage, once
from tests.helpers.hudi_spark import Hudi, HudiError, missing_parts
from tests.helpers.s3_server import s3_server
from tests.helpers.shared_hudi import find_missing_jars, held_up, s3_settings, zookeeper, zookeeper_lock
from tests.interop.test_versions_8_and_9 import SCHEMA, Model, assert_all_read, batch, rows_of

pytestmark = pytest.mark.interop

#: Options of Hudi's jobs. Their metadata table is off, because lakeformat does not keep one up to date.
HUDI_JOB: Final = {
    "hoodie.write.table.version": "9",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.metadata.enable": "false",
}
#: Hudi's default, with which a job takes every pending instant of others for a dead write of its own.
SINGLE_WRITER: Final = {**HUDI_JOB, "hoodie.write.concurrency.mode": "single_writer"}
#: Partition r0, and partition r1.
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


def open_interrupted(path: Path, act: Any, **options: Any) -> lakeformat.Table:
    """Open a table whose first write does ``act`` when it opens its first file. It holds no lock then."""
    opening = once(lambda call: call.name == "open_output", lambda _: act())
    return lakeformat.Table(FaultyStorage(LocalStorage(str(path)), meanwhile=opening), lakeformat_options(options))


def age(file: Path, age_ms: int) -> None:
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
    assert pending_times(path) == []
    assert_all_read(path, hudi, rows_of(ODD, 1) | rows_of(EVEN, 3))
