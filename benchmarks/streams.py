"""``python -m benchmarks.streams``: the cost of a batch of a stream and of a read of changes.

Two queries of one Spark session follow folders of Parquet files. The sink of one query is a merge-on-read table of
``--rows`` rows, the sink of the other is plain Parquet. They take equal batches in turns: 10,000 rows, half of them
updates, then 1,000 and none. The milliseconds are Spark's own (``triggerExecution``): the median of ``--turns`` after
one more turn. Then one percent of the keys, next to one another, is upserted, and the changes of that commit and of all
commits are read: seconds of CPU in this process.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lakeformat
from benchmarks.results import machine
from benchmarks.workload import WORK

FOLDER: Final = WORK / "streams"
SIZES: Final = (10_000, 1_000, 0)
SEED: Final = 17


def rows_of(ids: Any, at: int) -> pa.Table:
    """Return rows with these keys."""
    texts = pa.array(np.char.add("value ", (ids % 9973).astype(str)))
    return pa.table({"id": pa.array(ids), "at": pa.array(np.full(len(ids), at)), "x": ids / 7, "text": texts})


class Follower:
    """A streaming query and the folder that feeds it."""

    def __init__(self, spark: Any, name: str, sink: str, target: Path, **options: Any) -> None:
        self.files, self._turn = FOLDER / f"{name}-files", 0
        self.files.mkdir(parents=True)
        source = spark.readStream.schema("id long, at long, x double, text string").parquet(str(self.files))
        # This filter lets Spark run batches without rows.
        writer = source.where("id >= 0").writeStream.format(sink).queryName(name).options(**options)
        writer = writer.option("checkpointLocation", str(FOLDER / f"{name}-checkpoint"))
        self.query = writer.trigger(processingTime="100 milliseconds").start(str(target))

    def take(self, rows: pa.Table) -> int:
        """Return the milliseconds of the batch that takes these rows."""
        self._turn += 1
        hidden = FOLDER / "next.parquet"
        pq.write_table(rows, hidden)
        hidden.rename(self.files / f"{self._turn:05}.parquet")
        while True:  # Spark publishes progress some time after the batch.
            self.query.processAllAvailable()
            done = {each["batchId"]: each for each in self.query.recentProgress if "addBatch" in each["durationMs"]}
            if self._turn - 1 in done:
                return int(done[self._turn - 1]["durationMs"]["triggerExecution"])
            time.sleep(0.05)


def batches(table: Path, rows: int, turns: int) -> dict[int, dict[str, float]]:
    """Return the median milliseconds of a batch by number of rows, then by sink."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    ours = Follower(spark, "lakehouse", "lakehouse", table, recordkey="id", ordering="at")
    parquet = Follower(spark, "parquet", "parquet", FOLDER / "parquet")
    random, found, new = np.random.default_rng(SEED), dict[int, dict[str, float]](), rows
    for size in SIZES:
        took: dict[str, list[int]] = {"lakehouse": [], "parquet": []}
        for turn in range(turns + 1):
            half = size // 2
            ids = np.concatenate([random.choice(rows, half, replace=False), np.arange(new, new + size - half)])
            new += size - half
            batch = rows_of(ids if size else np.array([-1]), turn + 2)
            took["lakehouse"].append(ours.take(batch))
            took["parquet"].append(parquet.take(batch))
        found[size] = {name: statistics.median(each[1:]) for name, each in took.items()}
    spark.stop()
    return found


def change_reads(table: Path, rows: int) -> dict[str, tuple[int, float]]:
    """Return, for each range of changes, their number and the CPU seconds of the read."""
    opened = lakeformat.open(table)
    begin = opened.changes("000").until
    opened.upsert(rows_of(np.arange(rows // 100), 1_000))
    middle = opened.changes(begin).until
    opened.upsert(rows_of(np.arange(rows), 1_001))
    found: dict[str, tuple[int, float]] = {}
    for name, since, until in (("1 %", begin, middle), ("everything", middle, None)):
        started = time.process_time()
        count = sum(batch.num_rows for batch in opened.changes(since, until, images=True).to_batches())
        found[name] = (count, time.process_time() - started)
    return found


def main() -> None:
    """Print the table of batches and the table of change reads."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.streams", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--index", default="BUCKET", help="hoodie.index.type of the table")
    arguments = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    table = FOLDER / "table"
    options = {"table_type": "MERGE_ON_READ", "hoodie.index.type": arguments.index}
    schema = rows_of(np.arange(1), 1).schema
    made = lakeformat.create(table, schema, record_key="id", ordering="at", **options)
    made.bulk_insert(rows_of(np.arange(arguments.rows), 1))
    print(f"{machine()}; {arguments.rows:,} rows, index {arguments.index}\n")
    print("| rows of a batch | lakehouse, ms | Parquet sink, ms | more, ms |\n|---|---|---|---|")
    for size, took in batches(table, arguments.rows, arguments.turns).items():
        ours, theirs = took["lakehouse"], took["parquet"]
        print(f"| {size:,} | {ours:.0f} | {theirs:.0f} | {ours - theirs:.0f} |")
    print("\n| changed | changes | CPU, s | microseconds a change |\n|---|---|---|---|")
    for name, (count, seconds) in change_reads(table, arguments.rows).items():
        print(f"| {name} | {count:,} | {seconds:.2f} | {1e6 * seconds / max(count, 1):.1f} |")
    shutil.rmtree(FOLDER)


if __name__ == "__main__":
    main()
