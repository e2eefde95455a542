"""The timeline stays short, and archived instants remain known: to our reader, and in the format of Hudi's archives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.config.resolve import resolve
from lakeformat.errors import InstantNotAvailableError, InvalidInputError, InvalidOptionError
from lakeformat.file_system_view.context import open_context
from lakeformat.file_system_view.file_index.shards import IndexedFiles
from lakeformat.model.instant import Action
from tests.helpers import hudi_rs
from tests.helpers.commit_files import edit_commit
from tests.helpers.fixture_tables import FIXTURES, read_expectations, unpack
from tests.helpers.tables import a_batch, a_schema, a_table

TABLES = sorted(f"hudi_life/{path.stem}" for path in (FIXTURES / "hudi_life").glob("*.zip"))
WRITES = ("commit", "deltacommit", "replacecommit")
SHORT = {"hoodie.keep.min.commits": 3, "hoodie.keep.max.commits": 5, "hoodie.cleaner.commits.retained": 1}
SCHEMA = a_schema(id="int64", v="string", p="string")


def rows(number: int) -> pa.Table:
    return a_batch(SCHEMA, id=[1, 2, 100 + number], v=str(number), p=["a", "b", "c"])


def make_table(path: Path, commits: int, **options: Any) -> lakeformat.Table:
    upserts = [rows(number) for number in range(commits)]
    return a_table(path, schema=SCHEMA, rows=upserts, partition_by="p", operation="upsert", **{**SHORT, **options})


@pytest.mark.parametrize("name", TABLES)
def test_archiving_continues_the_archive_of_hudi(name: str, tmp_path: Path) -> None:
    root, expectations = unpack(name, tmp_path), read_expectations(name)
    table = lakeformat.open(root)
    wanted = {(i["instant"], i["action"]) for i in [*expectations["timeline"], *expectations["archived"]]}
    before = table.to_arrow(meta_columns=True).sort_by("_hoodie_record_key")
    table.clean(commits=1)
    result = table.archive(min_commits=1)
    assert table.to_arrow(meta_columns=True).sort_by("_hoodie_record_key").equals(before)
    store = open_context(str(root), resolve({})).store
    columns = store.read_archived().columns
    archived = set(zip(columns["time"].to_pylist(), columns["action"].to_pylist(), strict=True))
    active = {(i.time, i.action.value) for i in store.load().instants}
    assert {(i.time, i.action.value) for i in result.instants} <= archived
    assert not archived & active
    assert wanted <= archived | active
    commits = sorted((time, action) for time, action in wanted if action in WRITES)
    assert [(each.instant_time, each.action) for each in reversed(table.history())] == commits
    saved = {i["instant"] for i in expectations["timeline"] if i["action"] == "savepoint"}
    assert not {i.time for i in result.instants} & saved
    assert table.history(2) == table.history()[:2]


@pytest.mark.slow
@pytest.mark.parametrize("version", [6, 9])
def test_archiving_keeps_the_timeline_short_and_every_instant_known(version: int, tmp_path: Path) -> None:
    options = {"hoodie.write.table.version": version, "hoodie.timeline.compaction.batch.size": 3}
    table = make_table(tmp_path / "t", 0, **options)
    instants, lengths = [], []
    for number in range(18):
        instants.append(table.upsert(rows(number)).instant_time)
        timeline = table.snapshot().timeline
        lengths.append(len(timeline.instants))
        assert len(timeline.commits) <= 5
    assert max(lengths) <= 5  # Cleans count, too.
    assert isinstance(table.snapshot().live, IndexedFiles)  # Archiving did not make the table list its folders.
    history = table.history()
    assert [entry.instant_time for entry in reversed(history)] == instants
    assert all(entry.report is not None for entry in history)
    # A range of layout 2 begins after a completion time: the fourth commit completed after its own instant.
    assert table.changes(since=instants[3]).to_arrow().num_rows == 2 + 14 + (version > 6)
    assert table.to_arrow().num_rows == 20
    hudi_rs.assert_same_rows(table)
    with pytest.raises(InstantNotAvailableError, match=r"hoodie\.(keep\.min\.commits|cleaner\.commits\.retained)"):
        table.to_arrow(as_of=instants[2])


@pytest.mark.slow
def test_small_archive_files_are_compacted(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", 30, **{"hoodie.keep.max.commits": 4})
    assert len(list((tmp_path / "t/.hoodie/archived").iterdir())) < 12
    assert len(table.history()) == 30


def test_batch_id_is_known_after_others_archived_its_commit(tmp_path: Path) -> None:
    batch = {"lakeformat.batch.app": "app", "lakeformat.batch.id": 7}
    make_table(tmp_path / "t", 2)
    table = lakeformat.open(tmp_path / "t", **SHORT, **batch)
    table.upsert(rows(90))
    # Commits of other programs do not repeat the ids.
    for path in sorted((tmp_path / "t/.hoodie").glob("*.commit"))[:2]:
        path.touch()
    plain = lakeformat.open(tmp_path / "t", **SHORT)
    for number in range(8):
        plain.upsert(rows(number))
        newest = sorted((tmp_path / "t/.hoodie").glob("*.commit"))[-1]
        edit_commit(newest, lambda text: text.replace("lakeformat.batches", "somebody.else"))
    assert table.upsert(rows(91)).skipped
    assert not lakeformat.open(tmp_path / "t", **SHORT, **{**batch, "lakeformat.batch.id": 8}).upsert(rows(92)).skipped
    assert table.upsert(rows(91)).skipped


def test_writer_sees_conflicts_with_commits_archived_meanwhile(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", 4)
    known = table.snapshot().timeline.commit_times
    meanwhile = [table.upsert(rows(number)).instant_time for number in range(4, 14)]
    store = open_context(str(tmp_path / "t"), resolve({})).store
    timeline = store.load()
    unseen = store.read_unseen_archived(timeline, known)
    active = {commit.time for commit in timeline.commits}
    assert sorted({time for time, _ in unseen} | active) == sorted(meanwhile)
    assert all(metadata.stats for _, metadata in unseen)
    assert store.read_unseen_archived(timeline, timeline.commit_times) == []


def test_write_after_a_restore_does_not_conflict_with_archived_commits(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", 8)
    saved = table.savepoint().instant_time
    before = table.to_arrow().sort_by("id")
    for _ in range(3):
        table.upsert(rows(7))
    table.archive(min_commits=1)
    table.restore(saved)
    assert table.snapshot().timeline.commit_times == {saved}
    table.upsert(rows(7))
    assert table.to_arrow().sort_by("id").equals(before)


def test_commits_kept_by_cleaning_stay_on_the_timeline(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", 12, **{"hoodie.cleaner.commits.retained": 8})
    commits = table.snapshot().timeline.commits
    assert len(commits) >= 8
    for commit in commits[-8:]:
        table.to_arrow(as_of=commit.time)


def test_archiving_stops_at_a_savepoint_and_at_a_pending_write(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", 12, **{"hoodie.archive.automatic": False})
    times = [commit.time for commit in table.snapshot().timeline.commits]
    # This is not the name of an instant, and is skipped.
    (tmp_path / f"t/.hoodie/{times[3]}0.commit.requested").touch()
    pending = f"{int(times[6]) + 1}"
    (tmp_path / f"t/.hoodie/{pending}.commit.requested").touch()
    result = table.archive(min_commits=2)
    # The newest commit before the pending one stays, and so does one more, whose files cleaning may not take.
    assert [i.time for i in result.instants if i.action is Action.COMMIT] == times[:5]
    assert not table.snapshot().timeline.is_committed(pending)


def test_contradicting_limits_are_refused(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", 1)
    with pytest.raises(InvalidInputError, match="is not more than"):
        table.archive(min_commits=5, max_commits=5)
    bad = lakeformat.open(tmp_path / "t", **{"hoodie.keep.min.commits": 9, "hoodie.keep.max.commits": 4})
    with pytest.raises(InvalidOptionError, match=r"hoodie.keep.max.commits=4 is not more than"):
        bad.upsert(rows(0))
    assert len(table.history()) == 1
