"""The checker finds each anomaly in a history made by hand, and nothing in right histories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.history import (
    Action,
    Commit,
    History,
    Kind,
    Operation,
    Outcome,
    Read,
    find_anomalies,
)

_FIRST = Operation("a-1", Action.APPEND, ("k0", "k1"), 1, 3, Outcome.ACKNOWLEDGED, "001")
_SECOND = Operation("b-1", Action.APPEND, ("k0",), 4, 6, Outcome.ACKNOWLEDGED, "004")
_AFTER_BOTH = (("k0", "s;a-1;b-1;"), ("k1", "s;a-1;"))
_RIGHT = History(
    initial={"k0": "s;", "k1": "s;"},
    operations=(_FIRST, _SECOND),
    commits=(Commit("001", "002", "a-1", 2.0), Commit("004", "005", "b-1", 5.0)),
    reads=(
        Read("r", 0, 1, (("k0", "s;"), ("k1", "s;"))),
        Read("r", 2.5, 4.5, (("k0", "s;a-1;"), ("k1", "s;a-1;"))),
        Read("r", 7, 8, _AFTER_BOTH),
    ),
)


def _kinds(history: History) -> list[Kind]:
    return [anomaly.kind for anomaly in find_anomalies(history)]


def _without_times(history: History) -> History:
    return replace(history, commits=tuple(replace(commit, visible=None) for commit in history.commits))


def _with_last_read(*rows: tuple[str, str]) -> History:
    return replace(_RIGHT, reads=(*_RIGHT.reads[:2], Read("r", 7, 8, rows)))


@pytest.mark.parametrize("history", [_RIGHT, _without_times(_RIGHT)], ids=["with_times", "without_times"])
def test_a_right_history_has_no_anomaly(history: History) -> None:
    assert find_anomalies(history) == []


def test_an_acknowledged_commit_that_is_not_there_is_found() -> None:
    history = replace(_RIGHT, commits=_RIGHT.commits[:1], reads=())
    assert _kinds(history) == [Kind.NOT_VISIBLE]


def test_a_refused_commit_that_is_there_is_found() -> None:
    operations = (_FIRST, replace(_SECOND, outcome=Outcome.REFUSED, instant=None))
    assert _kinds(replace(_RIGHT, operations=operations, reads=())) == [Kind.REFUSED_VISIBLE]


@pytest.mark.parametrize("is_there", [True, False])
def test_a_commit_of_unknown_outcome_may_be_there_or_not(is_there: bool) -> None:
    operations = (_FIRST, replace(_SECOND, outcome=Outcome.UNKNOWN, ended=float("inf"), instant=None))
    commits = _RIGHT.commits if is_there else _RIGHT.commits[:1]
    assert find_anomalies(replace(_RIGHT, operations=operations, commits=commits, reads=_RIGHT.reads[:2])) == []


def test_an_operation_that_was_committed_twice_is_found() -> None:
    commits = (*_RIGHT.commits, Commit("007", "008", "b-1", 9.0))
    assert _kinds(replace(_RIGHT, commits=commits)) == [Kind.DOUBLED]


def test_an_instant_that_was_completed_twice_is_found() -> None:
    commits = (*_RIGHT.commits, Commit("004", "008", None, 9.0))
    assert _kinds(replace(_RIGHT, commits=commits)) == [Kind.TWO_FILES]


@pytest.mark.parametrize("completion", ["002", "001"])
def test_a_completion_time_that_does_not_rise_is_found(completion: str) -> None:
    commits = (_RIGHT.commits[0], replace(_RIGHT.commits[1], completion=completion))
    assert _kinds(replace(_RIGHT, commits=commits)) == [Kind.TIMES]


def test_a_lost_update_is_found() -> None:
    assert _kinds(_with_last_read(("k0", "s;b-1;"), ("k1", "s;"))) == [Kind.LOST_UPDATE]


def test_half_a_commit_is_found() -> None:
    assert _kinds(_with_last_read(("k0", "s;b-1;"), ("k1", "s;a-1;"))) == [Kind.INTERMEDIATE_READ]


def test_an_aborted_read_is_found() -> None:
    history = replace(
        _RIGHT,
        operations=(*_RIGHT.operations, Operation("c-1", Action.APPEND, ("k1",), 5, 6, Outcome.REFUSED)),
        reads=(Read("r", 7, 8, (("k0", "s;a-1;b-1;"), ("k1", "s;a-1;c-1;"))),),
    )
    assert _kinds(history) == [Kind.ABORTED_READ]


def test_a_key_that_is_there_twice_is_found() -> None:
    assert _kinds(_with_last_read(*_AFTER_BOTH, ("k1", "s;a-1;"))) == [Kind.DUPLICATE_KEY]


def test_a_lost_key_is_found() -> None:
    assert _kinds(_with_last_read(("k0", "s;a-1;b-1;"))) == [Kind.LOST_KEY]


@pytest.mark.parametrize("history", [_RIGHT, _without_times(_RIGHT)], ids=["with_times", "without_times"])
def test_a_reader_that_misses_an_acknowledged_commit_is_found(history: History) -> None:
    stale = Read("other", 7, 8, (("k0", "s;a-1;"), ("k1", "s;a-1;")))
    assert _kinds(replace(history, reads=(stale,))) == [Kind.STALE_READ]


def test_a_reader_that_goes_back_is_found() -> None:
    reads = (Read("r", 3, 9, _AFTER_BOTH), Read("r", 3, 9, (("k0", "s;a-1;"), ("k1", "s;a-1;"))))
    assert _kinds(replace(_RIGHT, reads=reads)) == [Kind.WENT_BACK]


def test_a_value_that_nobody_wrote_is_found() -> None:
    assert _kinds(_with_last_read(("k0", "s;a-1;b-1;"), ("k1", "s;a-1;?;"))) == [Kind.UNEXPLAINED]


def test_a_restore_takes_commits_back_at_once() -> None:
    commits = tuple(replace(commit, undone=10.0) for commit in _RIGHT.commits)
    before = (("k0", "s;"), ("k1", "s;"))
    assert find_anomalies(replace(_RIGHT, commits=commits, reads=(Read("r", 11, 12, before),))) == []
    assert _kinds(replace(_RIGHT, commits=commits, reads=(Read("r", 11, 12, _AFTER_BOTH),))) == [Kind.STALE_READ]


def test_sets_and_deletes_are_followed() -> None:
    operations = (
        Operation("a-1", Action.SET, ("k0", "new"), 0, 1, Outcome.ACKNOWLEDGED, "001"),
        Operation("b-1", Action.DELETE, ("new",), 2, 3, Outcome.ACKNOWLEDGED, "002"),
    )
    commits = (Commit("001", "001", "a-1", 0.5), Commit("002", "003", "b-1", 2.5))
    reads = (Read("r", 1, 2, (("k0", "a-1;"), ("new", "a-1;"))), Read("r", 3, 4, (("k0", "a-1;"),)))
    assert find_anomalies(History({"k0": "s;"}, operations, commits, reads)) == []
