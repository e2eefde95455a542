"""The result of a write, with its numbers of rows and files and its duration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, TypeVar

from lakeformat.display import html_rows
from lakeformat.public import OneLine, public
from lakeformat.timeline.write_report import draw_funnel, format_steps, format_summary, make_stages

T = TypeVar("T", "RowCounts", "FileCounts")

__all__ = ["FileCounts", "RowCounts", "WriteResult"]


@public
@dataclass(frozen=True, slots=True)
class RowCounts:
    """Numbers of rows, by what the write did with them.

    Attributes:
        incoming: number of input rows.
        set_aside: number of input rows that were bad and are in the table of bad rows.
        rewritten: number of rows that a clustering or compaction copied unchanged into new files.
    """

    incoming: int = 0
    set_aside: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    rewritten: int = 0


@public
@dataclass(frozen=True, slots=True)
class FileCounts:
    """Numbers of files that a write created or replaced.

    Attributes:
        created: number of files in new file groups.
        merged: number of files in existing file groups.
        replaced: number of file groups that the write replaced.
        bytes: size in bytes of all files that the write created.
    """

    created: int = 0
    merged: int = 0
    replaced: int = 0
    bytes: int = 0


@public
@dataclass(frozen=True, slots=True, repr=False)
class WriteResult(OneLine):
    """The result of a write that was published or skipped.

    Attributes:
        instant_time: instant time of the commit; for a skipped write that of the table's newest commit.
        report: the steps, row counts and file counts that ``history()`` shows later.
        skipped: why nothing was written, e.g. because the batch is in the table already; "" if the write was published.
    """

    instant_time: str
    operation: str
    report: Mapping[str, Any]
    skipped: str = ""

    @property
    def rows(self) -> RowCounts:
        """Return the numbers of rows, by what the write did with them; all 0 for a skipped write."""
        return _known_counts(RowCounts, self.report.get("rows", {}))

    @property
    def files(self) -> FileCounts:
        """Return the numbers of files, by what the write did with them; all 0 for a skipped write."""
        return _known_counts(FileCounts, self.report.get("files", {}))

    @property
    def seconds(self) -> float:
        """Return the sum of the durations of all steps, in seconds."""
        return float(self.report.get("seconds", 0.0))

    def with_steps(self, steps: Sequence[Mapping[str, Any]]) -> WriteResult:
        """Return the result with further steps in its report, whose seconds are added to the write's."""
        if not steps:
            return self
        seconds = round(self.seconds + sum(step["seconds"] for step in steps), 4)
        report = {**self.report, "steps": [*self.report.get("steps", ()), *steps], "seconds": seconds}
        return replace(self, report=report)

    def __str__(self) -> str:
        """Return one line with the rows, files and seconds, or with the reason why the write was skipped."""
        if self.skipped:
            return f"{self.operation} skipped: {self.skipped}"
        return format_summary(self.instant_time, self.operation, self.report)

    def describe(self) -> str:
        """Return the line of ``str``, then one line per step with its seconds and counts."""
        return "\n".join([str(self), format_steps(self.report["steps"])])

    def figure(self) -> Any:
        """Draw how the write found the files that contain its keys, as a matplotlib figure.

        Three bars show numbers of pairs of a key and a file: all pairs, the pairs left by the files' key ranges, and
        the pairs left by the filters in the footers. The last bar shows the number of written files.

        Raises:
            InvalidInputError: the write did not look for keys in files, or matplotlib is missing
                (``pip install 'lakeformat[plot]'``).
        """
        return draw_funnel(f"{self.operation} {self.instant_time}", make_stages(self.report))

    def to_png(self, path: str | PathLike[str]) -> None:
        """Save the plot of `figure` as a PNG file at a local path. Raises the errors of `figure`."""
        self.figure().savefig(path, format="png", dpi=150)

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the summary line, and a table of the steps."""
        steps = [
            (
                step["step"],
                step["seconds"],
                ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in _counters(step)),
            )
            for step in self.report.get("steps", ())
        ]
        return html_rows(("step", "seconds", "counted"), steps, caption=str(self))


def _counters(step: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in step.items() if name not in {"step", "seconds"}]


def _known_counts(kind: type[T], counts: Mapping[str, int]) -> T:
    return kind(**{name: count for name, count in counts.items() if name in kind.__dataclass_fields__})
