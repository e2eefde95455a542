"""Tables on which lakeformat and Apache Hudi write, roll back and restore in turn, and whose metadata table both keep.

Hudi's own procedures check the metadata table: `validate_metadata_table_files` compares its listing with the folders,
and `show_metadata_column_stats_overlap` (1.2.0 registers it under this name, without "table") reads the statistics of
all columns. It looks for base files with the pattern `/**` below the table's folder, which finds none in partitions, so
that it has no rows here. `show_metadata_table_stats` has none either: it asks for metrics, which its reader of the
metadata table has switched off. Both must not fail.

Some steps are not Hudi's. Hudi 1.2.0 cannot roll back an instant of a table of version 6: its procedure
`rollback_to_instant` fails with "`.hoodie/timeline` does not exist", also if no program but Hudi has written the table.
Hudi 1.2.0 fails on an overwrite of a partitioned table with a record index and statistics of partitions, by a
NullPointerException. Every release of Hudi refuses to roll back a completed commit if a compaction of the metadata
table is due: it compacts first, and then finds that the commit "is earlier than the latest compaction". There
lakeformat rolls back and overwrites.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

import lakeformat
from tests.helpers import hudi_rs
from tests.helpers.hudi_spark import Hudi
from tests.helpers.hudi_view import find_disagreements, open_hudi_view
from tests.interop.test_metadata_table_shared import (
    KINDS,
    THEIRS,
    Rows,
    assert_skipping_is_right,
    by_id,
    rows,
)

pytestmark = pytest.mark.interop

SHORT: Final = (
    "we upsert",
    "Hudi rolls back",
    "Hudi saves",
    "we upsert",
    "Hudi upserts",
    "we restore",
    "Hudi upserts",
)
#: About thirty commits, and services. Ten commits lie before the first savepoint: Hudi 0.15.0 refuses to restore if no
#: base file of the metadata table is older than the savepoint. More than ten lie between the third savepoint and its
#: restore, so that the metadata table is compacted in between.
LONG: Final = (
    *("we upsert", "Hudi upserts", "we roll back", "we upsert", "Hudi rolls back", "Hudi deletes", "we delete"),
    *("we upsert", "Hudi upserts", "we upsert", "Hudi upserts"),
    *("we save", "we upsert", "Hudi upserts", "Hudi restores", "we upsert", "we compact", "Hudi upserts"),
    *("Hudi saves", "Hudi upserts", "we cluster", "we delete", "we restore", "Hudi upserts"),
    *("we overwrite", "Hudi upserts", "we roll back", "we clean", "we upsert", "Hudi rolls back"),
    *("Hudi saves", "we upsert", "Hudi deletes", "we cluster", "we upsert", "Hudi upserts", "we compact", "we upsert"),
    *("Hudi upserts", "we upsert", "we delete", "Hudi upserts", "we restore", "Hudi upserts", "we clean", "we upsert"),
    *("we save", "we overwrite", "Hudi upserts", "Hudi restores", "we upsert", "Hudi upserts"),
)
#: Options of a writer that Hudi's procedures take from the session.
_OF_SESSION: Final = ("hoodie.metadata.", "hoodie.write.", "hoodie.clean.")


class Turns:
    """A table with a metadata table, the rows that it must have, and both writers."""

    def __init__(self, version: int, kind: str, hudi: Hudi, path: Path) -> None:
        self.hudi, self.path, self.number = hudi, path, 0
        self.is_mor = kind == "MERGE_ON_READ"
        self.theirs = {
            **THEIRS,
            "hoodie.datasource.write.table.type": kind,
            "hoodie.write.table.version": str(version),
            "hoodie.compact.inline": "false",
            "hoodie.metadata.record.index.min.filegroup.count": "2",  # Not 10: Hudi would write ten files each time.
        }
        self.has_rollback = version > 6 or hudi.version == "0.15.0"
        hudi.write(path, rows(0), "upsert", **self.theirs)
        self.ours = lakeformat.open(path)
        self.model = by_id(rows(0))
        self.before: Rows = {}
        self.saved: tuple[str, Rows] = ("", {})
        self.born = self.births()
        self.name = f"turns_{kind[:1].lower()}{version}_{abs(hash(str(path)))}"
        hudi.run(f"create table {self.name} using hudi location '{path}'", settings=self.of_session)

    @property
    def of_session(self) -> dict[str, str]:
        return {key: text for key, text in self.theirs.items() if key.startswith(_OF_SESSION)}

    def take(self, step: str) -> None:
        """Take one step, and change the expected rows in the same way."""
        self.number += 1
        who, _, what = step.partition(" ")
        changes = {"upsert", "upserts", "delete", "deletes", "overwrite"}
        if what in changes:
            self.before = self.model
            self.write(who, what.removesuffix("s"))
        elif what in {"roll back", "rolls back"}:
            self.undo(who, self.ours.history()[0].instant_time)
            self.model = self.before
        elif what in {"save", "saves"}:
            self.save(who)
        elif what in {"restore", "restores"}:
            self.undo(who, self.saved[0], is_restore=True)
            self.ours.delete_savepoint(self.saved[0])
            self.model = self.saved[1]
        elif what == "compact":
            _ = self.ours.compact() if self.is_mor else None
        elif what == "cluster":
            self.ours.cluster(by=["id"])
        else:
            self.ours.clean(commits=1)

    def write(self, who: str, operation: str) -> None:
        batch = rows(self.number)
        if operation == "delete":
            batch = batch.slice(0, 1)
        if who == "Hudi":
            self.hudi.write(self.path, batch, operation, **self.theirs)
            self.born = self.born or self.births()
        else:
            getattr(self.ours, operation)(batch)
        new = by_id(batch)
        if operation == "delete":
            self.model = {key: row for key, row in self.model.items() if key not in new}
        else:
            self.model = ({} if operation == "overwrite" else self.model) | new

    def save(self, who: str) -> None:
        self.saved = self.ours.history()[0].instant_time, self.model
        if who == "Hudi":
            self.call(f"create_savepoint(table => '{self.name}', commit_time => '{self.saved[0]}')")
        else:
            self.ours.savepoint()

    def undo(self, who: str, instant: str, *, is_restore: bool = False) -> None:
        if who == "we" or not (is_restore or self.can_hudi_roll_back()):
            _ = self.ours.restore(instant) if is_restore else self.ours.rollback(instant)
            return
        what = "rollback_to_savepoint" if is_restore else "rollback_to_instant"
        self.call(f"{what}(table => '{self.name}', instant_time => '{instant}')")
        if open_hudi_view(self.ours) is None:  # Hudi removes it if no base file is old enough, and makes it again.
            assert is_restore
            self.born = {}

    def can_hudi_roll_back(self) -> bool:
        """Tell whether Hudi can roll back the newest commit: no compaction of the metadata table must be due."""
        names = [file.name for file in (self.path / ".hoodie" / "metadata" / ".hoodie").rglob("[0-9]*commit")]
        compacted = max((name for name in names if name.endswith(".commit")), default="")
        deltas = [name for name in names if name.endswith(".deltacommit") and name > compacted]
        return self.has_rollback and len(deltas) < 10

    def call(self, procedure: str) -> None:
        self.hudi.run(f"call {procedure}", settings=self.of_session)

    def assert_right(self, *, conditions: int) -> None:
        """Check all readers, the metadata table, and that Hudi's procedures find nothing.

        Args:
            conditions: how many conditions by which Hudi skips files to check, too.
        """
        assert by_id(self.ours.to_arrow()) == self.model
        assert self.ours.check().findings == ()
        assert find_disagreements(self.ours) == []
        assert by_id(self.hudi.read(self.path, options={"hoodie.metadata.enable": "true"})) == self.model
        if conditions:
            assert_skipping_is_right(self.hudi, self.path, self.model, self.number, conditions=conditions)
        if open_hudi_view(self.ours) is not None:
            self.assert_procedures_find_nothing()

    def assert_procedures_find_nothing(self) -> None:
        found = self.hudi.sql(f"call validate_metadata_table_files(table => '{self.name}')")
        assert found.to_pylist() == []
        self.hudi.sql(f"call show_metadata_table_stats(table => '{self.name}')")
        pieces = list(self.ours.snapshot().each_slice())
        if self.hudi.version == "0.15.0" or not all(piece.base for piece in pieces):
            return  # 0.15.0 has no such procedure, and that of 1.2.0 fails if a slice has no base file.
        overlap = self.hudi.sql(f"call show_metadata_column_stats_overlap(table => '{self.name}')")
        files = Counter(piece.group.partition_path for piece in pieces)
        for row in overlap.to_pylist():
            assert row["Total file number"] == files[row["Partition path"]]

    def births(self) -> dict[str, int]:
        """Return when partitions of the metadata table were made. They are made again if all of it is."""
        folder = self.path / ".hoodie" / "metadata"
        names = ("files", "column_stats", "record_index")
        return {name: (folder / name / ".hoodie_partition_metadata").stat().st_mtime_ns for name in names}

    def assert_continued(self) -> None:
        """Check that the metadata table was never built again.

        Bloom filters and statistics of partitions may be: Hudi's next write adds what has been dropped. If base files
        of the metadata table have merged what a restore takes back, lakeformat drops the statistics of partitions. The
        procedure of Hudi 1.x that restores drops both.
        """
        view = open_hudi_view(self.ours)
        assert view is not None
        names = {"files", "column_stats", "bloom_filters", "record_index"}
        assert names | ({"partition_stats"} if self.ours.config.version > 6 else set()) <= set(view.metadata.names)
        assert self.births() == self.born
        hudi_rs.assert_same_rows(self.ours)


def take_turns(
    steps: Sequence[str], version: int, kind: str, hudi: Hudi, path: Path, *, is_short: bool = False
) -> None:
    """Take the steps. Check after each step; if the run is short, after rollbacks and restores, and at the end."""
    turns = Turns(version, kind, hudi, path)
    for step in steps:
        turns.take(step)
        if not is_short or step.endswith(("back", "restore", "restores")):
            turns.assert_right(conditions=0 if is_short else 3)
        assert by_id(turns.ours.to_arrow()) == turns.model, (turns.number, step)
    turns.assert_right(conditions=8)
    turns.assert_continued()


@pytest.mark.parametrize(
    ("version", "kind"),
    [kind for kind in KINDS if kind.id == "v9-mor"],
)
def test_rollbacks_and_restores_of_both_keep_the_metadata_table(
    version: int, kind: str, hudi: Hudi, tmp_path: Path
) -> None:
    take_turns(SHORT, version, kind, hudi, tmp_path / "t", is_short=True)


@pytest.mark.nightly
@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("hudi", "version", "kind"),
    [
        pytest.param("0.15.0", 6, "COPY_ON_WRITE", id="0.15.0-v6-cow"),
        pytest.param("0.15.0", 6, "MERGE_ON_READ", id="0.15.0-v6-mor"),
        pytest.param("1.2.0", 6, "MERGE_ON_READ", id="1.2.0-v6-mor"),
        pytest.param("1.1.1", 8, "COPY_ON_WRITE", id="1.1.1-v8-cow"),
        pytest.param("1.1.1", 8, "MERGE_ON_READ", id="1.1.1-v8-mor"),
        pytest.param("1.2.0", 9, "COPY_ON_WRITE", id="1.2.0-v9-cow"),
        pytest.param("1.2.0", 9, "MERGE_ON_READ", id="1.2.0-v9-mor"),
    ],
    indirect=["hudi"],
)
def test_thirty_commits_with_services_rollbacks_and_restores(
    version: int, kind: str, hudi: Hudi, tmp_path: Path
) -> None:
    take_turns(LONG, version, kind, hudi, tmp_path / "t")
