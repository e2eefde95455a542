"""A plugin of pytest: what each test costs in processor seconds, and a budget that no test may exceed.

Wall time is never looked at, because it depends on what else the machine does. Two figures are measured:

- *Own* seconds: those of this process and of the processes that it started and that have ended (`os.times`). The budget
  counts them from the start of a test to the end of its body, without the fixtures that tests share. A JVM that tests
  share lives longer than they do, so the budget does not count it.
- *All* seconds: the same with those of all processes that still run below this one, thus with the JVM. They are
  recorded in ``build/durations.json``, which `tools/durations.py` prints.

A slow processor, or one that a neighbour shares, needs more seconds for the same work. So the budget of a test that
exceeds it grows by the factor by which a fixed loop, which runs at once, is slow.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

__all__ = ["Durations", "Meter", "all_seconds", "own_seconds", "slowness"]

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PROCESSES: Final = Path("/proc")
#: Steps of the fixed loop, and the processor seconds that they cost on the machine on which the budgets were set.
_STEPS, _SECONDS = 3_000_000, 0.15


def own_seconds() -> float:
    """Return the processor seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def all_seconds() -> float:
    """Return `own_seconds` and the seconds of all processes below this one; without ``/proc``, only the former."""
    return own_seconds() + sum(_seconds_of(process) for process in _BELOW.find())


def slowness() -> float:
    """Return by which factor the processor is slower now than that on which the budgets were set; at least 1."""
    started, total = time.process_time(), 0
    for step in range(_STEPS):
        total += step * step % 7
    return max(1.0, (time.process_time() - started) / _SECONDS)


class _Below:
    """The processes below this one. The parent of a process is looked up once, because a look at all costs much."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}  # Process -> its parent, for all that run.

    def find(self) -> list[int]:
        """Return the processes that run below this one, in no order."""
        running = {int(name) for name in os.listdir(_PROCESSES) if name.isdigit()} if _PROCESSES.exists() else set()
        self._parents = {process: self._parents.get(process) or _parent_of(process) for process in running}
        return [process for process in running if self._is_below(process)]

    def _is_below(self, process: int) -> bool:
        while parent := self._parents.get(process, 0):
            if parent == os.getpid():
                return True
            process = parent
        return False


_BELOW: Final = _Below()


def _stat_of(process: int) -> list[str]:
    """Return the fields of ``/proc/…/stat`` after the name: the state, the parent and so on; none if it has ended."""
    try:
        return (_PROCESSES / str(process) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _parent_of(process: int) -> int:
    fields = _stat_of(process)
    return int(fields[1]) if fields else 0


def _seconds_of(process: int) -> float:
    return sum(map(int, _stat_of(process)[11:15])) / _TICKS


class Meter:
    """Measure the tests of this process: each report gets what the test cost up to then.

    Args:
        budget: maximum own seconds of a test on a processor whose `slowness` is 1; a test that exceeds it fails.
    """

    def __init__(self, budget: float | None) -> None:
        self._budget = budget
        self._own = self._all = self._this = self._spent = 0.0
        self._in_shared = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._own, self._all = own_seconds(), all_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Leave out of a test's own seconds what makes a fixture that tests share."""
        if fixturedef.scope == "function" or self._in_shared:
            return (yield)
        self._in_shared, started = True, own_seconds()
        try:
            return (yield)
        finally:
            self._in_shared = False
            self._own += own_seconds() - started

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: Any
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":  # A process that ends here takes its seconds along, or had them counted before.
            report.processor_seconds = self._spent + time.process_time() - self._this
        else:
            self._spent, self._this = all_seconds() - self._all, time.process_time()
        own = own_seconds() - self._own
        if self._budget is not None and call.when == "call" and report.passed:
            named = item.get_closest_marker("budget")
            most = max(self._budget, named.args[0] if named else 0)
            if own > most and own > (most := most * slowness()):
                report.outcome = "failed"
                report.longrepr = f"{report.nodeid} took {own:.1f} processor seconds, more than {most:.2g}"
        return report


class Durations:
    """Collect the seconds of the tests of all workers.

    Args:
        file: the JSON file of seconds by test. Tests that did not run keep theirs.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        if hasattr(report, "processor_seconds"):
            self._seconds[report.nodeid] = round(report.processor_seconds, 4)

    def pytest_sessionfinish(self) -> None:
        if not self._seconds:
            return
        self._file.parent.mkdir(exist_ok=True)
        former = json.loads(self._file.read_text()) if self._file.exists() else {}
        aside = self._file.with_suffix(f".{os.getpid()}")
        aside.write_text(json.dumps(former | self._seconds, indent=0))
        aside.replace(self._file)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        total = sum(self._seconds.values())
        terminalreporter.write_line(f"{total:.0f} processor seconds; `make durations` tells which tests took them")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--budget", type=float, help="maximum processor seconds of a test; beyond it, the test fails")


def pytest_configure(config: pytest.Config) -> None:
    is_worker, spreads = hasattr(config, "workerinput"), bool(config.getoption("tx", None))
    if is_worker or not spreads:
        config.pluginmanager.register(Meter(config.getoption("--budget")))
    if not is_worker:
        config.pluginmanager.register(Durations(config.rootpath / "build" / "durations.json"))
