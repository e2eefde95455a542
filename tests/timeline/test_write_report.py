"""The report of a write: its steps and seconds, its texts, what a commit keeps of it, and the bars of its figure."""

from __future__ import annotations

from typing import Any

import pytest

from lakeformat.errors import InvalidInputError
from lakeformat.timeline.write_report import (
    REPORT_KEY,
    Report,
    Stage,
    format_steps,
    format_summary,
    make_stages,
    read_report,
)
from tests.helpers.faulty import SetClock
from tests.helpers.telemetry import collect

TAG = {
    "step": "tag",
    "seconds": 0.5,
    "keys": 10,
    "files": 400,
    "after_ranges": 300,
    "after_filters": 20,
    "checked": 1500,
    "false_positives": 1200,
}


def test_report_has_the_seconds_of_each_step() -> None:
    clock = SetClock(0)
    report = Report(clock, "upsert", "t")
    for name, milliseconds in (("tag", 1500), ("write", 250)):
        with report.step(name) as counts:
            clock.at_ms += milliseconds
            counts["keys"] = milliseconds
        clock.at_ms += 1000  # Not in a step.
    report.rows["updated"], report.files["bytes"] = 3, 100
    assert report.end("1") == report.as_dict()
    assert report.as_dict() == {
        "rows": {"updated": 3},
        "files": {"bytes": 100},
        "steps": [{"step": "tag", "seconds": 1.5, "keys": 1500}, {"step": "write", "seconds": 0.25, "keys": 250}],
        "seconds": 1.75,
    }
    assert read_report({REPORT_KEY: report.as_text()}) == report.as_dict()


@pytest.mark.parametrize(
    "extra", [{}, {REPORT_KEY: ""}, {REPORT_KEY: "{"}, {REPORT_KEY: "[1]"}, {REPORT_KEY: "[" * 9999}]
)
def test_damaged_report_counts_as_none(extra: dict[str, str]) -> None:
    assert read_report(extra) is None


def test_end_of_a_write_is_a_span_with_its_counts() -> None:
    with collect() as (spans, _):
        for skipped in ("", "no rows"):
            report = Report(SetClock(0), "upsert", "t")
            report.rows["updated"] = 3
            if not skipped:
                report.files |= {"created": 1, "bytes": 100}
            report.end("1", skipped=skipped)
    done, nothing = (dict(span.attributes or {}) for span in spans.get_finished_spans())
    common = {"db.system.name": "hudi", "db.collection.name": "t", "db.operation.name": "upsert"}
    counts = {**common, "lakeformat.instant_time": "1", "lakeformat.rows.updated": 3}
    assert done == {**counts, "lakeformat.files.created": 1, "lakeformat.bytes": 100}
    assert nothing == {**counts, "lakeformat.skipped": "no rows", "lakeformat.bytes": 0}


def test_summary_names_what_there_is() -> None:
    report = {"rows": {"updated": 1234, "deleted": 0, "not_found": 2}, "files": {"created": 0}, "seconds": 0.125}
    assert format_summary("1", "upsert", report) == "upsert 1: rows 1,234 updated, 2 not found; files none; 0.12 s"
    none = {"rows": {}, "files": {"created": 2, "merged": 1000}, "seconds": 61}
    assert format_summary("1", "insert", none) == "insert 1: rows none; files 2 created, 1,000 merged; 61.00 s"


def test_steps_are_lines() -> None:
    steps = [
        {"step": "tag", "seconds": 0.5, "row_keys": 1234, "is_new": True, "kind": "x"},
        {"step": "write", "seconds": 12},
    ]
    assert format_steps(steps).splitlines() == [
        "  tag            0.500 s  row keys 1,234, is new True, kind x",
        "  write         12.000 s",
    ]


def report_of(tag: dict[str, Any], **files: int) -> dict[str, Any]:
    return {"rows": {"updated": 3, "inserted": 1234, "other": 5}, "files": files, "steps": [{"step": "read"}, tag]}


def test_bars_are_the_pairs_that_each_step_of_tagging_leaves() -> None:
    assert make_stages(report_of(TAG, created=2, merged=1000)) == (
        Stage("keys and files", 4000, "pairs at most, of 10 keys and 400 files in their partitions"),
        Stage("left by key ranges", 300, "each file's least and greatest key"),
        Stage("left by footer filters", 20, "1,500 looked up in key columns; 1,200 mistakes of filters"),
        Stage("files written", 1002, "1,000 merged, 2 new; rows: 3 updated, 1,234 inserted"),
    )
    quiet = {**TAG, "checked": 0, "false_positives": 0}
    stages = make_stages({**report_of(quiet), "rows": {}})
    assert stages[2:] == (
        Stage("left by footer filters", 20, "no key column was read"),
        Stage("files written", 0, "0 merged, 0 new; rows: none"),
    )


def test_bar_of_the_record_index_comes_first() -> None:
    index = {"index_keys": 5000, "index_groups": 1001, "index_bytes": 2048}
    bar = Stage("record index", 5000, "keys looked up in 1,001 file groups; 2,048 bytes read")
    assert [stage.name for stage in make_stages(report_of({**TAG, **index}))] == [
        "record index", "keys and files", "left by key ranges", "left by footer filters", "files written",
    ]  # fmt: skip
    alone = make_stages(report_of({**TAG, **index, "files": 0}))
    assert (alone[0], [stage.name for stage in alone]) == (bar, ["record index", "files written"])
    bare = make_stages(report_of({**TAG, "index_keys": 7, "files": 0}))
    assert bare[0] == Stage("record index", 7, "keys looked up in 0 file groups; 0 bytes read")


@pytest.mark.parametrize(
    "report", [{}, {"steps": []}, report_of({**TAG, "files": 0}), report_of({**TAG, "step": "write"})]
)
def test_write_that_looked_for_no_keys_has_no_figure(report: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="looked for no keys in files"):
        make_stages(report)
