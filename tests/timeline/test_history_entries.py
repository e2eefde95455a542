"""The entries of the history: which instants it lists, and the words in which it describes them."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from lakeformat.codec.timeline_files.clean import CleanMetadata, CleanPartition, encode_clean
from lakeformat.codec.timeline_files.recovery import (
    CompletedRestore,
    RestorePlan,
    RollbackMetadata,
    SavepointMetadata,
    encode_restore,
    encode_restore_plan,
    encode_rollback,
    encode_savepoint,
)
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.timeline.history import DEDUPE, STATEMENT_KEY, VERB_KEY, History, HistoryEntry, read_history
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.write_report import REPORT_KEY
from tests.helpers.bare_table import bare_store, put_instants
from tests.helpers.short_timelines import hour, instant
from tests.helpers.tables import a_batch, a_table

REPORT = {
    "rows": {"inserted": 3, "deleted": 1},
    "files": {"created": 1},
    "steps": [{"step": "write", "seconds": 0.5}],
    "seconds": 0.5,
}
#: A write does nothing but write.
QUIET = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False}
FILES = tuple(f"{number}.parquet" for number in range(600))
ENTRY = HistoryEntry(hour(1), "commit", "upsert", 1234, 1000, None)


def commit(rows: tuple[int, ...] = (), operation: str = "UPSERT", **extra: str) -> CommitMetadata:
    stats = tuple(WriteStat(f"f{at}", f"f{at}.parquet", "", None, count) for at, count in enumerate(rows))
    return CommitMetadata(operation, {"": stats} if stats else {}, extra)


@pytest.fixture
def store() -> TimelineStore:
    """Return a table with two commits, a clean, a rollback, a restore and a savepoint, and what is pending."""
    store = bare_store()
    contents = {
        "c1": commit((3, 4)),
        "c2": commit(),
        "n3": encode_clean(CleanMetadata(hour(3), hour(1))),
        "b4": encode_rollback(RollbackMetadata(hour(4), 0, ((hour(8), "commit"), (hour(9), "commit")))),
        "e5": encode_restore(CompletedRestore(hour(5), 0, RestorePlan(((hour(6), "commit"),), hour(1)), {})),
        "s2": encode_savepoint(SavepointMetadata("ann", 0, "before", {})),
    }
    put_instants(store, "c1 c2 s2 n3 b4 e5 c6! n7?", contents)
    store.storage.replace(store.path(instant("e5?")), encode_restore_plan(RestorePlan(((hour(6), "commit"),), hour(1))))
    return store


def test_history_lists_commits_and_counts_the_others(store: TimelineStore) -> None:
    history = read_history(store)
    assert [(each.instant_time, each.version) for each in history] == [(hour(2), 1), (hour(1), 0)]
    assert [(each.rows_written, each.files_written) for each in history] == [(0, 0), (7, 2)]
    assert history.others == {"clean": 1, "rollback": 1, "restore": 1, "savepoint": 1}
    assert repr(history).splitlines()[0] == (
        f"History(2 entries, newest upsert {hour(2)}; 1 clean, 1 rollback, 1 restore, 1 savepoint with "
        "history(actions=True))"
    )


def test_history_of_actions_lists_them_in_their_order(store: TimelineStore) -> None:
    """A savepoint comes after its commit, so before it in this list."""
    history = read_history(store, actions=True)
    assert [str(each) for each in history] == [
        f"restore {hour(5)}: back to {hour(1)}; undid {hour(6)}",
        f"rollback {hour(4)}: undid {hour(8)}, {hour(9)}",
        f"clean {hour(3)}: 0 files deleted; commits from {hour(1)} on are kept",
        f"savepoint {hour(2)}: keeps this commit: ann before",
        f"upsert {hour(2)}: rows 0; files 0",
        f"upsert {hour(1)}: rows 7; files 2",
    ]
    assert [each.version for each in history] == [None] * 4 + [1, 0]
    assert [(each.rows_written, each.files_written, each.report) for each in history[:4]] == [(0, 0, None)] * 4
    assert [each.is_commit for each in history] == [False] * 4 + [True] * 2
    assert history.others == {}
    assert repr(history).splitlines()[0] == f"History(6 entries, newest restore {hour(5)})"


@pytest.mark.parametrize("limit", range(8))
def test_limit_keeps_the_newest(limit: int, store: TimelineStore) -> None:
    assert read_history(store, limit) == read_history(store)[:limit]
    assert read_history(store, limit, actions=True) == read_history(store, actions=True)[:limit]


@pytest.mark.parametrize(
    ("word", "data", "said"),
    [
        ("n1", b"", "0 files deleted"),
        (
            "n1",
            encode_clean(CleanMetadata(hour(1), "", partitions=tuple(CleanPartition(p, FILES) for p in "pq"))),
            "1,200 files deleted",
        ),
        ("s1", encode_savepoint(SavepointMetadata("", 0, "", {})), "keeps this commit"),
        ("s1", encode_savepoint(SavepointMetadata("", 0, "why", {})), "keeps this commit: why"),
        (
            "e1",
            encode_restore(
                CompletedRestore(hour(1), 0, RestorePlan(((hour(3), "commit"), (hour(2), "commit")), None), {})
            ),
            f"undid {hour(3)}, {hour(2)}",
        ),
    ],
)
def test_action_is_described_by_what_is_known(word: str, data: bytes, said: str) -> None:
    store = bare_store()
    put_instants(store, word, {word: data})
    (entry,) = read_history(store, actions=True)
    assert entry.detail == said


def test_restore_without_a_target_names_what_it_undid() -> None:
    """Older releases stored no target."""
    plan = RestorePlan(((hour(2), "commit"),), None)
    store = bare_store()
    put_instants(store, "e3", {"e3": encode_restore(CompletedRestore(hour(3), 0, plan, {}))})
    store.storage.replace(store.path(instant("e3?")), encode_restore_plan(plan))
    assert [str(each) for each in read_history(store, actions=True)] == [f"restore {hour(3)}: undid {hour(2)}"]


def test_archiving_changes_no_entry_but_the_details() -> None:
    """What is archived, and what is on the timeline, is listed once."""
    table = a_table(rows=[a_batch(id=number) for number in range(4)], operation="upsert", **QUIET)
    table.delete(where="id = 3")
    table.rollback()
    table.clean(versions=1)
    for number in range(4, 7):
        table.upsert(a_batch(id=number))
    table.clean(versions=1)
    before = read_history(table.context.store, actions=True)
    store = table.context.store
    files = {
        entry.path: store.storage.read(entry.path) for entry in store.storage.list(".hoodie") if not entry.is_folder
    }
    assert table.archive(min_commits=2, max_commits=3).instants
    on_timeline = {(each.time, each.action.value) for each in store.load().instants}
    assert {"rollback", "clean", "upsert"} == {
        each.operation for each in before if (each.instant_time, each.action) not in on_timeline
    }
    wanted = [each if (each.instant_time, each.action) in on_timeline else replace(each, detail="") for each in before]
    for limit in (None, *range(len(before) + 2)):
        assert read_history(store, limit, actions=True) == wanted[:limit]
        assert read_history(store, limit) == [each for each in wanted if each.is_commit][:limit]
    for path, data in files.items():  # As if the archiving had died before it deleted them.
        store.storage.replace(path, data)
    assert read_history(store, actions=True) == before


@pytest.mark.parametrize(
    ("metadata", "operation"),
    [
        (commit(operation="BULK_INSERT"), "bulk_insert"),
        (commit(**{VERB_KEY: DEDUPE}), "dedupe"),
        (commit(**{VERB_KEY: "optimize"}), "upsert"),
        (commit(**{STATEMENT_KEY: "  Delete from t", VERB_KEY: DEDUPE}), "delete"),
        (commit(**{STATEMENT_KEY: "insert into t", VERB_KEY: DEDUPE}), "upsert"),
    ],
)
def test_verb_of_a_commit_is_shown_instead_of_its_operation(metadata: CommitMetadata, operation: str) -> None:
    store = bare_store()
    put_instants(store, "c1", {"c1": metadata})
    history = read_history(store)
    assert [(each.operation, each.action) for each in history] == [(operation, "commit")]
    assert history.others == {}


def test_commit_with_a_report_is_described_by_its_steps() -> None:
    store = bare_store()
    extra = {REPORT_KEY: json.dumps(REPORT), STATEMENT_KEY: "update t\n  set v = 1"}
    put_instants(store, "c1", {"c1": commit((4,), **extra)})
    (entry,) = read_history(store)
    assert entry == HistoryEntry(hour(1), "commit", "update", 4, 1, REPORT, "update t\n  set v = 1", version=0)
    assert entry.describe().splitlines() == [
        f"update {hour(1)}: rows 3 inserted, 1 deleted; files 1 created; 0.50 s",
        "  update t set v = 1",
        "  write          0.500 s",
    ]
    assert ENTRY.describe() == f"upsert {hour(1)}: rows 1,234; files 1,000"
    assert str(replace(ENTRY, action="clean", operation="clean")) == f"clean {hour(1)}"


def test_history_counts_in_words() -> None:
    assert repr(History()) == "History(0 entries)"
    found = History([ENTRY], {"clean": 2, "rollback": 1})
    assert (
        repr(found).splitlines()[0]
        == f"History(1 entry, newest upsert {hour(1)}; 2 cleans, 1 rollback with history(actions=True))"
    )
    assert str(History([ENTRY] * 1000)).startswith("History(1,000 entries, newest")


def test_notebooks_show_the_counts_of_the_reports() -> None:
    page = History([replace(ENTRY, report=REPORT, version=7)])._repr_html_()
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page)
    assert cells == ["7", hour(1), "upsert", "3", "", "1", "1,234", "1,000", "0.5"]
    assert re.findall(r"<td[^>]*>(.*?)</td>", History([ENTRY])._repr_html_())[3:6] == ["", "", ""]
