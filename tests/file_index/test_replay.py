"""A table of cases in which a snapshot of the index may be continued to a later timeline."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from lakeformat.codec.timeline_files.recovery import RollbackPlan, encode_rollback_plan
from lakeformat.file_system_view.file_index.load import rolled_back_times
from lakeformat.file_system_view.file_index.replay import cover_timeline, files_of_commit, find_missing_commits
from lakeformat.file_system_view.file_index.stored import CoveredTimeline
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.instant import Instant
from lakeformat.storage import MemoryStorage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2, TimelineLayout


def time(number: int) -> str:
    return f"2024010100000{number:04}"


def timeline(*names: str, archive: str | None = "a", layout: TimelineLayout = LAYOUT_1) -> Timeline:
    files = []
    for number, _, rest in (name.partition(".") for name in names):
        is_completed = rest != "inflight" and "." not in rest
        end = f"_{time(9)}" if is_completed and layout.has_completion_times else ""
        files.append(f"{time(int(number))}{end}.{rest}")
    return Timeline.of_file_names(files, archive=archive, layout=layout)


KNOWN = CoveredTimeline(frozenset({time(1), time(3)}), frozenset({time(2)}), "a")


def find_replay(
    *names: str,
    undone: Collection[int] = (),
    archived: Collection[int] = (),
    as_of: str | None = None,
    archive: str | None = "a",
    layout: TimelineLayout = LAYOUT_1,
) -> tuple[Instant, ...] | None:
    return find_missing_commits(
        KNOWN,
        timeline(*names, archive=archive, layout=layout),
        as_of,
        rolled_back=lambda: frozenset(map(time, undone)),
        is_on_timeline=lambda instant: instant.time not in map(time, archived),
    )


CASES: dict[str, tuple[list[str], set[int], list[int] | None]] = {
    "nothing happened": (["1.commit", "2.inflight", "3.commit"], set(), []),
    "a new commit": (["1.commit", "2.inflight", "3.commit", "4.replacecommit"], set(), [4]),
    "the pending one completed late": (["1.commit", "2.commit", "3.commit", "4.commit"], set(), [2, 4]),
    "a compaction completed": (["1.commit", "2.compaction.inflight", "2.commit", "3.commit"], set(), [2]),
    "the pending one is gone": (["1.commit", "3.commit"], set(), None),
    "the pending one was rolled back": (["1.commit", "3.commit", "5.rollback"], {2}, []),
    "a commit was restored away": (["1.commit", "2.inflight"], set(), None),
    "the oldest was archived": (["2.inflight", "3.commit", "4.commit"], set(), None),
    "all were archived": (["8.commit", "9.commit"], {2}, None),
    "there is a savepoint": (["1.commit", "1.savepoint", "2.inflight", "3.commit", "4.commit"], set(), [4]),
    "no commit is left": (["2.inflight"], set(), None),
    "a log compaction completed": (["1.commit", "2.logcompaction.requested", "2.deltacommit", "3.commit"], set(), [2]),
    "a clustering is planned": (["1.commit", "2.clustering.requested", "3.commit"], set(), []),
    "a clustering completed": (["1.commit", "2.clustering.requested", "2.replacecommit", "3.commit"], set(), [2]),
}


@pytest.mark.parametrize("layout", [LAYOUT_1, LAYOUT_2], ids=["layout 1", "layout 2"])
@pytest.mark.parametrize("case", CASES)
def test_snapshot_is_brought_forward_by_replay(case: str, layout: TimelineLayout) -> None:
    names, undone, wanted = CASES[case]
    found = find_replay(*names, undone=undone, layout=layout)
    assert (None if found is None else [instant.time for instant in found]) == (
        None if wanted is None else list(map(time, wanted))
    )


@pytest.mark.parametrize("archive", ["", "b", None])
def test_replay_is_impossible_if_the_archive_has_changed(archive: str | None) -> None:
    assert find_replay("1.commit", "2.inflight", "3.commit", archive=archive) is None


@pytest.mark.parametrize("layout", [LAYOUT_1, LAYOUT_2], ids=["layout 1", "layout 2"])
@pytest.mark.parametrize(("archived", "wanted"), [((), [0, 2, 4]), ((0,), None), ((2,), [0, 2, 4]), ((4,), [0, 2, 4])])
def test_commit_that_was_archived_before_the_snapshot_is_not_replayed(
    archived: tuple[int, ...], wanted: list[int] | None, layout: TimelineLayout
) -> None:
    """A commit that the snapshot knows, or that is newer, cannot have been archived before it."""
    found = find_replay("0.commit", "1.commit", "2.commit", "3.commit", "4.commit", archived=archived, layout=layout)
    assert (found and [instant.time for instant in found]) == (wanted and list(map(time, wanted)))


@pytest.mark.parametrize(
    ("action", "is_gone"), [("commit", True), ("deltacommit", True), ("replacecommit", False), ("compaction", False)]
)
def test_rolled_back_plan_can_run_later(action: str, is_gone: bool) -> None:
    storage = MemoryStorage()
    storage.create(f".hoodie/{time(5)}.rollback.requested", encode_rollback_plan(RollbackPlan(time(2), action)))
    storage.create(f".hoodie/{time(5)}.rollback", b"x")
    store = TimelineStore(storage)
    assert rolled_back_times(store, store.load()) == ({time(2)} if is_gone else set())


def test_snapshot_beyond_an_instant_cannot_serve_it() -> None:
    names = ("1.commit", "2.inflight", "3.commit", "4.commit", "5.commit")
    found = find_replay(*names, as_of=time(4))
    assert found is not None
    assert [instant.time for instant in found] == [time(4)]
    assert find_replay(*names, as_of=time(2)) is None


def test_snapshot_covers_the_active_timeline() -> None:
    covered = cover_timeline(
        timeline("1.commit", "2.inflight", "3.clean.requested", "4.replacecommit.requested", "5.commit")
    )
    assert covered == CoveredTimeline(frozenset({time(1), time(5)}), frozenset({time(2), time(4)}), "a")


@pytest.mark.parametrize(
    ("path", "size_bytes", "measured", "known"),
    [
        ("p/f-0_0-1-2_20240101000000001.parquet", 5, None, 5),
        ("p/f-0_0-1-2_20240101000000001.parquet", 0, 7, 7),
        ("p/f-0_0-1-2_20240101000000001.parquet", 0, None, None),
        ("p/f-9_0-1-2_20240101000000001.parquet", 5, None, None),
        ("p/.f-0_20240101000000001.log.1_0-0-0", 5, None, None),
    ],
)
def test_files_that_a_commit_names(path: str, size_bytes: int, measured: int | None, known: int | None) -> None:
    stats = {"p": (WriteStat("f-0", path, "p", None, 1, size_bytes=size_bytes), WriteStat("f-1", "", "p", None, 0))}
    found = files_of_commit(CommitMetadata("UPSERT", stats), lambda _: measured)
    assert (found and [(file.path, file.size_bytes) for file in found]) == (None if known is None else [(path, known)])
