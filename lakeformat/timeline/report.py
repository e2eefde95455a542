"""What a write did, step by step: kept in the commit's metadata, shown by ``history()`` and the log."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from lakeformat.storage.port import Clock

__all__ = ["REPORT_KEY", "Report", "read_report", "steps_table", "summary"]

#: Key of the commit's ``extraMetadata`` under which the report stands, as JSON.
REPORT_KEY: Final = "lakeformat.report"


@dataclass
class Report:
    """Counts and seconds, gathered while a write runs."""

    clock: Clock
    operation: str
    rows: dict[str, int] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[dict[str, Any]]:
        """Time a step; the mapping takes what it counted."""
        counted: dict[str, Any] = {}
        start = self.clock.seconds()
        yield counted
        self.steps.append({"step": name, "seconds": round(self.clock.seconds() - start, 4), **counted})

    def as_dict(self) -> dict[str, Any]:
        """A JSON-ready copy."""
        seconds = round(sum(step["seconds"] for step in self.steps), 4)
        return {"rows": self.rows, "files": self.files, "steps": self.steps, "seconds": seconds}

    def as_text(self) -> str:
        """The report as it stands in the commit."""
        return json.dumps(self.as_dict(), separators=(",", ":"))


def summary(instant_time: str, operation: str, report: Mapping[str, Any]) -> str:
    """One line for the log and for people: what was written, in which files, in how many seconds."""
    rows = ", ".join(f"{count:,} {what}" for what, count in report["rows"].items() if count) or "none"
    files = ", ".join(f"{count:,} {what}" for what, count in report["files"].items() if count) or "none"
    return f"{operation} {instant_time}: rows {rows}; files {files}; {report['seconds']:.2f} s"


def steps_table(steps: Iterable[Mapping[str, Any]]) -> str:
    """One line a step: its name, seconds, and what it counted."""
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
    """The report of a commit of ours; None for commits of others."""
    text = extra.get(REPORT_KEY)
    if not text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
