"""The results of a run, as values and as ``results.json``, which holds the latest run of each variant."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engine import Answer
from benchmarks.workload import Content


@dataclass(slots=True)
class Measured:
    """One step of one engine. The lists have one item per run, the cold run first."""

    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    read_bytes: list[int] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    figures: list[Mapping[str, float]] = field(default_factory=list)

    @property
    def warm(self) -> float | None:
        """Return the seconds of a warm run: the median of all runs after the first, or the only run."""
        return _warm(self.seconds)

    @property
    def warm_cpu(self) -> float | None:
        """Return the processor seconds of a warm run: the median of all runs after the first, or the only run."""
        return _warm(self.cpu_seconds)


@dataclass(slots=True)
class EngineResult:
    """One engine's run. ``peak_bytes`` is the resident memory of all its processes together."""

    versions: dict[str, str] = field(default_factory=dict)
    steps: dict[str, Measured] = field(default_factory=dict)
    samples: list[str] = field(default_factory=list)
    content: Content | None = None
    opened_seconds: float = 0.0
    peak_bytes: int = 0
    failure: str = ""

    def warm(self, step: str) -> float | None:
        """Return the seconds of a warm run of the step, None if it was not measured."""
        measured = self.steps.get(step)
        return measured.warm if measured else None

    def peak(self, step: str) -> int:
        """Return the largest resident memory in any run of a step, 0 if it was not measured."""
        measured = self.steps.get(step)
        return max(measured.peak_bytes, default=0) if measured else 0


@dataclass(slots=True)
class RunResult:
    """One run of one variant."""

    variant: dict[str, Any]
    date: str
    command: str
    machine: dict[str, Any]
    engines: dict[str, EngineResult] = field(default_factory=dict)

    def warm(self, engine: str, step: str) -> float | None:
        """Return the seconds of a warm run of an engine's step. A later failure of the engine does not matter."""
        result = self.engines.get(engine)
        return result.warm(step) if result else None


def _warm(runs: list[float]) -> float | None:
    return statistics.median(runs[1:] or runs) if runs else None


def machine() -> dict[str, Any]:
    """Describe the machine for which the figures hold."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(memory_bytes / 1e9),
        "system": f"{platform.system()} {platform.machine()}",
    }


def load_results(path: Path) -> dict[str, RunResult]:
    """Return the runs by variant name; an empty dict if there is no file."""
    if not path.exists():
        return {}
    return {name: _run_of(value) for name, value in json.loads(path.read_text()).items()}


def save_results(path: Path, runs: dict[str, RunResult]) -> None:
    """Write all runs."""
    path.write_text(json.dumps({name: asdict(run) for name, run in runs.items()}, indent=1) + "\n")


def _run_of(value: dict[str, Any]) -> RunResult:
    engines = {name: _engine_of(engine) for name, engine in value.pop("engines").items()}
    return RunResult(**value, engines=engines)


def _engine_of(value: dict[str, Any]) -> EngineResult:
    steps = {name: Measured(**step) for name, step in value.pop("steps").items()}
    content = value.pop("content")
    return EngineResult(**value, steps=steps, content=Content(**content) if content else None)
