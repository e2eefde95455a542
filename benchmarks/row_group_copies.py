"""``python -m benchmarks.row_group_copies``: upserts of 1 % that copy row groups, beside those that encode all rows.

The table has one base file of about 120 MB with ten row groups; its keys follow time. The case ``one row group``
changes rows of one of them. The case ``random keys`` changes rows of all, so that none can be copied. Each case runs in
turn with and without copies; the best of the runs counts.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

import lakeformat
from benchmarks.peers_setup import ROOT
from benchmarks.results import machine

WORK: Final = ROOT / ".work" / "row_group_copies"
GROUPS: Final = 10
GROUP_ROWS: Final = 131_072
OPTIONS: Final[Mapping[str, Any]] = {"hoodie.parquet.small.file.limit": 0, "hoodie.parquet.max.file.size": 1 << 30}
#: Limits of seconds and processor seconds, as multiples of those of the write that encodes all rows.
LIMITS: Final[Mapping[str, float]] = {"one row group": 0.25, "random keys": 1.03}


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds and processor seconds of a write, and the rows and bytes that it copied."""

    seconds: float
    cpu: float
    copied_rows: int = 0
    copied_bytes: int = 0


def rows(numbers: np.ndarray[Any, Any], edition: int) -> pa.Table:
    """Return orders whose keys follow time."""
    rng = np.random.default_rng(edition)
    count = len(numbers)
    notes = rng.integers(0, 1 << 62, (8, count)).tolist()
    return pa.table({
        "id": [f"2025-{number // 50_000 + 100:05d}-{number:010d}" for number in numbers.tolist()],
        "ts": pa.array(1_750_000_000_000_000 + numbers * 250_000, pa.timestamp("us", "UTC")),
        "customer": rng.integers(0, 1 << 34, count),
        "amount": np.round(rng.random(count) * 1000, 2),
        "tax": np.round(rng.random(count) * 100, 2),
        "product": pa.array([f"product {n}" for n in rng.integers(0, 5000, count).tolist()]),
        "country": pa.array([f"C{n}" for n in rng.integers(0, 80, count).tolist()]),
        "quantity": rng.integers(1, 30, count).astype(np.int32),
        "note": ["".join(map("{:x}".format, parts)) for parts in zip(*notes, strict=True)],
    })  # fmt: skip


def one_group() -> np.ndarray[Any, Any]:
    """Choose 1 % of the rows, all in one row group."""
    return np.sort(np.random.default_rng(1).choice(GROUP_ROWS, GROUP_ROWS * GROUPS // 100, False)) + 4 * GROUP_ROWS


def all_groups() -> np.ndarray[Any, Any]:
    """Choose 1 % of the rows at random."""
    return np.sort(np.random.default_rng(2).choice(GROUP_ROWS * GROUPS, GROUP_ROWS * GROUPS // 100, False))


CASES: Final[Mapping[str, Callable[[], np.ndarray[Any, Any]]]] = {"one row group": one_group, "random keys": all_groups}


def load(path: Path) -> None:
    """Create the table with its one file."""
    shutil.rmtree(path, ignore_errors=True)
    data = rows(np.arange(GROUP_ROWS * GROUPS), 0)
    table = lakeformat.create(str(path), data.schema, record_key="id", **OPTIONS)
    table.bulk_insert(data, partitioner=lambda part: np.zeros(part.num_rows, np.int64))


def upsert(source: Path, changed: pa.Table, *, copies: bool) -> Cost:
    """Upsert into a copy of the table."""
    path = source.with_name("written")
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(source, path)
    table = lakeformat.open(str(path), **OPTIONS, **{"lakeformat.write.copy.row.groups": copies})
    started, cpu = time.perf_counter(), time.process_time()
    report = table.upsert(changed).report
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    step = next(step for step in report["steps"] if step["step"] == "write")
    return Cost(seconds, cpu, step.get("copied_rows", 0), step.get("copied_bytes", 0))


def measure(source: Path, changed: pa.Table, runs: int) -> tuple[Cost, Cost]:
    """Return the best costs with and without copies; the two kinds take turns."""
    found: dict[bool, list[Cost]] = {True: [], False: []}
    for run in range(2 * runs):
        found[run % 2 == 0].append(upsert(source, changed, copies=run % 2 == 0))
    best = [
        Cost(min(c.seconds for c in each), min(c.cpu for c in each), each[0].copied_rows, each[0].copied_bytes)
        for each in found.values()
    ]
    return best[0], best[1]


def main() -> int:
    """Measure and print Markdown. Return 1 if a limit is passed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.row_group_copies", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    source = WORK / "loaded"
    load(source)
    size = sum(file.stat().st_size for file in source.glob("*.parquet"))
    print(f"Upserts of 1 % into a file of {size / 1e6:.0f} MB with {GROUPS} row groups, {machine()['cores']} cores.\n")
    print("| keys | copied rows | copied MB | s | s, encoding all | ratio | CPU s | CPU s, encoding all | ratio |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    missed = []
    for name, choose in CASES.items():
        ours, floor = measure(source, rows(choose(), 1), arguments.runs)
        ratios = ours.seconds / floor.seconds, ours.cpu / floor.cpu
        print(
            f"| {name} | {ours.copied_rows:,} | {ours.copied_bytes / 1e6:.1f} | {ours.seconds:.2f} | "
            f"{floor.seconds:.2f} | {ratios[0]:.2f} | {ours.cpu:.2f} | {floor.cpu:.2f} | {ratios[1]:.2f} |",
            flush=True,
        )
        missed += [name] if max(ratios) > LIMITS[name] else []
    for name in missed:
        print(f"{name}: more than {LIMITS[name]} times the write that encodes all rows", file=sys.stderr)
    shutil.rmtree(WORK)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
