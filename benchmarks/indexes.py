"""``python -m benchmarks.indexes``: time the tagging of u1 with each index type and each kind of keys.

The step ``tag`` of a planned upsert is timed: from combined keys to their files, including the read of footers.
Environment: ``ROWS`` (default 4,000,000). The run takes about three minutes on 2 cores. ``tag`` in the targets is AUTO
here, because AUTO is the default.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date
from typing import Final

from benchmarks.engines import ENGINES
from benchmarks.report import both_seconds
from benchmarks.results import RunResult, machine
from benchmarks.runner import Runner
from benchmarks.steps import select
from benchmarks.targets import tagging
from benchmarks.workload import KEYS, WORK, Variant, prepare

_KINDS: Final = ("auto", "bloom", "simple")
_STEPS: Final = select({"load", "keys", "tag", *(f"tag-{kind}" for kind in _KINDS)})


def table(runs: dict[str, RunResult]) -> str:
    """Return the result table, with a row for each kind of keys.

    A cell has the seconds of the first run and of a warm run, the candidates and the megabytes read.
    """
    lines = [
        "| keys | key column read once | AUTO | BLOOM | SIMPLE | AUTO / better one | AUTO / keys |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for keys, run in runs.items():
        steps = run.engines["lakeformat"].steps
        cells = [both_seconds(steps["keys"]) if "keys" in steps else ""]
        cells += [_cell(run, kind) for kind in _KINDS]
        auto, bloom, simple = (run.warm("lakeformat", f"tag-{kind}") for kind in _KINDS)
        read = run.warm("lakeformat", "keys")
        cells.append(f"{auto / min(bloom, simple):.2f}" if auto and bloom and simple else "")
        cells.append(f"{auto / read:.2f}" if auto and read else "")
        lines.append(f"| {keys} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(run: RunResult, kind: str) -> str:
    measured = run.engines["lakeformat"].steps.get(f"tag-{kind}")
    if measured is None or not measured.seconds:
        return ""
    figures = measured.figures[-1]
    read = (figures["bytes_read"] + figures["footer_bytes"]) / 1e6
    return f"{both_seconds(measured)} s; {figures['after_filters']:,} candidates, {read:.1f} MB"


def measure(rows: int, kinds_of_keys: list[str]) -> Iterator[tuple[str, RunResult]]:
    """Yield each kind of keys with its result, each measured in a process of its own."""
    for keys in kinds_of_keys:
        variant = Variant(rows, keys)
        print(f"{variant.name}:", file=sys.stderr, flush=True)
        dataset = prepare(WORK, variant, [sample for step in _STEPS for sample in step.sample_names()])
        run = RunResult(asdict(variant), date.today().isoformat(), "python -m benchmarks.indexes", machine())
        run.engines["lakeformat"] = Runner(dataset, WORK / "engines").run(ENGINES["lakeformat"], _STEPS)
        yield keys, run


def main() -> int:
    """Measure, print Markdown and check the targets. Return 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.indexes", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=int(os.environ.get("ROWS", "4000000")))
    parser.add_argument("--keys", nargs="+", choices=KEYS, default=list(KEYS))
    arguments = parser.parse_args()
    runs = dict(measure(arguments.rows, arguments.keys))
    cores = next(iter(runs.values())).machine["cores"]
    print(f"Tagging of u1, {arguments.rows:,} rows, seconds of the first / a warm run, {cores} cores.\n")
    print(table(runs))
    bad = 0
    for run in runs.values():
        if failure := run.engines["lakeformat"].failure:
            print(failure, file=sys.stderr)
            bad += 1
        for verdict in tagging(run):
            print(verdict, file=sys.stderr)
            bad += not verdict.passed
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
