"""The page of a report: `render_page` turns facts into HTML. Pure.

The page loads nothing and runs no script, which its content security policy states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.display import format_bytes
from lakeformat.layout.boxes import NOW, format_percent
from lakeformat.layout.layout_report import LayoutReport
from lakeformat.services.doctor.describe import Description
from lakeformat.services.report.charts import (
    Event,
    Picture,
    boxes_chart,
    columns_chart,
    lanes_chart,
    line_chart,
    split_bar,
)
from lakeformat.services.report.facts import Due, ReportFacts, Section
from lakeformat.services.report.markup import Html, bar, card, details, element, escaped, joined, pairs, table
from lakeformat.services.report.style import STYLE
from lakeformat.timeline.history import HistoryEntry

__all__ = ["file_size_classes", "partition_sizes", "render_page", "slowest_steps"]

#: Maximum number of rows of each list on the page.
_PARTITIONS, _FILES, _ENTRIES, _STEPS, _COLUMNS, _FINDINGS, _SIZES = 20, 10, 50, 12, 100, 100, 60
_MOST_BOXES: Final = 160
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
#: Colors of the lanes of the timeline; those of other operations are grey.
_COLORS: Final = {
    **dict.fromkeys(("upsert", "update", "merge", "merge_into"), "blue"),
    **dict.fromkeys(("insert", "bulk_insert"), "green"),
    **dict.fromkeys(("delete", "delete_partition", "rollback", "restore"), "red"),
    **dict.fromkeys(("insert_overwrite", "insert_overwrite_table", "savepoint"), "violet"),
    **dict.fromkeys(("cluster", "compact", "clean", "dedupe"), "orange"),
}


def render_page(facts: ReportFacts) -> str:
    """Return the whole page. Equal facts give equal pages."""
    body = joined([_header(facts), element("main", *_cards(facts)), _footer(facts)])
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escaped(facts.name)} - lakeformat report</title><style>{STYLE}</style></head>"
        f"<body>{body}</body></html>\n"
    )


def _cards(facts: ReportFacts) -> list[Html]:
    return [
        _services_card(facts),
        _findings_card(facts),
        _sizes_card(facts),
        _timeline_card(facts),
        _partitions_card(facts),
        _files_card(facts),
        _layout_card(facts),
        _steps_card(facts),
        _table_card(facts),
    ]


def _header(facts: ReportFacts) -> Html:
    about = facts.description
    tiles: list[tuple[str, str]] = []
    if about is not None:
        logs = f"{about.log_share:.0%}"
        tiles = [
            ("rows", "not known" if about.rows is None else f"{about.rows:,}"),
            ("live", format_bytes(about.size_bytes)),
            ("files", f"{about.files:,}"),
            ("partitions", f"{about.partitions:,}"),
            ("commits on the timeline", f"{about.commits:,}"),
            ("in log files", logs),
            ("all versions on disk", format_bytes(about.all_bytes)),
        ]
    boxes = (element("li", element("b", value), element("span", name)) for name, value in tiles)
    return element(
        "header",
        element("h1", facts.name),
        element("p", facts.location),
        element("p", f"As of {facts.made_at}" + (f", {about.kind}, version {about.version}" if about else "")),
        element("ul", *boxes, class_="tiles") if tiles else "",
    )


def _footer(facts: ReportFacts) -> Html:
    text = f"Made by lakeformat at {facts.made_at}. Instants are in the timeline's time zone."
    return element("footer", element("p", text))


# --- what to do ----------------------------------------------------------------------------------------


def _services_card(facts: ReportFacts) -> Html:
    if facts.description is None:
        return card(Section.SERVICES.value, missing=facts.missing.get(Section.TABLE, "the table cannot be read"))
    kinds = {Due.DUE: "due", Due.WAITING: "due", Due.UNKNOWN: "bad", Due.IDLE: "idle"}
    rows = [
        (service.name, element("span", service.due.value, class_=kinds[service.due]), service.text)
        for service in facts.services
    ]
    return card(Section.SERVICES.value, table("By their own plans", ("service", "now", "why"), rows))


def _findings_card(facts: ReportFacts) -> Html:
    missing, findings = facts.missing.get(Section.FINDINGS), facts.findings
    if missing is not None or findings is None:
        return card(Section.FINDINGS.value, missing=missing or "the table was not checked")
    note = element("p", f"Checked: {facts.checked}.", class_="note")
    if not findings:
        return card(Section.FINDINGS.value, element("p", element("span", "Nothing is wrong", class_="good")), note)
    rows = [
        (element("span", finding.kind.value, class_="bad"), finding.path, finding.size_bytes, finding.cure)
        for finding in findings.findings[:_FINDINGS]
    ]
    more = _left_out(len(findings), len(rows), "findings")
    shown = table(f"{len(findings):,} findings", ("what", "where", "bytes", "cure"), rows, more)
    return card(Section.FINDINGS.value, shown, note, wide=True)


# --- over time -----------------------------------------------------------------------------------------


def _sizes_card(facts: ReportFacts) -> Html:
    missing, sizes = facts.missing.get(Section.SIZES), facts.sizes
    if missing is not None or not sizes:
        return card(Section.SIZES.value, missing=missing or "there is no commit")
    times, ends = [_moment(size.instant_time) for size in sizes], _ends([size.instant_time for size in sizes])
    about = facts.description
    in_logs = " in base files" if about is not None and about.log_bytes else ""
    pictures: list[Any] = []
    for title, values, shown in (
        ("Bytes of the live files", [size.size_bytes for size in sizes], format_bytes),
        (f"Rows{in_logs}", [size.rows for size in sizes], _whole),
        ("Live files", [size.files for size in sizes], _whole),
    ):
        text = f"From {shown(values[0])} after the first of {len(values):,} commits to {shown(values[-1])} now."
        pictures += [
            element("h3", f"{title}: {shown(values[-1])}"),
            line_chart(Picture(title, text), times, values, ends, shown),
        ]
    newest = [(_shown(size.instant_time), size.size_bytes, size.rows, size.files) for size in reversed(sizes)][:_SIZES]
    head = ("after commit", "bytes", f"rows{in_logs}", "files")
    listed = details(
        "As a table", table("The newest commits first", head, newest, _left_out(len(sizes), len(newest), "commits"))
    )
    note = ""
    if about is not None and sizes[-1].size_bytes != about.size_bytes:
        note = f"The commits that can be read account for {format_bytes(sizes[-1].size_bytes)} of the live bytes."
    return card(Section.SIZES.value, *pictures, listed, element("p", note, class_="note") if note else "")


def _timeline_card(facts: ReportFacts) -> Html:
    missing, entries = facts.missing.get(Section.TIMELINE), facts.history
    if missing is not None or not entries:
        return card(Section.TIMELINE.value, missing=missing or "there is no commit")
    oldest_first = list(reversed(entries))
    events = [Event(_moment(entry.instant_time), entry.operation, str(entry)) for entry in oldest_first]
    kinds = Counter(entry.operation for entry in entries)
    text = "; ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
    picture = lanes_chart(
        Picture("Commits and other actions over time", text),
        events,
        _ends([entry.instant_time for entry in oldest_first]),
        _COLORS,
    )
    rows = [_entry_row(entry) for entry in entries[:_ENTRIES]]
    head = ("instant", "operation", "rows written", "files", "seconds", "what")
    listed = table("The newest first", head, rows, _left_out(len(entries), len(rows), "entries"))
    return card(Section.TIMELINE.value, picture, element("p", text, class_="note"), details("As a table", listed))


def _entry_row(entry: HistoryEntry) -> tuple[Any, ...]:
    seconds = (entry.report or {}).get("seconds")
    written = (entry.rows_written, entry.files_written) if entry.is_commit else (None, None)
    words = " ".join((entry.statement or entry.detail).split())
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return _shown(entry.instant_time), entry.operation, *written, float(seconds or 0) if is_number else None, words


def slowest_steps(entries: Sequence[HistoryEntry]) -> list[tuple[float, str, HistoryEntry]]:
    """Return the seconds and the name of all steps in the reports of writes, with their commits, slowest first."""
    timed = []
    for entry in entries:
        steps = (entry.report or {}).get("steps")
        for step in steps if isinstance(steps, list) else ():
            seconds = step.get("seconds") if isinstance(step, dict) else None
            if isinstance(seconds, int | float) and not isinstance(seconds, bool):
                timed.append((float(seconds), str(step.get("step", "")), entry))
    return sorted(timed, key=lambda step_of: step_of[0], reverse=True)


def _steps_card(facts: ReportFacts) -> Html:
    steps = slowest_steps(facts.history)
    if not steps:
        return card(Section.STEPS.value, missing="no commit of the history has a report of its steps")
    most = steps[0][0] or 1.0
    rows = [
        (name, bar(seconds / most), seconds, joined([entry.operation, _shown(entry.instant_time)], " "))
        for seconds, name, entry in steps[:_STEPS]
    ]
    sums: Counter[str] = Counter()
    for seconds, name, _ in steps:
        sums[name] += seconds  # type: ignore[assignment]
    total = sum(sums.values()) or 1.0
    by_name = [(name, bar(seconds / total, "orange"), float(seconds)) for name, seconds in sums.most_common(_STEPS)]
    return card(
        Section.STEPS.value,
        table("The slowest steps of single writes", ("step", "", "seconds", "write"), rows),
        table("All writes of the history together", ("step", "", "seconds"), by_name),
    )


# --- files ---------------------------------------------------------------------------------------------


def partition_sizes(files: pa.Table) -> pa.Table:
    """Return a row for each partition, the largest first: its files, bytes, and file slices with log files."""
    has_logs = pc.if_else(pc.is_valid(files["log_files"]), 1, 0)
    flagged = files.select(["partition_path", "size_bytes"]).append_column("logged", has_logs)
    grouped = flagged.group_by("partition_path").aggregate(
        [("size_bytes", "sum"), ("size_bytes", "count"), ("logged", "sum")]
    )
    return grouped.sort_by([("size_bytes_sum", "descending"), ("partition_path", "ascending")])


def _partitions_card(facts: ReportFacts) -> Html:
    files, about = facts.files, facts.description
    if files is None or not len(files):
        missing = facts.missing.get(Section.TABLE, "the table has no files")
        return card(Section.PARTITIONS.value, missing=missing)
    sizes = partition_sizes(files)
    shown = sizes.slice(0, _PARTITIONS).to_pylist()
    total, logged = pc.sum(files["size_bytes"]).as_py() or 1, bool(about is not None and about.log_bytes)
    most = (shown[0]["size_bytes_sum"] or 1) / total
    rows = []
    for partition in shown:
        share = partition["size_bytes_sum"] / total
        row = (
            partition["partition_path"] or "(none)",
            bar(share / most),
            format_percent(share),
            partition["size_bytes_sum"],
        )
        rows.append((*row, partition["size_bytes_count"], *((partition["logged_sum"],) if logged else ())))
    head = ("partition", "", "share", "bytes", "files", *(("with logs",) if logged else ()))
    note = _left_out(len(sizes), len(shown), "partitions")
    return card(Section.PARTITIONS.value, *_log_share(about), table("The largest by bytes", head, rows, note))


def _log_share(about: Description | None) -> list[Html]:
    if about is None or not about.size_bytes:
        return []
    share = about.log_share
    text = f"{format_percent(1 - share)} of the live bytes are in base files, {format_percent(share)} in log files."
    parts = [(f"base files {format_percent(1 - share)}", 1 - share, "blue")]
    parts.append((f"log files {format_percent(share)}", share, "orange"))
    return [element("h3", "Log share"), split_bar(Picture("Log share", text), parts)]


def file_size_classes(files: pa.Table) -> list[tuple[int, int]]:
    """Return the powers of two from the smallest to the largest file, and the number of files from each up."""
    sizes = pc.max_element_wise(files["size_bytes"], 1)
    exponents = pc.floor(pc.log2(pc.cast(sizes, pa.float64()))).cast(pa.int64())
    counts = {pair["values"]: pair["counts"] for pair in pc.value_counts(exponents).to_pylist()}
    return (
        [(1 << exponent, counts.get(exponent, 0)) for exponent in range(min(counts), max(counts) + 1)] if counts else []
    )


def _files_card(facts: ReportFacts) -> Html:
    files, about = facts.files, facts.description
    if files is None or not len(files):
        return card(Section.FILES.value, missing=facts.missing.get(Section.TABLE, "the table has no files"))
    classes = file_size_classes(files)
    limit = about.small_limit if about is not None else 0
    labels = [(format_bytes(size).replace(".0 ", " ").replace(" bytes", " B"), count) for size, count in classes]
    text = f"{len(files):,} file slices, from {format_bytes(pc.min(files['size_bytes']).as_py())} to " + format_bytes(
        pc.max(files["size_bytes"]).as_py()
    )
    small = f"; {about.small_files:,} base files are below {format_bytes(limit)} (orange)" if about is not None else ""
    picture = columns_chart(
        Picture("Number of files by size", text), labels, dim=[2 * size <= limit for size, _ in classes]
    )
    listed: list[Any] = []
    for title, order in (("The largest files", "descending"), ("The smallest files", "ascending")):
        some = files.sort_by([("size_bytes", order), ("path", "ascending")]).slice(0, _FILES).to_pylist()
        rows = [
            (
                file["path"] or f"{file['partition_path']}/{file['file_id']} (log files alone)",
                file["size_bytes"],
                file["rows"],
            )
            for file in some
        ]
        listed.append(table(title, ("file", "bytes", "rows"), rows))
    counted = table("Files by size", ("from", "files"), [(label, count) for label, count in labels])
    return card(
        Section.FILES.value,
        picture,
        element("p", f"{text}{small}.", class_="note"),
        details("As a table", counted),
        details("The largest and the smallest", *listed),
    )


# --- layout and settings -------------------------------------------------------------------------------


def _layout_card(facts: ReportFacts) -> Html:
    report = facts.layout
    if report is None:
        missing = facts.missing.get(Section.LAYOUT) or facts.missing.get(Section.TABLE)
        return card(Section.LAYOUT.value, missing=missing or "there is no layout to report")
    kinds = [*(f"on {name}" for name in report.columns), *(("on all together",) if len(report.columns) > 1 else ())]
    shares = [[*layout.skipped.values(), layout.skipped_together] for layout in report.layouts]
    rows = []
    for number, kind in enumerate(kinds):
        now, others = shares[0][number], [format_percent(layout_shares[number]) for layout_shares in shares[1:]]
        rows.append((kind, bar(now, "green"), format_percent(now), *others))
    head = ("a filter", "", *(layout.name for layout in report.layouts))
    caption = f"Share of the files that a filter for {format_percent(report.selectivity)} of the rows skips"
    note = f"Judged by {report.sampled:,} sampled rows: {report.advice}."
    return card(Section.LAYOUT.value, *_boxes_picture(report), table(caption, head, rows, note))


def _boxes_picture(report: LayoutReport) -> list[Html]:
    """Draw the files as they lie now in the plane of the first two columns, and which of them a filter reads."""
    boxes = next(layout for layout in report.layouts if layout.name == NOW).boxes
    if len(report.columns) < 2 or not len(boxes) or not len(report.example):
        return []
    touched = report.example.find_overlaps(0, boxes)
    every = max(1, -(-len(boxes) // _MOST_BOXES))
    sides = [
        (axis.share_below(boxes.low[:, number]), axis.share_up_to(boxes.high[:, number]))
        for number, axis in enumerate(report.axes[:2])
    ]
    corners = [
        (float(sides[0][0][number]), float(sides[0][1][number]), float(sides[1][0][number]), float(sides[1][1][number]))
        for number in range(0, len(boxes), every)
    ]
    text = f"A filter on {' and '.join(report.columns)} reads {int(touched.sum()):,} of {len(boxes):,} files. "
    text += "Equal lengths of an axis hold equally many rows."
    names = (report.columns[0], report.columns[1])
    picture = boxes_chart(
        Picture("The range of values in each file", text),
        corners,
        names,
        [bool(touched[number]) for number in range(0, len(boxes), every)],
    )
    return [picture, element("p", text, class_="note")]


def _table_card(facts: ReportFacts) -> Html:
    about = facts.description
    columns = table(
        f"{len(facts.columns):,} columns",
        ("column", "type"),
        facts.columns[:_COLUMNS],
        _left_out(len(facts.columns), min(len(facts.columns), _COLUMNS), "columns"),
    )
    if about is None:
        return card(Section.TABLE.value, missing=facts.missing.get(Section.TABLE))
    return card(
        Section.TABLE.value,
        pairs({name: text for name, text in about.lines().items() if name != "to do"}),
        details("Columns", columns),
        wide=True,
    )


# --- texts ---------------------------------------------------------------------------------------------


def _whole(value: int) -> str:
    return f"{value:,}"


def _left_out(count: int, shown: int, what: str) -> str:
    return f"{count - shown:,} more {what} are not listed." if count > shown else ""


def _moment(instant_time: str) -> float:
    """Return an instant time as seconds, for a place on an axis; 0 if it is not a time."""
    try:
        return datetime.strptime(instant_time[:14], "%Y%m%d%H%M%S").timestamp() + int(instant_time[14:17] or 0) / 1000
    except ValueError:
        return 0.0


def _shown(instant_time: str) -> Html:
    """Return an instant time, with the point in time for people as its title."""
    try:
        when = datetime.strptime(instant_time[:14], "%Y%m%d%H%M%S")
    except ValueError:
        return escaped(instant_time)
    return element("span", instant_time, title=f"{when:%Y-%m-%d %H:%M:%S}")


def _ends(instants: Sequence[str]) -> tuple[str, str]:
    """Return the labels of the first and last instant: the day, and the time if it is the same day."""
    try:
        first, last = (datetime.strptime(instant[:14], "%Y%m%d%H%M%S") for instant in (instants[0], instants[-1]))
    except ValueError:
        return instants[0], instants[-1]
    length = (last - first).total_seconds()
    shape = "%Y-%m-%d" if length >= 172_800 else "%Y-%m-%d %H:%M" if length >= 600 else "%Y-%m-%d %H:%M:%S"
    if first.date() == last.date():
        return f"{first:{shape}}", f"{last:{shape.partition(' ')[2]}}" if first != last else ""
    return f"{first:{shape}}", f"{last:{shape}}"
