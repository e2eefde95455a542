"""The steps of an action in both layouts: names, encodings, and completion times that only grow."""

from __future__ import annotations

import io
from dataclasses import replace

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat import CorruptTableError
from lakeformat.codec import properties
from lakeformat.codec.timeline_files.commit import (
    decode_commit,
    decode_commit_avro,
    decode_commit_json,
    encode_commit_avro,
    encode_commit_json,
)
from lakeformat.codec.timeline_files.recovery import RollbackMetadata
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import join_path
from lakeformat.model.instant import Action, Instant, State
from lakeformat.storage import MemoryStorage
from lakeformat.timeline.store import TimelineStore
from tests.helpers.faulty import SetClock

METADATA = CommitMetadata("UPSERT", {"p": (WriteStat("f-0", "p/f-0_0-0-0_20240101000000001.parquet", "p", None, 3),)})


def make_store(version: int) -> TimelineStore:
    storage = MemoryStorage()
    values = {"hoodie.table.name": "t", "hoodie.table.version": str(version), "hoodie.table.timeline.timezone": "UTC"}
    storage.create(".hoodie/hoodie.properties", properties.encode(values, comments=[]))
    return TimelineStore(storage)


def at(number: int) -> str:
    return f"2024010100000{number:04}"


def begun(store: TimelineStore, number: int, action: Action = Action.COMMIT) -> Instant:
    instant = Instant(at(number), action, State.REQUESTED)
    store.request(instant)
    return store.start(instant, METADATA)


@pytest.mark.parametrize(("version", "folder", "start"), [(6, ".hoodie", b"{"), (8, ".hoodie/timeline", b"Obj\x01")])
def test_a_commit_takes_three_files(version: int, folder: str, start: bytes) -> None:
    store = make_store(version)
    done = store.complete(begun(store, 1), METADATA, SetClock(0))
    found = {e.name: store.storage.read(e.path) for e in store.storage.list(folder) if e.name.startswith("2024")}
    assert set(found) == {f"{at(1)}.commit.requested", f"{at(1)}.inflight", store.layout.file_name(done)}
    assert all(data.startswith(start) for name, data in found.items() if not name.endswith("requested"))
    timeline = TimelineStore(store.storage).load()
    assert timeline.commits == (done,)
    assert store.read_commit(done) == METADATA


@pytest.mark.parametrize("version", [6, 9])
def test_one_of_two_completions_of_an_instant_wins(version: int) -> None:
    store = make_store(version)
    pending = begun(store, 1)
    done = store.complete(pending, METADATA, SetClock(0))
    with pytest.raises(FileExistsError):
        store.complete(pending, replace(METADATA, extra={"by": "another"}), SetClock(1 << 41))
    assert store.load().instants == (done,)


def test_completion_time_exceeds_all_times_on_the_timeline() -> None:
    """A clock can be behind: here it shows 1970, and the timeline is in 2024."""
    store = make_store(9)
    first, second, third = (begun(store, number) for number in (1, 2, 3))
    ends = [store.complete(instant, METADATA, SetClock(0)).completion_time for instant in (third, first)]
    assert ends == [at(4), at(5)]
    # Its slice must get all log files that complete from now on.
    store.request(Instant(at(8), Action.COMPACTION, State.REQUESTED))
    assert store.complete(second, METADATA, SetClock(0)).completion_time == at(9)
    ahead = store.complete(begun(store, 10), METADATA, SetClock(1_800_000_000_123))
    assert ahead.completion_time == "20270115080000123"
    assert [i.time for i in store.load().completed_in("")] == [at(3), at(1), at(2), at(10)]


def test_inflight_file_holds_the_profile_of_a_write_or_the_bytes_of_a_plan() -> None:
    store = make_store(6)
    for number, (profile, wanted) in enumerate(
        ((None, b""), (b"plan", b"plan"), (METADATA, encode_commit_json(METADATA)))
    ):
        instant = Instant(at(number), Action.CLEAN, State.REQUESTED)
        store.request(instant, b"asked")
        assert store.read(store.start(instant, profile)) == wanted
        assert store.read(instant) == b"asked"


def test_rollback_completes_like_a_commit() -> None:
    for version, name in ((6, f".hoodie/{at(2)}.rollback"), (8, f".hoodie/timeline/{at(2)}_{at(3)}.rollback")):
        store = make_store(version)
        rollback = Instant(at(2), Action.ROLLBACK, State.REQUESTED)
        store.request(rollback)
        started = store.start(rollback)
        store.complete(started, RollbackMetadata(at(2), 1, ((at(1), "commit"),)), SetClock(0))
        (record,) = fastavro.reader(io.BytesIO(store.storage.read(name)))
        assert record["commitsRollback"] == [at(1)]


def test_a_clustering_completes_as_a_replacecommit() -> None:
    store = make_store(9)
    plan = Instant(at(1), Action.CLUSTERING, State.REQUESTED)
    store.request(plan)
    metadata = CommitMetadata("CLUSTER", METADATA.stats, replaced={"p": ("f-9",)})
    done = store.complete(store.start(plan), metadata, SetClock(0))
    assert done == Instant(at(1), Action.REPLACE_COMMIT, State.COMPLETED, at(2))
    assert store.read_commit(done) == metadata
    assert store.load().instants == (done,)


@pytest.mark.parametrize("state", [State.REQUESTED, State.COMPLETED])
def test_instant_cannot_skip_a_state(state: State) -> None:
    with pytest.raises(CorruptTableError, match="cannot become completed"):
        make_store(6).complete(Instant(at(1), Action.COMMIT, state), METADATA, SetClock(0))


def test_timeline_moved_by_an_upgrade_is_found() -> None:
    store = make_store(6)
    store.complete(begun(store, 1), METADATA, SetClock(0))
    assert store.load().commit_times == {at(1)}
    upgraded = {"hoodie.table.name": "t", "hoodie.table.version": "8", "hoodie.timeline.path": "elsewhere"}
    store.storage.replace(".hoodie/hoodie.properties", properties.encode(upgraded, comments=[]))
    store.config()
    assert store.load().instants == ()
    store.storage.move(f".hoodie/{at(1)}.commit", f".hoodie/elsewhere/{at(1)}_{at(2)}.commit")
    (commit,) = store.load().commits
    assert store.read_commit(commit) == METADATA  # It is still JSON: the content decides, not the layout.


TEXT = st.text(max_size=8)
COUNT = st.integers(0, 2**40)
STATS = st.builds(
    WriteStat,
    file_id=st.sampled_from(["f-0", "g-1"]),
    path=st.sampled_from(["", "{}_0-0-0_20240101000000001.parquet", ".{}_20240101000000001.log.3_1-0-1"]),
    partition_path=st.just(""),
    prev_commit=st.sampled_from([None, "20240101000000001"]),
    num_writes=COUNT,
    num_deletes=COUNT,
    num_updates=COUNT,
    num_inserts=COUNT,
    size_bytes=COUNT,
    cdc_stats=st.lists(st.tuples(TEXT, COUNT), max_size=2, unique_by=lambda pair: pair[0]).map(tuple),
)
COMMITS = st.builds(
    CommitMetadata,
    operation=st.sampled_from(["UPSERT", "CLUSTER", "UNKNOWN"]),
    stats=st.dictionaries(TEXT, st.lists(STATS, max_size=3).map(tuple), max_size=3),
    extra=st.dictionaries(TEXT, TEXT, max_size=3),
    replaced=st.dictionaries(TEXT, st.lists(TEXT, max_size=3).map(tuple), max_size=2),
    compacted=st.booleans(),
).map(lambda metadata: replace(metadata, stats={p: tuple(_in(p, s) for s in of) for p, of in metadata.stats.items()}))


def _in(partition: str, stat: WriteStat) -> WriteStat:
    path = join_path(partition, stat.path.format(stat.file_id)) if stat.path else ""
    return replace(stat, partition_path=partition, path=path)


@given(COMMITS)
def test_commits_survive_both_encodings(metadata: CommitMetadata) -> None:
    for encode in (encode_commit_json, encode_commit_avro):
        assert decode_commit(encode(metadata, replace=True), name="x") == metadata


def test_the_log_files_of_a_stat_survive_both_encodings() -> None:
    stat = WriteStat("f", "p/.f_20240101000000001.log.3_1-0-1", "p", at(1), 1, base_name="b", log_names=("x", "y"))
    metadata = CommitMetadata("UPSERT", {"p": (stat,)})
    assert decode_commit_json(encode_commit_json(metadata), name="x") == metadata
    assert decode_commit_avro(encode_commit_avro(metadata), name="x") == metadata
    (record,) = fastavro.reader(io.BytesIO(encode_commit_avro(metadata)))
    (stat_record,) = record["partitionToWriteStats"]["p"]
    assert (stat_record["logVersion"], stat_record["logOffset"], stat_record["logFiles"]) == (3, 0, ["x", "y"])
