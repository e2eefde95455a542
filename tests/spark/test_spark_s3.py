"""Tables on S3 by Spark's own scan: keys from ``storage_options`` reach Hadoop's S3A, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import lakeformat
from lakeformat import Table
from tests.helpers.hadoop_s3a import s3a_jars
from tests.helpers.lakehouse import run_application
from tests.helpers.s3_server import SECRET, Network, new_folder, s3_server

pytestmark = [pytest.mark.spark, pytest.mark.slow]

NEEDS_S3A = pytest.mark.skipif(not s3a_jars(), reason="needs Hadoop's S3A; run tools/setup_hadoop_aws.py")
#: Keys that the server knows: of the bucket's owner, their successor, and the keys of the environment.
KEYS = ("key", "second", "environment")


class KeyedNetwork(Network):
    """Refuse keys that are not in `KEYS`, and note the keys of each file that Hadoop reads."""

    def __init__(self) -> None:
        super().__init__()
        self.by_hadoop: set[tuple[str, str]] = set()

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        found = re.search(r"Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        key = found[1] if found else ""
        if key not in KEYS:
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]
        if "Hadoop" in environ.get("HTTP_USER_AGENT", "") and environ["REQUEST_METHOD"] == "GET":
            self.by_hadoop.add((key, environ["PATH_INFO"].rpartition("/")[2]))
        return super().__call__(environ, start_response)


COMMON = """
import json, logging, os, sys
said = json.loads(sys.argv[1])
log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.dup2(log, 2)  # Also of the JVM, which starts below.
logging.basicConfig(level=logging.INFO)
from pyspark.sql import SparkSession
from lakeformat.spark import read, register
from lakeformat.spark.verbs import original_verb
os.makedirs("events", exist_ok=True)
settings = {"ui.enabled": "false", "eventLog.enabled": "true", "eventLog.dir": f"file:{os.getcwd()}/events",
            "eventLog.compress": "false", "sql.adaptive.enabled": "false", "jars": said["jars"],
            "driver.host": "127.0.0.1", "driver.bindAddress": "127.0.0.1"}
builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(f"spark.{name}", value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("DEBUG")
register(spark)

def options(key="key"):
    return {"fs.key": key, "fs.secret": said["secret"], "fs.endpoint_url": said["endpoint"]}

def rows(frame):
    return sorted(map(str, frame.collect()))

def plan(frame):
    texts = [frame._jdf.queryExecution().explainString(mode) for mode in modes]
    return "\\n".join([*texts, frame._jdf.queryExecution().toString(), frame._jdf.queryExecution().logical().toJSON()])

kinds = spark._jvm.org.apache.spark.sql.execution.ExplainMode
modes = [kinds.fromString(name) for name in ("extended", "formatted", "codegen", "cost")]

def files(frame):
    plan = frame._jdf.queryExecution().executedPlan()
    frame._jdf.queryExecution().toRdd().count()
    leaves = plan.collectLeaves()
    scans = [leaf for leaf in map(leaves.apply, range(leaves.size())) if "FileSourceScan" in leaf.getClass().getName()]
    return sum(scan.metrics().apply("numFiles").value() for scan in scans)
"""
WITH_S3A = """
out = {}
for name, path in said["tables"].items():
    load = spark.read.format("lakehouse").options(**options()).load
    fast, slow = load(path), original_verb(spark.read.format("lakehouse").options(**options()), "load")(path)
    out[name] = {
        "same": rows(fast) == rows(slow),
        "plan": plan(fast),
        "files": [files(fast), files(fast.where("part = 'p1'")), files(fast.where("id < 10"))],
        "inputs": list(fast.inputFiles()),
    }
path = said["tables"]["COPY_ON_WRITE"]
whole = {"key": "key", "secret": said["secret"], "client_kwargs": {"endpoint_url": said["endpoint"]}}
out["read"] = plan(read(spark, path, where="id > 5", storage_options=whole))
out["second"] = spark.read.format("lakehouse").options(**options("second")).load(path).count()
rows(spark.read.format("lakehouse").options(**options("second")).load(path))
out["environment"] = plan(spark.read.format("lakehouse").load(path))
rows(spark.read.format("lakehouse").load(path))
named = spark.newSession()
named.conf.set("fs.s3a.bucket.lake.endpoint", said["endpoint"])
named.conf.set("fs.s3a.bucket.lake.path.style.access", "true")
named.conf.set("fs.s3a.bucket.lake.endpoint.region", "us-east-1")
plain = named.read.format("lakehouse").load(path)
out["named"] = [plan(plain), len(rows(plain)), plain.selectExpr("input_file_name()").first()[0]]
held = spark.sparkContext._jsc.hadoopConfiguration().getValByRegex("fs.s3a.bucket.*|fs.s3a-.*")
out["session"] = [held.size(), str(dict(spark.conf.getAll))]
broken = spark.read.format("lakehouse").options(**options()).load(path)
import boto3
client = boto3.client("s3", endpoint_url=said["endpoint"], region_name="us-east-1")
client.delete_object(Bucket="lake", Key=broken.inputFiles()[0].partition("lake/")[2])
try:
    broken.collect()
except Exception as error:
    out["error"] = str(error)
print(json.dumps(out))
spark.stop()
"""
WITHOUT_S3A = """
path = said["tables"]["COPY_ON_WRITE"]
load = spark.read.format("lakehouse").options(**options()).load
print(json.dumps([load(path).where("id > 1").count(), plan(load(path)), load(path).where("part = 'p1'").count()]))
spark.stop()
"""


@dataclass
class Lake:
    """Two tables of 40 rows in four partitions, and the server."""

    network: KeyedNetwork
    endpoint: str
    tables: dict[str, Table]

    def run(self, text: str, jars: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        environment = {
            "AWS_ACCESS_KEY_ID": "environment",
            "AWS_SECRET_ACCESS_KEY": "of-the-environment",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        tables = {name: table.context.storage.location for name, table in self.tables.items()}
        said = {"secret": SECRET, "endpoint": self.endpoint, "tables": tables, "jars": jars}
        return json.loads(run_application(COMMON + text, json.dumps(said), cwd=folder).splitlines()[-1])


@pytest.fixture
def lake() -> Iterator[Lake]:
    network = KeyedNetwork()
    with s3_server(network) as options:
        tables = {}
        for kind in ("COPY_ON_WRITE", "MERGE_ON_READ"):
            path, rows = new_folder(options).location, [{"id": n, "part": f"p{n // 10}", "ts": 1} for n in range(40)]
            table = lakeformat.create(
                path, rows, record_key="id", ordering="ts", partition_by="part", table_type=kind, insert=True,
                storage_options=options,
            )  # fmt: skip
            table.upsert([{"id": 15, "part": "p1", "ts": 2}])
            tables[kind] = table
        yield Lake(network, options["client_kwargs"]["endpoint_url"], tables)


@NEEDS_S3A
def test_load_with_keys_is_the_scan_of_spark_and_shows_no_secret(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = lake.run(WITH_S3A, ",".join(map(str, s3a_jars())), tmp_path, monkeypatch)
    for kind, table in lake.tables.items():
        location = table.context.storage.location
        assert out[kind]["same"]
        assert f"LakehouseFileIndex(1 paths)[{location}]" in out[kind]["plan"]
        assert out[kind]["files"] == [4, 1, 1]
        assert all(name.startswith(f"{location}/p") for name in out[kind]["inputs"])
    for where in (out["read"], out["environment"], out["named"][0]):
        assert "LakehouseFileIndex(1 paths)[s3://lake/" in where
    assert out["named"][1] == out["second"] == 40
    assert out["named"][2].startswith("s3://lake/")
    files = {name.rpartition("/")[2] for name in out["COPY_ON_WRITE"]["inputs"]}
    by_key = {key: {name for by, name in lake.network.by_hadoop if by == key} & files for key in KEYS}
    assert by_key == dict.fromkeys(KEYS, files)
    assert out["session"][0] == 0
    assert "FAILED_READ_FILE" in out["error"]
    shown = [(tmp_path / "log.txt").read_text(), json.dumps(out)]
    shown += [file.read_text() for file in (tmp_path / "events").rglob("events_*")]
    assert "physicalPlanDescription" in shown[-1]
    assert not [text for text in shown if SECRET in text]


def test_load_with_keys_without_s3a_is_the_data_source_and_says_why(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, plan, of_one = lake.run(WITHOUT_S3A, "", tmp_path, monkeypatch)
    assert [count, of_one] == [38, 10]
    assert "LakehouseFileIndex" not in plan
    log = (tmp_path / "log.txt").read_text()
    assert "start Spark with --packages org.apache.hadoop:hadoop-aws:" in log
    assert SECRET not in log + plan
