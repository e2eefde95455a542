"""Commits, cleans and archiving between a reader's look at the timeline and its listing of the files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.codec.timeline_files.clean import CleanPlan, encode_clean_plan
from lakeformat.errors import InstantNotAvailableError
from lakeformat.model.instant import Action, Instant, State
from lakeformat.storage import FileInfo, LocalStorage
from tests.helpers.tables import a_schema

SCHEMA: Final = a_schema(id="int64", region="string", v="int64")
LATER: Final = "20990101000000000"
#: A table whose files are cleaned and whose commits are archived as soon as possible.
SHORT: Final[dict[str, Any]] = {
    "hoodie.clean.commits.retained": 1,
    "hoodie.keep.min.commits": 2,
    "hoodie.keep.max.commits": 3,
}
KINDS: Final[dict[str, dict[str, Any]]] = {
    "v6-cow": {"hoodie.write.table.version": 6, "hoodie.table.type": "COPY_ON_WRITE"},
    "v9-cow": {"hoodie.write.table.version": 9, "hoodie.table.type": "COPY_ON_WRITE"},
    "v6-mor": {"hoodie.write.table.version": 6, "hoodie.table.type": "MERGE_ON_READ"},
    "v9-mor": {"hoodie.write.table.version": 9, "hoodie.table.type": "MERGE_ON_READ"},
    "v9-cow-metadata-table": {"hoodie.write.table.version": 9, "hoodie.metadata.enable": True},
    "v9-mor-metadata-table": {
        "hoodie.write.table.version": 9,
        "hoodie.table.type": "MERGE_ON_READ",
        "hoodie.metadata.enable": True,
    },
}


@dataclass(frozen=True)
class OvertakenStorage(LocalStorage):
    """A storage in which other processes change the table directly after a timeline was listed.

    Attributes:
        changes: the changes, the next one last.
        folder: the folder of the table whose timeline it is: the table or its metadata table.
    """

    changes: list[Callable[[], object]] = field(default_factory=list)
    folder: str = ""

    def list_at_once(self, path: str) -> Sequence[FileInfo]:
        listed = super().list_at_once(path)
        folders = {f"{self.folder}.hoodie", f"{self.folder}.hoodie/timeline"}
        if self.changes and path in folders and any("commit" in entry.name for entry in listed):
            self.changes.pop()()
        return listed


def rows(region: str, ids: Sequence[int], value: int) -> pa.Table:
    return pa.table({"id": ids, "region": [region] * len(ids), "v": [value] * len(ids)}, schema=SCHEMA)


def compact(table: lakeformat.Table) -> None:
    """Compact a merge-on-read table, so that its base files are replaced."""
    if table.config.takes_logs:
        table.compact()


def write_often(table: lakeformat.Table, value: int) -> None:
    """Write so often to another partition that older commits are archived and their files cleaned."""
    for number in range(4):
        table.upsert(rows("other", [100], value + number))
        compact(table)
    table.clean()
    table.archive()


def overtake(table: lakeformat.Table, change: Callable[[], object], folder: str = "") -> lakeformat.Table:
    """Return the table as another process sees it that reads the timeline, and waits for a change after that."""
    storage = OvertakenStorage(table.context.storage.location, folder=folder)
    other = lakeformat.Table(storage, table.options)
    other.context = replace(other.context, use_index=False)
    other.to_arrow()  # From then on, it knows the commits, even if they are archived.
    storage.changes.append(change)
    return other


def quiet_rows(table: lakeformat.Table, **options: Any) -> list[tuple[int, int]]:
    found = table.to_arrow(columns=["id", "v"], where="region = 'quiet'", **options)
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> lakeformat.Table:
    """Make a table in which the commit that wrote the region ``quiet`` is archived."""
    made = lakeformat.create(
        tmp_path / "t", SCHEMA, record_key="id", partition_by="region", **{**SHORT, **KINDS[request.param]}
    )
    for value in (1, 2):
        made.upsert(rows("quiet", [1, 2], value))
        compact(made)
    write_often(made, 0)
    return made


def write_and_clean(table: lakeformat.Table) -> None:
    """Write to the quiet region and to a new one, and delete the files that the quiet region had before."""
    quiet = Path(table.context.storage.location, "quiet")
    before = set(quiet.glob("*.parquet"))
    later = lakeformat.open(table.context.storage.location, **{**SHORT, "hoodie.keep.max.commits": 30})
    later.upsert(rows("quiet", [1], 3))
    compact(later)
    for value in range(2):
        later.upsert(rows("new", [200], value))
    later.clean(commits=1)
    assert before
    assert not any(file.exists() for file in before)


def test_file_that_was_cleaned_after_the_timeline_was_read(table: lakeformat.Table) -> None:
    assert quiet_rows(overtake(table, lambda: write_and_clean(table))) == [(1, 3), (2, 2)]


def test_rows_are_updated_whose_file_was_cleaned_after_the_timeline_was_read(table: lakeformat.Table) -> None:
    other = overtake(table, lambda: write_and_clean(table))
    other.upsert(rows("quiet", [1, 2], 9))
    assert quiet_rows(table) == [(1, 9), (2, 9)]


def test_past_rows_whose_file_was_cleaned_after_the_timeline_was_read(table: lakeformat.Table) -> None:
    newest = table.history()[-1].instant_time
    with pytest.raises(InstantNotAvailableError, match=newest):
        quiet_rows(overtake(table, lambda: write_and_clean(table)), as_of=newest)


def test_cleans_that_are_archived_before_the_files_are_listed(table: lakeformat.Table) -> None:
    def change() -> None:
        write_and_clean(table)
        write_often(table, 20)

    assert quiet_rows(overtake(table, change)) == [(1, 3), (2, 2)]


def test_a_partition_that_is_deleted_meanwhile_is_there_or_not(table: lakeformat.Table) -> None:
    def change() -> None:
        table.delete_partitions("quiet")
        write_often(table, 20)

    assert quiet_rows(overtake(table, change)) == []


def test_a_clean_without_a_plan_has_deleted_nothing(table: lakeformat.Table) -> None:
    store = table.context.store
    requested = store.path(Instant(LATER, Action.CLEAN, State.REQUESTED))
    assert quiet_rows(overtake(table, lambda: store.storage.create(requested, b""))) == [(1, 2), (2, 2)]


def test_a_clean_that_was_pending_before_is_no_reason_to_read_again(table: lakeformat.Table) -> None:
    """Its files may be those of file groups whose replacecommit has been archived since then."""
    store = table.context.store
    gone = f"{uuid.uuid4()}-0_0-0-0_20200101000000000.parquet"
    plan = CleanPlan("KEEP_LATEST_COMMITS", None, "", {"quiet": (gone,)})
    requested = store.path(Instant(LATER, Action.CLEAN, State.REQUESTED))
    store.storage.create(requested, encode_clean_plan(plan, store.storage.location))
    assert quiet_rows(overtake(table, lambda: None)) == [(1, 2), (2, 2)]


@pytest.mark.parametrize("table", [kind for kind in KINDS if "metadata" in kind], indirect=True)
def test_the_metadata_table_is_compacted_and_cleaned_before_its_files_are_listed(table: lakeformat.Table) -> None:
    location = table.context.storage.location
    compacting = {"hoodie.metadata.compact.max.delta.commits": 1, "hoodie.clean.automatic": False}
    long = {"hoodie.keep.max.commits": 30, "hoodie.keep.min.commits": 20}
    later = lakeformat.open(location, **compacting, **long)

    def change() -> None:
        files = Path(location, ".hoodie/metadata/files")
        before = set(files.glob("*.hfile"))
        for value in range(6):
            later.upsert(rows("new", [200], value))
        assert before
        assert not any(file.exists() for file in before)

    assert quiet_rows(overtake(table, change, ".hoodie/metadata/")) == [(1, 2), (2, 2)]


@pytest.mark.parametrize("table", [kind for kind in KINDS if kind.endswith("-cow")], indirect=True)
def test_commits_are_archived_before_the_file_index_is_read(table: lakeformat.Table) -> None:
    """The commits on the reader's timeline have files of a file group that was replaced after they were archived."""
    location = table.context.storage.location
    long = {"hoodie.keep.max.commits": 30, "hoodie.keep.min.commits": 20, "hoodie.clean.automatic": False}
    later = lakeformat.open(location, **long, **{"lakeformat.file.index.commits": 4})
    for value in range(3, 6):
        later.upsert(rows("quiet", [1, 2], value))
    later.cluster(by="v")
    for value in range(6, 10):
        later.upsert(rows("quiet", [1], value))
    later.archive(min_commits=8, max_commits=9)
    assert len(later.snapshot().timeline.commits) == 8
    storage = OvertakenStorage(location, changes=[lambda: later.archive(min_commits=6, max_commits=7)])
    assert quiet_rows(lakeformat.Table(storage)) == [(1, 9), (2, 5)]
    assert len(later.snapshot().timeline.commits) == 6
