"""``python -m benchmarks.metadata_costs``: what keeping the metadata table costs a write.

One table is loaded and copied for each line: without a metadata table, with ``files``, with statistics, with the record
index. Each copy gets three upserts of 1 % of the rows, which are spread over all files, and one insert of a quarter as
many new keys. The median counts, as processor seconds, since other work on the machine disturbs them least. ``--rows``
changes the size, ``--version`` and ``--kind`` the table.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

import lakeformat
from benchmarks.peers_setup import ROOT

WORK: Final = ROOT / ".work" / "metadata_costs"
#: Maps a line of the result to the indexes that its table has.
LINES: Final = {
    "without": (),
    "files": ("files",),
    "files, column_stats, partition_stats": ("column_stats", "partition_stats"),
    "the same and record_index": ("column_stats", "partition_stats", "record_index"),
    "the same and bloom_filters": ("column_stats", "partition_stats", "record_index", "bloom_filters"),
}
_UPSERTS: Final = 3
_PARTITIONS: Final = 8


def make_rows(keys: np.ndarray, version: int) -> pa.Table:
    """Return a row for each key."""
    draw = np.random.default_rng(version)
    return pa.table(
        {
            "id": pa.array([f"key-{key:012}" for key in keys.tolist()]),
            "day": pa.array([f"d{key % _PARTITIONS}" for key in keys.tolist()]),
            "ts": pa.array(np.full(len(keys), version)),
            "amount": pa.array(draw.random(len(keys))),
            "quantity": pa.array(draw.integers(0, 1000, len(keys)), pa.int32()),
            "note": pa.array(draw.integers(0, 5000, len(keys))).cast(pa.string()),
        }
    )


def measure(work: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds and the processor seconds of a call."""
    started, worked = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - worked


def main() -> None:
    """Make the tables, measure, and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--version", type=int, default=9)
    parser.add_argument("--kind", default="COPY_ON_WRITE")
    parser.add_argument("--lines", help="Numbers of the lines to measure, commas between them; all by default.")
    arguments = parser.parse_args()
    shutil.rmtree(WORK, ignore_errors=True)
    count, draw = arguments.rows, np.random.default_rng(0)
    rows = make_rows(np.arange(count), 1)
    settings = {"hoodie.write.table.version": arguments.version, "table_type": arguments.kind}
    lakeformat.create(
        WORK / "first", rows.schema, record_key="id", partition_by="day", ordering="ts", **settings
    ).bulk_insert(rows)
    del rows
    updates = [make_rows(np.sort(draw.choice(count, count // 100, replace=False)), 2 + at) for at in range(_UPSERTS)]
    new = make_rows(np.arange(count, count + count // 4), 9)
    numbers = None if arguments.lines is None else set(map(int, arguments.lines.split(",")))
    first: dict[str, float] = {}
    print(f"{count:,} rows, version {arguments.version}, {arguments.kind}; processor seconds (seconds), x of the first")
    for number, (line, names) in enumerate(LINES.items()):
        if numbers is not None and number not in numbers:
            continue
        shutil.copytree(WORK / "first", WORK / "copy")
        table = lakeformat.open(WORK / "copy")
        making = measure(lambda: [table.create_index(name) for name in names])  # noqa: B023
        table.upsert(updates[0].slice(0, 10))
        upserts = [measure(lambda: table.upsert(each)) for each in updates]  # noqa: B023
        wall, worked = (statistics.median(each[at] for each in upserts) for at in (0, 1))
        insert = measure(lambda: table.insert(new))  # noqa: B023
        first = first or {"upsert": worked, "insert": insert[1]}
        print(
            f"{line:42} upsert 1 %: {worked:6.2f} ({wall:6.2f}) {worked / first['upsert']:5.2f} x   "
            f"insert {len(new):,}: {insert[1]:6.2f} ({insert[0]:6.2f}) {insert[1] / first['insert']:5.2f} x   "
            f"made in {making[1]:6.2f} ({making[0]:6.2f})",
            flush=True,
        )
        shutil.rmtree(WORK / "copy")


if __name__ == "__main__":
    main()
