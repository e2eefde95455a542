"""A compaction that completed beside a write conflicts only if it hides rows of the write."""

from __future__ import annotations

import pytest

from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import FileGroupId
from lakeformat.transaction.order.conflict import OverlapError, check_conflicts, reduce_compactions

T0, BEFORE, PLAN, AFTER = (f"2025112008000000{at}" for at in range(4))
GROUP = FileGroupId("p", "f")


def stat(path: str) -> WriteStat:
    return WriteStat("f", f"p/{path}", "p", T0, 1)


def log(instant: str) -> str:
    return f".f_{instant}.log.1_0-0-0"


def conflicts(ours: str, path: str | None, *, by_name: bool, compacted: bool = True) -> bool:
    """Tell whether our write of this file, or of no file and a replaced partition, conflicts with the compaction."""
    theirs = CommitMetadata("COMPACT", {"p": (stat(f"f_0-0-0_{PLAN}.parquet"),)}, compacted=compacted)
    own = CommitMetadata("UPSERT", {"p": (stat(path),)} if path else {})
    others = reduce_compactions(ours, own, [(PLAN, theirs)], by_name=by_name)
    try:
        check_conflicts(ours, frozenset({GROUP}), others, None if path else frozenset({"p"}))
    except OverlapError:
        return True
    return False


@pytest.mark.parametrize(
    ("ours", "path", "by_name", "wanted"),
    [
        (AFTER, log(PLAN), True, False),  # It was written for the slice that the plan opened.
        (AFTER, log(T0), True, True),  # It belongs to the old slice.
        (BEFORE, log(T0), True, True),
        (AFTER, log(AFTER), False, False),
        (BEFORE, log(BEFORE), False, False),  # In layout 2 the completion time of the write counts.
        (AFTER, f"f_0-0-0_{AFTER}.parquet", True, False),
        (BEFORE, f"f_0-0-0_{BEFORE}.parquet", True, True),  # It is older than the compaction's version.
        (BEFORE, f"f_0-0-0_{BEFORE}.parquet", False, True),
        (AFTER, None, True, False),  # The partition is replaced, compacted or not.
    ],
)
def test_write_to_a_compacted_slice_conflicts(ours: str, path: str | None, by_name: bool, wanted: bool) -> None:
    assert conflicts(ours, path, by_name=by_name) is wanted
    assert conflicts(ours, path, by_name=by_name, compacted=False)
