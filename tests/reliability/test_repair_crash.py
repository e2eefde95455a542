"""A repair dies at every call that changes something. The next repair finishes it, and no row changes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from lakeformat.model.instant import Instant, State
from lakeformat.storage import LocalStorage
from lakeformat.timeline.store import TimelineStore
from tests.helpers.faulty import Crash, Fault, FaultyStorage, Mode, at
from tests.helpers.flights import Model, copy_of, make_template, open_at, rows_of

_DEAD = "20300101000000000"


def damage_table(storage: LocalStorage) -> LocalStorage:
    """Damage the table.

    The damage: remains of a dead write, an orphan, stale markers and a folder without its partition metadata.
    """
    root, timeline = Path(storage.root), TimelineStore(storage).load()
    dead = Instant(_DEAD, timeline.commits[-1].action, State.REQUESTED)
    live = next(root.glob("r*/*.parquet"))
    for name in (f"dead-0_0-0-0_{_DEAD}.parquet", f"loser-0_9-9-9_{live.stem.rpartition('_')[2]}.parquet"):
        shutil.copy(live, live.with_name(name))
    claims = root / ".hoodie/.lakeformat/pending"
    claims.mkdir(parents=True, exist_ok=True)
    (claims / _DEAD).write_text(json.dumps({"kind": "process", "lakeformat.token": "0" * 32}))
    (root / TimelineStore(storage).path(dead)).touch()
    (root / ".hoodie/.temp/20200101000000000").mkdir(parents=True)
    return storage


@pytest.fixture(scope="module")
def version_9(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    return make_template(tmp_path_factory.mktemp("v9"), version="9", table_type="MERGE_ON_READ")


@pytest.mark.parametrize("mode", [Mode.BEFORE, Mode.AFTER, pytest.param(Mode.TORN, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["template", pytest.param("version_9", marks=pytest.mark.slow)])
def test_repair_that_dies_at_any_change_is_finished_by_the_next_repair(
    kind: str, mode: Mode, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    path, before = request.getfixturevalue(kind)
    recording = FaultyStorage(damage_table(copy_of(path, tmp_path)))
    assert len(open_at(recording, "doctor").repair()) == 3
    changing = [number for number, call in enumerate(recording.calls) if call.changes]
    assert len(changing) > 8
    for number in changing:
        storage = damage_table(copy_of(path, tmp_path))
        with pytest.raises(Crash):
            open_at(FaultyStorage(storage, Fault(at(number), mode)), "doctor").repair()
        open_at(storage, "next").repair()
        assert str(open_at(storage, "next").check()) == "nothing is wrong"
        assert rows_of(storage) == before
