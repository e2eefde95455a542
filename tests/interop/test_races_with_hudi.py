"""Races of lakeformat against Apache Hudi 1.2.0 under a common lock: on a local disk, and on S3.

Both write at the same time, round by round, and repeat what had a conflict. The oracle is a dict from record key to
row: each write has a higher ordering value than all before it, so the acknowledged row with the highest one wins.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier, Event
from typing import Any, Final

import fsspec
import pyarrow as pa
import pytest

import lakeformat
from tests.helpers import hudi_rs
from tests.helpers.hudi_spark import Hudi, HudiError, missing_parts
from tests.helpers.s3_server import BUCKET, s3_server
from tests.helpers.shared_hudi import (
    STORAGE_LOCK,
    find_missing_jars,
    s3_settings,
    wait_until,
    zookeeper,
    zookeeper_lock,
)
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.interop

SCHEMA: Final = a_schema(id="int64", region="string", ts="int64", v="string")
#: Options of Hudi's jobs. Their metadata table is off, because lakeformat keeps only its list of files.
HUDI_JOB: Final = {
    "hoodie.write.table.version": "9",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.metadata.enable": "false",
    "hoodie.table.name": "raced",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "region",
}
SECONDS: Final = 120.0
#: Record keys by partition.
KEYS: Final = {"shared": range(20), "ours": range(100, 120), "theirs": range(200, 220)}
#: Kind of the rows and phase of lakeformat's write, round by round. Phase 0 begins at once, 1 while Hudi writes, and 2
#: publishes after Hudi's commit.
ORDER: Final = ((0, 0), (0, 1), (2, 1), (1, 1), (1, 2), (2, 2))
#: Attempts of one write. Each conflict means that the other side has committed, so more are never needed.
TRIES: Final = 10

Row = dict[str, Any]
Rows = list[Row]


def make_rows(kind: int, side: str, ts: int) -> Rows:
    """Return the rows of one write.

    Args:
        kind: 0 for keys that both sides write, 1 for other keys in the same files, 2 for a partition of its own.
    """
    region = side if kind == 2 else "shared"
    keys = KEYS[region]
    keys = keys[:10] if kind == 0 else keys[10 + (side == "ours") :: 2] if kind == 1 else keys[ts % 10 :]
    return [{"id": key, "region": region, "ts": ts, "v": f"{side}-{key}-{ts}"} for key in keys]


class Pausing:
    """A storage that calls a function before it opens each output file. The writer holds no lock then."""

    def __init__(self, inner: Any, pause: Callable[[], object]) -> None:
        self._inner, self._pause = inner, pause

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open_output(self, *arguments: Any, **named: Any) -> Any:
        self._pause()
        return self._inner.open_output(*arguments, **named)


@dataclass
class Race:
    """One race.

    Attributes:
        open: opens the table for lakeformat.
        theirs: writes rows with Hudi.
        log: the messages that lakeformat has logged; it repeats its conflicts by itself, and logs them.
        conflicts: kinds of the writes that had a conflict, by side.
    """

    open: Callable[[], lakeformat.Table]
    theirs: Callable[[pa.Table], object]
    log: Callable[[], list[str]]
    acknowledged: Rows = field(default_factory=list)
    conflicts: dict[str, list[int]] = field(default_factory=lambda: {"ours": [], "theirs": []})

    def __post_init__(self) -> None:
        self._times = itertools.count(1)
        self._start = Barrier(2, timeout=SECONDS)

    def run(self, rounds: int) -> None:
        """Let both sides write once in each round, and wait for the end."""
        done = [Event() for _ in range(rounds)]
        with ThreadPoolExecutor(2) as pool:
            sides = (pool.submit(self._run_theirs, done), pool.submit(self._run_ours, done))
            for side in sides:
                side.result()

    def _run_theirs(self, done: list[Event]) -> None:
        try:
            for number, ended in enumerate(done):
                self._start.wait()
                self._write("theirs", ORDER[number % len(ORDER)][0], self.theirs)
                ended.set()
        finally:
            self._start.abort()

    def _run_ours(self, done: list[Event]) -> None:
        table = self.open()
        for number, ended in enumerate(done):
            self._start.wait()
            write: Callable[[pa.Table], object] = table.upsert
            kind, phase = ORDER[number % len(ORDER)]
            if phase == 1:
                wait_until(lambda ended=ended: ended.is_set() or table.snapshot().timeline.pending)
            elif phase == 2:
                paused = Pausing(table.context.storage, lambda ended=ended: ended.wait(SECONDS))
                write = lakeformat.Table(paused, table.options).upsert
            self._write("ours", kind, write)

    def _write(self, side: str, kind: int, write: Callable[[pa.Table], object]) -> None:
        rows = make_rows(kind, side, next(self._times))
        known = len(self._overlaps())
        for _ in range(TRIES):
            try:
                write(pa.Table.from_pylist(rows, SCHEMA))
            except HudiError as error:
                if "WriteConflictException" not in str(error):
                    raise
                self.conflicts[side].append(kind)
            else:
                self.acknowledged += rows
                if side == "ours":
                    self.conflicts[side] += [kind] * (len(self._overlaps()) - known)
                return
        raise AssertionError(f"{side}: {TRIES} conflicts in a row")

    def _overlaps(self) -> list[str]:
        return [message for message in self.log() if "overlaps commit" in message and "trying again" in message]

    def model(self) -> dict[int, Row]:
        """Return the row of each key that has the highest ordering value."""
        return {row["id"]: row for row in sorted(self.acknowledged, key=lambda row: row["ts"])}


def by_key(rows: pa.Table) -> dict[int, Row]:
    found = {row["id"]: {name: row[name] for name in SCHEMA.names} for row in rows.to_pylist()}
    assert len(found) == rows.num_rows, "a record key is doubled"
    return found


def check_race(race: Race, rounds: int) -> None:
    """Check the table after the race, except for what Hudi and hudi-rs read."""
    table = race.open()
    assert by_key(table.to_arrow()) == race.model()
    assert table.snapshot().timeline.pending == ()
    times = [commit.instant_time for commit in table.history(limit=4 * rounds)]
    assert len(times) == len(set(times))
    assert set(race.conflicts["ours"] + race.conflicts["theirs"]) <= {0, 1}, "writes to own partitions conflict"
    assert str(table.check()) == "nothing is wrong"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the host and port of a ZooKeeper server."""
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def s3() -> Iterator[Mapping[str, Any]]:
    with s3_server() as options:
        yield options


@pytest.fixture(scope="module")
def hudi(s3: Mapping[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hudi]:
    """Yield a session of Hudi 1.2.0 that reaches the S3 server."""
    if missing := [*missing_parts("1.2.0"), *find_missing_jars()]:
        pytest.skip(f"{' and '.join(missing)} missing: run `make interop`; the last needs javac")
    settings = s3_settings(s3["client_kwargs"]["endpoint_url"])
    with Hudi("1.2.0", tmp_path_factory.mktemp("hudi"), settings) as session:
        yield session


def create(where: Path | str, lock: Mapping[str, str], race: Race, **options: Any) -> Callable[[], lakeformat.Table]:
    """Create the table, with one row of each key. Return a function that opens it."""
    table = lakeformat.create(
        where,
        SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        **{"hoodie.write.table.version": "9", "hoodie.table.name": "raced"},
        **options,
    )
    first = [
        {"id": key, "region": region, "ts": 0, "v": f"first-{key}"} for region, keys in KEYS.items() for key in keys
    ]
    table.upsert(pa.Table.from_pylist(first, SCHEMA))
    race.acknowledged += first
    return lambda: lakeformat.open(where, **lock, **options)


ROUNDS: Final = [6, pytest.param(50, marks=pytest.mark.nightly)]


@pytest.mark.budget(40)
@pytest.mark.parametrize("rounds", ROUNDS)
def test_race_under_a_zookeeper_lock_on_a_local_disk(
    rounds: int, hudi: Hudi, server: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, lock = tmp_path / "t", zookeeper_lock(server, tmp_path.name)
    race = Race(
        lambda: lakeformat.open(path, **lock),
        lambda rows: hudi.write(path, rows, "upsert", **HUDI_JOB, **lock),
        lambda: caplog.messages,
    )
    create(path, lock, race)
    race.run(rounds)
    check_race(race, rounds)
    assert race.conflicts["ours"], "Hudi never committed first"
    assert race.conflicts["theirs"], "lakeformat never committed first"
    assert by_key(hudi.read(path)) == race.model()
    hudi_rs.assert_same_rows(lakeformat.open(path))


@pytest.mark.budget(40)
@pytest.mark.parametrize("rounds", ROUNDS)
def test_race_under_the_lock_file_on_s3(
    rounds: int, hudi: Hudi, s3: Mapping[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"raced-{rounds}"
    hadoop, url = f"s3a://{BUCKET}/{name}", f"s3://{BUCKET}/{name}"
    race = Race(
        lambda: lakeformat.open(url, storage_options=dict(s3), **STORAGE_LOCK),
        lambda rows: hudi.write(hadoop, rows, "upsert", **HUDI_JOB, **STORAGE_LOCK),
        lambda: caplog.messages,
    )
    create(url, STORAGE_LOCK, race, storage_options=dict(s3))
    race.run(rounds)
    check_race(race, rounds)
    assert race.conflicts["ours"], "Hudi never committed first"
    assert race.conflicts["theirs"], "lakeformat never committed first"
    assert by_key(hudi.read(hadoop, options={"hoodie.metadata.enable": "false"})) == race.model()
    fsspec.filesystem("s3", **s3).get(f"{BUCKET}/{name}/", str(tmp_path / "copy"), recursive=True)
    hudi_rs.assert_same_rows(lakeformat.open(tmp_path / "copy"))
