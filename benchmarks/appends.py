"""``python -m benchmarks.appends``: small appends into a partitioned table, with each rule for small files.

Each append inserts 1 % of the loaded rows, into all 8 partitions. The first rule is the default, then come Hudi's rule
and a new file for every append; ``--peer`` names a Python with ``deltalake``, which appends the same rows. Each engine
has a process of its own. Printed are processor seconds per append, their sum as a multiple of the new files', and the
number of files in the end.
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

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers_setup import ROOT
from benchmarks.workload import ORDERING, PARTITION, RECORD_KEY, Dataset, Variant, prepare

WORK: Final = ROOT / ".work" / "appends"
LIMIT: Final = "hoodie.parquet.small.file.limit"
RULES: Final[dict[str, dict[str, int]]] = {"default": {}, "Hudi's rule": {LIMIT: 100 << 20}, "new files": {LIMIT: 0}}
DELTA: Final = "delta-rs"
#: The share of the loaded rows that one append adds, as its reciprocal.
_PARTS: Final = 100


def open_lakeformat(folder: Path, loaded: pa.Table, rule: str) -> tuple[Callable[[pa.Table], Any], Callable[[], int]]:
    """Load a table. Return functions that append rows to it and count its files."""
    import lakeformat  # The peer's environment does not have it.

    table = lakeformat.create(
        str(folder), loaded.schema, record_key=RECORD_KEY, ordering=ORDERING, partition_by=PARTITION
    )
    table.bulk_insert(loaded)
    table = lakeformat.open(str(folder), **RULES[rule])
    return table.insert, lambda: len(table.snapshot().files)


def open_delta(folder: Path, loaded: pa.Table) -> tuple[Callable[[pa.Table], Any], Callable[[], int]]:
    """Load a Delta table. Return the same functions."""
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(str(folder), loaded, partition_by=[PARTITION])

    def append(rows: pa.Table) -> None:
        write_deltalake(str(folder), rows, partition_by=[PARTITION], mode="append")

    return append, lambda: len(DeltaTable(str(folder)).file_uris())


def measure(engine: str, variant: Variant, appends: int) -> dict[str, Any]:
    """Load the first rows of the data set, append the next ones, and return processor seconds and files."""
    rows = pa.concat_tables([pq.read_table(path) for path in Dataset(WORK / variant.name, variant).base_files()])
    count = rows.num_rows * _PARTS // (_PARTS + appends)
    folder = WORK / "table"
    shutil.rmtree(folder, ignore_errors=True)
    loaded = rows.slice(0, count)
    append, files = open_delta(folder, loaded) if engine == DELTA else open_lakeformat(folder, loaded, engine)
    seconds = []
    for number in range(appends):
        part = rows.slice(count + number * (count // _PARTS), count // _PARTS)
        started = time.process_time()
        append(part)
        seconds.append(round(time.process_time() - started, 3))
    found = {"seconds": seconds, "files": files()}
    shutil.rmtree(folder)
    return found


def main() -> int:
    """Measure and print Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.appends", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--appends", type=int, default=20)
    parser.add_argument("--peer", type=Path, help="a Python interpreter that has deltalake")
    parser.add_argument("--engine", choices=[*RULES, DELTA], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    variant = Variant(arguments.rows * (_PARTS + arguments.appends) // _PARTS)
    if arguments.engine:
        print(json.dumps(measure(arguments.engine, variant, arguments.appends)))
        return 0
    prepare(WORK, variant, samples=())
    engines = {rule: Path(sys.executable) for rule in RULES} | ({DELTA: arguments.peer} if arguments.peer else {})
    found = {}
    for engine, python in engines.items():
        command = [python, "-m", "benchmarks.appends", "--engine", engine]
        command += ["--rows", str(arguments.rows), "--appends", str(arguments.appends)]
        done = subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, cwd=ROOT)
        found[engine] = json.loads(done.stdout.splitlines()[-1])
    print(f"{arguments.appends} appends of 1 % into {arguments.rows:,} rows in {variant.partitions} partitions\n")
    print("| engine | processor seconds per append | / new files | first, last append | files |")
    print("| --- | ---: | ---: | ---: | ---: |")
    base = sum(found["new files"]["seconds"])
    for engine, each in found.items():
        total, (first, *_, last) = sum(each["seconds"]), each["seconds"]
        per = total / arguments.appends
        print(f"| {engine} | {per:.3f} | {total / base:.2f} | {first:.2f}, {last:.2f} | {each['files']} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
