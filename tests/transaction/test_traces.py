"""Each trace of an action is taken back at its moment, and no trace of another action."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lakeformat.file_system_view.hashing_rings import StoredRings, stored_paths
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.order.claims import HEARTBEATS, claim_path
from lakeformat.transaction.order.written_file import stage_folder
from lakeformat.transaction.undo.traces import TRACES, Moment, Traces
from tests.helpers.bare_table import bare_store, base_name, stored
from tests.helpers.short_timelines import hour
from tests.helpers.tables import a_batch, a_table

FILES = {time: f"p/{base_name('a', hour(time))}" for time in (2, 3)}
MARKERS = {time: f".hoodie/.temp/{hour(time)}/{path}.marker.CREATE" for time, path in FILES.items()}


def left_by(time: int) -> dict[Moment, Sequence[str]]:
    return {
        Moment.RECORDS: stored_paths(StoredRings("p", (hour(time),), frozenset()), hour(time)),
        Moment.FILES: (FILES[time], MARKERS[time]),
        Moment.CLAIM: (f"{stage_folder(hour(time))}/rows", claim_path(hour(time)), f"{HEARTBEATS}/{hour(time)}"),
    }


def put_all(store: TimelineStore) -> None:
    for time in FILES:
        for paths in left_by(time).values():
            for path in paths:
                store.storage.create(path, b"")


def traces_of(store: TimelineStore, **changes: object) -> Traces:
    return Traces(store=store, time=hour(2), files=(FILES[2],), write_id=hour(2), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("moment", list(Moment))
def test_a_moment_takes_its_traces_back_and_no_others(moment: Moment) -> None:
    store = bare_store()
    put_all(store)
    before = set(stored(store))
    traces_of(store).take_back(moment)
    assert before - set(stored(store)) == set(left_by(2)[moment])
    traces_of(store).take_back(moment)  # It may be repeated.


def test_all_moments_leave_only_other_actions() -> None:
    store = bare_store()
    before = set(stored(store))
    put_all(store)
    traces_of(store).take_back(*Moment)
    assert set(stored(store)) - before == {path for paths in left_by(3).values() for path in paths}
    assert [moment for moment, _ in TRACES] == sorted((moment for moment, _ in TRACES), key=list(Moment).index)


def test_an_action_that_replaces_nothing_has_no_rings() -> None:
    store = bare_store()
    put_all(store)
    traces_of(store, action="commit").take_back(Moment.RECORDS)
    assert set(left_by(2)[Moment.RECORDS]) <= set(stored(store))


def test_known_markers_go_with_the_claim() -> None:
    store = bare_store()
    put_all(store)
    traces = traces_of(store, markers=(MARKERS[2],))
    traces.take_back(Moment.FILES)
    assert MARKERS[2] in stored(store)
    traces.take_back(Moment.CLAIM)
    assert MARKERS[2] not in stored(store)


def test_the_deltacommit_of_the_metadata_table_is_a_record() -> None:
    table = a_table(rows=[a_batch(id=1)], version=6, **{"hoodie.metadata.enable": True})
    store = table.context.store
    late = f".hoodie/metadata/.hoodie/{hour(2)}.deltacommit"
    store.storage.create(late, b"")
    Traces(store=store, time=hour(2), action="commit").take_back(Moment.FILES, Moment.CLAIM)
    assert store.storage.info(late) is not None
    Traces(store=store, time=hour(2), action="commit").take_back(Moment.RECORDS)
    assert store.storage.info(late) is None
