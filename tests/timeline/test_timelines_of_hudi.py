"""Timelines that Hudi wrote, in both layouts: active and archived instants, compared with Hudi's own list."""

from __future__ import annotations

import io
import zipfile
from functools import cache
from typing import Any

import fastavro
import pytest

from lakeformat import CorruptTableError
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import COMMIT_ACTIONS, Action, Instant, State
from lakeformat.storage import MemoryStorage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2
from tests.helpers.fixture_tables import FIXTURES, names, read_expectations

TABLES = [name for group in ("hudi_mor_v6", "hudi_v8_v9", "hudi_upgraded", "hudi_life") for name in names(group)]
COMMITS = {action.value for action in COMMIT_ACTIONS}
ARCHIVED = [name for name in names("hudi_life") if "archived" in read_expectations(name)]


@cache
def files_of(name: str) -> dict[str, bytes]:
    """Return the table's ``.hoodie`` without its metadata table."""
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
        paths = [path for path in archive.namelist() if not path.endswith("/")]
        found = {path.partition("/")[2]: archive.read(path) for path in paths if "/.hoodie/metadata/" not in path}
    return {path: data for path, data in found.items() if path.startswith(".hoodie/")}


def store_of(name: str) -> TimelineStore:
    storage = MemoryStorage()
    for path, data in files_of(name).items():
        storage.create(path, data)
    return TimelineStore(storage)


def completed_names(store: TimelineStore) -> set[str]:
    timeline = store.load()
    return {timeline.layout.file_name(i) for i in timeline.instants if i.state is State.COMPLETED}


@pytest.mark.parametrize("name", TABLES)
def test_completed_instants_equal_hudis(name: str) -> None:
    store = store_of(name)
    expectations = {entry["file"] for entry in read_expectations(name)["timeline"]}
    layout = LAYOUT_2 if any("_" in file for file in expectations) else LAYOUT_1
    archived = {
        layout.file_name(Instant(time, Action(action), State.COMPLETED, end)) for time, end, action in rows(store)
    }
    assert completed_names(store) == expectations - archived
    assert expectations <= completed_names(store) | archived
    assert store.layout == layout
    # A store that has not read the properties finds the same.
    assert completed_names(store_of(name)) == completed_names(store)


def rows(store: TimelineStore) -> list[tuple[str, str | None, str]]:
    columns = store.read_archived().columns
    return list(zip(*(columns.column(at).to_pylist() for at in ("time", "completion_time", "action")), strict=True))


@pytest.mark.parametrize("name", TABLES)
def test_commits_equal_the_contents_of_their_files(name: str) -> None:
    """The oracles are fastavro for Avro and `json` for JSON."""
    store = store_of(name)
    for instant in store.load().commits:
        data = files_of(name)[store.path(instant)]
        if not data.startswith(b"Obj"):
            continue
        (truth,) = fastavro.reader(io.BytesIO(data))
        metadata = store.read_commit(instant)
        assert metadata.operation == truth["operationType"]
        assert metadata.extra == truth["extraMetadata"]
        assert metadata.compacted == truth["compacted"]
        assert metadata.replaced == {
            path: tuple(ids) for path, ids in (truth.get("partitionToReplaceFileIds") or {}).items()
        }
        expectations = [stat for stats in truth["partitionToWriteStats"].values() for stat in stats]
        assert [
            (s.path, s.num_writes, s.num_deletes, s.size_bytes, s.base_name, list(s.log_names), dict(s.cdc_stats))
            for s in metadata.all_stats()
        ] == [
            (
                *(s["path"], s["numWrites"], s["numDeletes"], s["fileSizeInBytes"], s["baseFile"] or ""),
                *(s["logFiles"] or [], s["cdcStats"] or {}),
            )
            for s in expectations
        ]


@pytest.mark.parametrize("name", ARCHIVED)
def test_archived_instants_equal_hudis(name: str) -> None:
    store = store_of(name)
    expectations = [
        (entry["instant"], entry.get("completed"), entry["action"]) for entry in read_expectations(name)["archived"]
    ]
    assert sorted(rows(store)) == sorted(expectations)
    archived, commits = store.read_archived(), [entry for entry in expectations if entry[2] in COMMITS]
    assert archived.completed_in("") == tuple(
        Instant(time, Action(action), State.COMPLETED, end)
        for time, end, action in sorted(commits, key=lambda entry: entry[1] or entry[0])
    )
    found = dict(archived.commits(archived.completed_in("")))
    assert {instant.time for instant in found} == {time for time, _, _ in commits}
    for instant, metadata in found.items():
        assert metadata.operation in {"UPSERT", "BULK_INSERT", "INSERT", "COMPACT"}
        assert all(instant.time in stat.path or ".log." in stat.path for stat in metadata.all_stats())
        assert metadata.schema_text


@pytest.mark.parametrize("name", ARCHIVED)
def test_completion_times_of_archived_commits_are_read(name: str) -> None:
    store = store_of(name)
    timeline = store.load()
    expectations = [*read_expectations(name)["archived"], *read_expectations(name)["timeline"]]
    commits = {e["instant"]: e.get("completed", e["instant"]) for e in expectations if e["action"] in COMMITS}
    never, unknown = "29991231000000000", "20000101000000000"
    assert store.completion_times(timeline, [*commits, never, unknown]) == {**commits, unknown: unknown}


def test_bulk_insert_into_merge_on_read_is_read_as_commit_or_deltacommit() -> None:
    """Action and content are independent: Hudi 1.1 completes it as a commit, 0.15 as a deltacommit."""
    kinds: dict[str, Any] = {}
    for name in ("hudi_mor_v6/mor6_avro_default", "hudi_v8_v9/v9_mor_event_time"):
        store = store_of(name)
        first = store.load().commits[0]
        kinds[name] = first.action, store.read_commit(first).operation
    assert set(kinds.values()) == {(Action.DELTA_COMMIT, "BULK_INSERT"), (Action.COMMIT, "BULK_INSERT")}


@pytest.mark.parametrize(
    ("name", "plan_time"),
    [
        ("hudi_mor_v6/mor6_compaction_pending", None),
        ("hudi_v8_v9/v9_mor_compaction_pending", None),
        ("hudi_upgraded/up_v6_v9_mor_pending", "20261122152701882"),
    ],
)
def test_pending_compaction_names_the_slices_it_opens(name: str, plan_time: str | None) -> None:
    store = store_of(name)
    timeline = store.load()
    (pending,) = timeline.pending_writes
    assert pending.action is Action.COMPACTION
    assert plan_time in {None, pending.time}
    (truth,) = fastavro.reader(io.BytesIO(files_of(name)[store.path(pending.at(State.REQUESTED))]))
    groups = store.read_compaction_groups(timeline)
    assert groups == {FileGroupId(o["partitionPath"], o["fileId"]): pending.time for o in truth["operations"]}
    plan = store.read_compaction_plan(pending)
    assert plan is not None
    assert [(o.base_instant, o.base_name, list(o.log_names)) for o in plan.operations] == [
        (o["baseInstantTime"], o["dataFilePath"], o["deltaFilePaths"]) for o in truth["operations"]
    ]


@pytest.mark.parametrize("name", ["hudi_v6/cow_clustered_zorder", "hudi_v8_v9/v9_cow_clustered"])
def test_clustering_plans_are_found_under_both_action_names(name: str) -> None:
    """The test removes the run: layout 2 calls the plan ``clustering``."""
    store = store_of(name)
    timeline = store.load()
    (done,) = [i for i in timeline.commits if i.action is Action.REPLACE_COMMIT]
    groups = {FileGroupId(path, id_) for path, ids in store.read_commit(done).replaced.items() for id_ in ids}
    assert set(store.read_clustering_groups(timeline)) == set()
    pending = timeline.with_pending(frozenset({done.time}))
    assert store.read_clustering_groups(pending) == dict.fromkeys(groups, done.time)
    requested = store.read_requested_replace(done)
    assert requested is not None
    assert set(requested.file_groups) == groups


def test_rollback_and_clean_metadata_are_read() -> None:
    store = store_of("hudi_v8_v9/v9_mor_rollback")
    (rollback,) = store.load().of_action(Action.ROLLBACK)
    plan = store.read_rollback_plan(rollback)
    assert plan is not None
    assert not store.load().is_committed(plan.instant_time)
    assert plan.action == "deltacommit"
    store = store_of("hudi_life/v8_cow_cleaned_archived")
    clean = store.read_clean(store.load().of_action(Action.CLEAN)[-1])
    assert clean is not None
    assert clean.earliest_commit_to_retain in store.load().commit_times


@pytest.mark.parametrize(
    ("name", "made"), [("v6_cow_cleaned_archived", ".commits_.archive.3_1-0-1"), ("v9_cow_lsm_levels", "manifest_15")]
)
def test_archive_mark_changes_with_every_archiving(name: str, made: str) -> None:
    store = store_of(f"hudi_life/{name}")
    folder = store.config().archive_folder
    before = store.load(folder).archive
    assert before
    assert store.load(folder).archive == before
    store.storage.create(f"{folder}/{made}", b"")
    assert store.load(folder).archive not in {before, "", None}
    for entry in store.storage.list(folder):
        store.storage.delete(entry.path)
    assert store.load(folder).archive == ""


@pytest.mark.parametrize("version", [b"", None, b"no number"])
def test_a_history_whose_version_file_is_gone_is_read_by_its_newest_manifest(version: bytes | None) -> None:
    name = "hudi_life/v9_cow_lsm_levels"
    store = store_of(name)
    folder = store.config().archive_folder
    store.storage.delete(f"{folder}/_version_")
    if version is not None:
        store.storage.create(f"{folder}/_version_", version)
    assert rows(store) == rows(store_of(name))


@pytest.mark.parametrize(
    ("name", "part", "spoilt"),
    [
        ("v9_cow_lsm_levels", "manifest_14", b'{"files": 3}'),
        ("v9_cow_lsm_levels", "manifest_14", b'{"files": [{"fileName": "../../x"}]}'),
        ("v9_cow_lsm_levels", "20261122153544096_20261122153623470_2.parquet", b"PAR1"),
        ("v6_cow_cleaned_archived", ".commits_.archive.1_1-0-1", None),
    ],
)
def test_a_damaged_archive_is_named(name: str, part: str, spoilt: bytes | None) -> None:
    store = store_of(f"hudi_life/{name}")
    path = f"{store.config().archive_folder}/{part}"
    data = store.storage.read(path)
    store.storage.replace(path, data.replace(b'"name"', b'"mane"') if spoilt is None else spoilt)
    with pytest.raises(CorruptTableError) as caught:
        store.read_archived()
    assert "x" in str(caught.value) if b".." in (spoilt or b"") else path in str(caught.value)


@pytest.mark.parametrize("kept", [0, 3, 400, 16_000])
def test_half_a_block_at_the_end_of_an_archive_was_never_archived(kept: int) -> None:
    store = store_of("hudi_life/v6_cow_cleaned_archived")
    before = rows(store)
    first, second = (f".hoodie/archived/.commits_.archive.{n}_1-0-1" for n in (1, 2))
    whole = store.storage.read(first)
    store.storage.replace(first, whole + whole[:kept])
    store.storage.delete(second)
    assert rows(store) == before[:2]
    store.storage.replace(first, whole[:kept] + whole)
    assert rows(store) == before[:2]
