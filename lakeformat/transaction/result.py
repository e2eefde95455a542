"""What a write answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, TypeVar

from lakeformat.codec.html import html_rows
from lakeformat.model.one_line import OneLine
from lakeformat.timeline.funnel import draw_funnel, stages_of
from lakeformat.timeline.report import steps_table, summary

T = TypeVar("T", "RowCounts", "FileCounts")

__all__ = ["FileCounts", "RowCounts", "WriteResult"]


@dataclass(frozen=True, slots=True)
class RowCounts:
    """What became of rows. ``rewritten``: moved as they were, by clustering and its like."""

    incoming: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    rewritten: int = 0


@dataclass(frozen=True, slots=True)
class FileCounts:
    """Files that a write made: of new file groups, merged with what stood; groups it replaced; bytes of all it made."""

    created: int = 0
    merged: int = 0
    replaced: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class WriteResult(OneLine):
    """A published write, or one that had been published before.

    Attributes:
        instant_time: its instant; of a skipped write the table's newest.
        report: what ``history()`` shows later.
        skipped: why nothing was written, if so: the batch is in the table already.
    """

    instant_time: str
    operation: str
    report: Mapping[str, Any]
    skipped: str = ""

    @property
    def rows(self) -> RowCounts:
        """Rows by what became of them; all 0 of a skipped write."""
        return _known(RowCounts, self.report.get("rows", {}))

    @property
    def files(self) -> FileCounts:
        """Files by what became of them."""
        return _known(FileCounts, self.report.get("files", {}))

    @property
    def seconds(self) -> float:
        """How long all steps took."""
        return float(self.report.get("seconds", 0.0))

    def __str__(self) -> str:
        """One line: rows, files, seconds."""
        if self.skipped:
            return f"{self.operation} skipped: {self.skipped}"
        return summary(self.instant_time, self.operation, self.report)

    def describe(self) -> str:
        """The summary, and a line a step: seconds, and what it counted."""
        return "\n".join([str(self), steps_table(self.report["steps"])])

    def figure(self) -> Any:
        """A matplotlib figure of how the write found its keys: keys, key ranges, footer filters, files.

        Raises:
            InvalidInputError: the write looked for no keys in files, or matplotlib is missing
                (``pip install 'lakeformat[plot]'``).
        """
        return draw_funnel(f"{self.operation} {self.instant_time}", stages_of(self.report))

    def to_png(self, path: str | PathLike[str]) -> None:
        """Write the figure as a PNG file on this machine; errors as of `figure`."""
        self.figure().savefig(path, format="png", dpi=150)

    def _repr_html_(self) -> str:
        """What notebooks show: the line, and a table of the steps."""
        steps = [
            (
                step["step"],
                step["seconds"],
                ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in _rest(step)),
            )
            for step in self.report.get("steps", ())
        ]
        return html_rows(("step", "seconds", "counted"), steps, caption=str(self))


def _rest(step: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in step.items() if name not in {"step", "seconds"}]


def _known(kind: type[T], counts: Mapping[str, int]) -> T:
    return kind(**{name: count for name, count in counts.items() if name in kind.__dataclass_fields__})
