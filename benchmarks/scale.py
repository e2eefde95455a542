"""``python -m benchmarks.scale``: load, upserts, delete, layout and reads on a cluster, with the memory of each part.

The verbs are those that everyone types: ``save`` and ``load`` after ``register(spark)``, by the format's name. The
master is ``local-cluster[2,1,2048]``: two executors of one core, each a process of its own. For each size and number of
partitions there is one session and one table. Each step prints its seconds and the peak memory of the driver's JVM, the
driver's Python, the executors and their Python workers, above those of the session before the first step.

``--columns`` adds columns of 8 bytes, ``--files`` cuts the table into about so many files, and ``--merge`` says where
merges run, which is otherwise chosen by size.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.engines.spark_session import consume, open_spark
from benchmarks.process_tree import descendants
from benchmarks.results import machine
from benchmarks.workload import POINT_SQL, WORK

__all__ = ["main"]

FOLDER: Final = WORK / "scale"
LOG: Final = WORK / "scale.log"
MASTER: Final = "local-cluster[2,1,2048]"
PARTS: Final = ("driver JVM", "driver Python", "executors", "Python workers")
#: Odd, so that multiplication by it permutes the numbers below a power of two: keys in random order, each once.
_SPREAD: Final = 2_654_435_761
_KEY_SPACE: Final = 1 << 40
_SAMPLE_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Case:
    """One table of the benchmark."""

    rows: int
    partitions: int
    columns: int
    files: int
    merge: str = "auto"

    @property
    def name(self) -> str:
        """Return the case in words."""
        more = f", {self.columns} columns" if self.columns else ""
        merge = "" if self.merge == "auto" else f", merges on {self.merge}"
        return f"{self.rows:,} rows, {self.partitions:,} partitions{more}{merge}"

    def frame(self, spark: Any, version: int, percent: int) -> Any:
        """Return the rows of a percentage of the keys, spread over all partitions."""
        chosen = f"pmod(xxhash64(id, {version}), 100) < {percent}"
        key = f"concat('k', lpad(pmod(id * {_SPREAD}, {_KEY_SPACE}), 13, '0')) key"
        part = f"concat('p', lpad(pmod(xxhash64(id), {self.partitions}), 5, '0')) part"
        values = ["pmod(xxhash64(id, 1), 1000000) x", "pmod(xxhash64(id, 2), 1000000) y", "id / 7 amount"]
        text = f"concat('value ', pmod(id * 31 + {version}, 9973)) text"
        wide = [f"id + {at} c{at}" for at in range(self.columns)]
        frame = spark.range(self.rows) if percent == 100 else spark.range(self.rows).where(chosen)
        return frame.selectExpr(key, part, f"{version}L version", *values, text, *wide)


# --- memory -----------------------------------------------------------------------------------------------


def _part_of(process: int) -> str | None:
    """Return the part of the cluster that a process belongs to; None if it has ended or is none of them."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return None
    if b"java" in command[:200]:
        return "executors" if b"CoarseGrainedExecutorBackend" in command else "driver JVM"
    if b"pyspark.daemon" in command or b"pyspark/daemon" in command:
        return "Python workers"
    return "driver Python" if b"benchmarks.scale" in command else None


def _resident_bytes(process: int) -> int:
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))


@dataclass
class Memory:
    """Memory of the parts, sampled by a thread; pages that processes share are divided among them."""

    root: int
    peak: Counter[str] = field(default_factory=Counter)

    def sample(self) -> Counter[str]:
        """Return the bytes of each part now, and raise the peaks."""
        now: Counter[str] = Counter()
        for process in descendants(self.root):
            part = _part_of(process)
            if part is not None:
                now[part] += _resident_bytes(process)
        self.peak |= now
        return now

    @contextmanager
    def watched(self) -> Iterator[Counter[str]]:
        """Sample while the block runs. The peaks are complete after the block."""
        self.peak = Counter()
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_SAMPLE_SECONDS):
                self.sample()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        peak: Counter[str] = Counter()
        try:
            yield peak
        finally:
            done.set()
            thread.join()
            self.sample()
            peak.update(self.peak)


# --- steps ------------------------------------------------------------------------------------------------


def _steps(spark: Any, case: Case, path: str) -> dict[str, Callable[[], object]]:
    from lakeformat.spark import LakehouseTable

    options = {"recordkey": "key", "partitionpath": "part", "ordering": "version", "hoodie.clean.automatic": "false"}
    options["lakeformat.write.merge"] = case.merge
    if case.files:
        options["hoodie.parquet.max.file.size"] = str(max(case.rows * 70 // case.files, 1 << 14))

    def save(version: int, percent: int, operation: str) -> Callable[[], object]:
        mode = "overwrite" if operation == "bulk_insert" else "append"

        def run() -> None:
            frame = case.frame(spark, version, percent)
            frame.write.format("lakehouse").options(**options, operation=operation).mode(mode).save(path)

        return run

    def load() -> Any:
        return spark.read.format("lakehouse").load(path)

    return {
        "load": save(1, 100, "bulk_insert"),
        "upsert 1 %": save(2, 1, "upsert"),
        "upsert 50 %": save(3, 50, "upsert"),
        "delete 1 %": save(4, 1, "delete"),
        "z-order": lambda: LakehouseTable.forPath(spark, path).cluster(by=["x", "y"]),
        "scan": lambda: consume(load()),
        "count": lambda: load().count(),
        "two columns": lambda: load().selectExpr("sum(x)", "max(y)").collect(),
        "point": lambda: load().where(POINT_SQL).collect(),
    }


def _run_case(case: Case, names: list[str]) -> None:
    """Run the steps of a case in this process, and print a line of JSON for each."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    table = FOLDER / "table"
    settings = {"spark.master": MASTER, "spark.executor.memory": "1g", "spark.driver.memory": "1g"}
    spark = open_spark(table, settings=settings)
    import lakeformat.spark

    lakeformat.spark.register(spark)
    spark.range(1000).selectExpr("sum(id)").collect()
    memory = Memory(os.getpid())
    idle = memory.sample()
    steps = _steps(spark, case, str(table))
    try:
        for name in names:
            with memory.watched() as peak:
                started = time.perf_counter()
                steps[name]()
                seconds = time.perf_counter() - started
            grown = {part: round((peak[part] - idle[part]) / 1e6) for part in PARTS}
            print(json.dumps({"step": name, "seconds": round(seconds, 2), "megabytes": grown}), flush=True)
    finally:
        spark.stop()
    files = sum(1 for _ in table.rglob("*.parquet"))
    size = sum(file.stat().st_size for file in table.rglob("*.parquet"))
    print(json.dumps({"step": "files", "files": files, "megabytes": round(size / 1e6)}), flush=True)
    shutil.rmtree(FOLDER, ignore_errors=True)


_NAMES: Final = (
    "load", "upsert 1 %", "upsert 50 %", "delete 1 %", "z-order", "scan", "count", "two columns", "point",
)  # fmt: skip


def main() -> None:
    """Run each case in a process of its own, and print a table for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="4000000", help="comma-separated")
    parser.add_argument("--partitions", default="8,100", help="comma-separated")
    parser.add_argument("--columns", type=int, default=0, help="further columns of 8 bytes")
    parser.add_argument("--files", type=int, default=0, help="about so many files; 0 for the default file size")
    parser.add_argument("--steps", default=",".join(_NAMES), help=f"comma-separated, of: {', '.join(_NAMES)}")
    parser.add_argument("--merge", default="auto", help="lakeformat.write.merge: auto, executors or driver")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    names = [name.strip() for name in arguments.steps.split(",")]
    if unknown := sorted(set(names) - set(_NAMES)):
        parser.error(f"no such step: {', '.join(unknown)}; steps are {', '.join(_NAMES)}")
    if arguments.case:
        return _run_case(Case(**json.loads(arguments.case)), names)
    print(f"{machine()}; {MASTER}, executors of 1 GB, a driver of 1 GB")
    for rows in map(int, arguments.rows.split(",")):
        for partitions in map(int, arguments.partitions.split(",")):
            case = Case(rows, partitions, arguments.columns, arguments.files, arguments.merge)
            _print_case(case, arguments.steps)
    return None


def _print_case(case: Case, steps: str) -> None:
    command = [sys.executable, "-m", "benchmarks.scale", "--steps", steps, "--case", json.dumps(asdict(case))]
    head = "".join(f" {part}, MB |" for part in PARTS)
    print(f"\n{case.name}\n\n| step | seconds |{head}\n|---|---:|{'---:|' * len(PARTS)}", flush=True)
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("w") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        for line in process.stdout or ():
            if not line.startswith("{"):
                continue
            found = json.loads(line)
            if found["step"] == "files":
                print(f"\n{found['files']:,} files at the end, {found['megabytes']:,} MB")
            else:
                cells = "".join(f" {found['megabytes'][part]:,} |" for part in PARTS)
                print(f"| {found['step']} | {found['seconds']} |{cells}", flush=True)
    if process.returncode:
        print(f"failed with exit code {process.returncode}; see {LOG}", flush=True)


if __name__ == "__main__":
    main()
