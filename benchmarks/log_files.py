"""``python -m benchmarks.log_files``: the cost of reading a merge-on-read table of Hudi with one percent in its logs.

Apache Hudi itself makes the table: a bulk insert, then one upsert of the workload's first percent, into Avro and into
Parquet log blocks. lakeformat, hudi-rs and Hudi on Spark then read the whole table with the log files and without them
(read_optimized, the cost of copy-on-write). The fastest of three reads counts. ``--rows`` makes the table smaller.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.engines import ENGINES
from benchmarks.peers_setup import ROOT, python_for
from benchmarks.results import machine
from benchmarks.workload import ORDERING, PARTITION, RECORD_KEY, WORK, Dataset, Variant, prepare

TABLES: Final = ROOT / ".work" / "log_files"
FORMATS: Final = ("avro", "parquet")
SAMPLE: Final = "u1-1"
#: The limit of a read with one percent of the rows in log files, as a multiple of a read of base files alone.
LIMIT: Final = 1.5
_RUNS: Final = 3


def fastest(read: Callable[[], Any]) -> float:
    """Return the seconds of the fastest of `_RUNS` reads."""
    found = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        read()
        found.append(time.perf_counter() - started)
    return min(found)


def make(dataset: Dataset, path: Path, log_format: str) -> None:
    """Make the table and print the seconds of Hudi's reads. This runs in the environment of Hudi."""
    from benchmarks.engines.hudi import SETTINGS
    from benchmarks.engines.spark_session import consume, open_spark

    spark = open_spark(path, settings=SETTINGS)
    options = {
        "hoodie.table.name": "bench",
        "hoodie.datasource.write.recordkey.field": RECORD_KEY,
        "hoodie.datasource.write.partitionpath.field": PARTITION,
        "hoodie.datasource.write.precombine.field": ORDERING,
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.logfile.data.block.format": log_format,
        "hoodie.metadata.enable": "false",
    }
    steps = (("bulk_insert", dataset.base_files(), "overwrite"), ("upsert", [dataset.sample(SAMPLE)], "append"))
    if not path.exists():
        for operation, files, mode in steps:
            rows = spark.read.parquet(*map(str, files)).write.format("hudi").options(**options)
            rows.option("hoodie.datasource.write.operation", operation).mode(mode).save(str(path))

    def frame(kind: str) -> Any:
        return spark.read.format("hudi").option("hoodie.datasource.query.type", kind).load(str(path))

    seconds = {kind: fastest(lambda kind=kind: consume(frame(kind))) for kind in ("snapshot", "read_optimized")}
    print(json.dumps({**seconds, "rows": frame("snapshot").count()}))
    spark.stop()


def measure_lakeformat(path: Path) -> dict[str, float]:
    """Read all columns with plain Python, batch by batch. Return the seconds by query type, and the number of rows."""
    import lakeformat

    def read(kind: str) -> int:
        table = lakeformat.open(str(path), **{"hoodie.datasource.query.type": kind})
        return sum(batch.num_rows for batch in table.to_batches())

    kinds = ("snapshot", "read_optimized")
    return {**{kind: fastest(lambda kind=kind: read(kind)) for kind in kinds}, "rows": read("snapshot")}


def measure_hudi_rs(path: Path) -> dict[str, float]:
    """Read all columns with hudi-rs, which cannot read base files alone. Return the seconds and the number of rows."""
    from hudi import HudiReadOptions, HudiTableBuilder

    def read() -> int:
        batches = HudiTableBuilder.from_base_uri(str(path)).build().read(HudiReadOptions())
        return sum(batch.num_rows for batch in batches)

    return {"snapshot": fastest(read), "rows": read()}


def main() -> int:
    """Make and read the tables and print the result. Return 1 if the limit is missed or rows differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.log_files", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--again", action="store_true", help="make the tables anew")
    parser.add_argument("--make", choices=FORMATS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    dataset = prepare(WORK, Variant(arguments.rows), [SAMPLE])
    if arguments.make:
        make(dataset, TABLES / f"{arguments.make}-{arguments.rows}", arguments.make)
        return 0
    print(machine())
    print("| log blocks | engine | with log files | base files alone | ratio |\n| --- | --- | ---: | ---: | ---: |")
    missed = False
    for log_format in FORMATS:
        path = TABLES / f"{log_format}-{arguments.rows}"
        if arguments.again:
            shutil.rmtree(path, ignore_errors=True)
        command = [str(python_for(ENGINES["hudi"])), "-m", "benchmarks.log_files", "--rows", str(arguments.rows)]
        done = subprocess.run([*command, "--make", log_format], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        theirs = json.loads(done.stdout.splitlines()[-1])
        found = {"lakeformat": measure_lakeformat(path), "hudi-rs": measure_hudi_rs(path), "Hudi on Spark": theirs}
        for engine, seconds in found.items():
            alone = seconds.get("read_optimized")
            cells = [f"{seconds['snapshot']:.2f} s", f"{alone:.2f} s" if alone else ""]
            ratio = f"{seconds['snapshot'] / alone:.2f}" if alone else ""
            print(f"| {log_format} | {engine} | {' | '.join(cells)} | {ratio} |", flush=True)
        ours = found["lakeformat"]
        missed |= ours["snapshot"] > LIMIT * ours["read_optimized"]
        if len({seconds["rows"] for seconds in found.values()}) > 1:
            print(f"{log_format}: engines disagree about the rows", file=sys.stderr)
            missed = True
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
