"""Generate ``docs/reference/reliability.md`` from reports of test runs: ``python tools/reliability.py build/ci/*.xml``.

The page lists what lakeformat promises, the tests that verify each promise, and figures of the tests' last run, such as
the number of simulated crashes. Tests report figures by pytest's ``record_property``; figures of the same name are
added up over all tests of a module. A module that is not in the reports keeps the figures that the page has for it.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

__all__ = ["PROMISES", "ModuleResults", "Promise", "page", "read_page", "read_reports"]

ROOT: Final = Path(__file__).resolve().parent.parent
_NO_RESULT: Final = "not in this run"
PAGE: Final = ROOT / "docs" / "reference" / "reliability.md"


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise of the page.

    Attributes:
        text: the promise.
        modules: paths of the test modules that verify it.
        target: the make target that runs these modules.
    """

    text: str
    modules: tuple[str, ...]
    target: str


@dataclass
class ModuleResults:
    """The results of one test module in the reports.

    Attributes:
        passed: number of passed tests.
        failed: number of failed tests.
        figures: the sum of each figure that the tests reported.
    """

    passed: int = 0
    failed: int = 0
    figures: Counter[str] = field(default_factory=Counter)


_R: Final = "tests/reliability"
PROMISES: Final[Sequence[Promise]] = (
    Promise(
        "A write that dies at any call to storage leaves the table as it was or as the write made it",
        (f"{_R}/test_crash.py",),
        "test-slow",
    ),
    Promise(
        "Cleaning and archiving may die at any call: readers see the same rows, nothing is lost",
        (f"{_R}/test_life_crash.py",),
        "test-slow",
    ),
    Promise(
        "Restore and rollback may die at any call: readers see the table before or after",
        (f"{_R}/test_restore_crash.py",),
        "test",
    ),
    Promise("Making and deleting savepoints may die at any call", (f"{_R}/test_savepoint_crash.py",), "test-slow"),
    Promise("Repair may die at any call", (f"{_R}/test_repair_crash.py",), "test"),
    Promise("Compaction may die at any call", (f"{_R}/test_compaction_crash.py",), "test-slow"),
    Promise(
        "Clustering may die at any call, or be killed",
        (f"{_R}/test_cluster_crash.py", f"{_R}/test_killed_cluster.py"),
        "test-slow",
    ),
    Promise(
        "A writer that dies at any call for Hudi's metadata table leaves one that lists what the folders have",
        ("tests/metadata_table/test_kept.py",),
        "test-slow",
    ),
    Promise(
        "A rollback or restore that dies at any call leaves the table and its metadata table right",
        ("tests/metadata_table/test_undo_crash.py",),
        "nightly",
    ),
    Promise(
        "A damaged metadata table costs one line in the log, and no row",
        ("tests/metadata_table/test_damaged.py", "tests/metadata_table/test_visibility.py"),
        "test-slow",
    ),
    Promise(
        "Converting a folder of Parquet may die at any call: its files are untouched until the table is there",
        ("tests/write/test_adopt.py",),
        "test-slow",
    ),
    Promise(
        "Processes that write, clean, archive, cluster and compact at once lose nothing and leave nothing",
        (f"{_R}/test_long_lives.py", f"{_R}/test_two_writers.py"),
        "test-slow",
    ),
    Promise(
        "Processes write one table at once, are killed and stopped, their clocks jump, the network loses answers: what"
        " is acknowledged is visible, what is refused never is, nothing is doubled or left over",
        ("tests/many_writers/test_processes.py",),
        "nightly",
    ),
    Promise(
        "Executors and drivers are killed while they merge, cluster and compact: rows are those before or after",
        (f"{_R}/test_killed_executors.py",),
        "nightly",
    ),
    Promise(
        "A request that the network delivers after its writer gave up changes nothing that was decided",
        ("tests/many_writers/test_late_commit.py",),
        "test",
    ),
    Promise(
        "A stream's batches count once, whenever its sink or a whole chain of queries is killed",
        (f"{_R}/test_stream_sink_crash.py", "tests/spark/test_spark_stream_chain.py"),
        "test-slow",
    ),
    Promise(
        "Planted damage is found, and mended only where that is proven", ("tests/services/test_doctor.py",), "test"
    ),
    Promise("Tables that Apache Hudi made raise no alarm", ("tests/services/test_doctor_fixtures.py",), "test"),
    Promise("Any order of verbs gives what a dict gives", (f"{_R}/test_stateful.py",), "test-slow"),
    Promise(
        "Apache Hudi and we write in turn, and both keep the metadata table: Hudi skips files and finds keys by it",
        (
            "tests/interop/test_metadata_table_shared.py",
            "tests/interop/test_metadata_table_made.py",
        ),
        "interop",
    ),
    Promise(
        "After every operation under every index on every kind of table Apache Hudi, hudi-rs and we read the same rows",
        ("tests/interop/test_matrix.py",),
        "interop",
    ),
    Promise(
        "Apache Hudi reads, restores and goes on with what we have cleaned, archived and restored, and we with its",
        ("tests/interop/test_life_shared.py", "tests/interop/test_savepoints_shared.py"),
        "interop",
    ),
)


def read_reports(reports: Iterable[Path]) -> dict[str, ModuleResults]:
    """Read JUnit reports of pytest. Return a mapping of test module path to the module's results."""
    found: dict[str, ModuleResults] = {}
    for report in reports:
        for case in ElementTree.parse(report).getroot().iter("testcase"):  # noqa: S314  Written by our own test run.
            if case.find("skipped") is not None:
                continue
            ran = found.setdefault(case.get("classname", "").replace(".", "/") + ".py", ModuleResults())
            if case.find("failure") is not None or case.find("error") is not None:
                ran.failed += 1
                continue
            ran.passed += 1
            for one in case.iter("property"):
                ran.figures[one.get("name", "")] += int(one.get("value", "0"))
    return found


def read_page(text: str) -> dict[str, str]:
    """Return the figures of a page by test module path."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        cells = line.strip("| ").split(" | ")
        if len(cells) == len(("promised", "shown by", "last run", "command")):
            found |= zip(cells[1].replace("`", "").split("<br>"), cells[2].split("<br>"), strict=False)
    return found


def page(found: Mapping[str, ModuleResults], earlier: Mapping[str, str] | None = None) -> str:
    """Return the Markdown text of the page.

    Args:
        found: the results by test module path.
        earlier: the figures of modules that have no results.
    """
    known = {**(earlier or {}), **{module: _result_text(results) for module, results in found.items()}}
    lines = [
        "# Reliability figures",
        "",
        "What is promised, which tests show it, and what their last run counted. Made by `python tools/reliability.py",
        "REPORT.xml ...` from the reports of test runs (`pytest --junitxml`); nothing here is written by hand.",
        "",
        "| promised | shown by | last run | command |",
        "| --- | --- | --- | --- |",
    ]
    for promise in PROMISES:
        shown = "<br>".join(f"`{each}`" for each in promise.modules)
        results = "<br>".join(known.get(each, _NO_RESULT) for each in promise.modules)
        command = f'`make {promise.target} ARGS="{" ".join(promise.modules)}"`'
        lines.append(f"| {promise.text} | {shown} | {results} | {command} |")
    return "\n".join(lines) + "\n"


def _result_text(result: ModuleResults) -> str:
    counted = [f"{count:,} {name}" for name, count in sorted(result.figures.items())]
    failed = [f"**{result.failed} failed**"] if result.failed else []
    return ", ".join([f"{result.passed} passed", *failed, *counted])


if __name__ == "__main__":
    kept = read_page(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page(read_reports(map(Path, sys.argv[1:])), kept), encoding="utf-8")
