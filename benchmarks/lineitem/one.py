"""``python -m benchmarks.lineitem.one ENGINE …``: one engine runs all steps in a process of its own.

The process reports through the events file, one JSON object a line, as `benchmarks.worker` does.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import time
from pathlib import Path

from benchmarks.engine import StepUnavailableError
from benchmarks.events import Report, run_reporting
from benchmarks.lineitem.data import Data
from benchmarks.lineitem.steps import ENGINES, STEPS, WRITTEN, LineitemEngine, Step
from benchmarks.process_tree import bytes_read, cpu_seconds, peak_bytes, reset_peak

__all__ = ["main", "run_steps"]


def files_of(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return size and time of change of each file below the folder."""
    stats = ((path, path.stat()) for path in folder.rglob("*") if path.is_file())
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats}


def bytes_written(before: dict[Path, tuple[int, int]], after: dict[Path, tuple[int, int]]) -> int:
    """Return the bytes of the files that are new or changed."""
    return sum(found[0] for path, found in after.items() if before.get(path) != found)


def run_steps(engine: LineitemEngine, data: Data, table: Path, report: Report) -> None:
    """Run and time every step, and report the content after each."""
    for step in STEPS:
        before = files_of(table)
        report("begin", step=step.name)
        os.sync()  # Data that the last step left unwritten must not slow down this step.
        reset_peak()
        read, worked, started = bytes_read(), cpu_seconds(), time.perf_counter()
        try:
            _run(engine, step, data)
        except StepUnavailableError as missing:
            report("left out", step=step.name, reason=str(missing))
            continue
        seconds, worked, read = time.perf_counter() - started, cpu_seconds() - worked, bytes_read() - read
        figures = {WRITTEN: bytes_written(before, files_of(table))}
        report(
            "end",
            step=step.name,
            seconds=seconds,
            cpu=worked,
            read=read,
            peak=peak_bytes(),
            answer=None,
            figures=figures,
        )
        report("checking")
        report("checked", step=step.name, answer=engine.content())


def _run(engine: LineitemEngine, step: Step, data: Data) -> None:
    if step.days:
        engine.delete(step)
    else:
        getattr(engine, step.method)(data.file(step.rows))


def main() -> int:
    """Run the engine's process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lineitem.one")
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--events", type=Path, required=True)
    arguments = parser.parse_args()

    def run(report: Report) -> None:
        started = time.perf_counter()
        module = importlib.import_module(f"benchmarks.lineitem.engines.{ENGINES[arguments.engine].module}")
        engine: LineitemEngine = module.open_engine(arguments.table)
        report("opened", seconds=time.perf_counter() - started)
        report("versions", python=platform.python_version(), **engine.versions())
        run_steps(engine, Data(arguments.data), arguments.table, report)
        engine.close()

    return run_reporting(arguments.events, run)


if __name__ == "__main__":
    raise SystemExit(main())
