"""A rollback or restore dies at every one of its calls to storage. Readers see the table before or after it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

import lakeformat
from tests.helpers.crashing import failures_of
from tests.helpers.faulty import MODES, FaultyStorage, Mode, once
from tests.helpers.flights import Model, Write, copy_of, make_template, open_at, rows_of

_PAST = (
    Write("bulk_insert", tuple(range(9)), "first"),
    Write("upsert", (0, 4, 8, 9), "second"),
    Write("insert_overwrite", (1, 4, 50), "third"),
    Write("upsert", (1, 2, 50, 51), "fourth"),
)


@dataclass(frozen=True)
class GoBack:
    """A rollback, or a restore by ``by`` commits."""

    operation: str
    by: int

    def run(self, table: lakeformat.Table) -> None:
        if self.operation == "rollback":
            table.rollback()
        else:
            table.restore(table.history()[self.by].instant_time)

    def applied(self, model: Model) -> Model:
        """Return the rows of the table afterwards."""
        assert model == model_after(len(_PAST))
        return model_after(len(_PAST) - self.by)


def model_after(writes: int) -> Model:
    model: Model = {}
    for write in _PAST[:writes]:
        model = write.applied(model)
    return model


BACK = [GoBack("rollback", 1), GoBack("restore", 3)]


def _marks(back: GoBack, mode: Mode) -> tuple[pytest.MarkDecorator, ...]:
    """Mark as slow everything except deaths after a call of a rollback."""
    return () if back.by == 1 and mode is Mode.AFTER else (pytest.mark.slow,)


#: Every run takes the deaths that leave most behind. Restores have many calls and are marked as slow.
CASES = [
    pytest.param(back, *case.values, marks=[*case.marks, *_marks(back, *case.values)])
    for back in BACK
    for case in MODES
]


@pytest.fixture(scope="module")
def old_table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """Return a table with four commits, one of which replaces file groups."""
    return make_template(tmp_path_factory.mktemp("past"), _PAST)


@pytest.mark.slow
@pytest.mark.parametrize(("back", "mode"), CASES, ids=lambda value: getattr(value, "operation", None))
def test_restore_that_dies_at_any_call_leaves_the_table_before_or_after_it(
    back: GoBack, mode: Mode, old_table: tuple[Path, Model], tmp_path: Path
) -> None:
    assert failures_of(back, mode, old_table, tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", [("9", "COPY_ON_WRITE"), ("6", "MERGE_ON_READ"), ("8", "MERGE_ON_READ")], ids="-".join)
@pytest.mark.parametrize(
    ("back", "mode"), [(BACK[0], Mode.AFTER), (BACK[1], Mode.TORN)], ids=lambda value: getattr(value, "operation", None)
)
def test_restore_that_dies_in_other_kinds_of_table_leaves_them_before_or_after_it(
    back: GoBack, mode: Mode, kind: tuple[str, str], tmp_path: Path
) -> None:
    table = make_template(tmp_path, _PAST, version=kind[0], table_type=kind[1])
    assert failures_of(back, mode, table, tmp_path) == []


@pytest.mark.parametrize("back", BACK, ids=lambda back: back.operation)
def test_readers_during_a_restore_see_the_table_before_or_after_it(
    back: GoBack, old_table: tuple[Path, Model], tmp_path: Path
) -> None:
    path, before = old_table
    storage = copy_of(path, tmp_path)
    seen: list[Model] = []
    back.run(open_at(FaultyStorage(storage, meanwhile=lambda _: seen.append(rows_of(storage))), "writer"))
    after = back.applied(before)
    changes = [at for at, model in enumerate(seen) if model != before]
    assert all(model == after for model in seen[changes[0] :])
    assert 0 < changes[0] < len(seen) - 1
    assert rows_of(storage) == after


@pytest.mark.parametrize("back", BACK, ids=lambda back: back.operation)
def test_reader_overtaken_by_a_restore_plans_again(back: GoBack, old_table: tuple[Path, Model], tmp_path: Path) -> None:
    path, before = old_table
    storage = copy_of(path, tmp_path)
    overtakes = once(
        lambda call: call.name == "list" and not call.path.startswith(".hoodie"),
        lambda _: back.run(open_at(storage, "writer")),
    )
    reader = open_at(FaultyStorage(storage, meanwhile=overtakes), "reader", {"lakeformat.file.index": False})
    rows = reader.to_arrow(meta_columns=False).to_pylist()
    assert {row["id"]: (row["region"], row["v"]) for row in rows} == back.applied(before)
