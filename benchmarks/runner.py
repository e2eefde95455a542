"""A runner of engines: it starts each one in processes of its own and compares their contents."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.engines import EngineSpec
from benchmarks.peers_setup import ROOT, python_for
from benchmarks.process_tree import TreeMemory
from benchmarks.results import EngineResult, Measured
from benchmarks.steps import STEPS, Step
from benchmarks.warm_memory import LIMIT_BYTES, warm
from benchmarks.workload import Content, Dataset, expected_content

_SAMPLING_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Runner:
    """Settings of the runs: ``work`` is the folder of tables, logs and events; ``keep`` keeps the tables there.

    ``warm_bytes`` limits the memory that is touched before each process, see `benchmarks.warm_memory`.
    """

    dataset: Dataset
    work: Path
    timeout_seconds: float = 3_600
    keep: bool = False
    warm_bytes: int = LIMIT_BYTES

    def run(self, spec: EngineSpec, steps: Sequence[Step]) -> EngineResult:
        """Run all requested steps that the engine has. The result records a failure; no error is raised."""
        own = [step for step in steps if step.name in spec.steps]
        folder = self.work / spec.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        result = EngineResult()
        python = python_for(spec)
        for session in sorted({step.session for step in own}):
            part = [step for step in own if step.session == session]
            if not result.failure:
                warm(self.warm_bytes)
                self._run_process([str(python), "-m", "benchmarks.worker", spec.name], part, folder, result)
        if not self.keep:
            for path in folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
        return result

    def _run_process(self, worker: list[str], steps: list[Step], folder: Path, result: EngineResult) -> None:
        events, log = (folder / f"{steps[0].name}.{ending}" for ending in ("jsonl", "log"))
        events.touch()
        command = [
            *worker,
            *("--data", str(self.dataset.root), "--table", str(folder / "table"), "--events", str(events)),
            *("--rows", str(self.dataset.variant.rows), "--keys", self.dataset.variant.keys),
            *("--steps", ",".join(step.name for step in steps)),
        ]
        run_worker(command, events, log, result, self.timeout_seconds)
        for step in steps:
            if step.writes:
                result.samples += step.sample_names()


def run_worker(
    command: list[str],
    events: Path,
    log: Path,
    result: EngineResult,
    timeout_seconds: float,
    *,
    timeout_of_step: bool = False,
) -> None:
    """Run an engine's process and take its events and its memory into the result. No error is raised.

    ``events`` is the existing file to which the process reports; ``log`` takes its output. With ``timeout_of_step`` the
    time begins again with every event.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # An installed package is compiled once, too.
    with log.open("wb") as output, events.open() as events_file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _watch(process, events_file, result, timeout_seconds, timeout_of_step)
        finally:
            _end_group(process)
    if process.returncode and not result.failure:
        result.failure = f"exit code {process.returncode}"
    if result.failure:
        result.failure += f" (log: {log.relative_to(ROOT) if log.is_relative_to(ROOT) else log})"


def _watch(
    process: subprocess.Popen[bytes], events_file: Any, result: EngineResult, timeout_seconds: float, of_step: bool
) -> None:
    """Record the engine's events and its memory until it ends or its time is over."""
    deadline = time.monotonic() + timeout_seconds
    pending, current, memory = "", Measured(), TreeMemory(process.pid)
    while True:
        ended, status = os.waitpid(process.pid, os.WNOHANG)
        pending += events_file.read()
        *lines, pending = pending.split("\n")
        for line in lines:
            current = _take_in(json.loads(line), result, current)
        if lines and of_step:
            deadline = time.monotonic() + timeout_seconds
        if ended:
            process.returncode = os.waitstatus_to_exitcode(status)
            return
        resident = memory.sample_bytes()
        result.peak_bytes = max(result.peak_bytes, resident)
        if current.peak_bytes:
            current.peak_bytes[-1] = max(current.peak_bytes[-1], resident)
        if time.monotonic() > deadline:
            result.failure = f"not done after {timeout_seconds:.0f} s"
            return
        time.sleep(_SAMPLING_SECONDS)


def contradictions(dataset: Dataset, results: dict[str, EngineResult]) -> list[str]:
    """Return one line for each engine whose content is wrong and each pair of engines with different answers."""
    sound = {name: result for name, result in results.items() if not result.failure}
    found = []
    expected: dict[tuple[str, ...], Content] = {}
    for name, result in sound.items():
        samples = tuple(result.samples)
        if samples not in expected:
            expected[samples] = expected_content(dataset, samples)
        if result.content is not None and not result.content.agrees(expected[samples]):
            found.append(f"{name} holds {result.content}, expected is {expected[samples]}")
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, result in sound.items():
        groups.setdefault(_samples_before_reads(result), []).append(name)
    for names in groups.values():
        for one, other in pairwise(names):
            first, second = sound[one].steps, sound[other].steps
            for step in sorted(first.keys() & second.keys()):
                answers = [answer for answer in first[step].answers + second[step].answers if answer is not None]
                if any(answer != answers[0] for answer in answers):
                    found.append(f"{one} and {other} answer {step} differently: {answers}")
    return found


def _samples_before_reads(result: EngineResult) -> tuple[str, ...]:
    """Return the samples written before the read steps. Later sessions write after these."""
    later = {name for step in STEPS if step.session for name in step.sample_names()}
    return tuple(sample for sample in result.samples if sample not in later)


def _take_in(event: dict[str, Any], result: EngineResult, current: Measured) -> Measured:
    """Put one event into the result. Return the measurement to which later memory samples belong."""
    match event.pop("event"):
        case "opened":
            result.opened_seconds = result.opened_seconds or event["seconds"]
        case "begin":
            current = result.steps.setdefault(event["step"], Measured())
            current.peak_bytes.append(0)
        case "end":
            current.seconds.append(event["seconds"])
            current.cpu_seconds.append(event["cpu"])
            current.read_bytes.append(event["read"])
            current.answers.append(event["answer"])
            current.figures.append(event["figures"])
            current.peak_bytes[-1] = max(current.peak_bytes[-1], event["peak"])
            result.peak_bytes = max(result.peak_bytes, event["peak"])
            print(f"    {event['step']:<10} {event['seconds']:8.2f} s", file=sys.stderr, flush=True)
        case "checking":
            current = Measured()  # The memory of the check belongs to no step.
        case "checked":
            result.steps[event["step"]].answers[-1] = event["answer"]
        case "read":
            result.steps[event["step"]].read_bytes[-1] = event["read"]
        case "left out":
            del result.steps[event["step"]]
        case "content":
            result.content = Content(**event)
        case "versions":
            result.versions = event
        case "failed":
            result.failure = event["reason"].splitlines()[0]
    return current


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill the remaining processes of the engine's process group, such as a JVM or Python workers."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    if process.returncode is None:
        process.wait()
