"""The file of a void commit: what it keeps of the undone commit, and how readers find it by its size."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeformat.codec.timeline_files.commit import decode_commit
from lakeformat.model.commit import CommitMetadata
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2, TimelineLayout
from lakeformat.timeline.void_commits import VOID_BYTES, VOID_KEY, encode_void, is_void, list_logs, may_be_void
from tests.helpers.bare_table import base_name, commit_of, log_name
from tests.helpers.short_timelines import hour

LOGS = tuple(f"p/{log_name(name, hour(1))}" for name in "ab")
COMMIT = commit_of([*LOGS, f"p/{base_name('c', hour(2))}"], {"p": ("d",)})


def stored(
    layout: TimelineLayout, commit: CommitMetadata, schema: str = "s", *, is_replace: bool = False
) -> CommitMetadata:
    return decode_commit(encode_void(layout, commit, schema, is_replace=is_replace), name="void")


@pytest.mark.parametrize(
    ("size", "may_be"), [(0, False), (1, False), (VOID_BYTES - 1, False), (VOID_BYTES, True), (3 * VOID_BYTES, True)]
)
def test_size_of_a_void_commit_is_a_multiple(size: int, may_be: bool) -> None:
    assert may_be_void(size) is may_be


@pytest.mark.parametrize("layout", [LAYOUT_1, LAYOUT_2])
@pytest.mark.parametrize("is_replace", [False, True])
def test_void_commit_has_no_files_and_replaces_nothing(layout: TimelineLayout, is_replace: bool) -> None:
    assert not is_void(COMMIT)
    void = stored(layout, replace(COMMIT, compacted=True), is_replace=is_replace)
    assert is_void(void)
    assert not void.compacted
    assert (list(void.all_stats()), list(void.replaced_groups), void.operation) == ([], [], "UPSERT")
    assert void.schema_text == "s"
    assert stored(layout, commit_of([]), "").extra.keys() == {VOID_KEY}


def test_void_commit_names_the_log_files_whose_names_do_not() -> None:
    """In layout 2 each log file has the instant of its writer. The undo of a void commit keeps what it names."""
    assert list_logs(COMMIT) == LOGS
    void = stored(LAYOUT_1, COMMIT)
    assert list_logs(void) == LOGS
    assert list_logs(stored(LAYOUT_1, void)) == LOGS
    assert list_logs(stored(LAYOUT_2, COMMIT)) == ()
    assert list_logs(stored(LAYOUT_2, void)) == LOGS  # The table was upgraded since.
    assert list_logs(stored(LAYOUT_1, commit_of([]))) == ()
    assert list_logs(CommitMetadata("UPSERT", {}, {VOID_KEY: ""})) == ()


@pytest.mark.parametrize("layout", [LAYOUT_1, LAYOUT_2])
def test_void_commit_is_as_small_as_its_size_allows(layout: TimelineLayout) -> None:
    assert len(encode_void(layout, COMMIT, "s", is_replace=False)) == VOID_BYTES
    assert len(encode_void(layout, COMMIT, "s", is_replace=False, other_than=VOID_BYTES)) == 2 * VOID_BYTES
    assert len(encode_void(layout, COMMIT, "s" * VOID_BYTES, is_replace=False)) == 2 * VOID_BYTES


_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40)


@given(st.sampled_from([LAYOUT_1, LAYOUT_2]), _TEXTS, st.integers(0, 40_000), st.booleans(), st.integers(0, 4))
def test_void_commit_shows_in_its_size(
    layout: TimelineLayout, text: str, length: int, is_replace: bool, units: int
) -> None:
    """Whatever the schema is, and also if the undone commit had the size of a void commit."""
    commit = CommitMetadata("UPSERT", {}, {"schema": "x"})
    schema = f"{text}{'a' * length}"
    data = encode_void(layout, commit, schema, is_replace=is_replace, other_than=units * VOID_BYTES)
    assert may_be_void(len(data))
    assert len(data) != units * VOID_BYTES
    assert len(data) <= len(schema.encode()) * 2 + 4 * VOID_BYTES
    stored = decode_commit(data, name="void")
    assert is_void(stored)
    assert stored.schema_text == schema
    assert not list(stored.all_stats())
