"""``python -m benchmarks.years.one ENGINE KIND COMMITS PATH``: one table's life; each look is printed as JSON."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks.process_tree import cpu_seconds, resident_bytes
from benchmarks.years.engines import ENGINES, Life
from benchmarks.years.workload import Look, commits

EVERY: Final = 25


def look(life: Life, path: Path, number: int, seconds: list[float]) -> Look:
    """Measure the files on disk, the time to open the table, and the memory of this process and its descendants."""
    # Hadoop writes them on local disks.
    files = [each for each in path.rglob("*") if each.is_file() and each.suffix != ".crc"]
    inner = {".hoodie", "_delta_log"}
    data = [each for each in files if not inner & set(each.parts)]
    return Look(number, seconds, life.opening(), len(files), len(data), life.instants(), resident_bytes())


def main(name: str, kind: str, count: int, path: Path) -> None:
    """Run the commits and print a look after every `EVERY` of them."""
    life = ENGINES[name](path, kind)
    clock = cpu_seconds if name == "hudi" else time.process_time
    seconds: list[float] = []
    for number, commit in enumerate(commits(count), 1):
        start = clock()
        life.commit(commit)
        seconds.append(clock() - start)
        if number % EVERY == 0:
            print(json.dumps(asdict(look(life, path, number, seconds))), flush=True)
            seconds = []


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
