"""The report of a table: its facts, and the page that shows them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from lakeformat.config.resolve import Options
from lakeformat.file_system_view.context import TableContext
from lakeformat.public import OneLine, public
from lakeformat.services.report.collect import collect_facts
from lakeformat.services.report.facts import Due, ReportFacts
from lakeformat.services.report.page import render_page

__all__ = ["TableReport", "make_report"]


@public
@dataclass(frozen=True, slots=True, repr=False)
class TableReport(OneLine):
    """A report of a table, as `lakeformat.Table.report` returns it. Notebooks show it as a page.

    The page is one HTML file that loads nothing: timeline, sizes and rows over time, partitions and files, layout,
    services due, findings, slowest steps. It is readable on a phone and in the dark.
    """

    facts: ReportFacts

    @property
    def missing(self) -> Mapping[str, str]:
        """Return a mapping of the title of each part that cannot be shown to the reason."""
        return {section.value: reason for section, reason in self.facts.missing.items()}

    def to_html(self) -> str:
        """Return the page as HTML text."""
        return render_page(self.facts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a local file; an existing file is replaced."""
        Path(path).write_text(self.to_html(), encoding="utf-8")

    def __str__(self) -> str:
        due = ", ".join(service.name for service in self.facts.services if service.due is Due.DUE) or "nothing"
        findings = "not checked" if self.facts.findings is None else f"{len(self.facts.findings):,} findings"
        return f"report of {self.facts.name} at {self.facts.made_at}: due {due}; {findings}"

    def _repr_html_(self) -> str:
        """Return the page in a frame, so that its style and the notebook's do not touch each other."""
        style = "width:100%;height:720px;border:0"
        return f'<iframe title="report" sandbox style="{style}" srcdoc="{escape(self.to_html(), quote=True)}"></iframe>'


def make_report(
    context: TableContext, options: Options, by: Sequence[str] | str = (), *, check: bool | None = None
) -> TableReport:
    """Make the report. Arguments and errors as in `lakeformat.Table.report`."""
    columns = (by,) if isinstance(by, str) else tuple(by)
    return TableReport(collect_facts(context, options, columns, check=check))
