"""Two processes write, clean, archive and compact one table at the same time: nothing is lost or left over."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

import lakeformat
from lakeformat.errors import CorruptTableError, InstantNotAvailableError
from tests.helpers import hudi_rs
from tests.helpers.busy_writer import ALWAYS, SCHEMA, first_key

WRITERS: Final = (1, 2)
MERGE_ON_READ: Final[dict[str, Any]] = {
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.compact.inline": True,
    "hoodie.compact.inline.max.delta.commits": 3,
}
METADATA_TABLE: Final[dict[str, Any]] = {
    "hoodie.metadata.enable": True,
    "hoodie.metadata.compact.max.delta.commits": 3,
}
RECORD_INDEX: Final[dict[str, Any]] = {
    **METADATA_TABLE,
    "hoodie.index.type": "RECORD_INDEX",
    "hoodie.metadata.record.index.enable": True,
}
BUCKETS: Final[dict[str, Any]] = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}
KINDS: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    "v6-cow": (6, {}),
    "v9-mor": (9, MERGE_ON_READ),
    "v6-mor": (6, MERGE_ON_READ),
    "v8-mor": (8, MERGE_ON_READ),
    "v9-cow": (9, {}),
    "v6-cow-metadata-table": (6, METADATA_TABLE),
    "v9-mor-metadata-table": (9, {**MERGE_ON_READ, **METADATA_TABLE}),
    "v9-cow-record-index": (9, RECORD_INDEX),
    "v9-mor-record-index": (9, {**MERGE_ON_READ, **RECORD_INDEX}),
    "v6-mor-buckets": (6, {**MERGE_ON_READ, **BUCKETS}),
    "v9-mor-buckets": (9, {**MERGE_ON_READ, **BUCKETS}),
    "v9-cow-global-index": (9, {"hoodie.index.type": "GLOBAL_BLOOM"}),
    "v6-cow-no-file-index": (6, {"lakeformat.file.index": False}),
}
#: The kinds that may have file groups without a base file, which hudi-rs does not read.
LOG_ONLY: Final = ("v6-mor-buckets", "v9-mor-buckets")
#: Each kind with the seconds of its life and the number of commits that are retained.
LIVES: Final = [
    *(
        pytest.param(kind, 5, 6, id=f"{kind}-short", marks=[pytest.mark.slow, pytest.mark.budget(60)])
        for kind in ("v6-cow", "v9-mor")
    ),
    *(
        pytest.param(kind, 60, retained, id=f"{kind}-{retained}", marks=[pytest.mark.nightly, pytest.mark.timeout(600)])
        for kind in KINDS
        for retained in (2, 8)
    ),
]
MOST_FILES: Final = 700


def assert_whole_commits(table: lakeformat.Table, seen: dict[int, int]) -> None:
    """Check that each writer's first keys are there once and from one commit, not older than the one seen before."""
    try:
        found = table.to_arrow(columns=["id", "v"])
    except (CorruptTableError, InstantNotAvailableError) as error:
        # More commits than are retained have completed meanwhile.
        if "hoodie.cleaner.commits.retained" not in str(error):
            raise
        return
    rows = found.to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    for writer in WRITERS:
        ids = range(first_key(writer), first_key(writer) + ALWAYS)
        values = [row["v"] for row in rows if row["id"] in ids]
        assert len(values) in ({ALWAYS} if writer in seen else {0, ALWAYS})
        assert len(set(values)) <= 1
        assert min(values, default=0) >= seen.get(writer, 0)
        if values:
            seen[writer] = values[0]


def make_table(path: Path, kind: str, retained: int, **more: Any) -> tuple[lakeformat.Table, dict[str, Any]]:
    """Make a table that retains a number of commits, archives soon, and has some deltas of the file index."""
    version, chosen = KINDS[kind]
    options = {
        "hoodie.clean.commits.retained": retained,
        "hoodie.keep.min.commits": retained + 2,
        "hoodie.keep.max.commits": retained + 4,
        "lakeformat.file.index.commits": 1 + retained // 2,
        "hoodie.write.table.version": version,
        **chosen,
        **more,
    }
    return lakeformat.create(path, SCHEMA, record_key="id", partition_by="region", **options), options


def look_while_writers_run(
    look: Callable[[], None], path: Path, seconds: int, options: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[int, int]]:
    """Look at the table while writers change it. Return what the writers say, and the rows that must be there."""
    given = json.dumps({name: str(value) for name, value in options.items()})
    command = [sys.executable, "-m", "tests.helpers.busy_writer", str(path)]
    writers = [
        subprocess.Popen(
            [*command, str(writer), str(seconds), given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for writer in WRITERS
    ]
    while any(writer.poll() is None for writer in writers):
        look()
    said = [writer.communicate() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], said
    results = [json.loads(out) for out, _ in said]
    return results, {int(id_): v for each in results for id_, v in each["held"].items()}


@pytest.mark.parametrize(("kind", "seconds", "retained"), LIVES)
def test_two_writers_and_a_reader_over_many_commits_lose_nothing(
    kind: str, seconds: int, retained: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    path = tmp_path / "t"
    table, options = make_table(path, kind, retained)
    seen: dict[int, int] = {}
    results, held = look_while_writers_run(lambda: assert_whole_commits(table, seen), path, seconds, options)

    assert {row["id"]: row["v"] for row in table.to_arrow().to_pylist()} == held
    if kind in LOG_ONLY:
        table.compact()
    hudi_rs.assert_same_rows(table)
    record_property("commits", len(table.history()))
    assert len(table.history()) >= sum(each["done"] - each["refused"] for each in results)
    table.clean()
    table.archive()
    assert not table.check(), str(table.check())
    timeline = table.snapshot().timeline
    assert not timeline.pending
    assert len(timeline.commits) <= options["hoodie.keep.max.commits"]
    assert len(timeline.instants) <= 2 * options["hoodie.keep.max.commits"]  # There are rollbacks between them.
    assert sum(each.is_file() for each in path.rglob("*")) < MOST_FILES


@dataclass
class Replica:
    """A copy of a table that follows its changes.

    Attributes:
        rows: the rows by key, from the images of all changes.
        newest: the newest value of each key, from incremental queries, which do not return deletes.
    """

    table: lakeformat.Table
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    seen: str = "000"
    seen_rows: str = "000"

    def follow(self) -> None:
        """Apply the changes since the last call. Check that each change begins with the row that the copy has."""
        images = self.table.changes(self.seen, images=True)
        for change in images.to_arrow().to_pylist():
            before, after = change["before"], change["after"]
            id_ = (before or after)["id"]
            assert self.rows.pop(id_, None) == before
            if after is not None:
                self.rows[id_] = after
        self.seen = images.until
        rows = self.table.changes(self.seen_rows)
        for row in rows.to_arrow().to_pylist():
            assert row["v"] >= self.newest.get(row["id"], 0)
            self.newest[row["id"]] = row["v"]
        self.seen_rows = rows.until


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("logs_changes", [False, True], ids=["derived", "logged"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_replica_that_follows_the_changes_of_two_writers_equals_the_table(
    kind: str, logs_changes: bool, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    # The images of a change can be read as long as the files from before it are retained.
    table, options = make_table(path, kind, 12, **{"hoodie.table.cdc.enabled": logs_changes})
    replica = Replica(table)
    _, held = look_while_writers_run(replica.follow, path, 20, options)
    replica.follow()
    assert {id_: row["v"] for id_, row in replica.rows.items()} == held
    assert {id_: replica.newest[id_] for id_ in held} == held
