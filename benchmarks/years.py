"""``python -m benchmarks.years``: thousands of small commits with all defaults on; does time stay flat?

Of ten commits seven update twenty rows, one deletes twenty, one puts them back, one inserts twenty that the next
round deletes: the table stays as large as it was. After each commit its CPU seconds are noted; now and then a new
process opens the table, and files, instants and memory are counted. Targets: the last commits cost at most 1.2 times
those around the 50th, and so does opening; files, instants and memory stay bounded. 2,000 commits take four minutes
of one core. ``--picture years.png`` draws it (``pip install 'lakeformat[plot]'``).
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

import lakeformat
from benchmarks.workload import WORK

__all__ = ["main"]

ROWS: Final = 20_000
PARTITIONS: Final = 4
CHANGED: Final = 20
#: Commits around the 50th, and as many at the end, whose medians are compared.
WINDOW: Final = 40
EVERY: Final = 25
TARGET: Final = 1.2
SCHEMA: Final = pa.schema([("id", pa.int64()), ("part", pa.string()), ("n", pa.int64()), ("text", pa.string())])
_PAGE: Final = 4096

OPEN: Final = """
import json, sys, time, lakeformat
lakeformat.open(sys.argv[2]).snapshot()  # Everything is imported.
start = time.process_time()
lakeformat.open(sys.argv[1]).snapshot()
print(json.dumps(time.process_time() - start))
"""


@dataclass(frozen=True)
class Look:
    """The table after some commits."""

    commits: int
    opening: float
    files: int
    data_files: int
    instants: int
    memory: int


def rows_of(ids: np.ndarray[Any, Any], number: int) -> pa.Table:
    parts = [f"p{each % PARTITIONS}" for each in ids.tolist()]
    return pa.table([ids, parts, np.full(len(ids), number), [f"commit {number}"] * len(ids)], schema=SCHEMA)


def commits(table: lakeformat.Table, count: int) -> Iterator[float]:
    """Commit, and yield each one's CPU seconds."""
    rng = np.random.default_rng(7)
    away = rng.choice(ROWS, CHANGED, replace=False)
    for number in range(count):
        ids = rng.choice(ROWS, CHANGED, replace=False)
        fresh = np.arange(CHANGED) + ROWS + (number // 10) * CHANGED
        start = time.process_time()
        match number % 10:
            case 3:
                table.delete(rows_of(away, number))
            case 6:
                table.insert(rows_of(away, number))
            case 7:
                table.insert(rows_of(fresh, number))
            case 9:
                table.delete(rows_of(fresh, number))
            case _:
                table.upsert(rows_of(ids, number))
        yield time.process_time() - start


def look(path: Path, number: int) -> Look:
    answers = [
        subprocess.run(
            [sys.executable, "-c", OPEN, str(path), str(path.with_name("small"))],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for _ in range(3)
    ]
    files = [each for each in path.rglob("*") if each.is_file()]
    data = [each for each in files if each.suffix == ".parquet" and ".hoodie" not in each.parts]
    instants = len(lakeformat.open(path).snapshot().timeline.instants)
    memory = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    return Look(number, min(map(json.loads, answers)), len(files), len(data), instants, memory)


def ratio(values: Sequence[float], at: int) -> tuple[float, float]:
    """Medians of those around ``at``, and of the last."""
    early = values[max(0, at - WINDOW // 2) : at + WINDOW // 2]
    return statistics.median(early), statistics.median(values[-WINDOW:])


def draw(seconds: Sequence[float], looks: Sequence[Look], picture: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6.4), layout="constrained")
    panels = figure.subplots(2, 2).flat
    window = [statistics.median(seconds[max(0, at - WINDOW) : at + 1]) * 1000 for at in range(len(seconds))]
    at = [each.commits for each in looks]
    panels[0].plot([second * 1000 for second in seconds], ".", markersize=1.5, color="#9db0c4")
    panels[0].plot(window, color="#15304b")
    panels[0].set_title("CPU of a commit, ms (line: median)")
    panels[0].set_ylim(0, 3 * window[-1])
    panels[1].plot(at, [each.opening * 1000 for each in looks], color="#c4541c")
    panels[1].set_title("CPU of opening in a new process, ms")
    panels[2].plot(at, [each.files for each in looks], color="#15304b", label="all files")
    panels[2].plot(at, [each.data_files for each in looks], color="#9db0c4", label="data files")
    panels[2].plot(at, [each.instants for each in looks], color="#c4541c", label="instants on the timeline")
    panels[2].set_title("files on disk, instants")
    panels[2].legend(frameon=False)
    panels[3].plot(at, [each.memory / 1e6 for each in looks], color="#15304b")
    panels[3].set_title("memory of the writer, MB")
    for panel in panels:
        panel.set_ylim(bottom=0)
        panel.set_xlabel("commits")
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=110)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, print the figures and return 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.years", description=__doc__)
    parser.add_argument("--commits", type=int, default=2000)
    parser.add_argument("--version", type=int, default=6, choices=(6, 8, 9), help="of the table")
    parser.add_argument("--picture", type=Path, help="where to draw it")
    asked = parser.parse_args(arguments)
    path = WORK / "years" / f"v{asked.version}"
    shutil.rmtree(path.parent, ignore_errors=True)
    options = {"hoodie.write.table.version": asked.version, "hoodie.parquet.max.file.size": 4 << 20}
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="part", **options)
    table.bulk_insert(rows_of(np.arange(ROWS), 0))
    small = lakeformat.create(path.with_name("small"), SCHEMA, record_key="id", partition_by="part", **options)
    small.bulk_insert(rows_of(np.arange(10), 0))
    seconds: list[float] = []
    looks: list[Look] = []
    for second in commits(table, asked.commits):
        seconds.append(second)
        if len(seconds) % EVERY == 0:
            looks.append(look(path, len(seconds)))
    early, late = ratio(seconds, 50)
    opened, reopened = ratio([each.opening for each in looks], 50 // EVERY)
    last, peak = looks[-1], max(looks, key=lambda each: each.files)
    print(f"{len(seconds)} commits, table version {asked.version}")
    print(
        f"commit:  {early * 1000:.1f} ms of CPU around the 50th, {late * 1000:.1f} ms at the end, x {late / early:.2f}"
    )
    print(f"opening: {opened * 1000:.1f} ms early, {reopened * 1000:.1f} ms at the end, x {reopened / opened:.2f}")
    print(f"files:   {last.files} at the end, {last.data_files} of them data; most {peak.files} after {peak.commits}")
    print(f"instants on the timeline: {max(each.instants for each in looks)} at most")
    print(f"memory:  {looks[0].memory / 1e6:.0f} MB after {EVERY} commits, {last.memory / 1e6:.0f} MB at the end")
    if asked.picture:
        draw(seconds, looks, asked.picture)
    shutil.rmtree(path.parent, ignore_errors=True)
    return int(late > TARGET * early or reopened > TARGET * opened)


if __name__ == "__main__":
    raise SystemExit(main())
