"""``python -m benchmarks.lineitem``: TPC-H ``lineitem`` written by lakeformat, and by its peers in the same run.

Each engine takes the same steps once, for time-ordered and for random keys, in a process of its own. After each step
its rows are compared with those that DuckDB computed; a wrong answer is shown in place of its time. Calls are as a user
types them; only the size of data files, 120 MB, is set where an engine has an option for it. The data is in
`benchmarks.lineitem.data`, the steps in `benchmarks.lineitem.steps`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.lineitem.data import Data, prepare
from benchmarks.lineitem.steps import ENGINES, KEYS, STEPS, WRITTEN
from benchmarks.peers_setup import ROOT, SetupError, python_for
from benchmarks.results import EngineResult, Measured, machine
from benchmarks.runner import run_worker
from benchmarks.warm_memory import LIMIT_BYTES, warm

__all__ = ["Judged", "main", "run_engine", "table"]

WORK: Final = ROOT / ".work" / "lineitem"
_FIGURES: Final[Mapping[str, Callable[[Measured], str]]] = {
    "processor seconds / seconds": lambda step: f"{step.cpu_seconds[0]:.2f} / {step.seconds[0]:.2f}",
    "MB of peak memory / written": lambda step: (
        f"{step.peak_bytes[0] / 1e6:,.0f} / {step.figures[0][WRITTEN] / 1e6:,.1f}"
    ),
}


@dataclass(frozen=True, slots=True)
class Judged:
    """An engine's run and the content that its table must have after each step."""

    result: EngineResult
    expected: Mapping[str, list[int]]

    def is_right(self, step: str) -> bool:
        """Tell whether the content after the step is the expected one."""
        return self.result.steps[step].answers == [self.expected[step]]

    def wrong_steps(self) -> list[str]:
        """Return the steps that ended with another content than the expected one."""
        return [name for name, step in self.result.steps.items() if step.answers and not self.is_right(name)]

    def cell(self, step: str, figure: Callable[[Measured], str]) -> str:
        """Return the text of a figure."""
        found = self.result.steps.get(step)
        if not found or not found.seconds:
            return ""
        return figure(found) if self.is_right(step) else "wrong"


def run_engine(name: str, data: Data, folder: Path, timeout_seconds: float) -> Judged:
    """Run all steps of an engine. A failure is part of the result; no error is raised."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    events, log = folder / "events.jsonl", folder / "log"
    events.touch()
    result = EngineResult()
    try:
        python = python_for(ENGINES[name])
    except SetupError as error:
        result.failure = f"not to be had: {error}"
    else:
        command = [str(python), "-m", "benchmarks.lineitem.one", name, "--data", str(data.folder)]
        command += ["--table", str(folder / "table"), "--events", str(events)]
        run_worker(command, events, log, result, timeout_seconds, timeout_of_step=True)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
    return Judged(result, data.expected())


def table(runs: Mapping[str, Judged]) -> str:
    """Return two tables for one order of keys, with steps as rows and engines as columns."""
    titles = " | ".join(ENGINES[name].title for name in runs)
    lines = []
    for label, figure in _FIGURES.items():
        lines += ["", f"| {label} | {titles} |", "| --- |" + " ---: |" * len(runs)]
        for step in STEPS:
            cells = [judged.cell(step.name, figure) for judged in runs.values()]
            lines.append(f"| {step.title} | {' | '.join(cells)} |")
    return "\n".join(lines[1:])


def notes(runs: Mapping[str, Judged]) -> list[str]:
    """Return one line for each engine that failed or went wrong."""
    failed = [f"{ENGINES[name].title}: {run.result.failure}" for name, run in runs.items() if run.result.failure]
    wrong = [f"{ENGINES[name].title}: wrong after {', '.join(run.wrong_steps())}" for name, run in runs.items()
             if run.wrong_steps()]  # fmt: skip
    return failed + wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the engines and print Markdown. Return 1 if an engine failed or its content was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lineitem", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="TPC-H's scale factor: 1 is 6 million rows")
    parser.add_argument("--engines", default=",".join(ENGINES), help=f"comma-separated: {', '.join(ENGINES)}")
    parser.add_argument("--keys", default=",".join(KEYS), help=f"comma-separated: {', '.join(KEYS)}")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for a step of an engine")
    options = parser.parse_args(arguments)
    failed = False
    warm(LIMIT_BYTES if options.scale >= 1 else 0)
    for keys in options.keys.split(","):
        data = prepare(WORK / "data", options.scale, keys)
        runs: dict[str, Judged] = {}
        for name in options.engines.split(","):
            print(f"{name}, {keys}", file=sys.stderr, flush=True)
            runs[name] = run_engine(name, data, WORK / "engines" / f"{name}-{keys}", options.timeout)
            _save(options.scale, keys, runs)
        print(_section(options.scale, keys, runs), flush=True)
        failed |= any(notes({name: run}) for name, run in runs.items())
    return int(failed)


def _save(scale: float, keys: str, runs: Mapping[str, Judged]) -> None:
    values = {name: asdict(run.result) for name, run in runs.items()}
    (WORK / f"results-{scale:g}-{keys}.json").write_text(json.dumps(values, indent=1))


def _section(scale: float, keys: str, runs: Mapping[str, Judged]) -> str:
    """Return the table with date, machine and versions."""
    versions = "; ".join(
        f"{ENGINES[name].title}: {', '.join(f'{what} {v}' for what, v in run.result.versions.items())}"
        for name, run in runs.items()
    )
    found = machine()
    rows = next(iter(runs.values())).expected["load"][0]
    head = (
        f"Scale {scale:g}, {keys} keys, {rows:,} rows; measured {datetime.date.today()} on {found['cores']} cores, "
        f"{found['memory_gb']} GB of memory, {found['system']}."
    )
    return "\n".join([head, "", table(runs), "", f"Versions: {versions}.", *notes(runs), ""])


if __name__ == "__main__":
    raise SystemExit(main())
