"""What lakeformat registers in a Hive metastore equals what Apache Hudi's HiveSyncTool registers of the same table."""

from __future__ import annotations

import datetime
import decimal
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from moto import mock_aws

import lakeformat
from lakeformat import catalog
from tests.helpers.hudi_spark import Hudi, missing_parts, the_rest_by_night
from tests.helpers.metastore import Metastore, start_metastore

pytestmark = pytest.mark.interop

SYNC = "hoodie.datasource.hive_sync."
SPARK_VERSION = "hoodie.meta_sync.spark.version"
NAME = "t"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("p", pa.string()),
        ("q", pa.int32()),
        ("name", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("place", pa.struct([("City", pa.string()), ("tags", pa.list_(pa.float64()))])),
        ("legs", pa.list_(pa.struct([("ok", pa.bool_())]))),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("raw", pa.binary()),
        ("share", pa.float32()),
    ]
)
MORE = SCHEMA.append(pa.field("extra", pa.int32()))


@dataclass(frozen=True)
class Case:
    """A table as Hudi makes it."""

    name: str
    kind: str
    version: int
    fields: str = ""
    hive_style: bool = False
    sync: Mapping[str, str] | None = None

    @property
    def options(self) -> dict[str, str]:
        generator = "Nonpartitioned" if not self.fields else "Complex" if "," in self.fields else "Simple"
        return {
            "hoodie.table.name": NAME,
            "hoodie.datasource.write.table.type": self.kind,
            "hoodie.write.table.version": str(self.version),
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "q",
            "hoodie.datasource.write.partitionpath.field": self.fields,
            "hoodie.datasource.write.keygenerator.class": f"org.apache.hudi.keygen.{generator}KeyGenerator",
            "hoodie.datasource.write.hive_style_partitioning": str(self.hive_style).lower(),
            "hoodie.write.complex.keygen.validation.enable": "false",
        }


COW, MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
CASES = (
    Case("cow_6_partitioned", COW, 6, "p"),
    Case("cow_6_flat", COW, 6),
    Case("cow_9_hive_style", COW, 9, "p", True),
    Case("cow_9_timestamps", COW, 9, "p", True, {
        SYNC + "support_timestamp": "true",
        SYNC + "table_properties": "team = air\nbest=yes",
        SYNC + "serde_properties": "a=b",
        SYNC + "create_managed_table": "true",
        SYNC + "omit_metadata_fields": "true",
    }),
    Case("mor_6_two_fields", MOR, 6, "p,q", True),
    Case("mor_6_flat", MOR, 6),
    Case("mor_9_hive_style", MOR, 9, "p", True),
    Case("mor_9_read_optimized", MOR, 9, "p", False, {SYNC + "table.strategy": "RO"}),
    Case("mor_9_without_suffix", MOR, 9, "p", False, {
        SYNC + "skip_ro_suffix": "true", SYNC + "sync_as_datasource": "false"}),
)  # fmt: skip


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastore]:
    if missing := missing_parts("1.2.0"):
        pytest.fail(f"{' and '.join(missing)} missing: run `make interop`", pytrace=False)
    with start_metastore(tmp_path_factory.mktemp("metastore")) as running:
        yield running


@pytest.fixture(scope="module")
def hudi(metastore: Metastore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hudi]:
    settings = {"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": metastore.uri}
    with Hudi("1.2.0", tmp_path_factory.mktemp("hudi"), settings) as session:
        yield session


def _rows(ids: range, p: str, q: int, schema: pa.Schema = SCHEMA) -> pa.Table:
    moment = datetime.datetime(2025, 11, 20, 1, 2, 3)
    values = {
        "p": p,
        "q": q,
        "name": "x",
        "amount": decimal.Decimal("1.50"),
        "at": moment.replace(tzinfo=datetime.timezone.utc),
        "local": moment,
        "day": moment.date(),
        "place": {"City": "Ulm", "tags": [1.5]},
        "legs": [{"ok": True}],
        "counts": [("k", 1)],
        "raw": b"r",
        "share": 0.5,
        "extra": 7,
    }
    return pa.Table.from_pylist([{"id": i, **{n: values[n] for n in schema.names[1:]}} for i in ids], schema=schema)


def _normalize(found: Any, path: Path) -> Any:
    """Leave out times, sizes of files and the writer's version, and replace the database and the path."""
    if isinstance(found, dict):
        gone = {"createTime", "transient_lastDdlTime", "hudi_writer_version", "dbName", "locationUri", "totalSize",
                "numFiles"}  # fmt: skip
        own = {key: _normalize(each, path) for key, each in found.items() if key not in gone}
        return {**own, "name": "db"} if "locationUri" in found else own
    if isinstance(found, list):
        return [_normalize(each, path) for each in found]
    return found.replace(str(path), "PATH") if isinstance(found, str) else found


def _check_equal(metastore: Metastore, theirs: Path, ours: Path, case: Case) -> dict[str, Any]:
    """Compare all entries of both databases."""
    one = _normalize(metastore.read_all(f"theirs_{case.name}"), theirs)
    other = _normalize(metastore.read_all(f"ours_{case.name}"), ours)
    assert list(_differences(one, other)) == []
    return one  # type: ignore[no-any-return]


def _differences(one: Any, other: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the place and both values of each difference."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from _differences(one.get(key), other.get(key), f"{path}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from _differences(*pair, f"{path}/{number}")
    elif one != other:
        yield path, one, other


def _register_copy(theirs: Path, ours: Path, metastore: Metastore, case: Case) -> lakeformat.Registration:
    """Copy Hudi's table with the times of its files, and register the copy."""
    shutil.rmtree(ours, ignore_errors=True)
    shutil.copytree(theirs, ours)
    more = {SYNC + "metastore.uris": metastore.uri, SPARK_VERSION: "3.5.7", **(case.sync or {})}
    return catalog.register(ours, "hive", database=f"ours_{case.name}", **more)


def _read(hudi: Hudi, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Read a table by its name in the catalog."""
    rows = hudi.sql(f"select {', '.join(columns)} from {table}")  # noqa: S608
    return rows.sort_by("id").to_pylist()


def _check_glue(metastore: Metastore, theirs: Path, ours: Path, case: Case) -> None:
    """Register the copy in Glue, and compare with Hudi's entries in the metastore.

    Both tools of Hudi share the class that makes entries. Glue's adds one property.
    """
    found = metastore.read_all(f"theirs_{case.name}")
    options = {SPARK_VERSION: "3.5.7", "hoodie.aws.glue.region": "eu-west-1", **(case.sync or {})}
    with mock_aws():
        catalog.register(ours, "glue", database="d", **options)
        client = boto3.client("glue", "eu-west-1")
        tables = {each["Name"]: each for each in client.get_tables(DatabaseName="d")["TableList"]}
        partitions = {name: client.get_partitions(DatabaseName="d", TableName=name)["Partitions"] for name in tables}
    assert tables.keys() == found["tables"].keys()
    for name, table in tables.items():
        hudis = found["tables"][name]
        properties = {**hudis["parameters"], "hudi.metadata-listing-enabled": "FALSE"}
        assert _normalize(table["Parameters"], ours) == _normalize(properties, theirs)
        assert _glue_columns(table["PartitionKeys"]) == hudis["partitionKeys"]
        shown = [(table["StorageDescriptor"], hudis["sd"])]
        of_hudi = {tuple(each["values"]): each["sd"] for each in found["partitions"][name]}
        assert {tuple(each["Values"]) for each in partitions[name]} == of_hudi.keys()
        shown += [(each["StorageDescriptor"], of_hudi[tuple(each["Values"])]) for each in partitions[name]]
        for storage, wanted in shown:
            assert _glue_columns(storage["Columns"]) == wanted["cols"]
            assert (storage["InputFormat"], storage["OutputFormat"]) == (wanted["inputFormat"], wanted["outputFormat"])
            assert storage["Location"].replace(str(ours), "") == wanted["location"].replace(f"file:{theirs}", "")
            serde, hudis_serde = storage["SerdeInfo"], wanted["serdeInfo"]
            assert serde["SerializationLibrary"] == hudis_serde["serializationLib"]
            parameters = dict(hudis_serde["parameters"])
            if options.get(SYNC + "sync_as_datasource") == "false":
                del parameters["path"]  # Only the client of the metastore adds it then.
            assert _normalize(serde["Parameters"], ours) == _normalize(parameters, theirs)


def _glue_columns(columns: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return Glue's columns in the form of the metastore."""
    return [{key.lower(): value for key, value in each.items()} for each in columns]


@pytest.mark.parametrize("case", the_rest_by_night(CASES, {"cow_6_partitioned", "mor_9_hive_style"}))
def test_entries_equal_those_of_hudi(case: Case, hudi: Hudi, metastore: Metastore, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    sync = {
        SYNC + "enable": "true",
        SYNC + "mode": "hms",
        SYNC + "metastore.uris": metastore.uri,
        SYNC + "database": f"theirs_{case.name}",
        **(case.sync or {}),
    }

    def write(rows: pa.Table, operation: str = "upsert", **more: str) -> lakeformat.Registration:
        hudi.write(theirs, rows, operation, **case.options, **sync, **more)
        return _register_copy(theirs, ours, metastore, case)

    tables = {COW: 1, MOR: 3}[case.kind] if not case.sync or case.kind == COW else None
    first = write(_rows(range(3), "a", 1))
    assert tables is None or len(first.created) == tables
    _check_equal(metastore, theirs, ours, case)
    second = write(_rows(range(2, 5), "b", 2, MORE))
    assert "extra" in second.columns_changed
    assert second.created == ()
    found = _check_equal(metastore, theirs, ours, case)
    assert all(len(parts) == (2 if case.fields else 0) for parts in found["partitions"].values())
    if case.fields:
        path = "/".join(
            f"{field}={value}" if case.hive_style else value
            for field, value in zip(case.fields.split(","), ("a", "1"), strict=False)
        )
        third = write(_rows(range(1), "a", 1, MORE), "delete_partition", **{
            "hoodie.datasource.write.partitions.to.delete": path})  # fmt: skip
        assert third.partitions_dropped == len(found["tables"])
        found = _check_equal(metastore, theirs, ours, case)
        assert all(len(parts) == 1 for parts in found["partitions"].values())
    _check_glue(metastore, theirs, ours, case)
    if SYNC + "sync_as_datasource" not in (case.sync or {}):
        for name in found["tables"]:
            one, other = (_read(hudi, f"{who}_{case.name}.{name}", MORE.names) for who in ("theirs", "ours"))
            assert one == other
            assert len(one) == (3 if case.fields else 5)


@pytest.mark.parametrize("kind", [COW, MOR])
def test_spark_reads_a_table_that_writes_of_ours_have_registered(
    kind: str, hudi: Hudi, metastore: Metastore, tmp_path: Path
) -> None:
    database = f"written_{kind.lower()}"
    table = lakeformat.create(
        tmp_path / "t", SCHEMA, record_key="id", partition_by="p", ordering="q", name="flights", table_type=kind,
        **{SYNC + "enable": "true", SYNC + "mode": "hms", SYNC + "metastore.uris": metastore.uri,
           SYNC + "database": database},
    )  # fmt: skip
    for rows in (_rows(range(4), "a", 1), _rows(range(4, 6), "b", 1), _rows(range(2, 3), "a", 2)):
        step = table.upsert(rows).report["steps"][-1]
        assert "error" not in step
        assert step["catalog"] == "hive"
    names = ["id", "p", "q", "place", "counts"]
    wanted = table.to_arrow(names).sort_by("id").to_pylist()
    assert len(wanted) == 6
    assert _read(hudi, f"{database}.flights", names) == wanted
    assert _read(hudi, f"{database}.flights where p = 'b'", names) == [row for row in wanted if row["p"] == "b"]


def test_partitions_with_special_characters_are_found_again(metastore: Metastore, tmp_path: Path) -> None:
    options = {SYNC + "enable": "true", SYNC + "metastore.uris": metastore.uri, SYNC + "database": "special"}
    values = ["a:b", "c%d", "[x]", "it's", "\u00fc \u00e9", "p=q"]
    rows = pa.table({"id": range(len(values)), "p": values})
    table = lakeformat.create(tmp_path / "t", rows.schema, record_key="id", partition_by="p", name="t", **options)
    for added in (len(values), 0):
        assert table.upsert(rows).report["steps"][-1]["partitions_added"] == added
    stored = metastore.client.get_partitions("special", "t", -1)
    assert sorted(each.values[0] for each in stored) == sorted(values)
    assert table.delete_partitions(values[:3]).report["steps"][-1]["partitions_dropped"] == 3
    assert table.register("hive", full=True).partitions_dropped == 0
    assert len(metastore.client.get_partitions("special", "t", -1)) == 3
