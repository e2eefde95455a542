"""The steps of the workload, in the order in which every engine runs them.

A step runs one or more times: the first run is cold, the others are warm. Every run of a write step takes a sample of
its own, so a second upsert does not repeat the first. Reads are short and vary, so they run more often: their figure is
the median of the warm runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

#: Figures of ``inserts50``.
FIRST_FIVE: Final = "seconds a commit, first five"
LAST_FIVE: Final = "seconds a commit, last five"
LIVE_FILES: Final = "files at the end"
#: Figures of ``u20``.
UPSERTING: Final = "seconds of upserts"
READING: Final = "seconds of reads"
COMPACTING: Final = "seconds of compaction"
#: Figures of ``dc50``.
EARLY_COMMITS: Final = "seconds a commit, about the fifth"
LATE_COMMITS: Final = "seconds a commit, the last ones"

_READ_SAMPLES: Final = 2


class Kind(Enum):
    """The effect of a step on the table."""

    LOAD = "load"
    UPSERT = "upsert"
    DELETE = "delete"
    LAYOUT = "layout"
    READ = "read"
    ASIDE = "aside"  # The step writes a table of its own beside the table that all other steps share.


@dataclass(frozen=True, slots=True)
class Step:
    """One row of the result table.

    ``sample`` names the rows that the step takes. Its runs take the samples ``first_run``, ``first_run + 1``, …; reads
    take two in turn. Steps of one ``session`` share a process. Each later session is a new process on the table as the
    session before left it. ``figures`` names the step's own figures that the table shows. ``shows_bytes`` adds the
    bytes that its last run reads, ``shows_cpu`` the processor seconds of all its processes.
    """

    name: str
    label: str
    kind: Kind
    runs: int = 1
    sample: str = ""
    first_run: int = 1
    session: int = 0
    figures: tuple[str, ...] = ()
    shows_bytes: bool = False
    shows_cpu: bool = False

    @property
    def method(self) -> str:
        """Return the name of the engine's method for a step that is neither a load, an upsert nor a delete."""
        return self.name.replace("-", "_")

    @property
    def writes(self) -> bool:
        """Tell whether the step changes the rows of the table."""
        return self.kind in {Kind.LOAD, Kind.UPSERT, Kind.DELETE}

    def sample_names(self) -> tuple[str, ...]:
        """Return the sample of each run, such as ``("u1-1", "u1-2")``; empty for a step that takes none."""
        if not self.sample:
            return ()
        distinct = self.runs if self.writes or self.kind is Kind.ASIDE else _READ_SAMPLES
        return tuple(f"{self.sample}-{self.first_run + run % distinct}" for run in range(self.runs))


STEPS: Final = (
    # In every engine, the first run is the first of a session.
    Step("load", "load (bulk insert)", Kind.LOAD, runs=2, shows_cpu=True),
    Step("u1", "upsert u1, 1 % of the rows", Kind.UPSERT, runs=2, sample="u1"),
    Step("u5", "upsert u5, 5 %, last partition only", Kind.UPSERT, runs=2, sample="u5"),
    Step("d1", "delete d1, random 1 %", Kind.DELETE, runs=2, sample="d1"),
    Step("keys", "read the key column once", Kind.READ, runs=5),
    Step("tag", "tagging alone, u1", Kind.READ, runs=5, sample="u1", first_run=3),
    Step("tag-auto", "tagging alone, u1, index AUTO", Kind.READ, runs=5, sample="u1", first_run=3),
    Step("tag-bloom", "tagging alone, u1, index BLOOM", Kind.READ, runs=5, sample="u1", first_run=3),
    Step("tag-simple", "tagging alone, u1, index SIMPLE", Kind.READ, runs=5, sample="u1", first_run=3),
    Step("zorder", "z-order by (x, y), files of 16 MB", Kind.LAYOUT, runs=2),
    Step("point", "point query on x and y", Kind.READ, runs=5, shows_bytes=True),
    Step("scan", "scan all columns to noop", Kind.READ, runs=8),
    Step("native", 'scan all columns, via="native"', Kind.READ, runs=8),
    Step("agg", "sum, max of two columns", Kind.READ, runs=8),
    Step("count", "count rows", Kind.READ, runs=5),
    Step("group", "group by city", Kind.READ, runs=5),
    Step("key", "one key", Kind.READ, runs=5),
    Step("partition", "one partition", Kind.READ, runs=5),
    Step("compact", "compaction of the log files, or what removes marked rows", Kind.LAYOUT),
    Step(
        "fresh",
        "upsert u1 in a fresh session",
        Kind.UPSERT,
        runs=2,
        sample="u1",
        first_run=3,
        session=1,
    ),
    # These steps are last, so that all engines read the same table before: not every engine has them.
    Step("u5all", "upsert u5all, 5 % of all rows", Kind.UPSERT, runs=2, sample="u5all", session=2),
    Step("u50", "upsert u50, 50 % of all rows", Kind.UPSERT, runs=2, sample="u50", session=2),
    Step(
        "inserts50",
        "50 commits of inserts into a new table",
        Kind.ASIDE,
        sample="new",
        session=2,
        figures=(FIRST_FIVE, LAST_FIVE, LIVE_FILES),
    ),
    Step(
        "u20",
        "20 upserts of 1 %, a read after each, one compaction",
        Kind.ASIDE,
        sample="u20",
        session=3,
        figures=(UPSERTING, READING, COMPACTING),
    ),
    Step(
        "dc50",
        "50 upserts of 0.1 % without a compaction",
        Kind.ASIDE,
        sample="dc50",
        session=3,
        figures=(EARLY_COMMITS, LATE_COMMITS),
    ),
)

STEP_BY_NAME: Final = {step.name: step for step in STEPS}


#: The steps of ``--reads``, and the queries in the order of its table.
READS: Final = ("scan", "agg", "count", "group", "point", "key", "partition")
#: The steps of ``--logs``: reads merge the log files of the writes before them.
LOGS: Final = ("load", "u1", "u5", "d1", "scan", "agg", "compact", "u20", "dc50")
#: The steps that run only with ``--logs`` or if they are named.
LOGS_ALONE: Final = frozenset({"compact", "u20", "dc50"})


def select(names: Iterable[str]) -> tuple[Step, ...]:
    """Return the named steps in workload order. Raise `ValueError` for an unknown name."""
    wanted = set(names)
    if unknown := sorted(wanted - STEP_BY_NAME.keys()):
        raise ValueError(f"no such step: {', '.join(unknown)}; steps are {', '.join(STEP_BY_NAME)}")
    return tuple(step for step in STEPS if step.name in wanted)
