"""The questions that a timeline answers, by examples and beside a model that goes through the instants one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.model.instant import COMMIT_ACTIONS, WRITE_ACTIONS, Action, Instant, State, VisibleInstants
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2
from tests.helpers.short_timelines import ACTIONS, hour, instant, timeline_of


def hours(*instants: Instant) -> list[int]:
    return [int(each.time[8:10]) for each in instants]


@pytest.mark.parametrize(
    ("text", "oldest", "committed"),
    [
        ("", None, []),  # Nothing is known about files of older instants.
        ("c3 c5", 3, [1, 2, 3, 5]),  # What is older than the oldest write was archived, so it is committed.
        ("c3? c5", 3, [1, 2, 5]),  # A pending write is not, even if it is the oldest,
        ("c3! c5", 3, [1, 2, 5]),
        ("k3? c5", 3, [1, 2, 5]),  # nor is a plan.
        ("c3 c4? d5", 3, [1, 2, 3, 5]),
        ("n2 b3 c4", 4, [1, 2, 3, 4]),  # Only writes count.
        ("n2 b3", None, []),
        ("s3 c3 c5", 5, [1, 2, 3, 4, 5]),  # A savepoint keeps its commit on the timeline, while others are archived.
        ("s3 c3 s5 c5", 3, [1, 2, 3, 5]),
        ("s3 c3 c4? c5", 4, [1, 2, 3, 5]),
        ("x3 c5", 3, [1, 2, 5]),  # A void commit is none, and what is older was archived.
        ("x3", 3, [1, 2]),
    ],
)
def test_files_of_completed_and_of_archived_writes_are_committed(
    text: str, oldest: int | None, committed: list[int]
) -> None:
    """Hudi: ``HoodieTimeline.getFirstNonSavepointCommit``, ``containsOrBeforeTimelineStarts``."""
    timeline = timeline_of(text)
    assert timeline.oldest_write == (None if oldest is None else hour(oldest))
    assert [number for number in range(1, 7) if timeline.is_committed(hour(number))] == committed
    visible = timeline.visible(None)
    assert [number for number in range(1, 7) if visible(hour(number))] == committed


def test_visible_instants_end_where_the_reader_asks() -> None:
    timeline = timeline_of("c2 c4? c5 c7")
    seen = {
        until: [n for n in range(1, 9) if timeline.visible(until and hour(until))(hour(n))] for until in (None, 6, 5, 2)
    }
    assert seen == {None: [1, 2, 5, 7], 6: [1, 2, 5], 5: [1, 2, 5], 2: [1, 2]}
    assert timeline.visible(hour(1)) == VisibleInstants(frozenset(), "")  # Nothing is known about what is older.
    assert timeline.visible(None).since(hour(5)) == VisibleInstants(frozenset({hour(5), hour(7)}), hour(2))


@pytest.mark.parametrize(
    ("text", "newest", "last"),
    [
        ("", None, None),
        ("c3 c5?", 5, 5),
        ("c3 n6", 6, 6),
        ("c3-8 c5-6", 5, 8),  # The next instant must also be later than every completion.
        ("c3-4 x5-9", 5, 9),
        ("c3-4 x7", 7, 7),
    ],
)
def test_newest_times_count_pending_instants_and_void_commits(text: str, newest: int | None, last: int | None) -> None:
    timeline = timeline_of(text)
    assert timeline.newest_time == (None if newest is None else hour(newest))
    assert timeline.last_time == (None if last is None else hour(last))


def test_times_that_no_new_instant_may_have() -> None:
    timeline = Timeline.of_file_names(
        [LAYOUT_1.file_name(instant(w)) for w in ("k2?", "k2!", "c2", "n3?", "c4", "c5!")]
    )
    assert hours(*timeline.plans) == [2]
    assert timeline.with_voids(frozenset({hour(4)})).taken_times == {hour(number) for number in (2, 3, 4, 5)}


def test_plan_stays_pending_beside_what_is_no_completed_commit_of_its_time() -> None:
    names = ["k2?", "s2", "g3?", "r3!", "l4!", "d4-5"]
    timeline = Timeline.of_file_names(
        [LAYOUT_2.file_name(instant(w + "-2" if w == "s2" else w)) for w in names], "", LAYOUT_2
    )
    assert hours(*timeline.plans) == [4]
    assert [i.action for i in timeline.pending] == [Action.COMPACTION, Action.CLUSTERING, Action.REPLACE_COMMIT]
    assert hours(*timeline.as_of(hour(4)).plans) == [4]
    assert hours(*timeline.as_of(hour(3)).plans) == []


def test_first_states_of_instants_in_each_layout() -> None:
    assert (LAYOUT_1.clustering, LAYOUT_2.clustering) == (Action.REPLACE_COMMIT, Action.CLUSTERING)
    begun = {
        word: [each.action.value for each in LAYOUT_2.list_requests(instant(word))]
        for word in ("c1-2", "d1-2", "r1-2", "n1-2", "c1!")
    }
    assert begun == {
        "c1-2": ["commit", "compaction"],
        "d1-2": ["deltacommit", "logcompaction"],
        "r1-2": ["replacecommit", "clustering"],
        "n1-2": ["clean"],
        "c1!": ["commit"],
    }
    assert {each.state for each in LAYOUT_2.list_requests(instant("c1-2"))} == {State.REQUESTED}


def test_ranges_of_incremental_queries_start_after_and_end_with_their_bounds() -> None:
    timeline = timeline_of("c1-6 c2-3 c4? r5-6 n7", LAYOUT_2)
    assert hours(*timeline.completed_in("")) == [2, 1, 5]  # By completion time, then by instant time.
    assert hours(*timeline.completed_in(hour(3))) == [1, 5]
    assert hours(*timeline.completed_in(hour(2), hour(3))) == [2]
    assert hours(*timeline.completed_in(hour(2), hour(6))) == [2, 1, 5]
    assert hours(*timeline.completed_in(hour(6))) == []
    assert [timeline.completion_time(hour(number)) for number in (1, 4, 5, 7, 8)] == [
        hour(6),
        None,
        hour(6),
        None,
        None,
    ]
    plain = timeline_of("c1 c2 d3")
    assert hours(*plain.completed_in(hour(1), hour(2))) == [2]
    assert plain.completion_time(hour(1)) == hour(1)


@pytest.mark.parametrize(
    ("text", "plans", "hollow"),
    [
        ("c1 c2? c3", [], 2),
        ("c1 c2? r3! c4", [], 2),
        ("c1 r2? d3! c4", [2], 3),  # A pending clustering adds no rows.
        ("c1 c2?", [], None),
        ("c1? c2?", [], None),
        ("c1 k2? n3? b4! c5", [], None),  # Only commits add rows.
        ("c1 g2? c3", [], None),
    ],
)
def test_hollow_commit_is_the_oldest_pending_one_before_a_completed_one(
    text: str, plans: list[int], hollow: int | None
) -> None:
    """Hudi: ``TimelineUtils.handleHollowCommitIfNeeded``."""
    found = timeline_of(text).hollow_commit({hour(number) for number in plans})
    assert hours(*([found] if found else [])) == ([] if hollow is None else [hollow])
    assert timeline_of(text, LAYOUT_2).hollow_commit() is None


def test_timeline_as_it_was_before_some_writes_completed() -> None:
    """A plan is pending again; a commit becomes inflight; the other instants stay."""
    names = [LAYOUT_2.file_name(instant(word)) for word in ("c1-2", "k3?", "k3!", "c3-4", "s5-5", "d5-6", "d7-8")]
    timeline = Timeline.of_file_names(names, "digest", LAYOUT_2)
    before = timeline.with_pending(frozenset({hour(3), hour(5)}))
    assert before.instants == timeline_of("c1-2 k3! d5! s5-5 d7-8").instants
    assert before.plans == ()
    assert (before.archive, before.layout) == ("digest", LAYOUT_2)
    assert timeline.with_pending(frozenset({hour(1)})).plans == timeline.plans
    assert timeline.with_pending(frozenset()) is timeline


def test_timeline_as_if_a_pending_commit_had_completed() -> None:
    timeline = timeline_of("c1 s2! c2! k3?")
    assert timeline.with_completed(hour(2)).instants == timeline_of("c1 s2! c2 k3?").instants
    assert timeline.with_completed(hour(3)) == timeline


def test_void_commits_leave_the_commits() -> None:
    timeline = timeline_of("c1 n2 c3 c4!")
    assert timeline.with_voids(frozenset()) is timeline
    void = timeline.with_voids(frozenset({hour(1), hour(2), hour(4)}))
    assert (hours(*void.voids), hours(*void.instants)) == ([1], [2, 3, 4])
    assert hours(*void.without(void.voids).voids) == []
    assert hours(*void.without(void.commits).instants) == [2, 4]
    assert [void.as_of(hour(number)).voids for number in (2, 1, 0)] == [void.voids, void.voids, ()]


def test_a_write_is_found_by_its_time() -> None:
    timeline = timeline_of("n1 c2? s3 d3 k4?")
    found = {number: timeline.find(hour(number)) for number in range(1, 6)}
    assert {number: each and each.action for number, each in found.items()} == {
        1: None, 2: Action.COMMIT, 3: Action.DELTA_COMMIT, 4: Action.COMPACTION, 5: None,
    }  # fmt: skip


WORDS = st.builds(
    lambda letter, state: f"{letter}{{}}{state}",
    st.sampled_from(sorted(ACTIONS)),
    st.sampled_from(["", "", "", "?", "!"]),
)


@given(st.lists(WORDS, max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_answers_are_those_of_the_single_instants(words: list[str], first: int, second: int) -> None:
    instants = [instant(word.format(at)) for at, word in enumerate(words)]
    timeline = timeline_of(" ".join(word.format(at) for at, word in enumerate(words)))
    done = [each for each in instants if each.state is State.COMPLETED]
    commits = [each for each in done if each.action in COMMIT_ACTIONS]
    pending = [each for each in instants if each not in done]
    assert list(timeline.instants) == instants
    assert list(timeline.commits) == commits
    assert timeline.commit_times == {each.time for each in commits}
    assert list(timeline.pending) == pending
    assert list(timeline.pending_writes) == [each for each in pending if each.action in WRITE_ACTIONS]
    assert timeline.taken_times == {each.time for each in instants}
    for action in Action:
        assert list(timeline.of_action(action)) == [each for each in instants if each.action is action]
    known = frozenset(each.time for each in commits[:first])
    assert list(timeline.completed_since(known)) == commits[first:]
    cut = timeline.as_of(hour(second))
    assert list(cut.instants) == instants[: second + 1]
    assert cut.archive is None
    assert list(timeline.completed_in(hour(first), hour(second))) == [
        each for each in commits if first < int(each.time[8:10]) <= second
    ]


@pytest.mark.parametrize(
    ("text", "has"), [("", False), ("n1 b2", False), ("c1", True), ("c1?", True), ("k1!", True), ("x1", False)]
)
def test_table_has_writes_if_one_has_begun_and_was_not_undone(text: str, has: bool) -> None:
    assert timeline_of(text).has_writes is has


def test_other_files_in_the_folder_are_no_instants() -> None:
    names = [f"{hour(1)}.commit", "hoodie.properties", ".aux", f"{hour(2)}.unknown", f"{hour(3)}.commit.requested"]
    assert Timeline.of_file_names(names).instants == (instant("c1"), instant("c3?"))


@given(
    st.lists(st.sampled_from(["c", "d", "k", "g", "r", "n", "b", "s"]), min_size=1, max_size=6),
    st.data(),
)
def test_timeline_that_grows_file_by_file_equals_the_one_of_all_files(kinds: list[str], data: st.DataObject) -> None:
    """Also if files were deleted and made again, or if an instant was completed twice: the first completion counts."""
    names = [
        LAYOUT_2.file_name(each)
        for number, kind in enumerate(kinds, 1)
        for done in [{"k": "c", "g": "r"}.get(kind, kind)]
        for text in (f"{kind}{number}?", f"{kind}{number}!", f"{done}{number}-{number + 2}", f"{done}{number}-9")
        for each in [instant(text)]
    ]
    shown = data.draw(st.lists(st.sampled_from([*names, "no.instant"]), unique=True))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(shown)), max_size=3)))
    grown = Timeline((), layout=LAYOUT_2)
    for start, end in zip([0, *cuts], [*cuts, len(shown)], strict=True):
        grown = grown.with_file_names(shown[start:end], "digest")
    assert grown == Timeline.of_file_names(sorted(shown), "digest", LAYOUT_2)
