"""Tables with consistent hashing, written and resized in turn by Apache Hudi and by us: no key is doubled."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.file_system_view.hashing_rings import load_rings
from tests.helpers import hudi_rs
from tests.helpers.hudi_spark import Hudi

pytestmark = [pytest.mark.interop, pytest.mark.parametrize("hudi", ["1.2.0"], indirect=True)]

Model = dict[str, tuple[str, int]]
PARTITIONS: Final = ("eu", "us", "asia/east")
SCHEMA: Final = pa.schema({"id": pa.string(), "p": pa.string(), "v": pa.int64(), "ts": pa.int64(), "pad": pa.string()})
INDEX: Final = {
    "hoodie.index.type": "BUCKET",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.bucket.index.num.buckets": "2",
    "hoodie.bucket.index.max.num.buckets": "16",
    "hoodie.bucket.index.min.num.buckets": "1",
}
SMALL: Final = {"hoodie.parquet.max.file.size": "1500"}
LARGE: Final = {"hoodie.parquet.max.file.size": "50000000"}
STRATEGY: Final = "org.apache.hudi.client.clustering"
THEIRS: Final = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "p",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.bucket.index.hash.field": "id",
    "hoodie.metadata.enable": "false",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.clustering.plan.strategy.class": f"{STRATEGY}.plan.strategy.SparkConsistentBucketClusteringPlanStrategy",
    "hoodie.clustering.updates.strategy": f"{STRATEGY}.update.strategy.SparkConsistentBucketDuplicateUpdateStrategy",
    **INDEX,
}


def rows_of(numbers: Iterable[int], edition: int) -> pa.Table:
    """Return rows whose partition depends on the number, and all else on both."""
    chosen = [*numbers]
    pad = [random.Random(n * 1000 + edition).randbytes(40).hex() for n in chosen]
    columns = {
        "id": [f"key:{n},{n % 7}" if n % 5 == 0 else f"k{n}" for n in chosen],
        "p": [PARTITIONS[n % len(PARTITIONS)] for n in chosen],
        "v": [n * 100 + edition for n in chosen],
        "ts": [edition] * len(chosen),
        "pad": pad,
    }
    return pa.table(columns, SCHEMA)


class SharedTable:
    """A table that both programs write, with the rows that it must have."""

    def __init__(self, path: Path, hudi: Hudi, version: str) -> None:
        self.path, self.hudi, self.model = path, hudi, Model()
        self.options = {**THEIRS, "hoodie.write.table.version": version}
        self.edition = 0

    def ours(self, **options: str) -> lakeformat.Table:
        """Open the table without naming its index: its folder shows it."""
        return lakeformat.open(self.path, **options)

    def write(self, writer: str, operation: str, numbers: Iterable[int], **options: str) -> None:
        """Write rows by ``hudi`` or ``ours``, and compare both readers with the model."""
        self.edition += 1
        rows = rows_of(numbers, self.edition)
        if writer == "hudi":
            self.hudi.write(self.path, rows, operation, **{**self.options, **options})
        elif operation == "delete":
            self.ours(**options).delete(rows.select(["id", "p"]))
        else:
            getattr(self.ours(**options), operation)(rows)
        for row in rows.to_pylist():
            if operation == "delete":
                self.model.pop(row["id"], None)
            else:
                self.model[row["id"]] = row["p"], row["v"]
        self.check()

    def call(self, operation: str, **options: str) -> None:
        """Let Hudi plan or run a clustering."""
        given = ",".join(f"{key}={value}" for key, value in {**self.options, **options}.items() if "name" not in key)
        self.hudi.sql(f"call run_clustering(path => '{self.path}', op => '{operation}', options => '{given}')")

    def check(self) -> None:
        """Compare both readers with the model. Check that each key is in one file group, and that rings have them."""
        table = self.ours()
        for rows in (self.hudi.read(self.path), table.to_arrow(meta_columns=True)):
            found = {row["id"]: (row["p"], row["v"]) for row in rows.to_pylist()}
            assert rows.num_rows == len(found)
            assert found == self.model
        snapshot = table.snapshot()
        rings = load_rings(table.context.storage, snapshot, snapshot.slices)
        for path, pieces in snapshot.slices.items():
            assert {piece.group.file_id for piece in pieces} <= {*rings[path].file_ids}

    @property
    def buckets(self) -> Mapping[str, int]:
        table = self.ours()
        snapshot = table.snapshot()
        rings = load_rings(table.context.storage, snapshot, snapshot.slices)
        return {path: len(ring.nodes) for path, ring in rings.items()}

    @property
    def pending(self) -> list[str]:
        return [instant.time for instant in self.ours().snapshot().timeline.pending]


@pytest.fixture(params=["6", "9"])
def shared(request: pytest.FixtureRequest, hudi: Hudi, tmp_path: Path) -> SharedTable:
    return SharedTable(tmp_path / "t", hudi, request.param)


def create(shared: SharedTable) -> None:
    lakeformat.create(
        shared.path,
        SCHEMA,
        record_key="id",
        partition_by="p",
        ordering="ts",
        **{
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.write.table.version": shared.options["hoodie.write.table.version"],
        },
    )


def test_table_is_written_and_resized_in_turn(shared: SharedTable) -> None:
    """Twenty commits, a split by each program, a merge by each, and plans that the other program runs."""
    create(shared)
    first = {**INDEX, **SMALL}
    shared.write("ours", "upsert", range(60), **first)
    for step, (operation, numbers) in enumerate(
        (("upsert", range(30, 90)), ("insert", range(90, 130)), ("delete", range(3, 130, 9)), ("upsert", range(120)))
    ):
        shared.write(("hudi", "ours")[step % 2], operation, numbers)
    begun = shared.buckets
    shared.call("scheduleAndExecute", **SMALL)  # Hudi splits.
    shared.check()
    assert all(count > begun[path] for path, count in shared.buckets.items())
    for writer, operation, numbers in (
        ("ours", "upsert", range(100, 150)),
        ("hudi", "upsert", range(0, 150, 4)),
        ("ours", "delete", range(0, 150, 8)),
        ("hudi", "delete", range(1, 150, 8)),
    ):
        shared.write(writer, operation, numbers)
    split = shared.buckets
    assert not shared.ours(**INDEX, **SMALL).cluster().skipped  # We split, and merge what is small.
    shared.check()
    assert shared.buckets != split
    shared.write("hudi", "upsert", range(160))
    shared.write("ours", "upsert", range(100, 170))
    shared.ours().compact()
    shared.check()
    assert shared.ours(**INDEX, **LARGE).schedule_clustering() is not None  # We plan merges, Hudi runs them.
    shared.call("execute")
    shared.check()
    assert shared.pending == []
    assert {*shared.buckets.values()} == {1}
    shared.write("hudi", "insert", range(170, 200))
    shared.write("ours", "upsert", range(0, 200, 3))
    shared.call("schedule", **SMALL)  # Hudi plans splits, we run them.
    assert len(shared.pending) == 1
    assert not shared.ours().run_clustering().skipped
    shared.check()
    assert {*shared.buckets.values()} == {2}
    for writer, operation, numbers in (
        ("hudi", "upsert", range(0, 200, 5)),
        ("ours", "bulk_insert", range(200, 220)),
        ("hudi", "delete", range(0, 220, 6)),
        ("ours", "insert", range(220, 240)),
        ("hudi", "upsert", range(100, 240)),
        ("ours", "delete", range(5, 240, 11)),
        ("hudi", "upsert", range(10, 50)),
    ):
        shared.write(writer, operation, numbers)
    assert not shared.ours().check().findings
    hudi_rs.assert_same_rows(shared.ours())


def test_hudi_writes_beside_our_plan(shared: SharedTable) -> None:
    """Hudi writes the rows to the old and to the new buckets. We show each once, before and after the run."""
    create(shared)
    shared.write("ours", "upsert", range(120), **INDEX)
    planned = shared.ours(**INDEX, **SMALL).schedule_clustering()
    assert shared.pending == [planned]
    shared.write("hudi", "upsert", range(0, 120, 3))
    shared.write("hudi", "delete", range(0, 120, 4))
    shared.write("hudi", "insert", range(120, 130))
    with pytest.raises(lakeformat.WriteConflictError, match=str(planned)):
        shared.ours().upsert(rows_of(range(9), 99))
    assert shared.ours().run_clustering().instant_time == planned
    shared.check()
    shared.write("hudi", "upsert", range(0, 130, 5))
    shared.write("ours", "upsert", range(0, 130, 7))
    assert not shared.ours().check().findings


def test_cancelled_plan_leaves_no_rows_in_new_buckets(shared: SharedTable) -> None:
    """Else the log files that Hudi wrote for them would be read, once the plan's instant is older than the timeline."""
    create(shared)
    shared.write("ours", "upsert", range(90), **INDEX)
    planned = shared.ours(**INDEX, **SMALL).schedule_clustering()
    shared.write("hudi", "upsert", range(0, 100, 3))
    assert [*shared.path.rglob(f".*_{planned}.log.*")]
    shared.ours().cancel_clustering(str(planned))
    assert not [path for path in shared.path.rglob(f".*_{planned}.log.*") if not path.name.endswith(".crc")]
    shared.check()
    shared.write("hudi", "upsert", range(0, 100, 4))
    instant, before = shared.ours().history()[0].instant_time, dict(shared.model)
    if (
        shared.options["hoodie.write.table.version"] == "6"
    ):  # The names of the deleted files look like those of a slice.
        with pytest.raises(lakeformat.InstantNotAvailableError):
            shared.ours().to_arrow(as_of=instant)
        return
    planned = shared.ours(**INDEX, **SMALL).schedule_clustering()
    shared.write("hudi", "upsert", range(0, 100, 5))
    shared.ours().run_clustering()
    shared.check()
    shared.ours().restore(instant)
    shared.model = before
    shared.check()
    assert not [path for path in shared.path.rglob(f".*_{planned}.log.*") if not path.name.endswith(".crc")]
    shared.write("hudi", "upsert", range(100))


def test_partition_that_we_replace_takes_rows_of_hudi(shared: SharedTable) -> None:
    """Apache Hudi keeps the buckets of a partition that it replaces, and loses later rows. Ours become new ones."""
    create(shared)
    shared.write("ours", "upsert", range(30), **INDEX)
    shared.write("hudi", "upsert", range(60))
    rows = rows_of(range(0, 30, 3), 50)
    shared.ours().insert_overwrite(rows)
    shared.model = {key: value for key, value in shared.model.items() if value[0] != "eu"}
    shared.model |= {row["id"]: (row["p"], row["v"]) for row in rows.to_pylist()}
    shared.edition = 60
    shared.check()
    shared.write("hudi", "upsert", range(70))
    shared.ours().delete_partitions(["us"])
    shared.model = {key: value for key, value in shared.model.items() if value[0] != "us"}
    shared.check()
    shared.write("hudi", "upsert", range(80))
    shared.write("ours", "upsert", range(90))


def test_restored_table_has_the_buckets_of_its_time(shared: SharedTable) -> None:
    create(shared)
    shared.write("ours", "upsert", range(90), **INDEX)
    shared.write("hudi", "upsert", range(60))
    instant, before, begun = shared.ours().history()[0].instant_time, dict(shared.model), shared.buckets
    shared.call("scheduleAndExecute", **SMALL)
    shared.write("hudi", "upsert", range(100))
    shared.ours(**INDEX, **SMALL).cluster()
    shared.check()
    shared.ours().restore(instant)
    shared.model = before
    shared.check()
    assert shared.buckets == begun
    shared.write("hudi", "upsert", range(0, 110, 2))
    shared.write("ours", "upsert", range(0, 110, 3))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(3))
def test_random_lives(shared: SharedTable, seed: int) -> None:
    """Random operations, plans and runs by either program."""
    draw = random.Random(seed)
    create(shared)
    shared.write("ours", "upsert", range(40), **INDEX)
    acts: dict[str, Callable[[], Any]] = {
        "plan by hudi": lambda: shared.call("schedule", **draw.choice((SMALL, LARGE))),
        "plan by us": lambda: shared.ours(**INDEX, **draw.choice((SMALL, LARGE))).schedule_clustering(),
        "run by hudi": lambda: shared.call("execute"),
        "run by us": lambda: shared.ours().run_clustering(),
        "cluster": lambda: shared.ours(**INDEX, **draw.choice((SMALL, LARGE))).cluster(),
        "compact": lambda: shared.ours().compact(),
        "clean": lambda: shared.ours().clean(),
    }
    for _ in range(40):
        name = draw.choice([*acts, *["write"] * 8])
        if name != "write":
            if not (name.startswith(("plan", "cluster")) and shared.pending):
                acts[name]()
            shared.check()
            continue
        operation = draw.choice(("upsert", "upsert", "insert", "delete"))
        known = {int(key.partition(":")[2].partition(",")[0] or key[1:]) for key in shared.model}
        least = draw.randrange(300)
        numbers = range(least, least + draw.randrange(1, 80))
        wanted = [n for n in numbers if operation != "insert" or n not in known] or [1000 + shared.edition]
        shared.write("hudi" if shared.pending else draw.choice(("hudi", "ours")), operation, wanted)
    assert not shared.ours().check().findings
