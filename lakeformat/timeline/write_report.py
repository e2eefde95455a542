"""The report of a write, stored in its commit: counts and seconds of its steps. And a figure of its tagging.

``history()`` and the log show the report. The figure (``lakeformat[plot]``) shows how many pairs of key and file each
step of tagging left: key ranges, then footer filters. It also shows the number of files written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from lakeformat.codec.json_text import parse_json
from lakeformat.errors import InvalidInputError
from lakeformat.extras import install_line
from lakeformat.storage.port import Clock
from lakeformat.telemetry import Operation

__all__ = [
    "REPORT_KEY",
    "Report",
    "Stage",
    "draw_funnel",
    "format_steps",
    "format_summary",
    "make_stages",
    "read_report",
]

#: Key of the commit's ``extraMetadata``. Its value is the report as JSON.
REPORT_KEY: Final = "lakeformat.report"


@dataclass
class Report:
    """The report of a running write, which collects counts and seconds.

    Attributes:
        location: the table's location.
        columns: maps each column that the write adds, or whose type it changes, to its type.
        recorded: the write for OpenTelemetry.
    """

    clock: Clock
    operation: str
    location: str
    rows: dict[str, int] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=dict)
    recorded: Operation = field(init=False)

    def __post_init__(self) -> None:
        """Start the span of the write."""
        self.recorded = Operation(self.operation, self.location)

    @contextmanager
    def step(self, name: str) -> Iterator[dict[str, Any]]:
        """Add a step with the duration of the block to the report. Yield a dict, to which the block adds its counts."""
        counts: dict[str, Any] = {}
        start = self.clock.seconds()
        with self.recorded.step(name, counts):
            yield counts
        self.steps.append({"step": name, "seconds": round(self.clock.seconds() - start, 4), **counts})

    def end(self, instant_time: str = "", *, skipped: str = "", error: BaseException | None = None) -> dict[str, Any]:
        """End the span of the write. Return the report as a dict.

        Args:
            instant_time: instant time of the commit; "" if there is none.
            skipped: why nothing was written; "" if the write was published, or failed.
            error: why the write failed; None if it did not.
        """
        files = {name: count for name, count in self.files.items() if name != "bytes"}
        counts = {"instant_time": instant_time, **({"skipped": skipped} if skipped else {})}
        self.recorded.end(counts, rows=self.rows, files=files, size_bytes=self.files.get("bytes", 0), error=error)
        return self.as_dict()

    def as_dict(self) -> dict[str, Any]:
        """Return the report as a dict that can be encoded as JSON."""
        seconds = round(sum(step["seconds"] for step in self.steps), 4)
        columns = {"columns": self.columns} if self.columns else {}
        return {"rows": self.rows, "files": self.files, **columns, "steps": self.steps, "seconds": seconds}

    def as_text(self) -> str:
        """Return the report as JSON text, for the commit's extra metadata."""
        return json.dumps(self.as_dict(), separators=(",", ":"))


def format_summary(instant_time: str, operation: str, report: Mapping[str, Any]) -> str:
    """Format a report as one line: the rows by kind, the files, new or changed columns, and the seconds."""
    rows = ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in report["rows"].items() if count) or "none"
    files = ", ".join(f"{count:,} {what}" for what, count in report["files"].items() if count) or "none"
    new = ", ".join(f"{name} {kind}" for name, kind in report.get("columns", {}).items())
    columns = f"; columns added or changed: {new}" if new else ""
    return f"{operation} {instant_time}: rows {rows}; files {files}{columns}; {report['seconds']:.2f} s"


def format_steps(steps: Iterable[Mapping[str, Any]]) -> str:
    """Format the steps of a report, a line for each: name, seconds and counts."""
    lines = []
    for step in steps:
        counts = ", ".join(
            f"{name.replace('_', ' ')} {_number(value)}"
            for name, value in step.items()
            if name not in {"step", "seconds"}
        )
        lines.append(f"  {step['step']:<10} {step['seconds']:>9.3f} s  {counts}".rstrip())
    return "\n".join(lines)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def read_report(extra: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the report in a commit's extra metadata; None if there is none or it is damaged."""
    text = extra.get(REPORT_KEY)
    if not text:
        return None
    try:
        report = parse_json(text)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(report, dict) and all(
        isinstance(report.get(name, {}), kind) for name, kind in (("rows", dict), ("files", dict), ("columns", dict))
    )
    return report if whole else None


_FACES: Final = ("#9db0c4", "#dfe7ef", "#f2a65a")
_EDGES: Final = ("#6f859c", "#9db0c4", "#c4541c")
_TEXT: Final = "#33404d"
#: Minimum width of a bar of the figure, as a fraction of the widest bar.
_LEAST: Final = 0.012


@dataclass(frozen=True, slots=True)
class Stage:
    """One bar of the figure: its name, its count, and a text that explains the count."""

    name: str
    count: int
    note: str


def make_stages(report: Mapping[str, Any]) -> tuple[Stage, ...]:
    """Make the bars of the figure from a write's report.

    Raises:
        InvalidInputError: The write did not look for keys in files.
    """
    tags = [step for step in report.get("steps", ()) if step["step"] == "tag" and _looked_up(step)]
    if not tags:
        raise InvalidInputError(
            "this write looked for no keys in files, so there is no figure; upserts and deletes by key have one"
        )
    tag, rows, files = tags[0], report["rows"], report["files"]
    keys, file_count = tag["keys"], tag["files"]
    notes = [f"{tag['checked']:,} looked up in key columns" if tag["checked"] else "no key column was read"]
    if tag["false_positives"]:
        notes.append(f"{tag['false_positives']:,} mistakes of filters")
    changed = {what: rows.get(what, 0) for what in ("updated", "inserted", "deleted")}
    new, merged = files.get("created", 0), files.get("merged", 0)
    asked, size = tag.get("index_keys", 0), tag.get("index_bytes", 0)
    asked_note = f"keys looked up in {tag.get('index_groups', 0):,} file groups; {size:,} bytes read"
    searched = (
        Stage(
            "keys and files",
            keys * file_count,
            f"pairs at most, of {keys:,} keys and {file_count:,} files in their partitions",
        ),
        Stage("left by key ranges", tag["after_ranges"], "each file's least and greatest key"),
        Stage("left by footer filters", tag["after_filters"], "; ".join(notes)),
    )
    return (
        *((Stage("record index", asked, asked_note),) if asked else ()),
        *(searched if file_count else ()),
        Stage(
            "files written",
            merged + new,
            f"{merged:,} merged, {new:,} new; rows: "
            + (", ".join(f"{count:,} {what}" for what, count in changed.items() if count) or "none"),
        ),
    )


def _looked_up(step: Mapping[str, Any]) -> bool:
    """Tell whether a step has looked up keys, in files or in the record index."""
    return bool(step.get("files") or step.get("index_keys"))


def draw_funnel(title: str, stages: Sequence[Stage]) -> Any:
    """Draw the bars below each other as a matplotlib figure.

    The width of a bar is ``sqrt(count / greatest_count)``.

    Raises:
        InvalidInputError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInputError(f"pictures need matplotlib; {install_line('plot')}") from None
    figure = Figure(figsize=(9.6, 0.62 * len(stages) + 0.9), facecolor="white", layout="constrained")
    panel = figure.subplots()
    most = max(1, *(stage.count for stage in stages))
    places = [0, *[1] * (len(stages) - 2), len(_FACES) - 1]
    for number, (stage, place) in enumerate(zip(stages, places, strict=True)):
        face, edge = _FACES[place], _EDGES[place]
        width = max(_LEAST, (stage.count / most) ** 0.5) if stage.count else 0.0
        panel.barh(-number, width, left=-width / 2, height=0.62, facecolor=face, edgecolor=edge, linewidth=0.9)
        panel.text(-0.56, -number, stage.name, ha="right", va="center", fontsize=11, color=_TEXT)
        panel.text(0.56, -number + 0.14, f"{stage.count:,}", va="center", fontsize=12, color=_TEXT, fontweight="bold")
        panel.text(0.56, -number - 0.22, stage.note, va="center", fontsize=8.5, color=_TEXT)
    panel.set_xlim(-1.0, 1.5)
    panel.set_ylim(-len(stages) + 0.5, 0.5)
    panel.set_axis_off()
    panel.set_title(title, loc="left", fontsize=12, color=_TEXT, fontweight="bold")
    return figure
