"""Names of instants in both layouts of the timeline, and the timeline that a list of names describes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import COMPLETES_AS, Action, Instant, State
from lakeformat.model.table_config import TableConfig
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2, LAYOUTS, TimelineLayout, layout_of

TIMES = st.from_regex(r"[0-9]{14}([0-9]{3})?", fullmatch=True)
INSTANTS = st.builds(Instant, TIMES, st.sampled_from(Action), st.sampled_from(State))


@given(INSTANTS, TIMES, st.sampled_from(sorted(LAYOUTS)))
def test_instant_file_names_round_trip(instant: Instant, completion: str, version: int) -> None:
    layout = LAYOUTS[version]
    if layout.has_completion_times and instant.state is State.COMPLETED:
        instant = replace(instant, completion_time=completion)
    name = layout.file_name(instant)
    assert layout.parse(name) == instant
    other = LAYOUTS[3 - version].parse(name)
    assert other == (None if instant.state is State.COMPLETED else instant)


# The names of Hudi 0.15 and 1.x: action, state, name in layout 1, name in layout 2.
NAMES = [
    (Action.COMMIT, State.REQUESTED, "{b}.commit.requested", None),
    (Action.COMMIT, State.INFLIGHT, "{b}.inflight", None),
    (Action.COMMIT, State.COMPLETED, "{b}.commit", "{b}_{e}.commit"),
    (Action.DELTA_COMMIT, State.INFLIGHT, "{b}.deltacommit.inflight", None),
    (Action.DELTA_COMMIT, State.COMPLETED, "{b}.deltacommit", "{b}_{e}.deltacommit"),
    (Action.LOG_COMPACTION, State.REQUESTED, "{b}.logcompaction.requested", None),
    (Action.CLUSTERING, State.INFLIGHT, "{b}.clustering.inflight", None),
    (Action.SAVEPOINT, State.COMPLETED, "{b}.savepoint", "{b}_{e}.savepoint"),
]


@pytest.mark.parametrize(("action", "state", "first", "second"), NAMES)
def test_instant_file_names_equal_hudis(action: Action, state: State, first: str, second: str | None) -> None:
    times = {"b": "20251120083000123", "e": "20251120083004567"}
    for layout, template in ((LAYOUT_1, first), (LAYOUT_2, second or first)):
        end = times["e"] if second and layout is LAYOUT_2 else None
        instant = Instant(times["b"], action, state, end)
        assert layout.file_name(instant) == template.format(**times)
        assert layout.path(instant) == f"{layout.folder}/{template.format(**times)}"


@pytest.mark.parametrize("layout", [LAYOUT_1, LAYOUT_2])
@pytest.mark.parametrize(
    "name",
    [
        "hoodie.properties",
        ".20251120083000123.commit.crc",
        "20251120083000123.commit.backup",
        "20251120083000123.unheard",
        "2025112008300012.commit",
        "20251120083000123_20251120083000124.inflight",
        "20251120083000123_20251120083000124.commit.requested",
        "20251120083000123_.commit",
    ],
)
def test_other_files_are_not_instants(layout: TimelineLayout, name: str) -> None:
    assert layout.parse(name) is None


def at(number: int) -> str:
    return f"2024010100000{number:04}"


def timeline(layout: TimelineLayout, *names: str) -> Timeline:
    """Return the timeline of names with small numbers for times, such as ``1.commit`` and ``1_2.commit``."""
    heads = [(name.partition(".")[0].split("_"), name.partition(".")[2]) for name in names]
    return Timeline.of_file_names(
        ["_".join(at(int(n)) for n in numbers) + "." + rest for numbers, rest in heads], layout=layout
    )


PLANS = [
    ("compaction", "commit", LAYOUT_1),
    ("compaction", "commit", LAYOUT_2),
    ("logcompaction", "deltacommit", LAYOUT_1),
    ("logcompaction", "deltacommit", LAYOUT_2),
    ("clustering", "replacecommit", LAYOUT_2),
]


@pytest.mark.parametrize(("plan", "done", "layout"), PLANS)
def test_pending_plan_completes_as_a_commit_or_is_rolled_back(plan: str, done: str, layout: TimelineLayout) -> None:
    end = "_9" if layout.has_completion_times else ""
    pending = timeline(layout, f"1{end}.deltacommit", f"2.{plan}.requested", f"2.{plan}.inflight")
    assert pending.pending == pending.pending_writes == (Instant(at(2), Action(plan), State.INFLIGHT),)
    assert not pending.is_committed(at(2))
    whole = timeline(layout, f"1{end}.deltacommit", f"2.{plan}.requested", f"2.{plan}.inflight", f"2{end}.{done}")
    assert whole.pending == ()
    assert [commit.action for commit in whole.commits] == [Action.DELTA_COMMIT, COMPLETES_AS[Action(plan)]]
    assert whole.is_committed(at(2))
    taken_back = whole.with_pending(frozenset({at(2)}))
    assert taken_back.instants == pending.instants
    assert taken_back.plans == ()
    assert whole.as_of(at(1)).instants == pending.as_of(at(1)).instants


def test_changes_are_counted_by_completion_in_layout_2_and_by_instant_in_layout_1() -> None:
    second = timeline(
        LAYOUT_2, "1_8.commit", "2_3.commit", "4_6.deltacommit", "5.deltacommit.inflight", "2_7.savepoint"
    )
    assert [i.time for i in second.completed_in(at(3))] == [at(4), at(1)]
    assert [i.time for i in second.completed_in(at(2), at(6))] == [at(2), at(4)]
    assert [second.completion_time(at(n)) for n in (1, 2, 5)] == [at(8), at(3), None]
    assert second.hollow_commit() is None
    first = timeline(LAYOUT_1, "1.commit", "2.commit", "4.deltacommit", "5.deltacommit.inflight")
    assert [i.time for i in first.completed_in(at(1), at(4))] == [at(2), at(4)]
    assert first.completion_time(at(2)) == at(2)
    assert first.hollow_commit() is None


def test_overtaken_pending_commit_is_a_hollow_commit() -> None:
    found = timeline(
        LAYOUT_1, "1.commit", "2.replacecommit.requested", "3.inflight", "4.compaction.requested", "5.commit"
    )
    assert found.hollow_commit() == Instant(at(2), Action.REPLACE_COMMIT, State.REQUESTED)
    assert found.hollow_commit({at(2)}) == Instant(at(3), Action.COMMIT, State.INFLIGHT)


def test_commits_archived_behind_a_savepoint_stay_committed() -> None:
    """``hoodie.archive.beyond.savepoint``: 1 has a savepoint, 2 and 3 were archived."""
    found = timeline(LAYOUT_1, "1.commit", "1.savepoint", "4.commit", "5.inflight")
    assert [found.is_committed(at(n)) for n in range(7)] == [True, True, True, True, True, False, False]
    assert [timeline(LAYOUT_1, "2.commit", "2.savepoint").is_committed(at(n)) for n in (1, 2, 3)] == [True, True, False]


def test_layout_is_that_of_the_properties() -> None:
    """Hudi: ``hoodie.timeline.layout.version``, ``hoodie.timeline.path``."""
    found = {
        version: layout_of(TableConfig({"hoodie.table.version": version, "hoodie.timeline.path": "elsewhere"}))
        for version in ("6", "8", "9")
    }
    assert [layout and (layout.version, layout.folder) for layout in found.values()] == [
        (1, ".hoodie"), (2, ".hoodie/elsewhere"), (2, ".hoodie/elsewhere"),
    ]  # fmt: skip
    assert layout_of(TableConfig({"hoodie.timeline.layout.version": "7"})) is None
    assert [layout.version for layout in (LAYOUT_1, LAYOUT_2)] == [1, 2]
    for layout, start in ((LAYOUT_1, b"{"), (LAYOUT_2, b"Obj")):
        assert layout.encode_commit(CommitMetadata("UPSERT", {})).startswith(start)
