"""Types for the problems that a check finds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from lakeformat.display import html_rows
from lakeformat.public import OneLine, public

__all__ = ["Finding", "Findings", "Kind"]


class Kind(Enum):
    """Kind of a finding.

    The value of a member is the text shown to people. ``check --json`` prints the name of the member in lower case; the
    names are stable.
    """

    PROPERTIES = "settings of the table are lost"
    KEY_IN_TWO_GROUPS = "key occurs in two file groups"
    KEY_TWICE = "key occurs twice in one file group"
    WRONG_PARTITION = "rows in the wrong partition"
    ORPHAN = "file that no commit made"
    MISSING = "file is missing"
    OTHER_SIZE = "size differs from the commit"
    OTHER_ROWS = "row count differs from the commit"
    OTHER_COUNTS = "counts of the commit contradict each other"
    DAMAGED = "file cannot be read"
    NO_FILTER = "bloom filter cannot be decoded"
    FILTER_DENIES = "bloom filter denies keys"
    KEY_RANGE = "footer's key range leaves keys out"
    STATISTICS = "statistics leave values out"
    TORN_LOG = "log file has bytes that are not a block"
    STALE_MARKERS = "markers of a write that is over"
    DEAD_INSTANT = "pending, and its writer is dead"
    FILE_INDEX = "file index disagrees with the folders"
    METADATA_TABLE = "metadata table disagrees with the table"
    TIMELINE_GAP = "timeline lacks an instant"
    DAMAGED_INSTANT = "instant cannot be read"
    TORN_ARCHIVE = "archive cannot be read"
    FOREIGN_FOLDER = "folder inside a partition"
    NO_PARTITION_FILE = "folder is not marked as a partition"
    SAVEPOINT = "savepoint names a file that is gone"
    LOST_WRITE = "rows are hidden by a commit that did not read them"
    BUCKETS = "buckets disagree with the file groups"
    BESIDE = "metadata of another format is behind the table"

    @property
    def is_duplicate(self) -> bool:
        """Tell whether the finding is a duplicate key. Inserts allow duplicates, so no file is damaged."""
        return self in {Kind.KEY_TWICE, Kind.KEY_IN_TWO_GROUPS}


@public
@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of a table.

    Attributes:
        path: path of the file or folder, relative to the table.
        rows: number of rows affected; 0 if none are, or the number is unknown.
        size_bytes: size of the file, or of its damaged part.
        cure: what to do about the problem.
        mends: whether `repair` repairs it.
    """

    kind: Kind
    path: str
    cure: str
    rows: int = 0
    size_bytes: int = 0
    mends: bool = False


@public
@dataclass(frozen=True, repr=False)
class Findings(OneLine):
    """All findings of one check or repair. The object is falsy if there are no findings.

    Attributes:
        action: text that says what `repair` did with the findings, or would do; "" for a check.
    """

    findings: tuple[Finding, ...] = ()
    action: str = ""

    def __bool__(self) -> bool:
        return bool(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @property
    def is_damage(self) -> bool:
        """Tell whether there is a finding other than a duplicate key."""
        return any(not finding.kind.is_duplicate for finding in self.findings)

    def of(self, kind: Kind) -> tuple[Finding, ...]:
        """Return the findings of one kind."""
        return tuple(finding for finding in self.findings if finding.kind is kind)

    def _repr_html_(self) -> str:
        """Return an HTML table for notebooks, one row per finding."""
        rows = [
            (finding.kind.value, finding.path, finding.rows, finding.size_bytes, finding.cure)
            for finding in self.findings
        ]
        head = str(self).splitlines()[0]
        return html_rows(("what", "where", "rows", "bytes", "cure"), rows, caption=head)

    def __str__(self) -> str:
        if not self.findings:
            return f"nothing {self.action}" if self.action else "nothing is wrong"
        rows = [("what", "where", "rows", "bytes", "cure")] + [
            (finding.kind.value, finding.path, f"{finding.rows:,}", f"{finding.size_bytes:,}", finding.cure)
            for finding in self.findings
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            "  ".join(
                text.rjust(width) if column in {2, 3} else text.ljust(width)
                for column, (text, width) in enumerate(zip(row, (*widths, 0), strict=True))
            ).rstrip()
            for row in rows
        ]
        head = self.action or f"{len(self.findings)} finding{'s' * (len(self.findings) != 1)}"
        return "\n".join([f"{head}:", *lines])
