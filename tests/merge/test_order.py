"""The pieces of the order of rows: pairs of equal codes, the last of each code, and what a rule says of itself."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.errors import InvalidInputError
from lakeformat.merge import ReadRule
from lakeformat.merge.fields import fold_rows
from lakeformat.merge.order import (
    any_within,
    have_repeats,
    key_codes,
    key_hashes,
    last_of_each,
    ordering_ranks,
    pair_keys,
    pair_rows,
    sequence_texts,
)
from lakeformat.merge.rules import Merger, MergeRule
from lakeformat.merge.versions import are_unconditional
from lakeformat.model.merge_settings import PartialUpdate

CODES = st.lists(st.integers(0, 3), max_size=8)


@given(CODES, CODES)
def test_nth_of_a_code_is_paired_with_the_nth(left: list[int], right: list[int]) -> None:
    places: dict[tuple[int, int], int] = {}
    seen: dict[int, int] = defaultdict(int)
    for at, code in enumerate(left):
        places[code, seen[code]] = at
        seen[code] += 1
    seen.clear()
    wanted = []
    for at, code in enumerate(right):
        if (code, seen[code]) in places:
            wanted.append((places[code, seen[code]], at))
        seen[code] += 1
    found = pair_rows(np.array(left, np.int64), np.array(right, np.int64))
    assert list(zip(*(side.tolist() for side in found), strict=True)) == wanted
    texts = pair_keys(*(pa.array([f"k{code}" for code in codes], pa.string()) for codes in (left, right)))
    assert list(zip(*(side.tolist() for side in texts), strict=True)) == wanted


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=8), st.sets(st.integers(0, 7)))
def test_last_of_each_code_has_the_greatest_rank(rows: list[tuple[int, int]], left_out: set[int]) -> None:
    codes, ranks = (np.array([row[at] for row in rows], np.int64) for at in (0, 1))
    at = np.array([place for place in range(len(rows)) if place not in left_out], np.int64)
    for given_ranks in (ranks, None):
        best = dict.fromkeys(range(int(codes.max(initial=-1)) + 1), -1)
        for place in at.tolist():
            held = best[codes[place]]
            if held < 0 or given_ranks is None or given_ranks[place] >= given_ranks[held]:
                best[codes[place]] = place
        assert last_of_each(codes, at, given_ranks).tolist() == list(best.values())


def test_ranks_of_several_fields_follow_the_first_that_differs() -> None:
    values = [(None, 2), (1, None), (1, 2), (1, 3), (2, 0), (1, 2)]
    first, second = (pa.chunked_array([[row[at] for row in values]], pa.int64()) for at in (0, 1))
    wanted = sorted({(-1 if one is None else one, -1 if two is None else two) for one, two in values})
    ranks = [wanted.index((-1 if one is None else one, -1 if two is None else two)) for one, two in values]
    assert ordering_ranks([first, second]).tolist() == ranks
    assert ordering_ranks([pa.chunked_array([each]) for each in ([1, 2], [5, 4])]).tolist() == [0, 1]


def test_keys_that_repeat_are_found_across_chunks() -> None:
    for chunks, codes in (([["a", "b"], ["c"]], None), ([["a", "b"], ["a"]], [0, 1, 0]), ([[]], None), ([], None)):
        keys = pa.chunked_array(chunks, pa.string())
        found = key_codes(keys)
        assert (found if found is None else found.tolist()) == codes
        assert have_repeats([key_hashes(keys)]) is (codes is not None)
    assert not have_repeats([])
    halves = [key_hashes(pa.chunked_array([half])) for half in (["a", "b"], ["c", "a"])]
    assert have_repeats(halves)
    assert not have_repeats(halves[:1])


def test_range_holds_its_bounds() -> None:
    keys = pa.array(["b", "d", None])
    assert [
        any_within(keys, *ends) for ends in (("b", "b"), ("d", "z"), ("a", "b"), ("c", "c"), ("e", "z"), ("a", "a"))
    ] == [
        *(True, True, True),
        *(False, False, False),
    ]
    assert not any_within(pa.array([None], pa.string()), "a", "z")


def test_text_that_is_no_sequence_is_named() -> None:
    with pytest.raises(InvalidInputError, match=r"the ordering value 'x' is not the text FILE\.POSITION"):
        sequence_texts(pa.chunked_array([["1.2", None], ["x", "y"]]))


def test_read_rule_says_which_rows_and_columns_it_needs() -> None:
    payload = ReadRule(by_payload=True)
    assert [payload.takes_last_meta, ReadRule(partial=PartialUpdate.IGNORE_DEFAULTS).takes_last_meta] == [False, False]
    assert ReadRule(partial=PartialUpdate.IGNORE_DEFAULTS, by_payload=True).takes_last_meta
    assert not ReadRule(partial=PartialUpdate.FILL_UNAVAILABLE, by_payload=True).takes_last_meta
    assert ReadRule(("s.a", "s.b", "n")).base_columns() == ("_hoodie_record_key", "s", "n")
    assert ReadRule(("s.a", "n")).base_columns(by_position=True) == ("s", "n")


def test_merger_is_named_by_its_function() -> None:
    assert str(Merger("package:name")) == "package:name"
    assert str(Merger(test_range_holds_its_bounds)).endswith(":test_range_holds_its_bounds")  # type: ignore[arg-type]
    assert "partial" in str(Merger(partial(max, 1)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "newer", "kept"),
    [
        (MergeRule(("n",)), [True, True, False], [False, False, False]),
        (MergeRule(("n",), event_time=True), [True, True, False], [True, True, False]),
        (MergeRule(event_time=True), [True, True, False], [False, False, False]),
        (MergeRule(("n",), True, PartialUpdate.IGNORE_DEFAULTS), [True, True, False], [False, False, False]),
        # A row with an unavailable text is filled from the older row, unless that one is a delete.
        (
            MergeRule(("n",), True, PartialUpdate.FILL_UNAVAILABLE, unavailable="?"),
            [True, True, True],
            [True, False, True],
        ),
        (MergeRule(("n",), True, PartialUpdate.FILL_UNAVAILABLE, unavailable="?"), [False, True, False], [False] * 3),
        (MergeRule(("n",), True, PartialUpdate.FILL_UNAVAILABLE, unavailable="?"), [False] * 3, [False] * 3),
    ],
)
def test_stored_rows_that_stay_are_newer_and_whole(rule: MergeRule, newer: list[bool], kept: list[bool]) -> None:
    stored = pa.table({"t": ["?", "?", "x"], "n": [1, 2, 3]})
    mask = rule.mask_kept(stored, np.array(newer), np.array([True, False, False]))
    assert mask.tolist() == kept


DEFAULTS, UNKNOWN = PartialUpdate.IGNORE_DEFAULTS, PartialUpdate.FILL_UNAVAILABLE
MERGER = Merger("package:name")


@pytest.mark.parametrize(
    ("rule", "may_win", "whole", "deletes"),
    [
        (MergeRule(), False, False, False),
        (MergeRule(("n",)), False, False, False),
        (MergeRule(event_time=True), False, False, False),
        (MergeRule(("n",), True), True, True, True),
        (MergeRule(("n",), True, DEFAULTS), True, False, False),
        (MergeRule(("n",), True, UNKNOWN), True, False, True),
        (MergeRule(("n",), partial=UNKNOWN), False, False, False),
        (MergeRule(("n",), True, merger=MERGER), False, False, False),
    ],
)
def test_stored_rows_and_deletes_lose_or_win_by_the_rule(
    rule: MergeRule, may_win: bool, whole: bool, deletes: bool
) -> None:
    assert (rule.stored_may_win, rule.keeps_whole_rows, rule.orders_deletes) == (may_win, whole, deletes)
    assert rule.makes_rows is (rule.partial is not None or rule.merger is not None)
    assert (rule.combines_parts, MergeRule(folds=True).combines_parts) == (True, False)


def test_batch_without_a_delete_flag_is_folded() -> None:
    rows = pa.table({"k": ["a", "a", "b"], "t": ["x", "?", "?"]})
    folded = fold_rows(rows, "k", [], UNKNOWN, "?")
    assert folded.to_pylist() == [{"k": "a", "t": "x"}, {"k": "b", "t": "?"}]


def test_delete_with_hudis_default_ordering_value_is_unconditional() -> None:
    """Hudi's default is the Integer 0, so that a day 0 is one, too, and a Long 0 is none."""
    for of, zero in ((pa.int32(), True), (pa.date32(), True), (pa.int64(), False), (pa.float64(), False)):
        column = pa.chunked_array([pa.array([0, 1, None], pa.int32()).cast(of)])
        assert are_unconditional([column], 3).tolist() == [zero, False, True]
        assert are_unconditional([column, pa.chunked_array([pa.array([None] * 3, of)])], 3).tolist() == [
            False,
            False,
            True,
        ]
    assert are_unconditional([], 2).tolist() == [True, True]


def test_merger_may_leave_nulls_only_where_they_are_allowed_or_deleted() -> None:
    schema = pa.schema([("k", pa.string()), pa.field("n", pa.int64(), nullable=False)])
    incoming = pa.table({"k": ["a", "b"], "n": [1, 2]}, schema)

    def answering(**columns: list[object]) -> Merger:
        answer = pa.Table.from_pydict({**incoming.to_pydict(), **columns})
        return Merger(lambda stored, incoming: answer, fixed_columns=("k",))

    rows, deleted = answering(n=[5, 6]).merge_rows(incoming, incoming)
    assert (rows.to_pydict(), deleted.tolist(), rows.schema) == ({"k": ["a", "b"], "n": [5, 6]}, [False] * 2, schema)
    assert answering(n=[5, None], _hoodie_is_deleted=[False, True]).merge_rows(incoming, incoming)[1].tolist() == [
        False,
        True,
    ]
    with pytest.raises(InvalidInputError, match="returned nulls in 'n'"):
        answering(n=[5, None]).merge_rows(incoming, incoming)
    with pytest.raises(InvalidInputError, match="changed 'k'"):
        answering(k=["a", None]).merge_rows(incoming, incoming)
