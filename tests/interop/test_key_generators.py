"""Tables of every key generator, by turns written by Hudi and lakeformat: both read every row once, in one folder.

The oracle is a dict from the key to the row's value. Who made the table writes again at the end. lakeformat gets the
options of the case once, to create the table or to add what Hudi does not store; Hudi gets them each time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

import lakeformat
from tests.helpers.hudi_spark import Hudi, table_properties
from tests.helpers.new_tables import (
    CASES,
    KEY,
    KEY_GENERATORS,
    NEW_ENCODING,
    PARTITIONS,
    RELEASES,
    ROW,
    SCHEMA,
    TYPES,
    UNMEASURED,
    case_options,
    record,
    recorded,
    section_name,
)

pytestmark = pytest.mark.interop

DAY: Final = 86_400
HUDI: Final = recorded()
Rows = dict[int, tuple[str, str, int]]  # id -> record key, partition path, v


def make_rows(numbers: range, v: int) -> pa.Table:
    rows = [
        {
            **ROW, "id": n, "b": f"x{n % 2}", "reg": ("eu", "us")[n % 2], "day": f"2024-04-{13 + n % 3}",
            "ts": ROW["ts"] + n % 3 * DAY * 1000, "_event_pos": n % 3 * DAY, "v": v,
        }
        for n in numbers
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, SCHEMA)


def rows_of(table: pa.Table) -> Rows:
    names = ["id", "_hoodie_record_key", "_hoodie_partition_path", "v"]
    found = {id_: (key, folder, v) for id_, key, folder, v in zip(*(table[n].to_pylist() for n in names), strict=True)}
    assert len(found) == table.num_rows, f"a row is doubled: {table.select(names).to_pylist()}"
    return found


class Game:
    """A table that Hudi and lakeformat write by turns."""

    def __init__(self, hudi: Hudi, path: Path, options: Mapping[str, str]) -> None:
        self.hudi, self.path, self.options = hudi, path, options
        self.model: dict[int, int] = {}

    def ours(self, numbers: range, v: int, **options: str) -> None:
        lakeformat.open(self.path, **options).upsert(make_rows(numbers, v))
        self.check(numbers, v)

    def theirs(self, numbers: range, v: int) -> None:
        of_0 = {"hoodie.write.table.version"} if self.hudi.version < "1" else set()
        options = {key: text for key, text in self.options.items() if key not in of_0}
        if stored := table_properties(self.path).get(NEW_ENCODING):  # Hudi 1.2.0 asks its user to look, and to name it.
            options[NEW_ENCODING] = stored
        self.hudi.write(self.path, make_rows(numbers, v), "upsert", **options, **UNMEASURED)
        self.check(numbers, v)

    def check(self, numbers: range, v: int) -> None:
        self.model |= dict.fromkeys(numbers, v)
        found = rows_of(lakeformat.open(self.path).to_arrow(meta_columns=True))
        assert {id_: v for id_, (_, _, v) in found.items()} == self.model
        assert rows_of(self.hudi.read(self.path)) == found


#: The games that are played every time: who made the table, and section and case.
ON_EVERY_RUN: Final = {
    ("ours", "1.2.0, version 6, COPY_ON_WRITE", "timestamp, millis"),
    ("ours", "1.2.0, version 9, MERGE_ON_READ", "complex, one key"),
    ("theirs", "0.15.0, version 6, COPY_ON_WRITE", "timestamp, slashes"),
    ("theirs", "1.2.0, version 6, MERGE_ON_READ", "custom"),
}
#: Properties are asked for again every time for these cases.
ASKED: Final = ("timestamp, millis", "complex, one key")
#: Cases that Hudi 0.15.0 reads. It casts a folder such as ``2024-04-13`` to a number, in its own tables too.
READ_BY_0: Final = ("timestamp, slashes", "timestamp, texts", "timestamp, mixed")
#: Forms of keys that a release cannot write.
UNWRITABLE: Final = {("0.15.0, version 6", "complex, one key named"), ("1.2.0, version 9", "complex, one key alone")}

#: A table that Hudi 0.15.0 cannot read itself: it stores the fields with their types, and then looks for such columns.
UNREADABLE: Final = {("theirs", "0.15.0", "custom, by type")}


def games(maker: str) -> Iterator[object]:
    """Yield each case that both sides take, for each release, version and type."""
    for release, version in RELEASES:
        for kind in TYPES:
            section = section_name(release, version, kind)
            for case, options in KEY_GENERATORS.items():
                is_refused = isinstance(HUDI[section][case], str) or case == "not partitioned, with a partition"
                is_refused |= release == "0.15.0" and case.startswith("timestamp") and case not in READ_BY_0
                if is_refused or options.get(KEY, "") is None or (section.rpartition(",")[0], case) in UNWRITABLE:
                    continue
                if (maker, release, case) in UNREADABLE:
                    continue
                marks = () if (maker, section, case) in ON_EVERY_RUN else pytest.mark.nightly
                yield pytest.param(release, case, version, kind, id=f"{section}, {case}", marks=marks)


@pytest.mark.parametrize(("hudi", "case", "version", "kind"), [*games("ours")], indirect=["hudi"])
def test_hudi_writes_to_our_table(hudi: Hudi, case: str, version: str, kind: str, tmp_path: Path) -> None:
    game = Game(hudi, tmp_path / "t", case_options(case, version, kind))
    lakeformat.create(game.path, SCHEMA, **game.options)
    game.ours(range(6), 1)
    game.theirs(range(3, 9), 2)
    game.ours(range(5, 12), 3)


@pytest.mark.parametrize(("hudi", "case", "version", "kind"), [*games("theirs")], indirect=["hudi"])
def test_we_write_to_hudis_table(hudi: Hudi, case: str, version: str, kind: str, tmp_path: Path) -> None:
    game = Game(hudi, tmp_path / "t", case_options(case, version, kind))
    game.theirs(range(6), 1)
    told = {
        key: text for key, text in game.options.items() if "timebased" in key or (key == PARTITIONS and ":" in text)
    }
    game.ours(range(3, 9), 2, **told)
    game.theirs(range(5, 12), 3)
    game.ours(range(2, 7), 4)


@pytest.mark.parametrize(
    ("hudi", "version", "kind", "cases"),
    [
        pytest.param(release, version, kind, cases, marks=marks)
        for release, version in RELEASES
        for kind in TYPES
        for cases, marks in ((ASKED, ()), ([case for case in CASES if case not in ASKED], pytest.mark.nightly))
    ],
    indirect=["hudi"],
)
def test_properties_are_the_recorded_ones(hudi: Hudi, version: str, kind: str, cases: Sequence[str]) -> None:
    known = HUDI[section_name(hudi.version, version, kind)]
    assert record(hudi, version, kind, cases) == {case: known[case] for case in cases}
