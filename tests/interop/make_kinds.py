"""A program that makes the tables of ``tests/fixtures/own_kinds``: rare kinds of tables, and the rows that Hudi reads.

It runs in ``.venv-interop`` (see ``tools/interop_setup.py``), once for each Hudi version, from the project's root as
``python -m tests.interop.make_kinds BUNDLE_JAR TAG FOLDER [NAME ...]``: ``TAG`` begins the names of the tables. Every
table becomes ``FOLDER/NAME.zip``, and ``FOLDER/NAME.json`` with the rows that this Hudi reads, or ``ERROR``. If this
Hudi cannot write the whole history of a table, the table is packed in its last state and reported as failed.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import tempfile
import zipfile
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, Row, SparkSession

from tests.helpers.hudi_server import start_session

W: Final = "hoodie.datasource.write."
KEYGEN: Final = "org.apache.hudi.keygen."
#: Columns that the JSON files leave out.
UNSAID: Final = frozenset({"_hoodie_commit_seqno", "_hoodie_file_name"})
ALWAYS: Final = {
    "hoodie.table.name": "t",
    f"{W}precombine.field": "ts",
    "hoodie.index.type": "SIMPLE",
    "hoodie.metadata.enable": "false",
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.parquet.max.file.size": "1000000",
    "hoodie.bloom.index.parallelism": "2",
    "hoodie.simple.index.parallelism": "2",
    "hoodie.index.bloom.num_entries": "10",
    "hoodie.bloom.index.filter.dynamic.max.entries": "10",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.compact.inline": "false",
    **{f"hoodie.{step}.shuffle.parallelism": "1" for step in ("upsert", "insert", "delete", "bulkinsert")},
}
SQL_OPTIONS: Final = (
    "hoodie.parquet.small.file.limit=0",
    "hoodie.schema.on.read.enable=true",
    "hoodie.metadata.enable=false",
    "hoodie.clean.automatic=false",
    "hoodie.compact.inline=false",
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop=true",
    "spark.sql.parquet.enableVectorizedReader=false",
)
COLUMNS: Final = "id int, name string, ts bigint, x double, reg string, day int, born date"


def to_plain(value: Any) -> Any:
    """Return a value in the form of the JSON files."""
    if isinstance(value, Row):
        return {name: to_plain(inner) for name, inner in value.asDict().items()}
    if isinstance(value, dict):
        return {str(key): to_plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [to_plain(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f")
    return value.isoformat() if isinstance(value, date) else value


class Maker:
    """One session, and the folder of the tables."""

    def __init__(self, spark: SparkSession, tag: str, tables: Path) -> None:
        self.spark, self.tag, self.tables = spark, tag, tables

    def rows(self, numbers: range, ts: int, note: str) -> DataFrame:
        return self.spark.createDataFrame(
            [
                (n, f"{note}{n}", ts, n / 2, ("eu", "us /a=b")[n % 2], 1 + n % 3, date(2024, 1, 1 + n % 2))
                for n in numbers
            ],
            COLUMNS,
        ).coalesce(1)

    def write(self, name: str, rows: DataFrame, operation: str, options: dict[str, str]) -> None:
        path, asked = self.tables / name, {**ALWAYS, **options, f"{W}operation": operation}
        rows.write.format("hudi").options(**asked).mode("append").save(str(path))

    def history(self, name: str, options: dict[str, str]) -> None:
        """Write inserts, updates with greater and with smaller ordering values, and deletes."""
        self.write(name, self.rows(range(8), 10, "a"), "insert", options)
        self.write(name, self.rows(range(1, 4), 20, "b"), "upsert", options)
        late = self.rows(range(4, 6), 5, "late")
        self.write(name, late.union(self.rows(range(8, 10), 5, "new")).coalesce(1), "upsert", options)
        self.write(name, self.rows(range(3), 30, "gone").where("id <> 1"), "delete", options)

    def read(self, name: str, **options: str) -> Any:
        path = str(self.tables / name)
        try:
            frame = self.spark.read.format("hudi").options(**options).load(path)
            found = [
                {column: to_plain(value) for column, value in row.asDict().items() if column not in UNSAID}
                for row in frame.collect()
            ]
            return sorted(found, key=lambda row: json.dumps(row, sort_keys=True))
        except Exception:  # A read that fails in Hudi itself is a result, too.
            return "ERROR"

    def pack(self, name: str, folder: Path) -> None:
        by_ids = "evolved" in name or "altered" in name
        asked = {"hoodie.schema.on.read.enable": "true"} if by_ids else {}
        document = {
            "snapshot": self.read(name, **asked),
            "read_optimized": self.read(name, **asked, **{"hoodie.datasource.query.type": "read_optimized"}),
        }
        (folder / f"{name}.json").write_text(json.dumps(document).replace("}, {", "},\n{") + "\n", encoding="utf-8")
        with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted((self.tables / name).rglob("*")):
                if file.is_file() and not file.name.endswith(".crc"):
                    archive.write(file, file.relative_to(self.tables))

    def sql(self, name: str, *statements: str) -> None:
        self.spark.sql(f"drop table if exists {name}")
        self.spark.sql(f"create table {name} using hudi location '{self.tables / name}'")
        for option in SQL_OPTIONS:
            self.spark.sql(f"set {option}")
        for statement in statements:
            self.spark.sql(statement.format(t=name))


MOR: Final = {f"{W}table.type": "MERGE_ON_READ"}
VIRTUAL: Final = {"hoodie.populate.meta.fields": "false"}
DROPPED: Final = {"hoodie.datasource.write.drop.partition.columns": "true"}
ONE_KEY: Final = {f"{W}recordkey.field": "id", f"{W}partitionpath.field": ""}
BY_REGION: Final = {
    f"{W}recordkey.field": "id",
    f"{W}partitionpath.field": "reg",
    f"{W}partitionpath.urlencode": "true",
}
HIVE: Final = {f"{W}hive_style_partitioning": "true"}
NESTED: Final = {
    **BY_REGION,
    **HIVE,
    f"{W}partitionpath.field": "reg,day",
    f"{W}keygenerator.class": f"{KEYGEN}ComplexKeyGenerator",
}
BY_DAY: Final = {f"{W}recordkey.field": "id", f"{W}partitionpath.field": "day", **HIVE}
BY_BORN: Final = {f"{W}recordkey.field": "id", f"{W}partitionpath.field": "born"}

HISTORIES: Final[dict[str, dict[str, str]]] = {
    "virtual_cow": {**VIRTUAL, **BY_REGION},
    "virtual_mor": {**VIRTUAL, **MOR, **ONE_KEY, f"{W}keygenerator.class": f"{KEYGEN}NonpartitionedKeyGenerator"},
    "virtual_mor_simple": {**VIRTUAL, **MOR, **BY_REGION, **HIVE},
    "virtual_mor_complex": {**VIRTUAL, **MOR, **NESTED, f"{W}recordkey.field": "id,born"},
    "virtual_mor_parquet_logs": {**VIRTUAL, **MOR, **BY_DAY, "hoodie.logfile.data.block.format": "parquet"},
    "dropped_cow": {**DROPPED, **NESTED},
    "dropped_cow_date": {**DROPPED, **BY_BORN},
    "dropped_mor": {**DROPPED, **MOR, **BY_DAY},
    "dropped_mor_nested": {**DROPPED, **MOR, **NESTED},
    "nested_mor": {**MOR, **NESTED},
    "operation_mor": {**MOR, **BY_DAY, "hoodie.allow.operation.metadata.field": "true"},
    "operation_cow": {**BY_DAY, "hoodie.allow.operation.metadata.field": "true"},
    "orc_cow": {
        **ONE_KEY,
        f"{W}keygenerator.class": f"{KEYGEN}NonpartitionedKeyGenerator",
        "hoodie.table.base.file.format": "ORC",
        "hoodie.base.file.format": "ORC",
    },
}


HASHING: Final = {
    **MOR,
    **BY_REGION,
    f"{W}recordkey.field": "id,born",
    f"{W}keygenerator.class": f"{KEYGEN}ComplexKeyGenerator",
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": "3",
    "hoodie.bucket.index.max.num.buckets": "5",
    "hoodie.bucket.index.min.num.buckets": "2",
    "hoodie.clustering.plan.strategy.class": (
        "org.apache.hudi.client.clustering.plan.strategy.SparkConsistentBucketClusteringPlanStrategy"
    ),
}


def write_hashing(maker: Maker, name: str) -> None:
    """Write a table with consistent hashing. Split some buckets, write, merge some, and write again."""
    maker.write(name, maker.rows(range(60), 10, "a"), "upsert", HASHING)
    for numbers, most in ((range(40, 90), 1_000), (range(20), 2_000_000)):
        options = {**ALWAYS, **HASHING, "hoodie.parquet.max.file.size": str(most)}
        for key, value in options.items():
            maker.spark.conf.set(key, value)
        maker.spark.sql(f"call run_clustering(path => '{maker.tables / name}', op => 'scheduleAndExecute')").collect()
        for key in options:
            maker.spark.conf.unset(key)
        maker.write(name, maker.rows(numbers, 20, "b"), "upsert", HASHING)


EVOLVED: Final = ("evolved_cow", "evolved_mor", "evolved_nested_cow", "altered_cow", "altered_mor")


def write_evolved(maker: Maker, name: str, options: dict[str, str], *, nested: bool) -> None:
    """Rename, drop, add again and change the type of columns, and write rows with each schema."""
    options = {**options, "hoodie.schema.on.read.enable": "true", "hoodie.datasource.write.reconcile.schema": "true"}
    maker.write(name, maker.rows(range(3), 10, "a"), "insert", options)
    maker.write(name, maker.rows(range(3, 6), 10, "a"), "insert", options)
    maker.sql(
        name,
        "alter table {t} rename column name to title",
        "alter table {t} drop column x",
        "alter table {t} alter column day type bigint",
        "alter table {t} add columns (x string)",
        "alter table {t} add columns (nested struct<a: int, b: string>)",
    )
    insert = (
        "insert into {t} select 20, 'title20', 20, 'eu', cast(20000000000 as bigint), date'2024-02-02', 'xx', "
        "named_struct('a', 1, 'b', 'bb')"
    )
    maker.sql(name, insert)
    maker.sql(name, "update {t} set title = 'changed', x = 'set' where id = 2")
    if nested:
        maker.sql(name, "alter table {t} rename column nested.b to c")
    maker.sql(name, "delete from {t} where id = 1")


def write_altered(maker: Maker, name: str, kind: str, version: str) -> None:
    """Change columns of a table that had none with ids, also inside structs, lists and maps, then an update."""
    columns = (
        "id int, name string, ts bigint, amount decimal(10, 2), place struct<a: int, b: string, c: struct<e: int>>, "
        "lines array<struct<x: int, y: string>>, tags map<string, struct<p: int, q: int>>, at timestamp, share float"
    )
    row = (
        "select {0}, 'n{0}', {0}, cast({0}.25 as decimal(10, 2)), "
        "named_struct('a', {0}, 'b', 'b{0}', 'c', named_struct('e', {0})), array(named_struct('x', {0}, 'y', 'y{0}')), "
        "map('k', named_struct('p', {0}, 'q', 2)), timestamp'2026-01-01 00:00:00', cast({0} as float)"
    )
    properties = (
        f"primaryKey = 'id', preCombineField = 'ts', type = '{kind}', 'hoodie.write.table.version' = '{version}'"
    )
    maker.spark.sql(f"drop table if exists {name}")
    maker.spark.sql(
        f"create table {name} ({columns}) using hudi tblproperties ({properties}) location '{maker.tables / name}'"
    )
    maker.spark.sql("set hoodie.schema.on.read.enable=false")
    maker.spark.sql(f"insert into {name} " + " union all ".join(row.format(at) for at in (1, 2, 3)))
    maker.sql(
        name,
        "alter table {t} rename column name to title",
        "alter table {t} rename column place.b to bb",
        "alter table {t} rename column lines.element.x to xx",
        "alter table {t} rename column tags.value.p to pp",
        "alter table {t} drop column amount",
        "alter table {t} add columns (amount string)",
        "alter table {t} add columns (place.z int first)",
        "alter table {t} drop column place.c",
        "alter table {t} alter column share type double",
        "alter table {t} alter column title after ts",
        "update {t} set title = 'changed', amount = 'much' where id = 2",
    )


def make(maker: Maker, name: str) -> None:
    kind = name.removeprefix(f"{maker.tag}_")
    if kind.startswith("altered"):
        write_altered(maker, name, kind[-3:], maker.tag.removeprefix("v"))
        return
    if kind == "hashing_mor":
        write_hashing(maker, name)
    elif kind in HISTORIES:
        maker.history(name, HISTORIES[kind])
    else:
        write_evolved(maker, name, {**ONE_KEY, **(MOR if "mor" in kind else {})}, nested="nested" in kind)


def main(bundle: str, tag: str, folder: str, *wanted: str) -> None:
    into = Path(folder)
    into.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp())
    spark = start_session(bundle, str(scratch), {})
    spark.sparkContext.setLogLevel("ERROR")
    maker = Maker(spark, tag, scratch)
    for kind in wanted or (
        *HISTORIES,
        "hashing_mor",
        "evolved_cow",
        "evolved_mor",
        "evolved_nested_cow",
        "altered_cow",
        "altered_mor",
    ):
        name = f"{tag}_{kind}"
        try:
            make(maker, name)
            maker.pack(name, into)
            print("made", name, flush=True)
        except Exception as error:
            causes = [line.strip()[:300] for line in str(error).splitlines() if line[:1] == ":" or "Caused" in line]
            print("FAILED", name, str(error).splitlines()[0][:300], causes[:6], flush=True)
            if (scratch / name).exists():
                maker.pack(name, into)
    spark.stop()
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main(*sys.argv[1:])
