"""``lakeformat options check`` says of a whole job what its writes then do: all refusals at once, before any work."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat import InvalidOptionError
from lakeformat.cli.main import main

KEY = {"hoodie.datasource.write.recordkey.field": "id"}
ZOOKEEPER = {
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
    "hoodie.write.lock.zookeeper.url": "127.0.0.1",
    "hoodie.write.lock.zookeeper.base_path": "/hudi",
    "hoodie.write.lock.zookeeper.lock_key": "t",
}
IMPLICIT = {
    **ZOOKEEPER,
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedImplicitBasePathLockProvider",
}
DYNAMO = {
    "hoodie.write.lock.provider": "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
    "hoodie.write.lock.dynamodb.table": "locks",
    "hoodie.write.lock.dynamodb.partition_key": "t",
}
SYNC = "hoodie.datasource.hive_sync."
HIVE = {SYNC + "enable": "true", SYNC + "mode": "hms"}
STRICT = {SYNC + "ignore_exceptions": "false"}
URIS = {SYNC + "metastore.uris": "thrift://127.0.0.1:1"}

#: Name of a job -> its options, packages that are missing, and parts of the refusals.
REFUSED: dict[str, tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]] = {
    "no kazoo": (ZOOKEEPER, ("kazoo",), ("pip install 'lakeformat[zookeeper]'",)),
    "no xxhash": (IMPLICIT, ("xxhash",), ("needs xxhash; run: pip install 'lakeformat[zookeeper]'",)),
    "no boto3": (DYNAMO, ("boto3",), ("pip install 'lakeformat[dynamodb]'",)),
    "no boto3 for Glue": ({**HIVE, SYNC + "mode": "glue"}, ("boto3",), ("pip install 'lakeformat[glue]'",)),
    "no pymetastore": ({**HIVE, **URIS}, ("pymetastore",), ("pip install 'lakeformat[hive]'",)),
    "no place of ZooKeeper, no kazoo": (
        {name: value for name, value in ZOOKEEPER.items() if "zookeeper.url" not in name},
        ("kazoo",),
        ("needs hoodie.write.lock.zookeeper.url; set it", "needs kazoo"),
    ),
    "registration that must succeed": ({**HIVE, **STRICT}, (), ("nothing says where the Hive metastore is",)),
    "lock, registration, value": (
        {**ZOOKEEPER, **HIVE, SYNC + "mode": "jdbc", "hoodie.index.type": "HBASE"},
        ("kazoo",),
        ("needs kazoo", "mode=jdbc needs HiveServer2", "that index is not built"),
    ),
    "services": (
        {
            "hoodie.clustering.inline": "true",
            "hoodie.clustering.schedule.inline": "true",
            "hoodie.compact.inline": "true",
            "hoodie.compact.schedule.inline": "true",
            "hoodie.keep.min.commits": "30",
            "hoodie.keep.max.commits": "20",
            "hoodie.combine.before.upsert": "false",
            "hoodie.datasource.write.payload.class": "my.Payload",
        },
        (),
        (
            "clustering.schedule.inline=true exclude",
            "compact.schedule.inline=true exclude",
            "is not more than",
            "would write one key twice",
            "my.Payload is not supported",
        ),
    ),
    "keys": (
        {
            "hoodie.datasource.write.keygenerator.class": "com.acme.Keys",
            "hoodie.datasource.write.partitionpath.field": "day:DATE",
        },
        (),
        ("key generator 'com.acme.Keys' is not supported", "day:DATE"),
    ),
    "hooks": (
        {
            "hoodie.write.commit.callback.on": "true",
            "hoodie.write.commit.callback.http.url": "ftp://h",
            "hoodie.precommit.validators": "my.Validator",
            "lakeformat.batch.app": "job",
        },
        (),
        ("is not an http or https address", "my.Validator", "need each other"),
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HIVE_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "HIVE_HOME", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)


def answer(options: dict[str, str], capsys: pytest.CaptureFixture[str]) -> tuple[int, list[dict[str, Any]]]:
    code = main(["options", "check", "--json", *(f"{name}={value}" for name, value in options.items())])
    return code, json.loads(capsys.readouterr().out)


def write(path: Path, options: dict[str, str]) -> Any:
    return lakeformat.create(path, pa.table({"id": [1]}), insert=True, **options)


@pytest.mark.parametrize("name", REFUSED)
def test_check_and_write_refuse_the_same_all_at_once(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options, missing, parts = REFUSED[name]
    options = {**KEY, **options}
    for package in missing:
        monkeypatch.setitem(sys.modules, package, None)
    code, verdicts = answer(options, capsys)
    refusals = [each["says"] + each["cure"] for each in verdicts if each["fails"]]
    assert code == 2
    assert len(refusals) == len(parts)
    assert all(any(part in text for text in refusals) for part in parts)
    with pytest.raises(InvalidOptionError) as refused:
        write(tmp_path / "t", options)
    assert all(part in str(refused.value) for part in parts)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("missing", [{}, {SYNC + "ignore_exceptions": "true"}])
def test_registration_without_an_address_needs_an_act_but_the_write_is_done(
    missing: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    options = {**KEY, **HIVE, **missing}
    code, verdicts = answer(options, capsys)
    assert code == 0
    (found,) = [each for each in verdicts if each["fate"] == "incomplete"]
    assert found["option"] == SYNC + "enable"
    assert "the write is done, but not registered: nothing says where the Hive metastore is" in found["says"]
    table = write(tmp_path / "t", options)
    assert table.count() == 1
    assert "not registered in Hive: nothing says where" in caplog.text
    step = table.upsert(pa.table({"id": [2]})).report["steps"][-1]
    assert step["step"] == "sync"
    assert step["error"].startswith("nothing says where the Hive metastore is")


def test_what_needs_an_act_is_shown_first(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["hoodie.table.name=t", "record_key=id", SYNC + "enable=true", "hoodie.index.type=HBASE"]
    assert main(["options", "check", *given, "hoodie.parquet.max.file.sise=1"]) == 2
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split()[2] for row in rows] == ["refused", "misspelt", "incomplete", "obeyed", "obeyed"]


@pytest.mark.parametrize("given", ["path=s3://b/t", "hoodie.base.path=abfs://c@a/t", "fs.s3a.endpoint=http://h"])
def test_missing_client_of_object_storage_is_refused(
    given: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["options", "check", "record_key=id", given]) == 0
    monkeypatch.setitem(sys.modules, "obstore", None)
    capsys.readouterr()
    assert main(["options", "check", "record_key=id", given]) == 2
    assert "needs obstore; run: pip install 'lakeformat[" in capsys.readouterr().out
