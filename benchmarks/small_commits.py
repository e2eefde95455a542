"""``python -m benchmarks.small_commits``: processor time of a commit of one row, beside delta-rs and pyiceberg.

The table has one file and one row. Each engine runs in new processes, in turns with the others; the fastest of the
rounds counts, since other work on the machine only adds to processor time. The middle commit of a round is printed, so
cleans, which follow each of our commits by default, are in it. Engines that cannot be imported are left out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from benchmarks.peers_setup import ROOT
from benchmarks.results import machine

_SCHEMA: Final = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("v", pa.string())])
_WARM: Final = 20

_Write = Callable[[pa.Table], object]


def _rows(number: int, key: int = 1) -> pa.Table:
    return pa.table({"id": [key], "ts": [number], "v": [f"value {number}"]}, schema=_SCHEMA)


def _lakeformat(folder: Path, kind: str, **more: Any) -> dict[str, _Write]:
    import lakeformat

    table = lakeformat.create(
        folder,
        _SCHEMA,
        record_key="id",
        ordering="ts",
        **{"hoodie.write.table.version": 9, "hoodie.datasource.write.table.type": kind, **more},
    )
    return {"upsert": table.upsert, "insert": table.insert}


def _delta(folder: Path) -> dict[str, _Write]:
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(folder, _rows(0))

    def merge(rows: pa.Table) -> None:
        merger = DeltaTable(folder).merge(rows, "s.id = t.id", source_alias="s", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    return {"upsert": merge, "insert": lambda rows: write_deltalake(folder, rows, mode="append")}


def _iceberg(folder: Path) -> dict[str, _Write]:
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir()
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", _SCHEMA)
    table.append(_rows(0))
    return {"upsert": lambda rows: table.upsert(rows, join_cols=["id"]), "insert": table.append}


_ENGINES: Final[dict[str, Callable[[Path], dict[str, _Write]]]] = {
    "lakeformat, copy-on-write": lambda folder: _lakeformat(folder, "COPY_ON_WRITE"),
    "lakeformat, merge-on-read": lambda folder: _lakeformat(folder, "MERGE_ON_READ"),
    "lakeformat, copy-on-write, without services": lambda folder: _lakeformat(
        folder, "COPY_ON_WRITE", **{"hoodie.clean.automatic": False, "hoodie.archive.automatic": False}
    ),
    "delta-rs": _delta,
    "pyiceberg": _iceberg,
}


def _measure(engine: str, verb: str, commits: int) -> float:
    """Return the processor seconds of the middle commit."""
    folder = Path(tempfile.mkdtemp(dir=ROOT / ".work"))
    try:
        write = _ENGINES[engine](folder / "t")[verb]
        found = []
        for number in range(1, _WARM + commits + 1):
            rows = _rows(number, 1 if verb == "upsert" else number)
            started = time.process_time()
            write(rows)
            found.append(time.process_time() - started)
        return statistics.median(found[_WARM:])
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Run all engines in turns, and print the result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_commits", description=__doc__.splitlines()[0])
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    (ROOT / ".work").mkdir(exist_ok=True)
    if arguments.one:
        print(json.dumps(_measure(*arguments.one, arguments.commits)))
        return
    best: dict[tuple[str, str], float] = {}
    for _ in range(arguments.rounds):
        for engine in _ENGINES:
            for verb in ("upsert", "insert"):
                command = [sys.executable, "-m", "benchmarks.small_commits", "--commits", str(arguments.commits)]
                done = subprocess.run(
                    [*command, "--one", engine, verb], cwd=ROOT, capture_output=True, text=True, check=False
                )
                if done.returncode:
                    print(f"{engine}, {verb}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                    continue
                seconds = json.loads(done.stdout)
                best[engine, verb] = min(seconds, best.get((engine, verb), seconds))
    print(f"{machine()}\n\n| processor ms of a commit of one row | upsert | insert |\n| --- | ---: | ---: |")
    for engine in _ENGINES:
        cells = (f"{best[engine, verb] * 1000:.1f}" if (engine, verb) in best else "" for verb in ("upsert", "insert"))
        print(f"| {engine} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
