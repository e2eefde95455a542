"""A player of histories through Hudi. It records what Hudi reads after each step and, at the end, at each instant."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from tests.helpers.histories import PAYLOADS, Kill, Kind, RollBack, Sql, Step, Upgrade, W, Write, steps_of
from tests.helpers.hudi_spark import Hudi, HudiError

MERGE_MODE: Final = "hoodie.write.record.merge.mode"
COMPACTION_AFTER: Final = "hoodie.compact.inline.max.delta.commits"
#: Step -> a part of the name of the file that it adds to the timeline.
LEAVES: Final = {
    "schedule": ".compaction",
    "compact": ".compaction",
    "run": ".commit",
    "log_compact": ".logcompaction",
    "cluster": ".replacecommit",
    "plan_clusters": ".requested",
    "clean": ".clean",
}
READ_OPTIMIZED: Final = {"hoodie.datasource.query.type": "read_optimized"}
INCREMENTAL: Final = {
    "hoodie.datasource.query.type": "incremental",
    # By default 1.x answers differently if files are gone. All releases refuse the query while a commit is pending.
    "hoodie.datasource.read.incr.fallback.fulltablescan.enable": "false",
    "hoodie.read.timeline.holes.resolution.policy": "BLOCK",
}
BEGIN: Final = "hoodie.datasource.read.begin.instanttime"
END: Final = "hoodie.datasource.read.end.instanttime"
COMMITS: Final = re.compile(r"(\d{17})(?:_(\d{17}))?\.(?:commit|deltacommit|replacecommit)")


@dataclass(frozen=True, slots=True)
class Look:
    """One read by Hudi.

    Attributes:
        label: the name of the moment, for messages.
        table: a copy of the table at that moment.
        as_of: the instant; None for now.
        options: the options of the read.
        bounds: the bounds of an incremental query, the second "" if it has no end; None for any other read.
        rows: the rows that Hudi read, or its error.
    """

    label: str
    table: Path
    as_of: str | None
    options: Mapping[str, str]
    rows: pa.Table | str
    bounds: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """A table that Hudi made, in the state after its last step, and all reads by Hudi between the steps."""

    kind: Kind
    table: Path
    looks: tuple[Look, ...]


def write_options(kind: Kind) -> dict[str, str]:
    """Return the options of each write, statement and procedure."""
    options = {
        "hoodie.table.name": kind.name,
        f"{W}table.type": "MERGE_ON_READ" if kind.mor else "COPY_ON_WRITE",
        f"{W}recordkey.field": "id",
        f"{W}precombine.field": ",".join(kind.ordering),
        f"{W}partitionpath.field": "part" if kind.partitioned else "",
        f"{W}payload.class": PAYLOADS + (kind.payload or "OverwriteWithLatestAvroPayload"),
        "hoodie.metadata.enable": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        "hoodie.compact.inline": "false",
    }
    if kind.payload.startswith("Default") and kind.name.endswith("marker"):
        options |= {"hoodie.payload.delete.field": "s", "hoodie.payload.delete.marker": "GONE"}
    if kind.hudi != "0.15.0":
        options |= {"hoodie.write.table.version": str(kind.version), "hoodie.write.auto.upgrade": "false"}
    return options | dict(kind.options)


class Player:
    """The run of one history; the table and its copies are below ``folder``."""

    def __init__(self, kind: Kind, hudi: Hudi, folder: Path) -> None:
        self._kind, self._hudi, self._folder = kind, hudi, folder
        self._options, self._version = write_options(kind), kind.version
        self._names = (f"{kind.name}_{number}" for number in itertools.count())
        self.table = folder / kind.name
        self.looks: list[Look] = []

    def play(self) -> Played:
        for number, (name, step) in enumerate(steps_of(self._kind)):
            before = self._names_of_timeline()
            self._do(step)
            added = "".join(self._names_of_timeline() - before)
            assert LEAVES.get(name, "") in added, f"{name} did nothing to {self._kind.name}"
            self._look(f"{number} {name}")
        for instant in self.instants():
            self._read(f"as of {instant}", self.table, instant, {})
        for bounds in self._ranges() if self._kind.ranges else ():
            self._read(f"changes of {bounds}", self.table, None, INCREMENTAL, bounds)
        return Played(self._kind, self.table, tuple(self.looks))

    def instants(self) -> list[str]:
        """Return the completed commits of the active timeline."""
        folder = self._timeline()
        return sorted(match[1] for file in folder.iterdir() if (match := COMMITS.fullmatch(file.name)))

    def _ranges(self) -> list[tuple[str, str]]:
        """Return begin and end of some ranges, as instants or, from version 8 on, as completion times."""
        ends = sorted(
            found[2] or found[1] for file in self._timeline().iterdir() if (found := COMMITS.fullmatch(file.name))
        )
        third = len(ends) // 3
        return [(ends[0], ""), (ends[-2], ""), (ends[0], ends[-third]), (ends[third], ends[2 * third])]

    def _names_of_timeline(self) -> set[str]:
        return {file.name for file in self._timeline().iterdir()} if self.table.exists() else set()

    def _timeline(self) -> Path:
        hoodie = self.table / ".hoodie"
        return hoodie / "timeline" if self._version > 6 else hoodie

    def _look(self, label: str) -> None:
        copy = self._folder / f"{self._kind.name} {label}"
        shutil.copytree(self.table, copy)
        self._read(f"after {label}", copy, None, {})
        if self._kind.mor:
            self._read(f"after {label}, read_optimized", copy, None, READ_OPTIMIZED)

    def _read(
        self,
        label: str,
        copy: Path,
        as_of: str | None,
        options: Mapping[str, str],
        bounds: tuple[str, str] | None = None,
    ) -> None:
        rows: pa.Table | str
        named = {name: bound for name, bound in zip((BEGIN, END), bounds or (), strict=False) if bound}
        try:
            rows = self._hudi.read(self.table, as_of, {**options, **named})
        except HudiError as refusal:
            rows = str(refusal)
        self.looks.append(Look(label, copy, as_of, options, rows, bounds))

    def _do(self, step: Step) -> None:
        match step:
            case Write(operation, rows, options):
                self._hudi.write(self.table, rows, operation, **{**self._options, **options})
            case Sql(statement, values):
                self._sql(statement, values)
            case Kill():
                self._kill()
            case Upgrade():
                self._sql("CALL upgrade_table(table => '{table}', to_version => 'NINE')", {})
                self._version = 9
                self._options["hoodie.write.table.version"] = "9"
            case RollBack():
                call = "CALL rollback_to_instant(table => '{table}', instant_time => '{newest}')"
                self._sql(call, {"newest": self.instants()[-1]})

    def _sql(self, statement: str, values: Mapping[str, str]) -> None:
        name = next(self._names)
        self._hudi.run(
            f"CREATE TABLE {name} USING hudi LOCATION '{self.table}'" if "{table}" in statement else "SELECT 1",
            statement.format(table=name, path=self.table, **values),
            settings={**self._options, **({COMPACTION_AFTER: "1"} if statement.startswith("CALL") else {})},
        )

    def _kill(self) -> None:
        """Undo the last step of a writer.

        Remove the completed file, and restore the markers that the writer deleted after it.
        """
        newest = self.instants()[-1]
        (completed,) = self._timeline().glob(f"{newest}*.deltacommit")
        for file in completed, completed.with_name(f".{completed.name}.crc"):
            file.unlink(missing_ok=True)
        markers = self.table / ".hoodie" / ".temp" / newest
        for file in self._written(newest):
            kind = "APPEND" if file.name.startswith(".") and self._version == 6 else "CREATE"
            marker = markers / file.parent.relative_to(self.table) / f"{file.name}.marker.{kind}"
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()

    def _written(self, instant: str) -> list[Path]:
        """Return the files of the table with the instant in their name or, for log files of version 6, in a block."""
        files = [
            file
            for file in self.table.rglob("*")
            if file.is_file() and ".hoodie" not in file.parts and not file.name.endswith(".crc")
        ]
        named = [file for file in files if instant in file.name]
        blocks = [file for file in files if ".log." in file.name and instant.encode() in file.read_bytes()]
        return named + [file for file in blocks if self._version == 6 and file not in named]
