"""Files, a stream, a table, a stream, a table, its changes, a sum: kill it when you like and start it again.

    python docs/examples/stream_chain.py FOLDER

takes what lies in ``FOLDER/files`` (Parquet: sensor, region, ts, value), appends it to the table ``bronze`` as it
comes, keeps the newest reading of each sensor in ``silver``, and from silver's changes the sum of the readings by
region, in ``FOLDER/totals.json``. Whatever a run has not finished the next one goes on with, and nothing counts twice:
the streams by their checkpoints and the ids of their batches, the sums because they are saved with the point up to
which they count.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQueryListener

import lakeformat
from lakeformat.spark import register

# What reads a table here comes after all of its batches: as many commits are kept as it may be behind.
KEPT = {"hoodie.cleaner.commits.retained": "100", "hoodie.keep.min.commits": "110", "hoodie.keep.max.commits": "120"}
COLUMNS = "sensor string, region string, ts long, value long"


class BatchPrinter(StreamingQueryListener):  # type: ignore[misc]
    """A listener that prints each finished batch."""

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Print the number of a finished batch."""
        print(event.progress.name, event.progress.batchId, flush=True)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Do nothing."""


def run(frame: DataFrame, name: str, folder: Path, **options: str) -> None:
    """Write all that is there to a table, batch by batch."""
    writer = frame.writeStream.format("lakehouse").queryName(name).options(**options)
    writer = writer.option("checkpointLocation", str(folder / "checkpoints" / name)).trigger(availableNow=True)
    writer.start(str(folder / name)).awaitTermination()


def add_up(silver: lakeformat.Table, saved: Path) -> None:
    """Bring the sums by region up to date with what has changed since."""
    state = json.loads(saved.read_text()) if saved.exists() else {"seen": "000", "totals": {}}
    changes = silver.changes(state["seen"], images=True)
    totals: Counter[str] = Counter(state["totals"])
    for batch in changes.to_batches(["region", "value"]):
        for image, add in (("before", totals.subtract), ("after", totals.update)):
            rows = pa.Table.from_struct_array(batch.column(image).drop_null())
            sums = rows.group_by("region").aggregate([("value", "sum")])
            add(dict(zip(sums["region"].to_pylist(), sums["value_sum"].to_pylist(), strict=True)))
    half = saved.with_suffix(".new")
    half.write_text(json.dumps({"seen": changes.until, "totals": totals}))
    half.replace(saved)


def main(folder: Path) -> None:
    """Run the chain over what is there."""
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    spark.streams.addListener(BatchPrinter())
    files = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(folder / "files"))
    run(files, "bronze", folder, operation="insert", **KEPT)
    bronze = spark.readStream.format("lakehouse").option("maxCommitsPerTrigger", 1).option("meta_columns", "false")
    run(bronze.load(str(folder / "bronze")), "silver", folder, recordkey="sensor", ordering="ts", **KEPT)
    add_up(lakeformat.open(folder / "silver"), folder / "totals.json")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
