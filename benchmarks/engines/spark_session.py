"""The Spark session of all engines on Spark: the same cores, memory and shuffle partitions."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.workload import CORES, POINT_SQL, Content, Dataset

ROOT: Final = Path(__file__).resolve().parents[2]
IVY: Final = ROOT / ".cache" / "ivy"

_SETTINGS: Final = {
    "spark.master": f"local[{CORES}]",
    "spark.driver.memory": "8g",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # ``part`` stays a string.
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}


def open_spark(table: Path, packages: str = "", settings: Mapping[str, str] | None = None) -> Any:
    """Start a session with the packages (``group:artifact:version,…``). Its scratch folder is beside ``table``."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("benchmarks")
    chosen = {
        **_SETTINGS,
        "spark.local.dir": str(table.parent / "spark-local"),
        "spark.sql.warehouse.dir": str(table.parent / "warehouse"),
        **(settings or {}),
    }
    if packages:
        chosen |= {"spark.jars.packages": packages, "spark.jars.ivy": str(IVY)}
    for key, value in chosen.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def consume(frame: Any) -> None:
    """Compute every row and column and drop them."""
    frame.write.format("noop").mode("overwrite").save()


class SparkReads:
    """The read steps of every engine whose table is a DataFrame."""

    spark: Any
    _dataset: Dataset

    def frame(self) -> Any:
        """Return the present table as a DataFrame of the workload's ten columns."""
        raise NotImplementedError

    def narrow(self, columns: list[str]) -> Any:
        """Return the table with these columns only. Spark prunes columns if the source supports it."""
        return self.frame().select(*columns)

    def filtered(self, predicate: str) -> Any:
        """Return the rows of the table that match a predicate."""
        return self.frame().where(predicate)

    def point(self) -> int:
        return len(self.filtered(POINT_SQL).collect())

    def scan(self) -> None:
        consume(self.frame())

    def agg(self) -> list[int]:
        row = self.narrow(["x", "y"]).selectExpr("sum(x)", "max(y)").first()
        return [int(row[0]), int(row[1])]

    def count(self) -> int:
        return int(self.frame().count())

    def group(self) -> list[int]:
        counts = [int(row["count"]) for row in self.frame().groupBy("city").count().collect()]
        return [len(counts), max(counts)]

    def key(self) -> int:
        return len(self.filtered(f"id = '{self._dataset.some_key()}'").collect())

    def partition(self) -> int:
        last = self._dataset.variant.dates()[-1]
        return int(self.filtered(f"part = '{last}'").selectExpr("sum(x)").first()[0])

    def content(self) -> Content:
        row = self.narrow(["amount"]).selectExpr("count(amount)", "sum(amount)").first()
        return Content(int(row[0]), float(row[1]))

    def versions(self) -> dict[str, str]:
        return {"spark": str(self.spark.version)}

    def close(self) -> None:
        self.spark.stop()
