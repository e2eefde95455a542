"""``python -m benchmarks.worker <name> …``: one engine runs and times its steps in a process of its own.

The worker reports through the events file, one JSON object a line, so that an engine may print what it likes.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks.engine import Answer, Engine, StepResult, StepUnavailableError
from benchmarks.engines import ENGINES
from benchmarks.events import Report, run_reporting
from benchmarks.process_tree import bytes_read, cpu_seconds, peak_bytes, reset_peak
from benchmarks.steps import STEP_BY_NAME, Kind, Step
from benchmarks.workload import Dataset, Variant


def operation(engine: Engine, step: Step, dataset: Dataset, table: Path, run: int) -> Callable[[], Answer | StepResult]:
    """Return the call to time, with the arguments of this run."""
    samples = step.sample_names()
    match step.kind:
        case Kind.LOAD:
            # The first load makes the table of all other steps. Later loads make other tables beside it.
            return lambda: engine.load(_loaded(table, run))
        case Kind.UPSERT:
            return lambda: engine.upsert(dataset.sample(samples[run]))
        case Kind.DELETE:
            return lambda: engine.delete(dataset.sample(samples[run]))
        case _:
            method: Callable[..., Answer | StepResult] = getattr(engine, step.method)
            return (lambda: method(dataset.sample(samples[run]))) if samples else method


def unmapped_call(engine: Engine, step: Step) -> Callable[[], object] | None:
    """Return the call of the step on files that are not mapped, because the system does not count mapped bytes.

    Return None if the engine maps no files or the step takes a sample.
    """
    unmapped = getattr(engine, "unmapped", None)
    return None if unmapped is None or step.sample else getattr(unmapped(), step.method, None)


def _bytes_of(call: Callable[[], object]) -> int:
    before = bytes_read()
    call()
    return bytes_read() - before


def _loaded(table: Path, run: int) -> Path:
    return table if run == 0 else table.with_name(f"{table.name}-{run}")


def run_steps(engine: Engine, steps: list[Step], dataset: Dataset, table: Path, report: Report) -> None:
    """Run and time every step. Report the content once, after the last write."""
    last_write = max((i for i, step in enumerate(steps) if step.writes), default=-1)
    for position, step in enumerate(steps):
        for run in range(step.runs):
            call = operation(engine, step, dataset, table, run)
            report("begin", step=step.name, run=run)
            os.sync()  # Data that the last step left unwritten must not slow down this step.
            reset_peak()
            read_before, cpu_before, started = bytes_read(), cpu_seconds(), time.perf_counter()
            try:
                returned = call()
            except StepUnavailableError as missing:
                report("left out", step=step.name, reason=str(missing))
                break
            seconds = time.perf_counter() - started
            result = returned if isinstance(returned, StepResult) else StepResult(returned, {})
            seconds = seconds if result.seconds is None else result.seconds
            report(
                "end",
                step=step.name,
                run=run,
                seconds=seconds,
                read=bytes_read() - read_before,
                cpu=cpu_seconds() - cpu_before,
                peak=peak_bytes(),
                answer=result.answer,
                figures=dict(result.figures),
            )
            if step.kind is Kind.READ and run == step.runs - 1 and (calls := unmapped_call(engine, step)):
                report("read", step=step.name, read=_bytes_of(calls))
            if step.kind is Kind.LOAD and run:
                shutil.rmtree(_loaded(table, run), ignore_errors=True)
        if position == last_write:
            report("content", **asdict(engine.content()))


def main() -> int:
    """Run the engine's process."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worker")
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--keys", required=True)
    parser.add_argument("--table", type=Path, required=True)
    parser.add_argument("--events", type=Path, required=True)
    parser.add_argument("--steps", required=True)
    arguments = parser.parse_args()
    dataset = Dataset(arguments.data, Variant(arguments.rows, arguments.keys))

    def run(report: Report) -> None:
        started = time.perf_counter()
        module = importlib.import_module(f"benchmarks.engines.{ENGINES[arguments.engine].module}")
        engine: Engine = module.open_engine(dataset, arguments.table)
        report("opened", seconds=time.perf_counter() - started)
        steps = [STEP_BY_NAME[name] for name in arguments.steps.split(",")]
        run_steps(engine, steps, dataset, arguments.table, report)
        report("versions", python=platform.python_version(), **engine.versions())
        engine.close()

    return run_reporting(arguments.events, run)


if __name__ == "__main__":
    raise SystemExit(main())
