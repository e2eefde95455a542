"""``python -m benchmarks.new_keys``: the bytes that an upsert of new random keys writes, by index type.

SIMPLE reads every key column, so it finds no key by mistake. The other types may write at most a fifth more than
SIMPLE. The run takes about a minute on 2 cores for 2,000,000 rows in 100 files; ``--rows``, ``--files`` and ``--keys``
change its size.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

import lakeformat
from benchmarks.peers_setup import ROOT
from benchmarks.results import machine

WORK: Final = ROOT / ".work" / "new_keys"
KINDS: Final = ("SIMPLE", "AUTO", "BLOOM")
#: The limit of the bytes written, as a multiple of those that SIMPLE writes.
LIMIT: Final = 1.2
#: No small file is topped up, so an upsert rewrites a file only if the index takes it for the file of a key.
OPTIONS: Final[Mapping[str, Any]] = {"hoodie.parquet.small.file.limit": 0}


@dataclass(frozen=True, slots=True)
class Found:
    """The result of one upsert: bytes written, file groups rewritten, and the cost of tagging."""

    written_bytes: int
    rewritten: int
    false_positives: int
    read_bytes: int
    seconds: float


def rows(seed: int, count: int) -> pa.Table:
    """Return rows with random keys of 32 letters, like UUIDs, and two other columns."""
    rng = np.random.default_rng(seed)
    parts = rng.integers(0, 1 << 62, (2, count))
    keys = [f"{high:016x}{low:016x}" for high, low in zip(*parts.tolist(), strict=True)]
    return pa.table({"id": keys, "x": rng.random(count), "v": rng.integers(0, 1 << 40, count)})


def load(path: Path, count: int, files: int) -> None:
    """Create a table of files whose key ranges all overlap."""
    shutil.rmtree(path, ignore_errors=True)
    data = rows(0, count)
    table = lakeformat.create(str(path), data.schema, record_key="id")
    table.bulk_insert(data, partitioner=lambda part: np.arange(part.num_rows) * files // part.num_rows)


def upsert(source: Path, kind: str, new: pa.Table) -> Found:
    """Upsert into a copy of the table."""
    path = source.with_name(kind.lower())
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(source, path)
    table = lakeformat.open(str(path), **{**OPTIONS, "hoodie.index.type": kind})
    before = {file.path: file.name.file_id for file in table.snapshot().files}
    started = time.process_time()
    report = table.upsert(new).report
    seconds = time.process_time() - started
    written = [file for file in table.snapshot().files if file.path not in before]
    tag = next(step for step in report["steps"] if step["step"] == "tag")
    wrong = sum(step.get("false_positives", 0) for step in report["steps"])
    rewritten = sum(file.name.file_id in set(before.values()) for file in written)
    size = sum(file.size_bytes for file in written)
    return Found(size, rewritten, wrong, tag["bytes_read"] + tag["footer_bytes"], seconds)


def line(count: int, kind: str, found: Found, simple: Found) -> str:
    """Return one row of the result table."""
    return (
        f"| {count:,} | {kind} | {found.written_bytes / 1e6:.2f} | {found.written_bytes / simple.written_bytes:.2f} | "
        f"{found.rewritten} | {found.false_positives} | {found.read_bytes / 1e6:.1f} | {found.seconds:.2f} |"
    )


def main() -> int:
    """Measure and print Markdown. Return 1 if an index type writes more than the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.new_keys", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--keys", type=int, nargs="+", default=[200, 20_000, 100_000])
    arguments = parser.parse_args()
    source = WORK / "loaded"
    load(source, arguments.rows, arguments.files)
    print(f"Upserts of new keys into {arguments.rows:,} rows in {arguments.files} files, {machine()['cores']} cores.\n")
    print("| new keys | index | MB written | / SIMPLE | files rewritten | false positives | MB read to tag | CPU s |")
    print("| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    missed = []
    for count in arguments.keys:
        found = {kind: upsert(source, kind, rows(count, count)) for kind in KINDS}
        for kind, each in found.items():
            print(line(count, kind, each, found["SIMPLE"]), flush=True)
            if each.written_bytes > LIMIT * found["SIMPLE"].written_bytes:
                missed.append(f"{kind} writes more than {LIMIT} times what SIMPLE does, of {count:,} new keys")
    for each in missed:
        print(each, file=sys.stderr)
    shutil.rmtree(WORK)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
