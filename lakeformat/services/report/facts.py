"""The facts of a report as one frozen value. Everything on the page comes from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from lakeformat.layout.layout_report import LayoutReport
from lakeformat.services.doctor.describe import Description
from lakeformat.services.doctor.findings import Findings
from lakeformat.services.report.growth import TableSize
from lakeformat.timeline.history import History

__all__ = ["Due", "ReportFacts", "Section", "ServiceState"]


class Section(Enum):
    """A part of the report. The value is its title."""

    SERVICES = "Services due"
    FINDINGS = "Findings of check"
    SIZES = "Size and rows over time"
    TIMELINE = "Timeline"
    PARTITIONS = "Partitions"
    FILES = "File sizes"
    LAYOUT = "Layout: what filters skip"
    STEPS = "Slowest steps"
    TABLE = "Table"


class Due(Enum):
    """The state of a table service."""

    DUE = "due"
    WAITING = "waiting"
    IDLE = "not due"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class ServiceState:
    """Whether a table service has something to do, and what."""

    name: str
    due: Due
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFacts:
    """What a report shows.

    Attributes:
        made_at: the time of the report, as text.
        description: `lakeformat.Table.describe`; None if the table cannot be read.
        columns: the names and types of the table's columns.
        history: the newest commits and other actions.
        sizes: the size of the table after each commit, oldest first; empty if it is not known.
        files: the live file slices, as `lakeformat.Table.files` lists them.
        layout: the layout report; None if there is none.
        services: the services, those that are due first.
        findings: the findings of `lakeformat.Table.check`; None if the table was not checked.
        checked: which check was made, in words.
        missing: maps each section that cannot be shown to the reason.
    """

    name: str
    location: str
    made_at: str
    checked: str = ""
    description: Description | None = None
    columns: tuple[tuple[str, str], ...] = ()
    history: History = field(default_factory=History)
    sizes: tuple[TableSize, ...] = ()
    files: pa.Table | None = None
    layout: LayoutReport | None = None
    services: tuple[ServiceState, ...] = ()
    findings: Findings | None = None
    missing: Mapping[Section, str] = field(default_factory=dict)
