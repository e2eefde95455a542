"""The benchmark of layouts: it lays out tables, judges them and prints the result.

The run takes about ten minutes on 2 cores with both peers, one minute without peers. ``PEERS`` names the peers
(``delta``, ``iceberg``, ``all``; default: none). ``--readme`` puts the table into docs/reference/benchmarks.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, Final

from benchmarks.engines import ENGINES
from benchmarks.peers_setup import ROOT, SetupError, python_for
from benchmarks.report import PAGE, update_block
from benchmarks.results import machine
from benchmarks.skipping.data import CASES, Case, columns_of, filters_of, write_input
from benchmarks.skipping.judge import files_of, our_reader
from benchmarks.skipping.layouts import FILES, LAYOUTS

WORK: Final = ROOT / ".work" / "skipping"
PEERS: Final = ("delta", "iceberg")
TITLES: Final = {
    "lakeformat-hilbert": "lakeformat, hilbert",
    "lakeformat-zorder": "lakeformat, z-order",
    "delta": "Delta, z-order",
    "iceberg": "Iceberg, z-order",
}
#: The number of filters of each kind.
_BOXES: Final = 200
_MOST_OF_INTEGERS: Final = 1.2
_MARK: Final = "skipping"

#: Case -> engine -> its files, seconds and verdicts.
Found = dict[str, dict[str, dict[str, Any]]]


def lay_out(engine: str, cases: list[Case], folder: Path, timeout_seconds: float) -> None:
    """Run one engine's process. Raise `SetupError` if it cannot be made or fails."""
    python = python_for(ENGINES[engine]) if engine in ENGINES else Path(sys.executable)
    names = ",".join(case.name for case in cases)
    command = [str(python), "-m", "benchmarks.skipping.layouts", engine, "--folder", str(folder), "--cases", names]
    log = folder / f"{engine}.log"
    with log.open("wb") as output:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=timeout_seconds,
            check=False,
        )
    if done.returncode:
        raise SetupError(f"{engine} failed with exit code {done.returncode}; see {log}")


def judge_engine(case: Case, engine: str, rows: int, folder: Path, *, boxes: int = _BOXES) -> dict[str, Any]:
    """Judge the files of an engine by ``boxes`` filters of each kind.

    Return the number of files, seconds and verdicts.
    """
    left = json.loads((folder / case.name / f"{engine}.json").read_text())
    files = files_of([Path(path) for path in left["files"]], case.names)
    if files.rows != rows:
        raise ValueError(f"{engine} holds {files.rows:,} rows of {case.name}, not {rows:,}")
    reader = None if engine in PEERS else our_reader(folder / case.name / engine)
    verdicts = [files.verdict(one, reader) for one in filters_of(case, columns_of(case, rows), boxes)]
    return {
        "files": len(files),
        "seconds": left["seconds"],
        "verdicts": {one.what: (one.read, one.matching) for one in verdicts},
    }


def mean(judgement: Mapping[str, Any]) -> tuple[float, float]:
    """Return the share of files read and the share of files with a match, over all kinds of filters."""
    shares = list(judgement["verdicts"].values())
    read, matching = (sum(share[at] for share in shares) / len(shares) for at in (0, 1))
    return read, matching


def table(found: Found, engines: list[str]) -> str:
    """Return the result table, a row for each case: percent of files read and, in brackets, of files with a match."""
    lines = [
        "| files read, % (holding a match) | " + " | ".join(TITLES[engine] for engine in engines) + " |",
        "| --- |" + " ---: |" * len(engines),
    ]
    for name, by_engine in found.items():
        cells = [_cell(by_engine[engine]) if engine in by_engine else "" for engine in engines]
        lines.append(f"| {name.replace('-', ', ')} columns | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def details(found: Found, engines: list[str]) -> str:
    """Return the percent of files read for each kind of filters."""
    lines = []
    for name, by_engine in found.items():
        lines += ["", name]
        for what in next(iter(by_engine.values()))["verdicts"]:
            cells = [
                f"{100 * by_engine[engine]['verdicts'][what][0]:6.2f}" for engine in engines if engine in by_engine
            ]
            lines.append(f"  {what:<20} {' '.join(cells)}")
    return "\n".join(lines)


def _cell(judgement: Mapping[str, Any]) -> str:
    read, matching = mean(judgement)
    return f"{100 * read:.2f} ({100 * matching:.2f}), {judgement['files']} files"


def find_better_peers(found: Found) -> list[str]:
    """Return one line for each case in which a peer reads no more files than the better curve of lakeformat."""
    lines = []
    for name, by_engine in found.items():
        ours = min(mean(by_engine[engine])[0] for engine in by_engine if engine not in PEERS)
        theirs = {peer: mean(by_engine[peer])[0] for peer in PEERS if peer in by_engine}
        lines += [
            f"{name}: {peer} reads {read:.4f} of the files, ours {ours:.4f}"
            for peer, read in theirs.items()
            if read <= ours
        ]
    return lines


def find_slow_doubles(found: Found) -> list[str]:
    """Return one line for each engine that reads too many files of doubles.

    The limit is `_MOST_OF_INTEGERS` times the files that it reads of the same numbers as integers.
    """
    lines = []
    for name, by_engine in found.items():
        same = found.get(name.replace("doubles", "uniform"), {}) if name.startswith("doubles") else {}
        for engine in same.keys() & by_engine.keys() - {*PEERS}:
            read, integers = mean(by_engine[engine])[0], mean(same[engine])[0]
            if read > _MOST_OF_INTEGERS * integers:
                lines.append(f"{name}: {engine} reads {read:.4f} of the files, of integers {integers:.4f}")
    return lines


def section(found: Found, engines: list[str], rows: int, command: str) -> str:
    """Return the table with rows, machine, date and command, so that a reader can judge and repeat the run."""
    facts = machine()
    head = (
        f"{rows:,} rows, {FILES} files wanted, {_BOXES} boxes of each kind: holding 0.1, 1 and 10 % of the rows on all "
        f"columns, and 1 % on each column alone; measured {date.today().isoformat()} on {facts['cores']} cores."
    )
    return f"{head}\n\n{table(found, engines)}\n\nCommand: `{command}`."


def main() -> int:
    """Lay out, judge and print. Return 1 if a peer is ahead or an engine fails."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.skipping", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--cases", default=",".join(case.name for case in CASES))
    parser.add_argument("--timeout", type=float, default=1_800, help="seconds for one engine's process")
    parser.add_argument("--judge-only", action="store_true", help="no layout: judge what the last run left")
    parser.add_argument("--readme", action="store_true", help="put the table into docs/reference/benchmarks.md, too")
    arguments = parser.parse_args()
    cases = [Case.parse(name) for name in arguments.cases.split(",")]
    peers_setting = os.environ.get("PEERS", "")
    peers = PEERS if peers_setting == "all" else tuple(name for name in PEERS if name in peers_setting.split(","))
    engines = [engine for engine in LAYOUTS if engine not in PEERS or engine in peers]
    problems = []
    if not arguments.judge_only:
        for case in cases:
            write_input(case, arguments.rows, WORK / case.name / "input")
    found: Found = {case.name: {} for case in cases}
    for engine in engines:
        print(f"{engine}:", file=sys.stderr, flush=True)
        try:
            if not arguments.judge_only:
                lay_out(engine, cases, WORK, arguments.timeout)
            for case in cases:
                found[case.name][engine] = judge_engine(case, engine, arguments.rows, WORK)
        except (SetupError, ValueError, subprocess.TimeoutExpired) as failure:
            problems.append(str(failure))
    setting = f"PEERS={peers_setting} " if peers_setting else ""
    text = section(found, engines, arguments.rows, f"{setting}{shlex.join(['python', '-m', 'benchmarks.skipping'])}")
    print(text)
    print(details(found, engines))
    if arguments.readme:
        update_block(PAGE, _MARK, text)
    problems += find_better_peers(found) + find_slow_doubles(found)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
