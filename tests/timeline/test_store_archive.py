"""Commits that were archived meanwhile, completion times from the archive, and the plans of pending services.

The oracle of the archive is the timeline before the archiving.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import pytest

from lakeformat.codec.timeline_files.clean import CleanPlan, encode_clean_plan
from lakeformat.codec.timeline_files.service_plans import encode_clustering, encode_compaction_plan
from lakeformat.model.files import FileGroupId
from lakeformat.model.service_plans import (
    ClusteringGroup,
    ClusteringPlan,
    CompactionOperation,
    CompactionPlan,
    SliceInfo,
)
from lakeformat.timeline.store import TimelineStore
from tests.helpers.bare_table import bare_store, put_instants
from tests.helpers.short_timelines import hour, instant
from tests.helpers.tables import a_batch, a_table

QUIET = {"hoodie.clean.automatic": False, "hoodie.archive.automatic": False}


def archived_table(version: int) -> tuple[TimelineStore, Mapping[str, str], list[str]]:
    """Return a table, the completion times of its eight commits, and the times of those that are archived."""
    table = a_table(rows=[a_batch(id=number) for number in range(4)], version=version, **QUIET)
    store, before = table.context.store, dict[str, str]()
    for kept in (1, 3):
        before |= {each.time: each.completed_at for each in store.load().commits}
        assert table.archive(min_commits=kept, max_commits=kept + 1).instants
        for number in range(4) if kept == 1 else ():
            table.insert(a_batch(id=number))
    return store, before, sorted(before.keys() - store.load().commit_times)


@pytest.mark.parametrize("version", [6, 8])
def test_commits_archived_meanwhile_are_those_after_the_oldest_known_one(version: int) -> None:
    """Whatever was known: commits that are older than all of it were archived before."""
    store, before, archived = archived_table(version)
    timeline, times = store.load(), sorted(before)
    assert archived == times[:5]
    for known in (frozenset(some) for number in range(4) for some in combinations(times[:6], number)):
        wanted = [time for time in archived if time > min(known, default="") and time not in known]
        found = store.read_unseen_archived(timeline, known)
        assert [time for time, _ in found] == wanted
        assert all(metadata.operation == "INSERT" for _, metadata in found)


def test_commit_with_a_savepoint_does_not_show_what_was_archived() -> None:
    """It stays on the timeline when later commits are archived."""
    store, before, archived = archived_table(6)
    first, second, third, *_ = sorted(before)
    for action in ("commit", "savepoint"):
        store.storage.create(f".hoodie/{first}.{action}", b"")
    timeline = store.load()
    unseen = [time for time, _ in store.read_unseen_archived(timeline, frozenset({first, second}))]
    assert unseen == [time for time in archived if time > second] == [third, *archived[3:]]
    assert [time for time, _ in store.read_unseen_archived(timeline, frozenset())] == archived[1:]
    assert store.read_unseen_archived(timeline, frozenset({first})) == []  # Only commits with savepoints are known.


@pytest.mark.parametrize("version", [6, 8])
def test_completion_times_outlast_the_archiving(version: int) -> None:
    store, before, archived = archived_table(version)
    timeline = store.load()
    late, old = "29991231000000000", "20000101000000000"
    assert store.completion_times(timeline, before.keys()) == before
    assert store.completion_times(timeline, {archived[1], archived[3], late, old}) == {
        old: old,  # It is older than the archive.
        **{time: before[time] for time in (archived[1], archived[3])},
    }
    assert store.completion_times(timeline, [late]) == {}
    assert store.completion_times(timeline, timeline.commit_times) == {
        time: before[time] for time in timeline.commit_times
    }


def test_plans_of_pending_services_name_their_file_groups() -> None:
    store = bare_store()
    groups = [FileGroupId("p", name) for name in "abcd"]
    slices = [SliceInfo(group.partition_path, group.file_id, f"{group.file_id}.parquet") for group in groups]
    clusterings = [encode_clustering(ClusteringPlan((ClusteringGroup((each,)),), "s")) for each in slices]
    operations = [CompactionOperation(group.partition_path, group.file_id, hour(1)) for group in groups]
    plans = [encode_compaction_plan(CompactionPlan((each,)), missing_partitions=False) for each in operations]
    contents = {
        "r2?": clusterings[0],
        "r3!": clusterings[1],
        "r4": clusterings[2],
        "k5?": plans[0],
        "k6!": plans[1],
        "l7!": plans[2],
    }
    for word, data in contents.items():
        put_instants(store, word)
        store.storage.replace(store.path(instant(f"{word[:2]}?")), data)
    timeline = store.load()
    assert store.read_clustering_groups(timeline) == {groups[0]: hour(2), groups[1]: hour(3)}
    assert store.read_compaction_groups(timeline) == {groups[0]: hour(5), groups[1]: hour(6)}
    assert store.read_compaction_plan(instant("l7!")) == CompactionPlan((operations[2],))


def test_plan_of_a_clean_is_read_again() -> None:
    store = bare_store()
    plan = CleanPlan("KEEP_LATEST_COMMITS", (hour(1), "commit"), hour(2), {"p": ("a.parquet",)})
    put_instants(store, "n3?", {"n3?": encode_clean_plan(plan, store.storage.location)})
    assert store.read_clean_plan(instant("n3?")) == plan
