"""A chain of writes on a cluster whose executors and drivers are killed at random moments.

Each round is an application of its own on ``local-cluster[2,1,1024]``. While a write runs, an executor or two get
SIGKILL. In its last write the driver and its JVM get it. After each write plain Python reads the table: its rows are
those of a dict, before the write or after it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.storage import LocalStorage
from tests.helpers.flights import leftovers
from tests.helpers.lakehouse import SETTINGS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds executors in /proc"),
]

Rows = dict[int, list[object]]
SEED = 20261126
ROUNDS = 4
WRITES = 8
APPLICATION = """
import json, os, random, signal, sys, threading, time
from contextlib import contextmanager
from pathlib import Path
from pyspark.sql import SparkSession
import lakeformat
from lakeformat.spark import LakehouseTable, register

path, kind, seed, writes, journal, settings = sys.argv[1:]
builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("lakeformat tests")
for name, value in json.loads(settings).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
register(spark)
chance = random.Random(seed)
OPTIONS = {"recordkey": "id", "partitionpath": "part", "ordering": "ts", "table_type": kind}
OPTIONS |= {"lakeformat.write.merge": "executors", "hoodie.compact.inline.max.delta.commits": "3"}


def stored():
    rows = lakeformat.open(path).to_arrow(["id", "part", "ts", "x"]).to_pylist()
    found = {row["id"]: list(row.values()) for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def executors():
    mine = spark.sparkContext.applicationId.encode()
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in command and mine in command:
            yield int(process)


def kill(processes):
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
        with open(journal, "a") as file:
            file.write(json.dumps({"killed": 1}) + "\\n")


@contextmanager
def killed(moments, is_last):
    done = threading.Event()

    def watch():
        for moment in moments:
            if done.wait(moment):
                return
            if is_last:
                os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)
            kill(chance.sample(sorted(executors()), k=1) if list(executors()) else [])

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def write(number, model):
    # Returns the rows after a write, and the write.
    keys = chance.sample(range(4000), 1500)
    new = {key: [key, f"p{key % 4}", number, float(number + key)] for key in keys}
    frame = spark.createDataFrame(list(new.values()), "id long, part string, ts long, x double").repartition(3)
    kept = {key: row for key, row in model.items() if key not in new}
    table = LakehouseTable.forPath(spark, path, **OPTIONS)

    def save(operation, **more):
        saved = frame.write.format("lakehouse").options(**OPTIONS, operation=operation, **more).mode("append")
        return lambda: saved.save(path)

    def merge():
        table.merge(frame).when_matched_delete("source.id % 3 = 0").when_not_matched_insert().execute()

    merged = {key: row for key, row in model.items() if key not in new or key % 3}
    return {
        "upsert": (model | new, save("upsert")),
        "insert": (new | model, save("insert", **{"hoodie.datasource.insert.dup.policy": "drop"})),
        "delete": (kept, save("delete")),
        "merge": (merged | {key: row for key, row in new.items() if key not in model}, merge),
        "cluster": (model, lambda: table.cluster(by=["x", "id"])),
        "compact": (model, lambda: table.compact()),
    }


seconds, model = 4.0, stored()
for number in range(int(writes)):
    ways = write(int(seed) * 100 + number, model)
    if kind == "COPY_ON_WRITE":
        del ways["compact"]
    name = chance.choice(sorted(ways))
    after, run = ways[name]
    is_last = number == int(writes) - 1
    moments = [chance.uniform(0, seconds) for _ in range(1 if is_last else chance.choice((1, 2)))]
    with open(journal, "a") as file:
        file.write(json.dumps({"write": name, "before": list(model.values()), "after": list(after.values())}) + "\\n")
    started, error = time.monotonic(), None
    with killed(moments, is_last):
        try:
            run()
        except Exception as raised:
            error = raised
    seconds = min(time.monotonic() - started, 10.0)
    seen = stored()
    assert seen == after if error is None else seen in (model, after), (name, error)
    with open(journal, "a") as file:
        file.write(json.dumps({"failed" if error else "done": 1, "error": str(error)[:300]}) + "\\n")
    model = seen
"""


def rows_of(path: Path) -> Rows:
    found = lakeformat.open(path).to_arrow(["id", "part", "ts", "x"]).to_pylist()
    return {row["id"]: list(row.values()) for row in found}


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_rows_survive_a_chain_of_kills(
    kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path, journal = tmp_path / "table", tmp_path / "journal"
    first = pa.table({"id": range(2000), "part": [f"p{key % 4}" for key in range(2000)], "ts": [1] * 2000})
    first = first.append_column("x", pa.array(range(2000), pa.float64()))
    names = {"record_key": "id", "partition_by": "part", "ordering": "ts", "table_type": kind}
    lakeformat.create(path, first, insert=True, **names)
    settings = {**SETTINGS, "spark.deploy.maxExecutorRetries": "-1", "spark.task.maxFailures": "8"}
    (tmp_path / "application.py").write_text(APPLICATION)
    counts: Counter[str] = Counter()
    for round_number in range(ROUNDS):
        journal.write_text("")
        arguments = [path, kind, SEED % 1000 + round_number, WRITES, journal, json.dumps(settings)]
        command = [sys.executable, str(tmp_path / "application.py"), *map(str, arguments)]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert run.returncode in {0, -9}, run.stderr[-3000:]
        notes = [json.loads(line) for line in journal.read_text().splitlines()]
        begun = [note for note in notes if "write" in note]
        assert len(begun) == WRITES
        allowed = [{row[0]: row for row in begun[-1][name]} for name in ("before", "after")]
        assert rows_of(path) in allowed, begun[-1]["write"]
        for note in notes:
            counts.update({name: 1 for name in ("killed", "done", "failed") if name in note})
        counts["drivers"] += run.returncode == -9
    table = lakeformat.open(path, record_key="id", partition_by="part", ordering="ts")
    table.upsert(first.slice(0, 1))
    assert leftovers(LocalStorage(str(path))) == []
    assert not table.check()
    record_property("executors killed", counts["killed"])
    record_property("drivers killed", counts["drivers"])
    record_property("writes done", counts["done"])
    record_property("writes failed", counts["failed"])
