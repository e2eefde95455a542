"""Tables registered in AWS Glue, on moto: the entries are those of Hudi's AWSGlueCatalogSyncClient."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from moto import mock_aws

import lakeformat
from lakeformat import CatalogError, InvalidInputError, InvalidOptionError, Table, catalog
from lakeformat.cli.main import main
from tests.helpers.tables import a_batch, a_schema, a_table

GLUE = {
    "hoodie.datasource.meta.sync.enable": "true",
    "hoodie.meta.sync.client.tool.class": "org.apache.hudi.aws.sync.AwsGlueCatalogSyncTool",
    "hoodie.aws.glue.region": "eu-west-1",
}
SYNC = "hoodie.datasource.hive_sync."
META = [f"_hoodie_{name}" for name in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")]
ROWS = a_batch(id=range(3), p=["a", "b", "c"], v=1)


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        yield boto3.client("glue", "eu-west-1")


def synced(path: Path, rows: pa.Table = ROWS, **options: Any) -> Table:
    return a_table(path, rows=rows, partition_by="p", name="flights", **{**GLUE, **options})


def entry(client: Any, name: str = "flights", database: str = "default") -> dict[str, Any]:
    return client.get_table(DatabaseName=database, Name=name)["Table"]  # type: ignore[no-any-return]


def partitions(client: Any, name: str = "flights") -> dict[tuple[str, ...], str]:
    pages = client.get_paginator("get_partitions").paginate(DatabaseName="default", TableName=name)
    found = [each for page in pages for each in page["Partitions"]]
    assert all(each["StorageDescriptor"]["Columns"] for each in found)
    return {tuple(each["Values"]): each["StorageDescriptor"]["Location"] for each in found}


def types_of(client: Any, name: str = "flights") -> dict[str, str]:
    return {each["Name"]: each["Type"] for each in entry(client, name)["StorageDescriptor"]["Columns"]}


def test_first_write_makes_the_entry_of_hudi(client: Any, tmp_path: Path) -> None:
    table = synced(tmp_path / "t")
    found = entry(client)
    storage, parameters = found["StorageDescriptor"], found["Parameters"]
    assert found["TableType"] == "EXTERNAL_TABLE"
    assert [each["Name"] for each in storage["Columns"]] == [*META, "id", "v"]
    assert [(each["Name"], each["Type"], each["Comment"]) for each in found["PartitionKeys"]] == [("p", "string", "")]
    assert storage["Location"] == str(tmp_path / "t")
    assert storage["InputFormat"] == "org.apache.hudi.hadoop.HoodieParquetInputFormat"
    assert storage["OutputFormat"] == "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
    assert storage["SerdeInfo"] == {
        "SerializationLibrary": "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe",
        "Parameters": {
            "path": str(tmp_path / "t"), "hoodie.query.as.ro.table": "false", "serialization.format": "1"},
    }  # fmt: skip
    assert parameters["EXTERNAL"] == "TRUE"
    assert parameters["hudi.metadata-listing-enabled"] == "FALSE"
    assert parameters["last_commit_time_sync"] == table.history()[0].instant_time
    assert parameters["spark.sql.sources.provider"] == "hudi"
    schema = json.loads(parameters["spark.sql.sources.schema.part.0"])
    assert [each["name"] for each in schema["fields"]] == [*META, "id", "v", "p"]
    assert parameters["spark.sql.sources.schema.partCol.0"] == "p"
    assert partitions(client) == {(p,): f"{tmp_path}/t/{p}" for p in "abc"}


def test_later_writes_change_only_what_is_new(client: Any, tmp_path: Path) -> None:
    table = synced(tmp_path / "t")
    step = table.upsert(a_batch(id=[3, 0], p=["d", "a"], v=2, w=0.5)).report["steps"][-1]
    counts = (step["partitions_added"], step["partitions_changed"], step["partitions_dropped"])
    assert (step["step"], step["catalog"], step["table"]) == ("sync", "glue", "default.flights")
    assert counts == (1, 0, 0)
    assert step["columns_changed"] == "w"
    assert types_of(client)["w"] == "double"
    result = table.delete_partitions(["a", "b"])
    assert result.report["steps"][-1]["partitions_dropped"] == 2
    assert "sync" in result.describe()
    assert set(partitions(client)) == {("c",), ("d",)}
    table.upsert(a_batch(id=[9], p="a", v=2, w=0.5))
    assert set(partitions(client)) == {("a",), ("c",), ("d",)}


def test_type_that_changes_reaches_all_partitions(client: Any, tmp_path: Path) -> None:
    table = synced(tmp_path / "t", a_batch(a_schema(id="int64", p="string", v="int32"), id=[1, 2], p=["a", "b"], v=1))
    table.alter().retype("v", "int64").execute()
    assert types_of(client)["v"] == "bigint"
    stored = client.get_partitions(DatabaseName="default", TableName="flights")["Partitions"]
    for each in stored:
        assert {column["Name"]: column["Type"] for column in each["StorageDescriptor"]["Columns"]}["v"] == "bigint"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, {"flights": "false", "flights_ro": "true", "flights_rt": "false"}),
        ({SYNC + "skip_ro_suffix": "true", "hoodie.meta.sync.sync_snapshot_with_table_name": "false"},
         {"flights": "true", "flights_rt": "false"}),
        ({SYNC + "table.strategy": "ro"}, {"flights": "true"}),
        ({SYNC + "table.strategy": "RT"}, {"flights": "false"}),
    ],
    ids=["all", "without suffix", "read optimized", "snapshot"],
)  # fmt: skip
def test_merge_on_read_table_has_the_entries_of_its_strategy(
    options: dict[str, str], names: dict[str, str], client: Any, tmp_path: Path
) -> None:
    synced(tmp_path / "t", table_type="MERGE_ON_READ", **options)
    tables = client.get_tables(DatabaseName="default")["TableList"]
    serdes = {each["Name"]: each["StorageDescriptor"]["SerdeInfo"]["Parameters"] for each in tables}
    assert {name: serde["hoodie.query.as.ro.table"] for name, serde in serdes.items()} == names
    for each in tables:
        is_realtime = each["StorageDescriptor"]["InputFormat"].endswith("HoodieParquetRealtimeInputFormat")
        assert is_realtime == (names[each["Name"]] == "false")


def test_many_partitions_go_in_batches_and_are_read_page_by_page(client: Any, tmp_path: Path) -> None:
    many = [f"p{number:03d}" for number in range(130)]
    table = a_table(tmp_path / "t", rows=a_batch(id=range(130), p=many, v=1), partition_by="p", name="flights")
    first = table.register("glue", **GLUE)
    assert (first.partitions_added, first.created) == (130, ("default.flights",))
    assert partitions(client) == {(p,): f"{tmp_path}/t/{p}" for p in many}
    table.delete_partitions(many[:30])
    assert table.register("glue", **GLUE).partitions_dropped == 30
    assert set(partitions(client)) == {(p,) for p in many[30:]}
    gone = table.register("glue", full=True, **GLUE)
    assert (gone.partitions_added, gone.partitions_dropped) == (0, 0)


def test_full_registration_repairs_what_others_changed(client: Any, tmp_path: Path) -> None:
    table = synced(tmp_path / "t")
    storage = entry(client)["StorageDescriptor"]
    where = {"DatabaseName": "default", "TableName": "flights"}
    client.delete_partition(**where, PartitionValues=["a"])
    client.create_partition(**where, PartitionInput={"Values": ["z"], "StorageDescriptor": storage})
    moved = {"Values": ["b"], "StorageDescriptor": {**storage, "Location": "/elsewhere"}}
    client.update_partition(**where, PartitionValueList=["b"], PartitionInput=moved)
    result = table.register("glue", full=True)
    assert (result.partitions_added, result.partitions_changed, result.partitions_dropped) == (1, 1, 1)
    assert partitions(client) == {(p,): f"{tmp_path}/t/{p}" for p in "abc"}


def test_restored_table_loses_the_partitions_of_undone_commits(client: Any, tmp_path: Path) -> None:
    table = synced(tmp_path / "t")
    before = table.history()[0].instant_time
    table.upsert(a_batch(id=[9], p="z", v=1))
    assert ("z",) in partitions(client)
    table.savepoint(before)
    table.restore(before)
    table.register("glue")
    assert set(partitions(client)) == {(p,) for p in "abc"}


def test_partitions_of_archived_commits_are_found(client: Any, tmp_path: Path) -> None:
    table = synced(tmp_path / "t")
    table.savepoint(table.history()[0].instant_time)  # The last registered commit stays, later ones are archived.
    options = {"hoodie.archive.beyond.savepoint": "true", "hoodie.clean.commits.retained": 1}
    silent = lakeformat.open(tmp_path / "t", **options)
    for number in range(8):
        silent.insert(a_batch(id=[100 + number], p=f"p{number}", v=1))
    silent.clean()
    assert silent.archive(min_commits=2, max_commits=3).instants
    assert table.register("glue").partitions_added == 8
    assert len(partitions(client)) == 11


def test_properties_of_others_stay(client: Any, tmp_path: Path) -> None:
    table = synced(tmp_path / "t", **{SYNC + "table_properties": "team = air\nbest=yes"})
    found = entry(client)
    given = {name: found[name] for name in ("Name", "TableType", "StorageDescriptor", "PartitionKeys")}
    client.update_table(
        DatabaseName="default",
        TableInput={**given, "Description": "ours", "Parameters": {**found["Parameters"], "mine": "1"}},
    )
    table.upsert(a_batch(id=[9], p="z", v=1, w=1))
    changed = entry(client)
    assert {name: changed["Parameters"][name] for name in ("mine", "team", "best")} == {
        "mine": "1", "team": "air", "best": "yes"}  # fmt: skip
    assert changed["Description"] == "ours"


def test_table_at_another_path_is_created_again(client: Any, tmp_path: Path) -> None:
    synced(tmp_path / "one")
    synced(tmp_path / "two", a_batch(id=[1], p="x", v=1))
    assert entry(client)["StorageDescriptor"]["Location"] == str(tmp_path / "two")
    assert partitions(client) == {("x",): f"{tmp_path}/two/x"}


def test_other_partition_keys_are_refused_unless_the_table_may_be_created_again(client: Any, tmp_path: Path) -> None:
    table = synced(tmp_path / "t")
    more = {SYNC + "partition_fields": "day", SYNC + "partition_extractor_class": "SinglePartPartitionValueExtractor"}
    with pytest.raises(InvalidInputError, match="has the partition keys p in the catalog, not day"):
        table.register("glue", **more)
    result = table.register("glue", **more, **{SYNC + "recreate_table_on_error": "true"})
    assert (result.created, result.partitions_added) == (("default.flights",), 3)
    assert [each["Name"] for each in entry(client)["PartitionKeys"]] == ["day"]


def test_s3a_is_registered_as_s3(client: Any, tmp_path: Path) -> None:
    synced(tmp_path / "t", **{"hoodie.datasource.meta.sync.base.path": "s3a://bucket/t"})
    assert entry(client)["StorageDescriptor"]["Location"] == "s3://bucket/t"
    assert partitions(client)["a",] == "s3://bucket/t/a"


def test_long_schema_is_cut_into_parts(client: Any, tmp_path: Path) -> None:
    synced(tmp_path / "t", **{SYNC + "schema_string_length_thresh": "100"})
    parameters = entry(client)["Parameters"]
    count = int(parameters["spark.sql.sources.schema.numParts"])
    parts = [parameters[f"spark.sql.sources.schema.part.{number}"] for number in range(count)]
    assert all(len(part) == 100 for part in parts[:-1])
    assert [each["name"] for each in json.loads("".join(parts))["fields"]] == [*META, "id", "v", "p"]


def test_smaller_options_are_obeyed(client: Any, tmp_path: Path) -> None:
    conditional = synced(tmp_path / "t", **{"hoodie.datasource.meta_sync.condition.sync": "true"})
    first = entry(client)["Parameters"]["last_commit_time_sync"]
    conditional.upsert(a_batch(id=[0], p="a", v=5))
    assert entry(client)["Parameters"]["last_commit_time_sync"] == first
    options = {
        "hoodie.meta.sync.no_partition_metadata": "true",
        "hoodie.meta_sync.spark.version": "3.5.7",
        "hoodie.datasource.meta.sync.glue.metadata_file_listing": "true",
        SYNC + "omit_metadata_fields": "true",
        SYNC + "use_pre_apache_input_format": "true",
        SYNC + "sync_as_datasource": "false",
    }
    conditional.register("glue", name="plain", **options)
    found = entry(client, "plain")
    assert partitions(client, "plain") == {}
    assert list(types_of(client, "plain")) == ["id", "v"]
    assert found["StorageDescriptor"]["InputFormat"] == "com.uber.hoodie.hadoop.HoodieInputFormat"
    assert found["StorageDescriptor"]["SerdeInfo"]["Parameters"] == {"serialization.format": "1"}
    assert found["Parameters"]["hudi.metadata-listing-enabled"] == "TRUE"
    assert not [name for name in found["Parameters"] if name.startswith("spark.")]


def test_touched_partitions_are_altered_on_request(client: Any, tmp_path: Path) -> None:
    table = synced(tmp_path / "t", **{"hoodie.meta.sync.touch.partitions.enabled": "true"})
    step = table.upsert(a_batch(id=[0, 9], p=["a", "d"], v=5)).report["steps"][-1]
    assert (step["partitions_added"], step["partitions_changed"]) == (1, 1)


def test_failed_registration_never_fails_the_commit(
    client: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = synced(tmp_path / "t", **{SYNC + "auto_create_database": "false", SYNC + "database": "absent"})
    assert table.count() == 3
    step = table.upsert(a_batch(id=[7], p="a", v=1)).report["steps"][-1]
    assert step["error"].startswith("glue has no database absent; create it")
    (warning, *_) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert "is complete, but it is not registered in the catalog glue" in warning


def test_failed_registration_raises_if_that_is_asked_for(client: Any, tmp_path: Path) -> None:
    table = a_table(tmp_path / "t", rows=ROWS, partition_by="p", name="flights")
    options = {**GLUE, SYNC + "auto_create_database": "false", "lakeformat.catalog.fail_on_error": "true"}
    strict = lakeformat.open(tmp_path / "t", **options)
    with pytest.raises(CatalogError, match="IS visible, only its registration failed: glue: glue has no database"):
        strict.upsert(a_batch(id=[7], p="a", v=1))
    assert table.count() == 4
    hudis = lakeformat.open(
        tmp_path / "t", **{**GLUE, SYNC + "auto_create_database": "false", SYNC + "ignore_exceptions": "false"}
    )
    with pytest.raises(CatalogError):
        hudis.upsert(a_batch(id=[8], p="a", v=1))


def test_path_can_be_registered_without_opening_it(
    client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_table(tmp_path / "t", rows=ROWS, partition_by="p", name="flights")
    region = {"hoodie.aws.glue.region": "eu-west-1"}
    result = catalog.register(tmp_path / "t", "glue", database="air", name="legs", **region)
    assert repr(result) == "Registration(glue: air.legs (created air.legs); partitions 3 added, 0 changed, 0 dropped)"
    assert client.get_database(Name="air")["Database"]["Description"] == "Automatically created by lakeformat"
    argv = ["catalog", "register", str(tmp_path / "t"), "glue", "--database", "air", "--name", "legs"]
    assert main([*argv, "--json", "-o", "hoodie.aws.glue.region=eu-west-1"]) == 0
    assert json.loads(capsys.readouterr().out)["tables"] == ["air.legs"]


def test_keys_never_appear(client: Any, tmp_path: Path) -> None:
    keys = {"hoodie.aws.access.key": "AKIDKEY", "hoodie.aws.secret.key": "verysecret"}
    table = synced(tmp_path / "t", **keys)
    assert "verysecret" not in repr(table.options.catalog())
    with pytest.raises(InvalidOptionError) as caught:
        lakeformat.open(tmp_path / "t", **{**GLUE, "hoodie.aws.secret.key": "verysecret"})
    assert "verysecret" not in str(caught.value)
    assert "belong together" in str(caught.value)


def test_role_is_assumed(client: Any, tmp_path: Path) -> None:
    role = {"hoodie.aws.role.arn": "arn:aws:iam::123456789012:role/air", "hoodie.aws.role.external.id": "air"}
    synced(tmp_path / "t", **role)
    assert set(partitions(client)) == {(p,) for p in "abc"}


def test_empty_table_is_registered_with_the_columns_of_its_creation(client: Any, tmp_path: Path) -> None:
    table = lakeformat.create(tmp_path / "t", {"id": "int64", "p": "string"}, record_key="id", partition_by="p")
    result = table.register("glue", name="empty", **{"hoodie.aws.glue.region": "eu-west-1"})
    assert (result.created, result.partitions_added) == (("default.empty",), 0)
    assert list(types_of(client, "empty")) == [*META, "id"]
    assert "last_commit_time_sync" not in entry(client, "empty")["Parameters"]
