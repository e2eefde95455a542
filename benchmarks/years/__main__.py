"""``python -m benchmarks.years``: thousands of small commits with all defaults on; does their time stay flat?

Each engine's table lives in a process of its own. The CPU seconds of each commit are recorded. After every 25th commit
a new process opens the table, and files, instants and memory are counted. Targets for lakeformat: the last commits cost
at most 1.2 times those around the 50th; opening in the last quarter costs at most 1.2 times that in the first; the
timeline has at most 30 instants. 2,000 commits take four minutes of one core, those of delta-rs five, 200 of Hudi's
ten. ``--picture years.png`` draws the result (``pip install 'lakeformat[plot]'``).
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from benchmarks.engines import ENGINES as SPECS
from benchmarks.peers_setup import ROOT, python_for
from benchmarks.years.picture import draw
from benchmarks.years.workload import Look

KINDS: Final = ("6", "8", "9", "6-mor", "8-mor", "9-mor")
#: The number of commits around the 50th, and at the end, whose medians are compared.
WINDOW: Final = 40
TARGET: Final = 1.2
INSTANTS: Final = 30


def run_life(engine: str, kind: str, count: int) -> Iterator[Look]:
    """Run a table's life in a process of its own and yield the looks that it prints."""
    path = ROOT / ".work" / "years" / f"{engine}-{kind}" / "table"
    shutil.rmtree(path.parent, ignore_errors=True)
    path.parent.mkdir(parents=True)
    command = [str(python_for(SPECS[engine])), "-m", "benchmarks.years.one", engine, kind, str(count), str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if line.startswith("{"):
                look = Look(**json.loads(line))
                print(f"\r{engine} {kind}: {look.commits} commits", end="", file=sys.stderr)
                yield look
    if process.returncode:
        raise SystemExit(f"{engine}: its process ended with {process.returncode}; its words stand above")
    print(file=sys.stderr)
    shutil.rmtree(path.parent, ignore_errors=True)


def commit_seconds(looks: Sequence[Look]) -> tuple[float, float]:
    """Return the CPU seconds of a commit: the median of those around the 50th, and of the last."""
    seconds = [second for each in looks for second in each.seconds]
    return statistics.median(seconds[50 - WINDOW // 2 : 50 + WINDOW // 2]), statistics.median(seconds[-WINDOW:])


def opening_seconds(looks: Sequence[Look]) -> tuple[float, float]:
    """Return the CPU seconds of opening: the medians of the first and of the last looks; 0 without a measurement."""
    seconds = [each.opening or 0.0 for each in looks]
    half = min(20, len(seconds) // 2)
    return statistics.median(seconds[:half]), statistics.median(seconds[-half:])


def table_row(title: str, looks: Sequence[Look]) -> str:
    """Return one row of the result table."""
    early, late = commit_seconds(looks)
    last = looks[-1]
    first, later = opening_seconds(looks)
    opening = "" if last.opening is None else f"{first * 1000:.1f} / {later * 1000:.1f} ms"
    cells = (
        title,
        str(last.commits),
        f"{early * 1000:.0f} / {late * 1000:.0f} ms",
        f"{late / early:.2f}",
        opening,
        f"{last.files} ({last.data_files})",
        str(max(each.instants for each in looks)),
        f"{looks[0].memory / 1e6:.0f} / {last.memory / 1e6:.0f} MB",
    )
    return f"| {' | '.join(cells)} |"


def missed_targets(looks: Sequence[Look]) -> list[str]:
    """Return the targets that lakeformat missed."""
    early, late = commit_seconds(looks)
    first, later = opening_seconds(looks)
    return [
        *(["a commit"] if late > TARGET * early else []),
        *(["opening"] if later > TARGET * first else []),
        *(["instants"] if max(each.instants for each in looks) > INSTANTS else []),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the engines and print the figures. Return 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.years", description=__doc__)
    parser.add_argument("--commits", type=int, default=2000)
    parser.add_argument("--kinds", default="6", help=f"of our tables, comma-separated: {', '.join(KINDS)}")
    parser.add_argument("--peers", default="", help="comma-separated: delta-rs, hudi")
    parser.add_argument("--hudi-commits", type=int, default=200, help="Hudi's take a second and more each")
    parser.add_argument("--picture", type=Path, help="where to draw it")
    options = parser.parse_args(arguments)
    lives = [(f"lakeformat, version {kind}", "lakeformat", kind, options.commits) for kind in options.kinds.split(",")]
    if "delta-rs" in options.peers:
        lives.append(("delta-rs", "delta-rs", "", options.commits))
    if "hudi" in options.peers:
        lives.append(("Hudi on Spark", "hudi", "", options.hudi_commits))
    print(
        "| table | commits | CPU of a commit, 50th / last | ratio | opening, early / late "
        "| files (data) | instants | memory |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    found = {}
    short = []
    for title, engine, kind, count in lives:
        found[title] = list(run_life(engine, kind, count))
        print(table_row(title, found[title]), flush=True)
        if engine == "lakeformat":
            short += [f"{title}: {what}" for what in missed_targets(found[title])]
    if options.picture:
        draw(found, options.picture)
    print("all targets are met" if not short else f"missed: {'; '.join(short)}")
    return int(bool(short))


if __name__ == "__main__":
    raise SystemExit(main())
