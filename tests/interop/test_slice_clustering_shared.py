"""Merge-on-read tables, clustered and compacted by Apache Hudi and by us in turns; plans are shared both ways."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import lakeformat
from lakeformat.model.instant import REPLACE_ACTIONS
from tests.helpers import hudi_rs
from tests.helpers.hudi_spark import Hudi
from tests.interop.test_merge_on_read_shared import MOR, SCHEMA, Model, W, make_model, model_of, rows, versions_of

pytestmark = pytest.mark.interop

CLUSTERING = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}
COMPACTING = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
SORTED = {"hoodie.clustering.plan.strategy.sort.columns": "v", "hoodie.clustering.plan.strategy.small.file.limit": "0"}


@dataclass
class Shared:
    """A merge-on-read table of ours, its expected rows, and both writers of it."""

    hudi: Hudi
    path: Path
    version: int
    model: Model = field(default_factory=dict)
    edition: int = 0

    @property
    def table(self) -> lakeformat.Table:
        return lakeformat.open(self.path, **{"hoodie.parquet.small.file.limit": 0})

    @property
    def options(self) -> dict[str, str]:
        named = {"hoodie.write.table.version": str(self.version), "hoodie.write.auto.upgrade": "false"}
        own = {} if self.hudi.version == "0.15.0" else named
        common = {f"{W}precombine.field": "ts", "hoodie.metadata.enable": "false", "hoodie.clean.automatic": "false"}
        return {**MOR, **own, **common}

    def new(self, numbers: range) -> Model:
        self.edition += 1
        return make_model(numbers, self.edition)

    def ours(self, numbers: range, gone: range = range(0)) -> None:
        new = self.new(numbers)
        self.table.upsert(rows(new))
        self.model |= new
        if gone:
            keys = make_model(gone, 0)
            self.table.delete(rows(keys).select(["id", "p"]))
            self.model = {key: row for key, row in self.model.items() if key not in keys}

    def hudis(self, numbers: range, more: Mapping[str, str] | None = None) -> None:
        new = self.new(numbers)
        self.hudi.write(self.path, rows(new), "upsert", **{**self.options, **(more or {})})
        self.model |= new

    def call(self, arguments: str) -> None:
        options = ",".join(f"{name}={value}" for name, value in self.options.items() if "table.type" not in name)
        self.hudi.sql(f"call run_clustering(path => '{self.path}', {arguments}, options => '{options}')")

    def pending(self) -> list[str]:
        timeline = self.table.snapshot().timeline
        return [instant.time for instant in timeline.pending if instant.action in REPLACE_ACTIONS]

    def check(self) -> None:
        """Check that lakeformat, Hudi and hudi-rs read the rows of the model."""
        assert model_of(self.table.to_arrow()) == self.model
        assert model_of(self.hudi.read(self.path)) == self.model
        hudi_rs.assert_same_rows(self.table)


@pytest.fixture
def made(hudi: Hudi, tmp_path: Path) -> list[Shared]:
    """Create a table of each version that this Hudi writes, with two slices and log files in each partition."""
    tables = []
    for version in versions_of(hudi):
        path, options = tmp_path / f"v{version}", {"hoodie.write.table.version": version}
        lakeformat.create(
            path, SCHEMA, record_key="id", partition_by="p", ordering="ts", table_type="MERGE_ON_READ", **options
        )
        shared = Shared(hudi, path, version)
        for numbers in (range(12), range(12, 24)):
            shared.ours(numbers)
        shared.ours(range(3, 9), gone=range(20, 22))
        tables.append(shared)
    return tables


def test_each_runs_clustering_plans_of_the_other(made: list[Shared]) -> None:
    for shared in made:
        planned = shared.table.schedule_clustering(["v"], curve="linear")
        assert shared.pending() == [planned]
        shared.check()
        shared.call(f"op => 'execute', instants => '{planned}'")
        assert shared.pending() == []
        assert not shared.table.snapshot().live.has_logs
        shared.check()

        shared.hudis(range(2, 7))
        shared.ours(range(10, 15))
        shared.call("op => 'schedule', order => 'v'")
        (planned,) = shared.pending()
        with pytest.raises(lakeformat.WriteConflictError, match=planned):
            shared.table.upsert(rows(make_model(range(3), 99)))
        shared.check()
        assert shared.table.run_clustering().instant_time == planned
        assert not shared.table.snapshot().live.has_logs
        shared.check()
        shared.hudis(range(5))
        shared.ours(range(3, 8), gone=range(1))
        shared.check()


def test_clusterings_and_compactions_of_both(made: list[Shared]) -> None:
    for shared in made:
        for step in range(2):
            commit_in_turns(shared, step)


@pytest.mark.nightly
def test_thirty_alternating_commits_agree(made: list[Shared]) -> None:
    for shared in made:
        random.seed(shared.version)
        for _ in range(30):
            commit_in_turns(shared, random.randrange(7))


def commit_in_turns(shared: Shared, step: int) -> None:
    """Make one or two commits by one of the programs, and check what all readers read."""
    first = random.randrange(20)
    match step:
        case 0:
            shared.ours(range(first, first + 5))
            assert not shared.table.cluster(["v", "id"]).skipped
        case 1:
            shared.hudis(range(first, first + 5), {**CLUSTERING, **SORTED})
        case 2:
            shared.ours(range(first, first + 5))
            shared.table.compact()
        case 3:
            shared.hudis(range(first, first + 5), COMPACTING)
        case 4:
            shared.ours(range(first, first + 3), gone=range(first + 3, first + 5))
        case _:
            shared.hudis(range(first, first + 7))
    shared.check()
