"""A run as a Markdown table, and the block of the documentation page that holds the table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.engines import ENGINES
from benchmarks.peers_setup import ROOT
from benchmarks.results import EngineResult, Measured, RunResult
from benchmarks.steps import READS, STEP_BY_NAME, STEPS, Step

#: The page of all measurements.
PAGE: Final = ROOT / "docs" / "reference" / "benchmarks.md"

#: Steps for which the table shows peak memory; other steps may be missing in some engines.
_MEMORY_STEPS: Final = ("load", "u1", "u50")


class ReadmeError(Exception):
    """The page has no block for the table."""


def table(run: RunResult) -> str:
    """Return the result table, engines as columns and steps as rows.

    A cell has the seconds of the first run, those of a warm run, and its ratio to the floor.
    """
    names = [name for name in ENGINES if name in run.engines]
    lines = [
        "| seconds, first / warm run | " + " | ".join(ENGINES[name].title for name in names) + " |",
        "| --- |" + " ---: |" * len(names),
    ]
    for step in STEPS:
        cells = [_cell(run, run.engines[name], step) for name in names]
        if any(cells):
            lines.append(f"| {step.label} | " + " | ".join(cells) + " |")
        if step.shows_cpu and any(cells):
            times = [_cpu(run.engines[name], step) for name in names]
            lines.append(f"| {step.label}: processor seconds | " + " | ".join(times) + " |")
        if step.shows_bytes and any(cells):
            lines.append(
                f"| {step.label}: MB read | " + " | ".join(_megabytes(run.engines[n], step) for n in names) + " |"
            )
        for figure in step.figures:
            values = [_figure(run.engines[name], step, figure) for name in names]
            if any(values):
                lines.append(f"| {step.label}: {figure} | " + " | ".join(values) + " |")
    for name in _MEMORY_STEPS:
        peaks = [run.engines[engine].peak(name) for engine in names]
        if any(peaks):
            lines.append(f"| peak memory, {name} | " + " | ".join(_gigabytes(peak) for peak in peaks) + " |")
    memory = [_gigabytes(run.engines[name].peak_bytes) for name in names]
    lines.append("| peak memory, all processes and steps | " + " | ".join(memory) + " |")
    return "\n".join(lines)


def section(run: RunResult) -> str:
    """Return the table with date, machine, versions and command, so that a reader can judge and repeat the run."""
    variant, machine = run.variant, run.machine
    versions = "; ".join(
        f"{ENGINES[name].title}: " + ", ".join(f"{what} {v}" for what, v in result.versions.items())
        for name, result in run.engines.items()
        if result.versions
    )
    failures = [f"{ENGINES[name].title} failed: {r.failure}" for name, r in run.engines.items() if r.failure]
    return "\n".join(
        [
            f"{variant['rows']:,} rows, 10 columns, {variant['keys']} keys; measured {run.date} on "
            f"{machine['cores']} cores, {machine['memory_gb']} GB of memory, {machine['system']}. "
            "In brackets: the warm run's ratio to the floor.",
            "",
            table(run),
            "",
            f"Command: `{run.command}`. Versions: {versions}.",
            *failures,
        ]
    )


def reads_section(run: RunResult) -> str:
    """Return the table of reads on Spark: engines as rows, queries as columns, seconds of the fastest run."""
    steps = [STEP_BY_NAME[name] for name in READS]
    lines = [
        "| seconds, fastest run | " + " | ".join(step.label for step in steps) + " |",
        "| --- |" + " ---: |" * len(steps),
    ]
    for name, result in run.engines.items():
        times = [result.steps[step.name].seconds if step.name in result.steps else [] for step in steps]
        lines.append(f"| {ENGINES[name].title} | " + " | ".join(_seconds(min(t)) if t else "" for t in times) + " |")
    before, _, after = section(run).partition(table(run))
    return before + "\n".join(lines) + after


def update_block(readme: Path, mark: str, text: str) -> None:
    """Replace the text between ``<!-- mark:begin -->`` and ``<!-- mark:end -->``. Raise `ReadmeError` without marks."""
    first, last = f"<!-- {mark}:begin -->", f"<!-- {mark}:end -->"
    before, begin, rest = readme.read_text().partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ReadmeError(f"{readme.name} has no {first} … {last}; put both marks where the table shall stand")
    readme.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def _cell(run: RunResult, engine: EngineResult, step: Step) -> str:
    measured = engine.steps.get(step.name)
    if measured is None:
        return ""
    if measured.warm is None:
        return "failed"
    text = both_seconds(measured)
    floor = run.warm("floor", step.name)
    return f"{text} ({measured.warm / floor:.1f}x)" if floor else text


def both_seconds(measured: Measured) -> str:
    """Return the seconds of the first run and of a warm run; if the step ran once, those of this run."""
    return _both(measured.seconds, measured.warm)


def _cpu(engine: EngineResult, step: Step) -> str:
    measured = engine.steps.get(step.name)
    return _both(measured.cpu_seconds, measured.warm_cpu) if measured else ""


def _both(runs: Sequence[float], warm: float | None) -> str:
    return " / ".join(_seconds(value) for value in [*runs[:1], *([warm] if warm is not None and len(runs) > 1 else [])])


def _figure(engine: EngineResult, step: Step, figure: str) -> str:
    measured = engine.steps.get(step.name)
    value = measured.figures[-1].get(figure) if measured and measured.figures else None
    return "" if value is None else f"{value:,}" if isinstance(value, int) else _seconds(value)


def _megabytes(engine: EngineResult, step: Step) -> str:
    measured = engine.steps.get(step.name)
    return f"{measured.read_bytes[-1] / 1e6:.1f}" if measured and measured.read_bytes else ""


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _gigabytes(value: int) -> str:
    return f"{value / 1e9:.1f} GB" if value else ""
