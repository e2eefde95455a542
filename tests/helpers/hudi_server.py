"""Apache Hudi behind a pipe: one Spark 3.5 session that obeys JSON lines.

It runs in ``.venv-interop`` (see ``tools/interop_setup.py``), one process per Hudi version, as ``python hudi_server.py
BUNDLE_JAR FOLDER SETTINGS``. SETTINGS is a JSON object of further Spark settings. Each line on stdin is an object with
``command`` and its fields. Each line gets one line on stdout, ``{"ok": true}`` or ``{"ok": false, "error": "..."}``.
Rows travel as Parquet files, which keep every type. The output of Spark itself goes to stderr. The end of stdin ends
the session.

The commands and their fields:

- ``read`` with ``path``, ``options``, ``into``: write the rows of a table to a Parquet folder.
- ``write`` with ``path``, ``options``, ``rows``: append the rows of a Parquet file through Hudi's data source.
- ``sql`` with ``statement``, ``into``: write the rows of the answer to a Parquet folder.
- ``run`` with ``statements``, ``settings``: run statements under these settings of the session.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

Request = dict[str, Any]


def start_session(bundle: str, folder: str, more: dict[str, str]) -> SparkSession:
    """Start a session with two cores and time zone UTC that writes nothing outside ``folder``."""
    # In threads without Spark's class loader 0.15.0 does not find its own classes among `spark.jars`. Avro remembers
    # that: then no thread can read delete blocks (apache/hudi#13410). So it is on the class path, after Spark's jars.
    jars = ",".join(filter(None, (bundle, more.pop("spark.jars", ""))))
    place = {"spark.jars": jars}
    if "0.15.0" in bundle and jars == bundle:
        of_spark = os.path.join(os.path.dirname(pyspark.__file__), "jars", "*")
        place = {"spark.driver.extraClassPath": os.pathsep.join((of_spark, bundle))}
    settings = {
        **place,
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.warehouse.dir": os.path.join(folder, "warehouse"),
        "spark.local.dir": os.path.join(folder, "local"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        # The jobs are so short that the second compiler's work would never pay off.
        "spark.driver.extraJavaOptions": " ".join(
            (
                "-Duser.timezone=UTC -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
                more.pop("spark.driver.extraJavaOptions", ""),
            )
        ),
        "spark.ui.enabled": "false",
        **more,
    }
    builder = SparkSession.builder.master("local[2]").appName("interop")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def save(rows: DataFrame, into: str) -> None:
    """Write one Parquet file into the folder ``into``."""
    rows.coalesce(1).write.parquet(into)


def reason(failure: Exception) -> str:
    """Return the messages of a Java exception and of its causes, without their stacks."""
    first, *others = f"{type(failure).__name__}: {failure}".splitlines()
    return "\n".join((first, *(line.strip() for line in others if line[:1] == ":" or "Caused by:" in line)))


def commands(spark: SparkSession) -> dict[str, Callable[[Request], None]]:
    """Return the commands of the server by the name in ``command``."""

    def read(request: Request) -> None:
        save(spark.read.format("hudi").options(**request["options"]).load(request["path"]), request["into"])

    def write(request: Request) -> None:
        rows = spark.read.parquet(request["rows"])
        rows.write.format("hudi").options(**request["options"]).mode(request["mode"]).save(request["path"])

    def sql(request: Request) -> None:
        save(spark.sql(request["statement"]), request["into"])

    def run(request: Request) -> None:
        for name, value in request["settings"].items():
            spark.conf.set(name, value)
        try:
            for statement in request["statements"]:
                spark.sql(statement).collect()
        finally:
            for name in request["settings"]:
                spark.conf.unset(name)

    return {"read": read, "write": write, "sql": sql, "run": run}


def main(bundle: str, folder: str, more: str) -> None:
    """Answer requests on the original stdout, and redirect the stdout of Spark and its JVM to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    known = commands(start_session(bundle, folder, json.loads(more)))
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {"ok": True}
        try:
            known[request["command"]](request)
        except Exception as failure:  # The client raises the error again, and the session continues.
            answer = {"ok": False, "error": reason(failure)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
