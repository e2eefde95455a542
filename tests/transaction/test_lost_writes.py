"""Files that commits have hidden without reading them: planted histories, and tables of other programs."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.instant import Action, Instant, State
from lakeformat.services.doctor.lost_writes import find_lost_writes
from lakeformat.services.doctor.timeline_checks import find_table_lost_writes
from lakeformat.storage import LocalStorage
from lakeformat.timeline.store import TimelineStore
from tests.helpers.fixture_tables import FIXTURES

#: Commits by number, with the commit of the base file that each read; and the pairs (lost commit, commit that hides
#: it).
HISTORIES: dict[str, tuple[dict[int, int | None], set[tuple[int, int]]]] = {
    "a line": ({1: None, 2: 1, 3: 2}, set()),
    "a line that began in the archive": ({5: 3, 6: 5}, set()),
    "two of one": ({1: None, 2: 1, 3: 1}, {(2, 3)}),
    "two of one, which is archived": ({5: 3, 6: 3}, {(5, 6)}),
    "three of one": ({1: None, 2: 1, 3: 1, 4: 1}, {(2, 4), (3, 4)}),
    "the hidden one was gone on from": ({1: None, 2: 1, 3: 1, 4: 2, 5: 3}, {(2, 3), (4, 3)}),
    "the later one was hidden by what followed the earlier": ({1: None, 2: 1, 3: 1, 4: 2}, {(3, 2)}),
    "one that a savepoint keeps": ({1: None, 5: 4, 6: 5}, set()),
    "twice": ({1: None, 2: 1, 3: 1, 4: 3, 5: 3}, {(2, 3), (4, 5)}),
}


def time_of(number: int) -> str:
    return f"{number:017d}"


def commit(number: int, origin: int | None) -> tuple[Instant, CommitMetadata]:
    path = f"f-0_0-0-0_{time_of(number)}.parquet"
    stat = WriteStat("f-0", path, "", None if origin is None else time_of(origin), 1)
    instant = Instant(time_of(number), Action.COMMIT, State.COMPLETED)
    return instant, CommitMetadata("UPSERT", {"": (stat,)})


@pytest.mark.parametrize("name", HISTORIES)
def test_lost_writes_follow_from_the_lineage_of_base_files(name: str) -> None:
    origins, expected = HISTORIES[name]
    commits = [commit(number, origin) for number, origin in origins.items()]
    found = list(find_lost_writes(commits, {}, by_name=True))
    assert {(int(each.lost_commit), int(each.hiding_commit)) for each in found} == expected
    assert all(each.lost_commit in each.stat.path for each in found)


def test_write_into_a_replaced_file_group_is_a_lost_write() -> None:
    replacing = Instant(time_of(3), Action.REPLACE_COMMIT, State.COMPLETED)
    replaced = CommitMetadata("INSERT_OVERWRITE", {}, replaced={"": ("f-0",)})
    for number, is_lost in ((2, False), (4, True)):
        commits = [commit(1, None), commit(number, 1), (replacing, replaced)]
        found = {(each.lost_commit, each.hiding_commit) for each in find_lost_writes(commits, {}, by_name=True)}
        assert found == ({(time_of(number), time_of(3))} if is_lost else set())


def test_tables_of_other_programs_report_no_lost_write(tmp_path: Path) -> None:
    """The tables include clustered, compacted, rolled back, restored, archived and upgraded ones."""
    lines = tables = 0
    for number, file in enumerate(sorted(FIXTURES.rglob("*.zip"))):
        folder = tmp_path / str(number)
        with zipfile.ZipFile(file) as archive:
            wanted = [name for name in archive.namelist() if "/.hoodie/" in name and "/.hoodie/metadata/" not in name]
            archive.extractall(folder, wanted)
        for properties in folder.rglob("hoodie.properties"):
            store = TimelineStore(LocalStorage(str(properties.parents[1])))
            timeline = store.load()
            commits = [(instant, store.read_commit(instant)) for instant in timeline.commits]
            assert find_table_lost_writes(store, timeline, commits) == [], file.name
            stats = (stat for _, said in commits for stat in said.all_stats())
            lines += sum(stat.is_base and stat.prev_commit is not None for stat in stats)
            tables += 1
    assert tables > 90
    assert lines > 100
