"""``python -m benchmarks.planning``: plan reads of a table of a million files that exist in the index only.

The table has a thousand partitions of a thousand files each and ten columns with bounds: one follows the partitions,
one is clustered within them, the others are random. Each query is planned in a new process that has read nothing
before. The target: a selective query in 3 s and 2 GB, without listing a folder of the table. The run takes about a
minute.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

import lakeformat
from benchmarks.process_tree import peak_bytes
from benchmarks.workload import WORK
from lakeformat.file_system_view.file_index.replay import cover_timeline
from lakeformat.file_system_view.file_index.stored import bounds_schema, with_bounds
from lakeformat.file_system_view.file_index.update import write_manifest, write_shard
from lakeformat.file_system_view.live_files import FILE_COLUMNS
from lakeformat.predicate import ColumnBounds
from lakeformat.read.query import resolve_query
from lakeformat.read.run.session import plan_read

__all__ = ["main"]

SECONDS: Final = 3.0
GIGABYTES: Final = 2.0
FILES_A_PARTITION: Final = 1000
SHARD_FILES: Final = 100_000
ROWS: Final = 1_000_000
SCHEMA: Final = pa.schema(
    [
        ("id", pa.string()),
        ("day", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("x", pa.int64()),
        *[(f"n{number}", pa.int64()) for number in range(3)],
        *[(f"d{number}", pa.float64()) for number in range(3)],
    ]
)
QUESTIONS: Final = {
    "a partition and a range in it": "day = 'd0500' and x between 1000 and 2000",
    "a range of time": "at >= timestamp'2020-03-01 00:00:00' and at < timestamp'2020-03-01 06:00:00'",
    "a range of a clustered column": "x between 1000 and 2000",
    "a narrow range of a random column": "n1 between 5000000 and 5000100",
    "three columns": "x < 3000 and n0 > 999000000 and d2 < 1e-4",
}


@dataclass(frozen=True)
class Planned:
    """The cost and the result of planning one query."""

    seconds: float
    bytes: int
    files: int
    kept: int


def main() -> int:
    """Make the index, plan the queries and print the figures. Return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000, help="of a thousand files each")
    partitions = parser.parse_args().partitions
    path = Path(WORK, "planning")
    shutil.rmtree(path, ignore_errors=True)
    started = time.perf_counter()
    make(path, partitions)
    size = sum(file.stat().st_size for file in Path(path, ".hoodie/.lakeformat/index").iterdir())
    print(f"{partitions * FILES_A_PARTITION:,} files, {len(SCHEMA)} columns; index of {size / 1e6:,.0f} MB made in "
          f"{time.perf_counter() - started:.1f} s")  # fmt: skip
    missed = False
    for name, where in QUESTIONS.items():
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            found = process.submit(plan, str(path), where).result()
        good = found.seconds <= SECONDS and found.bytes <= GIGABYTES * 1e9
        missed |= not good
        print(
            f"{name:<34} {found.seconds:6.2f} s  {found.bytes / 1e9:5.2f} GB  {found.kept:>7,} of {found.files:,} files"
            f"{'' if good else '  MISSED'}"
        )
    shutil.rmtree(path, ignore_errors=True)
    return int(missed)


def make(path: Path, partitions: int) -> None:
    """Create a table whose index lists the files of ``partitions`` partitions."""
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="day")
    table.upsert(pa.Table.from_pylist([dict.fromkeys(SCHEMA.names, None) | {"id": "0", "day": "d0000"}], SCHEMA))
    store = table.context.store
    timeline = store.load(store.config().archive_folder)
    random, schema = np.random.default_rng(7), bounds_schema(SCHEMA)
    of_shard = SHARD_FILES // FILES_A_PARTITION
    shards = [
        write_shard(
            store.storage, files(start, min(of_shard, partitions - start), timeline.commits[-1].time, random), schema
        )
        for start in range(0, partitions, of_shard)
    ]
    write_manifest(store.storage, shards, cover_timeline(timeline))


def files(first: int, partitions: int, instant: str, random: np.random.Generator) -> pa.Table:
    """Return the index rows of live files in some partitions, with bounds of ten columns."""
    count = partitions * FILES_A_PARTITION
    days = np.repeat(np.arange(first, first + partitions), FILES_A_PARTITION)
    numbers = np.tile(np.arange(FILES_A_PARTITION), partitions)
    folders = [f"d{day:04}" for day in days.tolist()]
    names = [f"f{n:05}-{d:04}-0_0-0-0_{instant}.parquet" for n, d in zip(numbers.tolist(), days.tolist(), strict=True)]
    sizes = pa.array(random.integers(90_000_000, 125_000_000, count))
    rows, groups = pa.array(np.full(count, ROWS)), pa.array(np.full(count, 8, np.int32))
    plain = pa.Table.from_arrays(
        [pa.array(folders), pa.array(names), pa.array([instant] * count), sizes, rows, groups], schema=FILE_COLUMNS
    )
    none = pa.array(np.zeros(count, np.int64))
    start = pa.scalar(1_577_836_800_000_000).as_py() + days * 86_400_000_000 // 10
    at = pa.array(start).cast(pa.timestamp("us", "UTC"))
    keys = [f"k{value:012}" for value in random.integers(0, 10**12, count).tolist()]
    bounds = {
        "id": ColumnBounds(pa.array(keys), pa.array([f"{key}~" for key in keys]), none),
        "day": ColumnBounds(pa.array(folders), pa.array(folders), none),
        "at": ColumnBounds(at, pa.array(start + 8_640_000_000).cast(at.type), none),
        "x": ColumnBounds(pa.array(numbers * 1000), pa.array(numbers * 1000 + 999), none),
    }
    for number in range(3):
        low = random.integers(0, 10**9, count)
        bounds[f"n{number}"] = ColumnBounds(pa.array(low), pa.array(low + 1_000_000), none)
        share = random.random(count)
        bounds[f"d{number}"] = ColumnBounds(pa.array(share), pa.array(share + 1e-3), none)
    return with_bounds(plain, bounds)


def plan(path: str, where: str) -> Planned:
    """Open the table in a new process and plan one read."""
    started = time.perf_counter()
    table = lakeformat.open(path)
    snapshot = table.snapshot()
    query = resolve_query(snapshot.columns(path), table.options, where=where)
    found = plan_read(table.context.storage, snapshot, query, split_bytes=128 << 20)
    return Planned(time.perf_counter() - started, peak_bytes(), found.files, found.files_after_stats)


if __name__ == "__main__":
    sys.exit(main())
