"""Each guarantee on which the protocol rests is needed: without it, a seed among the first thousand goes wrong.

Only the heartbeat is not one of them. If it is ignored, live writers are undone, but nothing is lost.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from lakeformat.errors import CorruptTableError
from lakeformat.services.archive import run as archive
from lakeformat.timeline import store
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.commit import checks, completed_file
from lakeformat.transaction.order import claims, decisions
from lakeformat.transaction.order.commit_order import CommitOrder, order_of
from lakeformat.transaction.order.decisions import DecisionState
from lakeformat.transaction.undo import commit_undo, rollback
from tests.simulation.storage import Faults
from tests.simulation.workload import Plan, make_plan, run

_SEEDS: Final = 1000

#: Switches a guarantee off, and returns what the plan of a run needs for it.
_Switch = Callable[[pytest.MonkeyPatch], Mapping[str, Any]]


def _if_match(_: pytest.MonkeyPatch) -> Mapping[str, Any]:
    return {"walls": frozenset({"if-match"})}


def _put_if_absent(_: pytest.MonkeyPatch) -> Mapping[str, Any]:
    return {"walls": frozenset({"create"})}


def _own_nonce(patch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    patch.setattr(decisions, "_was_decided", lambda *_: False)
    return {"walls": frozenset({"read-back"})}


def _carrying_on(patch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    def settle(store: Any, read: Any = None) -> Any:
        return *(read or decisions.read_state(store.storage)), store.load()

    patch.setattr(decisions, "settle", settle)
    return {}


def _conflict_check(patch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    patch.setattr(checks, "check_conflicts", lambda *_: None)
    return {}


def _undone_check(patch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    patch.setattr(completed_file, "check_pending", lambda *_: None)
    return {}


def _decided_undo(patch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    def create_only(store: Any, check: Any, **_: Any) -> Any:
        decision = check(decisions.read_state(store.storage)[0], store.load())
        if decision is not None and decision.path:
            decisions.put_once(store.storage, decision.path, decision.data)
        return decision

    patch.setattr(rollback, "decide", create_only)
    faults = Faults(stopped=0.3, stopped_at=decisions.STATE_PATH)
    return {"verbs": {"append": 1, "archive": 2}, "faults": faults, "rounds": 6}


def _barrier(patch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    add = DecisionState.add
    patch.setattr(DecisionState, "add", lambda *given, **how: dataclasses.replace(add(*given, **how), barrier=0))
    return {"verbs": {"append": 6, "rollback": 1, "restore": 1}, "faults": Faults(stopped=0.003)}


def _hasty_order(store: TimelineStore) -> CommitOrder:
    """Return the order of commits of a table, as if no request could be late."""
    known = type(order_of(store))
    return type("_Hasty", (known,), {"late_ms": 0})(store)


def _archived_age(patch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    patch.setattr(archive, "order_of", _hasty_order)
    return {"verbs": {"append": 3, "archive": 2}, "faults": Faults(lost=0.2, late=0.9, late_seconds=300)}


def _void_commits(patch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    patch.setattr(store, "is_void", lambda _: False)
    options = {"hoodie.write.table.version": 9, "hoodie.datasource.write.table.type": "MERGE_ON_READ"}
    verbs = {"append": 3, "upsert": 1, "rollback": 2}
    return {"options": options, "verbs": verbs, "faults": Faults(lost=0.2, late=0.9, late_seconds=300)}


def _undone_age(patch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    patch.setattr(commit_undo, "order_of", _hasty_order)
    return {"verbs": {"append": 3, "rollback": 1}, "faults": Faults(lost=0.2, late=0.9)}


WALLS: Final[Mapping[str, _Switch]] = {
    "the storage compares versions": _if_match,
    "the storage creates only absent files": _put_if_absent,
    "a writer looks for its own nonce": _own_nonce,
    "the next writer carries a decision out": _carrying_on,
    "commits are checked for conflicts": _conflict_check,
    "commits are checked for being undone": _undone_check,
    "an undo is decided before it acts": _decided_undo,
    "a restore is a barrier": _barrier,
    "young commits are not archived": _archived_age,
    "the name of a young undone commit stays taken": _undone_age,
    "what holds that name is not a commit": _void_commits,
}


@dataclasses.dataclass(frozen=True)
class Found:
    """What went wrong first, and the plan of that run."""

    plan: Plan
    problem: str


def search(name: str, patch: pytest.MonkeyPatch, seeds: int = _SEEDS) -> Found | None:
    """Switch a guarantee off and run one seed after the other until something goes wrong; None if nothing does."""
    changes = WALLS[name](patch)
    for seed in range(seeds):
        plan = make_plan(seed, **changes)
        if problem := _first_problem(plan):
            return Found(plan, problem)
    return None


def _first_problem(plan: Plan) -> str | None:
    result = run(plan)
    damage = (error for error in result.crashes if isinstance(error, CorruptTableError))
    return next((str(problem) for problem in (*result.anomalies, *damage)), None)


@pytest.mark.nightly
@pytest.mark.parametrize("name", list(WALLS))
def test_without_this_guarantee_a_seed_goes_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        found = search(name, patch)
    assert found is not None
    assert _first_problem(dataclasses.replace(found.plan, walls=frozenset())) is None


@pytest.mark.nightly
def test_live_writers_that_are_undone_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "is_alive", lambda *_: False)
    wrong = {seed: problem for seed in range(150) if (problem := _first_problem(make_plan(seed)))}
    assert not wrong
