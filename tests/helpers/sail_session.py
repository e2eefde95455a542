"""``python -m tests.helpers.sail_session FOLDER``: a session of Sail without Java, which prints its answers as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import lakeformat
from lakeformat.spark import LakehouseTable

EVERY_TYPE = """
    select 1 as id, timestamp'2024-01-01 10:00:00' as at, timestamp_ntz'2024-01-01 10:00:00' as local,
        date'2024-01-01' as day, array(1, 2) as list,
        named_struct('x', 1, 'y', map('k', array('z'))) as nested, map('k', 1) as pairs,
        cast(1.5 as decimal(10, 2)) as price, true as flag, cast(null as string) as nothing"""
KEYS = {"hoodie.datasource.write.recordkey.field": "id", "hoodie.table.name": "t"}


def run(folder: str) -> dict[str, Any]:
    """Run all steps in order. Return the answer of each, or the first line of its error."""
    os.environ.update(PATH="", JAVA_HOME="")
    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    answers: dict[str, Any] = {}
    for name, step in list_steps(spark, folder).items():
        try:
            answers[name] = step()
        except Exception as error:  # The test looks at it.
            answers[name] = f"{type(error).__name__}: {error}"
    spark.stop()
    server.stop()
    return answers


class Steps:
    """What a session does with tables in a folder."""

    def __init__(self, spark: Any, folder: str) -> None:
        self.spark = spark
        self.path, self.logged, self.made, self.types = (
            f"{folder}/{name}" for name in ("t", "logged", "made", "types")
        )
        columns = "id long, name string, v double"
        self.rows = spark.createDataFrame([(n, f"n{n % 3}", float(n)) for n in range(20)], columns)
        self.changed = spark.createDataFrame([(n, "changed", -1.0) for n in (3, 4, 25)], columns)

    def save(self, frame: Any, to: str = "", **options: str) -> None:
        frame.write.format("lakehouse").options(**{**KEYS, **options}).mode("append").save(to or self.path)

    def load(self, at: str = "", **options: str) -> Any:
        return self.spark.read.format("lakehouse").options(**options).load(at or self.path)

    def as_of_first(self) -> int:
        first = lakeformat.open(self.path).history()[-1].instant_time
        return int(self.load(**{"as.of.instant": first}).count())

    def use_view(self) -> list[list[Any]]:
        self.load().createOrReplaceTempView("seen")
        counts = self.spark.sql("select name, count(*) from seen group by name order by name")
        return [list(row) for row in counts.collect()]

    def insert_by_sql(self) -> list[list[Any]]:
        options = f"options (meta_columns 'false') location '{self.path}'"
        self.spark.sql(f"create table known using lakehouse {options}")
        self.spark.sql("insert into known values (100, 'sql', 1.0)")
        return pairs(self.spark.sql("select * from known where id > 24"))

    def make_by_sql(self) -> list[list[Any]]:
        options = ", ".join(f"`{name}` '{value}'" for name, value in KEYS.items())
        columns = "(id long, name string)"
        self.spark.sql(f"create table made {columns} using lakehouse options ({options}) location '{self.made}'")
        self.spark.sql("insert into made values (1, 'x'), (2, 'y')")
        return pairs(self.spark.sql("select * from made"))

    def write_logged(self) -> list[list[Any]]:
        self.save(self.rows, self.logged, **{"hoodie.datasource.write.table.type": "MERGE_ON_READ"})
        self.save(self.changed, self.logged, **{"hoodie.parquet.small.file.limit": "0"})
        return pairs(self.load(self.logged).where("name = 'changed'"))

    def read_types(self) -> str:
        self.save(self.spark.sql(EVERY_TYPE), self.types)
        return str(self.load(self.types, meta_columns="false").collect())

    def registered(self) -> list[int]:
        lakeformat.spark.register(self.spark)
        return [self.load().count(), lakeformat.spark.read(self.spark, self.path).count()]

    def table_methods(self) -> list[Any]:
        table = LakehouseTable.forPath(self.spark, self.path)
        result = table.upsert(self.changed.limit(1))
        table.delete(where="id = 19")
        table.update({"name": "updated"}, where="id = 18")
        return [result.rows.updated, table.read(where="id >= 17").count(), pairs(table.read(where="id = 18"))]


def pairs(frame: Any) -> list[list[Any]]:
    """Return two columns of all rows, in order."""
    return [list(row) for row in frame.select("id", "name").orderBy("id").collect()]


def list_steps(spark: Any, folder: str) -> dict[str, Callable[[], Any]]:
    """Return the steps by name."""
    does = Steps(spark, folder)
    deletes, unknown = ({"hoodie.datasource.write.operation": name} for name in ("delete", "upsrt"))
    return {
        "save": lambda: does.save(does.rows),
        "count": lambda: does.load().count(),
        "upsert": lambda: does.save(does.changed),
        "rows": lambda: pairs(does.load()),
        "filter": lambda: pairs(does.load().where("id > 15 and name = 'n1'")),
        "as of": does.as_of_first,
        "delete": lambda: does.save(does.changed.where("id = 25"), **deletes),
        "after delete": lambda: does.load().count(),
        "view": does.use_view,
        "insert by sql": does.insert_by_sql,
        "make by sql": does.make_by_sql,
        "merge-on-read": does.write_logged,
        "types": does.read_types,
        "expected types": lambda: str(spark.sql(EVERY_TYPE).collect()),
        "no table": lambda: does.load(f"{folder}/none").count(),
        "bad option": lambda: does.save(does.rows, **unknown),
        "registered": does.registered,
        "table methods": does.table_methods,
    }


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1])))
