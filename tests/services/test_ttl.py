"""Partitions expire by their newest commit or by the commit that created them, as in Hudi's strategies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakeformat
from lakeformat.config.retention_options import AgeStart, Expiry
from lakeformat.errors import InvalidInputError, InvalidOptionError
from lakeformat.file_system_view.context import TableContext
from lakeformat.services.ttl import ExpireSession, choose_expired
from tests.helpers import hudi_rs
from tests.helpers.tables import a_batch, a_schema, a_table

SCHEMA = a_schema(id="int64", day="string", v="string")
DAY_MS = 86_400_000
DAYS = "hoodie.partition.ttl.strategy.days.retain"
CREATION = {"hoodie.partition.ttl.management.strategy.type": "keep_by_creation_time"}
MOR = {"hoodie.table.type": "MERGE_ON_READ"}


class Later:
    """The clock of a process that runs some days later."""

    def __init__(self, clock: Any, days: float) -> None:
        self.clock, self.ahead = clock, int(days * DAY_MS)

    def now_ms(self) -> int:
        return self.clock.now_ms() + self.ahead  # type: ignore[no-any-return]

    def seconds(self) -> float:
        return self.clock.seconds()  # type: ignore[no-any-return]


def rows(ids: range, day: str, v: str = "") -> pa.Table:
    return a_batch(SCHEMA, id=ids, day=day, v=v)


def make_table(path: Path, **options: Any) -> lakeformat.Table:
    """Create a table with partition ``a``, and add partition ``b`` by a second commit."""
    commits = [rows(range(10 * at, 10 * at + 3), day) for at, day in enumerate("ab")]
    return a_table(path, rows=commits, partition_by="day", operation="upsert", **options)


def later(table: lakeformat.Table, days: float) -> lakeformat.Table:
    """Open the same table some days later."""
    context = table.context
    moved = lakeformat.open(context.storage.location, **{name: str(table.options[name]) for name in (DAYS, *CREATION)})
    moved.context = TableContext(context.storage, Later(context.clock, days), context.ids, True)
    return moved


def days_of(table: lakeformat.Table) -> set[str]:
    return set(table.to_arrow().column("day").to_pylist())


@pytest.mark.parametrize("options", [{}, MOR, {"hoodie.write.table.version": 9, **MOR}], ids=["cow", "mor", "mor9"])
def test_partition_not_written_to_for_the_ttl_expires(options: dict[str, Any], tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", **options, **{DAYS: 30})
    assert table.expire_partitions().skipped == "no partition has expired"
    later(table, 31).upsert(rows(range(10, 12), "b", "new"))  # In a merge-on-read table this writes a log file.
    then = later(table, 31.5)
    planned = then.expire_partitions(dry_run=True)
    assert [each.path for each in planned.partitions] == ["a"]
    assert days_of(table) == {"a", "b"}
    done = then.expire_partitions()
    assert [each.path for each in done.partitions] == ["a"]
    assert done.instant_time == table.history()[0].instant_time
    assert table.history()[0].operation == "delete_partition"
    assert days_of(table) == {"b"}
    hudi_rs.assert_same_rows(table)
    assert then.expire_partitions().skipped == "no partition has expired"


def test_ttl_by_creation_time_ignores_later_writes(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t", **{DAYS: 30, **CREATION})
    later(table, 31).upsert(rows(range(1), "a", "new"))
    later(table, 31).upsert(rows(range(20, 21), "c"))
    assert [each.path for each in later(table, 32).expire_partitions().partitions] == ["a", "b"]
    assert days_of(table) == {"c"}


def test_inline_ttl_expires_the_selected_partitions(tmp_path: Path) -> None:
    some = {"hoodie.partition.ttl.inline": "true", "hoodie.partition.ttl.strategy.partition.selected": "a,x", DAYS: 1}
    table = make_table(tmp_path / "t")
    moved = later(lakeformat.open(tmp_path / "t"), 3)
    moved.options = lakeformat.open(tmp_path / "t", **some).options
    report = moved.upsert(rows(range(30, 31), "c")).report
    assert "1 partitions" in report["services"]["expiry"]
    assert days_of(table) == {"b", "c"}


def test_partition_written_to_meanwhile_does_not_expire(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    then = later(table, 31)

    class Overtaken:
        """Ids that let another writer commit when the write takes its id, which is before it takes the lock."""

        def token(self) -> str:
            if len(table.history()) == 2:
                then.upsert(rows(range(1), "a", "late"))
            return table.context.ids.token()

    context = TableContext(table.context.storage, Later(table.context.clock, 31), Overtaken(), True)
    expiry = Expiry(AgeStart.LAST_WRITE, 30, 1000)
    gone = ExpireSession(context, table.options, expiry).run()
    assert [each.path for each in gone.partitions] == ["b"]
    assert table.to_arrow(where="id = 0").column("v").to_pylist() == ["late"]


def test_ttl_without_or_with_bad_settings_does_nothing_or_is_refused(tmp_path: Path) -> None:
    table = make_table(tmp_path / "t")
    assert "days.retain" in table.expire_partitions().skipped
    with pytest.raises(InvalidInputError, match="at least 1 day, not 0"):
        table.expire_partitions(days=0)
    flat = lakeformat.create(tmp_path / "flat", SCHEMA, record_key="id")
    assert flat.expire_partitions(days=1).skipped == "the table has no partitions"
    named = "hoodie.partition.ttl.strategy.class"
    with pytest.raises(InvalidOptionError, match="Java class"):
        lakeformat.open(tmp_path / "t", **{named: "com.example.Mine"})
    package = "org.apache.hudi.table.action.ttl.strategy"
    assert lakeformat.open(tmp_path / "t", **{named: f"{package}.KeepByCreationTimeStrategy"}).expire_partitions


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.datetimes().map(lambda moment: f"{moment:%Y%m%d%H%M%S}000")),
    st.integers(-1, 4000),
    st.integers(1, 4),
    st.datetimes().map(lambda moment: f"{moment:%Y%m%d%H%M%S}500"),
)
def test_oldest_partitions_expire_first_and_young_ones_never(
    times: dict[str, str], days: int, most: int, now: str
) -> None:
    going = choose_expired(times, Expiry(AgeStart.LAST_WRITE, days, most), now)
    assert len(going) <= most
    assert all(times[path] < now for path in going)
    assert [times[path] for path in going] == sorted(times[path] for path in going)
    assert days > 0 or not going
    longer = choose_expired(times, Expiry(AgeStart.LAST_WRITE, max(days, 1) + 1, 9), now)
    assert set(longer) <= set(choose_expired(times, Expiry(AgeStart.LAST_WRITE, max(days, 1), 9), now))
