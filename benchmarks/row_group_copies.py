"""``python -m benchmarks.row_group_copies``: writes that copy row groups, beside those that encode all rows.

Each table has one base file of about 120 MB with ten row groups; its keys follow time. Each case runs in turn with and
without copies; the best of the runs counts:

- ``one row group``: an upsert of 1 %, of rows of one row group;
- ``random keys``: an upsert of 1 %, of rows of all row groups;
- ``one day deleted``: a delete by condition of rows that are adjacent in time;
- ``one of 40 columns``: an update by condition of one column in half of the rows;
- ``topping up``: an insert of 1 % into the file;
- ``compaction``: of the file and log rows for 1 % of its rows, all in one row group;
- ``joined files``: a clustering without sort columns of ten files with one row group each.
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
OPTIONS: Final[Mapping[str, Any]] = {"hoodie.parquet.max.file.size": 1 << 30}


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


def wide_rows(numbers: np.ndarray[Any, Any], edition: int) -> pa.Table:
    """Return orders with forty columns."""
    rng = np.random.default_rng(edition + 100)
    found = rows(numbers, edition).drop_columns(["note"])
    for at in range(found.num_columns, 40):
        found = found.append_column(f"measure_{at}", pa.array(np.round(rng.random(len(numbers)) * 10**6, 1)))
    return found


@dataclass(frozen=True, slots=True)
class Case:
    """A write that is measured.

    Attributes:
        write: makes the write, given the table and the changed rows.
        make_changes: makes the changed rows; returns None if a condition chooses them.
        limit: limit of seconds and processor seconds, as a multiple of those of the write that encodes all rows.
        make_rows: makes the rows of the table.
        groups: number of the table's row groups.
        small_file_limit: the size in bytes below which inserts go into a file.
        table_type: type of the table.
        logs: whether the changed rows are in log files before the write.
        files: number of the table's files.
    """

    write: Callable[[Any, pa.Table | None], Any]
    make_changes: Callable[[], pa.Table | None]
    limit: float
    make_rows: Callable[[np.ndarray[Any, Any], int], pa.Table] = rows
    groups: int = GROUPS
    small_file_limit: int = 0
    table_type: str = "COPY_ON_WRITE"
    logs: bool = False
    files: int = 1


def _middle(numbers: int) -> str:
    """Return a condition on the time that the given number of rows in the middle of the file meet."""
    first = GROUP_ROWS * 4 + 1000
    low, high = (f"2025-{number // 50_000 + 100:05d}-{number:010d}" for number in (first, first + numbers))
    return f"id >= '{low}' and id < '{high}'"


CASES: Final[Mapping[str, Case]] = {
    "one row group": Case(lambda table, changes: table.upsert(changes), lambda: rows(one_group(), 1), 0.25),
    "random keys": Case(lambda table, changes: table.upsert(changes), lambda: rows(all_groups(), 1), 1.03),
    "one day deleted": Case(lambda table, _: table.delete(where=_middle(100_000)), lambda: None, 0.25),
    "one of 40 columns": Case(
        lambda table, _: table.update({"measure_20": 0.5}, where="quantity < 15"), lambda: None, 0.35, wide_rows, 4
    ),
    "topping up": Case(
        lambda table, changes: table.insert(changes),
        lambda: rows(np.arange(GROUP_ROWS * GROUPS, GROUP_ROWS * GROUPS * 101 // 100), 1),
        0.3,
        small_file_limit=1 << 30,
    ),
    "compaction": Case(
        lambda table, _: table.compact(), lambda: rows(one_group(), 1), 0.35, table_type="MERGE_ON_READ", logs=True
    ),
    "joined files": Case(lambda table, _: table.cluster(), lambda: None, 0.65, files=GROUPS),
}


def load(path: Path, case: Case) -> None:
    """Create the table with its files."""
    shutil.rmtree(path, ignore_errors=True)
    data = case.make_rows(np.arange(GROUP_ROWS * case.groups), 0)
    table = lakeformat.create(str(path), data.schema, record_key="id", table_type=case.table_type, **OPTIONS)
    table.bulk_insert(data, partitioner=lambda part: np.arange(part.num_rows) * case.files // part.num_rows)
    if case.logs:
        table.upsert(case.make_changes())


def run(source: Path, case: Case, changes: pa.Table | None, *, copies: bool) -> Cost:
    """Write into a copy of the table."""
    path = source.with_name("written")
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(source, path)
    options = {"hoodie.parquet.small.file.limit": case.small_file_limit, "lakeformat.write.copy.row.groups": copies}
    table = lakeformat.open(str(path), **OPTIONS, **options)
    started, cpu = time.perf_counter(), time.process_time()
    report = case.write(table, changes).report
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    step = next(step for step in report["steps"] if step["step"] in {"write", "rewrite"})
    return Cost(seconds, cpu, step.get("copied_rows", 0), step.get("copied_bytes", 0))


def measure(source: Path, case: Case, runs: int) -> tuple[Cost, Cost]:
    """Return the best costs with and without copies; the two kinds take turns."""
    found: dict[bool, list[Cost]] = {True: [], False: []}
    changes = case.make_changes()
    for number in range(2 * runs):
        found[number % 2 == 0].append(run(source, case, changes, copies=number % 2 == 0))
    best = [
        Cost(min(c.seconds for c in each), min(c.cpu for c in each), each[0].copied_rows, each[0].copied_bytes)
        for each in found.values()
    ]
    return best[0], best[1]


def main() -> int:
    """Measure and print Markdown. Return 1 if a limit is passed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.row_group_copies", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--cases", nargs="*", choices=CASES, default=[*CASES], metavar="CASE")
    arguments = parser.parse_args()
    print(f"Writes into a file of {GROUPS} row groups (4 with 40 columns), {machine()['cores']} cores.\n")
    print("| write | file MB | copied rows | copied MB | s | s, encoding all | ratio | CPU s | encoding all | ratio |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    missed = []
    for name in arguments.cases:
        case, source = CASES[name], WORK / "loaded"
        load(source, case)
        size = sum(file.stat().st_size for file in source.glob("*.parquet"))
        ours, floor = measure(source, case, arguments.runs)
        ratios = ours.seconds / floor.seconds, ours.cpu / floor.cpu
        seconds = f"{ours.seconds:.2f} | {floor.seconds:.2f} | {ratios[0]:.2f}"
        print(
            f"| {name} | {size / 1e6:.0f} | {ours.copied_rows:,} | {ours.copied_bytes / 1e6:.1f} | "
            f"{seconds} | {ours.cpu:.2f} | {floor.cpu:.2f} | {ratios[1]:.2f} |",
            flush=True,
        )
        missed += [name] if max(ratios) > case.limit else []
    for name in missed:
        print(f"{name}: more than {CASES[name].limit} times the write that encodes all rows", file=sys.stderr)
    shutil.rmtree(WORK)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
