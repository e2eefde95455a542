"""lakeformat expires the same partitions as Apache Hudi's own ``run_ttl``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.file_system_view.context import TableContext
from tests.helpers.hudi_spark import Hudi
from tests.helpers.tables import a_schema

pytestmark = pytest.mark.interop

SCHEMA = a_schema(id="int64", day="string")
DAY_MS = 86_400_000


class Earlier:
    """The clock of a process that wrote some days ago."""

    def __init__(self, clock: Any, days: int) -> None:
        self.clock, self.behind = clock, days * DAY_MS

    def now_ms(self) -> int:
        return self.clock.now_ms() - self.behind  # type: ignore[no-any-return]

    def seconds(self) -> float:
        return self.clock.seconds()  # type: ignore[no-any-return]


@pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)
@pytest.mark.parametrize("strategy", ["KEEP_BY_TIME", "KEEP_BY_CREATION_TIME"])
def test_both_find_the_same_partitions(strategy: str, hudi: Hudi, tmp_path: Path) -> None:
    """Hudi 0.15.0 expires no partitions."""
    path = tmp_path / "t"
    # More than 24 days overflow in Hudi.
    settings = {
        "hoodie.partition.ttl.management.strategy.type": strategy,
        "hoodie.partition.ttl.strategy.days.retain": "20",
    }
    table = lakeformat.create(path, SCHEMA, record_key="id", partition_by="day", **settings)
    now = table.context
    for days, day in ((60, "a"), (50, "b"), (30, "c"), (10, "d"), (0, "b"), (0, "e")):
        table.context = TableContext(now.storage, Earlier(now.clock, days), now.ids, True)
        table.upsert(pa.table([[ord(day)], [day]], schema=SCHEMA))
    planned = {each.path for each in table.expire_partitions(dry_run=True).partitions}
    assert planned == ({"a", "c"} if strategy == "KEEP_BY_TIME" else {"a", "b", "c"})
    name = f"ttl_{strategy.lower()}"
    hudi.run(f"create table {name} using hudi location '{path}'")
    call = f"call run_ttl(table => '{name}', ttl_policy => '{strategy}', retain_days => 20)"
    hudi.run(call, settings={"hoodie.metadata.enable": "false", "hoodie.write.table.version": "6"})
    left = set(hudi.read(path).column("day").to_pylist())
    assert left == {"a", "b", "c", "d", "e"} - planned
    assert set(lakeformat.open(path).to_arrow().column("day").to_pylist()) == left
    assert table.expire_partitions().skipped == "no partition has expired"
