"""``python -m benchmarks.bad_case``: random keys into many files whose key ranges all overlap.

This is the case of apache/hudi issue 13090, where the cost of tagging with the bloom index grows with keys times files:
100,000 random keys, nine in ten of them already stored, are upserted into 2,000,000 rows in 1,000 files of one
partition. No file is topped up. Hudi 1.1.1 took 707 s with BLOOM and 133 s with SIMPLE on 2 cores, after a load of 82
s.

The table is loaded once. Each index type gets a copy of it and a process of its own. The run takes about one minute.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import lakeformat
from benchmarks.process_tree import peak_bytes
from benchmarks.targets import BAD_CASE, Verdict
from benchmarks.warm_memory import warm
from benchmarks.workload import (
    CORES,
    ORDERING,
    RECORD_KEY,
    SCHEMA,
    WORK,
    Content,
    Dataset,
    Variant,
    expected_content,
    prepare,
)

SAMPLE: Final = "u5all-1"
_PACKING_OFF: Final = {"hoodie.parquet.small.file.limit": 0}
Out = TypeVar("Out")


@dataclass(frozen=True)
class Load:
    """The result of the load."""

    seconds: float
    files: int
    peak_bytes: int


@dataclass(frozen=True)
class Upsert:
    """The result of one upsert. ``tag`` is the report's step: seconds, candidates after each narrowing, bytes read."""

    seconds: float
    tag: dict[str, Any]
    files: int
    peak_bytes: int
    content: Content


def load(dataset: Dataset, table: Path, files: int) -> Load:
    """Create and load the table.

    ``ts`` counts the rows and deals them to the files in turn, so all key ranges overlap.
    """
    pa.set_cpu_count(CORES)
    created = lakeformat.create(
        str(table),
        SCHEMA,
        record_key=RECORD_KEY,
        ordering=ORDERING,
        **_PACKING_OFF,
    )
    started = time.perf_counter()
    rows = ds.dataset(dataset.base_files(), schema=SCHEMA).scanner().to_reader()
    created.bulk_insert(rows, partitioner=lambda part: np.asarray(part[ORDERING]) % files)
    return Load(time.perf_counter() - started, _files_of(created), peak_bytes())


def upsert(rows: Path, table: Path, index: str) -> Upsert:
    """Upsert the rows with this index type."""
    pa.set_cpu_count(CORES)
    opened = lakeformat.open(str(table), **_PACKING_OFF, **{"hoodie.index.type": index})
    os.sync()
    started = time.perf_counter()
    result = opened.upsert(pq.read_table(rows))
    seconds, peak = time.perf_counter() - started, peak_bytes()
    tag = next(step for step in result.report["steps"] if step["step"] == "tag")
    amounts = opened.to_arrow(columns=["amount"], meta_columns=False)["amount"]
    content = Content(len(amounts), pc.sum(amounts).as_py())
    return Upsert(seconds, tag, _files_of(opened), peak, content)


def _files_of(table: Any) -> int:
    return sum(map(len, table.snapshot().by_partition.values()))


def _alone(call: Callable[..., Out], *arguments: Any) -> Out:
    """Run the call in a process of its own, after warming the memory."""
    warm()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(call, *arguments).result()


def row(index: str, found: Upsert) -> str:
    """Return one row of the result table."""
    tag = found.tag
    cells = [
        index,
        f"{tag['seconds']:.2f} s",
        f"{found.seconds:.2f} s",
        f"{tag['after_ranges']:,} / {tag['after_filters']:,} / {tag['checked']:,}",
        f"{(tag['bytes_read'] + tag['footer_bytes']) / 1e6:.1f} MB",
        f"{found.peak_bytes / 1e9:.2f} GB",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    """Measure and print Markdown. Return 1 if AUTO misses the target or the contents are wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bad_case", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--indexes", nargs="+", choices=("AUTO", "BLOOM", "SIMPLE"), default=["AUTO"])
    arguments = parser.parse_args()
    dataset = prepare(WORK, Variant(arguments.rows, "random"), [SAMPLE])
    expected = expected_content(dataset, [SAMPLE])
    folder = WORK / "bad-case"
    shutil.rmtree(folder, ignore_errors=True)
    loaded = _alone(load, dataset, folder / "loaded", arguments.files)
    print(
        f"{dataset.variant.sample_rows['u5all']:,} random keys into {arguments.rows:,} rows in {loaded.files:,} files, "
        f"packing off. Load: {loaded.seconds:.1f} s, {loaded.peak_bytes / 1e9:.2f} GB.\n"
    )
    print("| index | tagging | whole upsert | candidates: ranges / filters / checked | read to tag | peak memory |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
    bad = []
    for index in arguments.indexes:
        shutil.copytree(folder / "loaded", folder / index)
        found = _alone(upsert, dataset.sample(SAMPLE), folder / index, index)
        shutil.rmtree(folder / index)
        print(row(index, found), flush=True)
        if not found.content.agrees(expected):
            bad.append(f"{index}: the table holds {found.content}, expected is {expected}")
        if index == "AUTO":
            verdict = Verdict("bad case, whole upsert", found.seconds, BAD_CASE, "s")
            print(verdict, file=sys.stderr)
            bad += [] if verdict.passed else [str(verdict)]
    shutil.rmtree(folder)
    for problem in bad:
        print(problem, file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
