"""Executors in processes of their own: one is killed, a task fails, and one is too slow.

They run on ``local-cluster[2,1,1024]`` and on a cluster of two hosts: speculation starts no second attempt on the host
of the first, and all workers of ``local-cluster`` have one name.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow.compute as pc
import pyspark
import pytest

import lakeformat
from tests.helpers.lakehouse import SETTINGS, leftovers, run_application

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="reads /proc, and needs several loopback addresses"
    ),
]

APPLICATION = """
import json, os, signal, sys, threading, time
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
from lakeformat.spark import LakehouseTable

master, folder, trouble, ways, settings = sys.argv[1:]
builder = SparkSession.builder.master(master).appName("lakeformat tests")
for name, value in json.loads(settings).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()


def executor():
    # The worker's parent is a daemon, and the daemon's parent the executor.
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("PPid")).split()[1])


def wait_for(flag):
    deadline = time.monotonic() + 120
    while not os.path.exists(flag):
        assert time.monotonic() < deadline, f"{flag} never came"
        threading.Event().wait(0.05)


def troubled(path):
    def step(batches):
        # Partition 1 writes half, and then its first attempt meets its fate.
        context = TaskContext.get()
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if context.partitionId() == 1:
                first = not os.path.exists(f"{path}-first")
                Path(f"{path}-first" if first else f"{path}-second").touch()
                if first and "killed" in trouble:
                    os.kill(executor(), signal.SIGKILL)
                    threading.Event().wait()
                if first and "slow" in trouble:
                    wait_for(f"{path}-second")
            if context.partitionId() == 2 and "failing" in trouble and not os.path.exists(f"{path}-failed"):
                Path(f"{path}-failed").touch()
                raise RuntimeError("the first attempt fails")
            yield batch.slice(half)

    return step


def rows(first, time):
    # No shuffle: with an executor its shuffle files would go, and Spark would begin the whole stage anew.
    numbers = spark.range(first, first + 3000, numPartitions=4)
    return numbers.selectExpr("id", "concat('p', id % 3) as part", f"{time}L as ts", "id / 2 as x")


def save(frame, path, how):
    options = {"recordkey": "id", "partitionpath": "part", "ordering": "ts", "operation": how}
    eager = {"lakeformat.write.buffer.bytes": "1", "hoodie.parquet.small.file.limit": "0"}
    frame.write.format("lakehouse").options(**options, **eager).mode("append").save(path)


def exchange(frame, path, how):
    options = {"recordkey": "id", "partitionpath": "part", "ordering": "ts"}
    eager = {"lakeformat.write.buffer.bytes": "1", "hoodie.parquet.small.file.limit": "0"}
    getattr(LakehouseTable.forPath(spark, path, **options, **eager), how)(frame)


def append(frame, path, how):
    # Tasks write the log files of a table of buckets; no row passes through the driver.
    table = {"table_type": "MERGE_ON_READ", "hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3"}
    options = {"recordkey": "id", "partitionpath": "part", "ordering": "ts", "operation": how, **table}
    frame.write.format("lakehouse").options(**options).mode("append").save(path)


for write in (way for way in (save, exchange, append) if way.__name__ in ways.split()):
    for operation in ("upsert",) if write is append else ("upsert", "bulk_insert"):
        path = f"{folder}/{write.__name__}-{operation}"
        append(rows(0, 1), path, "upsert") if write is append else save(rows(0, 1), path, "bulk_insert")
        changes = rows(1500, 2)
        write(changes.mapInArrow(troubled(path), changes.schema), path, operation)
        if write is exchange:
            LakehouseTable.forPath(spark, path).cluster(by=["x", "id"])
spark.stop()
"""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.minTaskRuntime": "50ms",
}


def start(stack: ExitStack, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a process of the cluster. It ends with the stack."""
    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environ = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    daemon = {**environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_WORKER_DIR": str(folder)}
    command = [str(launcher), *arguments]
    process = stack.enter_context(
        subprocess.Popen(command, cwd=folder, env=daemon, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    )
    stack.callback(process.terminate)
    return process


def line_with(process: subprocess.Popen[str], pattern: str) -> str:
    """Read the log until a line matches. Return the first group."""
    assert process.stderr is not None
    seen: list[str] = []
    for line in process.stderr:
        seen.append(line)
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError("".join(seen))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a master with two workers of one core each, on two hosts."""
    folder = tmp_path_factory.mktemp("cluster")
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        at = ("--port", "0", "--webui-port", "0")
        master = start(stack, folder, f"{deploy}.master.Master", "--host", "127.0.0.1", *at)
        url = line_with(master, r"Starting Spark master at (spark://\S+)")
        for host in ("127.0.0.2", "127.0.0.3"):
            size = ("--cores", "1", "--memory", "1g")
            worker = start(stack, folder, f"{deploy}.worker.Worker", "--host", host, *size, *at, url)
            line_with(worker, r"(Successfully registered) with master")
        yield url


def assert_exact_after(
    trouble: str, master: str, folder: Path, own: Mapping[str, str], ways: Sequence[str] = ("save", "exchange")
) -> None:
    """Run each way of writing, upsert and bulk_insert, with tasks in trouble, and check the rows."""
    settings = {**SETTINGS, **own}
    run_application(APPLICATION, master, folder, trouble, " ".join(ways), json.dumps(settings), cwd=folder)
    written = {f"{way}-upsert": 4500 for way in ways} | {f"{way}-bulk_insert": 6000 for way in ways if way != "append"}
    flags = ("first", "second", "failed") if "failing" in trouble else ("first", "second")
    for path, expected in ((folder / name, count) for name, count in written.items()):
        assert all((folder / f"{path.name}-{flag}").exists() for flag in flags)
        history = [entry.operation for entry in lakeformat.open(path).history()]
        assert ("cluster" in history) == path.name.startswith("exchange")
        table = lakeformat.open(path).to_arrow(["id", "ts"])
        assert table.num_rows == expected
        assert sorted(table.filter(pc.field("ts") == 2)["id"].to_pylist()) == list(range(1500, 4500))
        assert lakeformat.open(path).snapshot().live.has_logs == path.name.startswith("append")
        assert leftovers(path, outlived=trouble == "slow") == []


@pytest.mark.nightly
def test_rows_are_exact_on_a_local_cluster(tmp_path: Path) -> None:
    assert_exact_after("killed failing", "local-cluster[2,1,1024]", tmp_path, SPECULATION, ["exchange", "append"])


@pytest.mark.nightly
@pytest.mark.parametrize("trouble", ["killed", "slow"])
def test_rows_are_exact_on_two_hosts(trouble: str, cluster: str, tmp_path: Path) -> None:
    own = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
    settings = {**own, **(SPECULATION if trouble == "slow" else {})}
    assert_exact_after(trouble, cluster, tmp_path, settings, ["save", "exchange", "append"])
