"""A writer that puts bad rows aside dies at every one of its calls to storage, and is run again: no row is lost.

The calls are those to the table and those to its table of bad rows. After each death:

- if a reader sees the good rows, the bad rows are in their table, too;
- the second run leaves the table as one undisturbed run does, and each bad row in its table at least once;
- if the write has a batch id, each bad row is there exactly once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

import lakeformat
from lakeformat.storage import LocalStorage, Storage
from tests.helpers.crashing import assert_well, calls_to_fail
from tests.helpers.faulty import Crash, Fault, FaultyStorage, Mode, at
from tests.helpers.flights import copy_of, leftovers, open_at
from tests.helpers.tables import a_batch, a_schema, a_table

SCHEMA: Final = a_schema(id="string", p="string", n="int32")
STORED: Final = a_batch(SCHEMA, id=["a", "b"], p="x", n=[1, 2])
INPUT: Final = a_batch(SCHEMA, id=["b", None, "c", "d"], p=["x", "x", "x", ".."], n=[3, 4, 5, 6])
BEFORE: Final = {"a": 1, "b": 2}
AFTER: Final = {"a": 1, "b": 3, "c": 5}
BAD: Final = {"no_key", "unusable_partition"}
FOLDER: Final = ".hoodie/.lakeformat/bad_rows"
BATCH: Final[Mapping[str, object]] = {"lakeformat.batch.app": "job", "lakeformat.batch.id": 7}


def run(storage: Storage, options: Mapping[str, object], name: str) -> None:
    open_at(storage, name, {"bad_rows": "aside", **options}).upsert(INPUT)


def rows_of(storage: LocalStorage) -> dict[str, int]:
    rows = lakeformat.Table(storage).to_arrow(["id", "n"]).to_pylist()
    return {row["id"]: row["n"] for row in rows}


def bad_rows_of(storage: LocalStorage) -> Counter[str]:
    return Counter(lakeformat.Table(storage).bad_rows(["reason"])["reason"].to_pylist())


@pytest.mark.parametrize(
    ("options", "mode", "every"),
    [
        pytest.param(BATCH, Mode.AFTER, 9, id="batch, after some"),
        pytest.param(BATCH, Mode.AFTER, 1, id="batch, after", marks=pytest.mark.slow),
        pytest.param(BATCH, Mode.TORN, 1, id="batch, within", marks=pytest.mark.nightly),
        pytest.param({}, Mode.AFTER, 1, id="no batch, after", marks=pytest.mark.slow),
        pytest.param({}, Mode.TORN, 1, id="no batch, within", marks=pytest.mark.nightly),
    ],
)
def test_no_row_is_lost_by_a_death_at_any_call(
    options: Mapping[str, object], mode: Mode, every: int, tmp_path: Path
) -> None:
    template = tmp_path / "template"
    a_table(template, rows=STORED, partition_by="p")
    undisturbed = FaultyStorage(copy_of(template, tmp_path))
    run(undisturbed, options, "writer")
    assert rows_of(undisturbed.inner) == AFTER
    assert bad_rows_of(undisturbed.inner) == dict.fromkeys(BAD, 1)
    assert [path for path in leftovers(undisturbed.inner) if not path.startswith(FOLDER)] == []
    for number in calls_to_fail(undisturbed.calls, mode)[::every]:
        storage, call = copy_of(template, tmp_path), undisturbed.calls[number]
        with pytest.raises(Crash):
            run(FaultyStorage(storage, Fault(at(number), mode)), options, "writer")
        seen, aside = rows_of(storage), bad_rows_of(storage)
        assert seen in (BEFORE, AFTER), call
        if seen == AFTER:
            assert aside.keys() == BAD, call
        run(storage, options, "again")
        assert rows_of(storage) == AFTER, call
        assert bad_rows_of(storage).keys() == BAD, call
        if options:
            assert bad_rows_of(storage) == dict.fromkeys(BAD, 1), call
        assert_well(storage)
        assert_well(storage.subfolder(FOLDER))
