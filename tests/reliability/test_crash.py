"""A writer dies at every one of its calls to storage, and the table does not notice.

`CRASHES` is the whole list: table x operation x how much of the last call was done. For each case the write runs once
undisturbed, to count its calls. Then it runs again and again, each time on a fresh copy of the table, and dies at the
next call. After each death (`tests.helpers.crashing.assert_recovered`):

- a reader sees the table before the write or after it, nothing in between;
- the doctor finds nothing except the dead instant and its markers;
- the next writer starts at once and goes on from what the reader saw;
- after that writer, no file, marker or claim of the dead writer is left, and the doctor finds nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

import pytest

import lakeformat
from lakeformat.codec.log_blocks import BlockKind
from lakeformat.file_system_view.file_groups import list_files
from lakeformat.files.log_reader import read_blocks
from lakeformat.index.bucket import bucket_of
from lakeformat.storage import LocalStorage
from lakeformat.timeline.store import TimelineStore
from lakeformat.transaction.undo.recovery import recover
from tests.helpers.change_files import read_logged_changes
from tests.helpers.crashing import assert_recovered, calls_of, calls_to_fail, dies_at, failures_of
from tests.helpers.faulty import Call, Crash, Fault, FaultyStorage, Mode, SteppingClock, at
from tests.helpers.flights import (
    MOVING,
    NEXT,
    SMALL_ROW_GROUPS,
    WRITES,
    WRITES_BY_NIGHT,
    Model,
    Write,
    copy_of,
    make_template,
    open_at,
    rows_of,
)

# --- the cases ----------------------------------------------------------------------------------------

CDC: Final = {"hoodie.table.cdc.enabled": "true"}
TWO_BUCKETS: Final = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": 2}

RINGS: Final = {**TWO_BUCKETS, "hoodie.index.bucket.engine": "CONSISTENT_HASHING"}


@dataclass(frozen=True)
class TableKind:
    """How the table of a case is made: by `tests.helpers.flights.make_template`.

    Attributes:
        properties: options that create the table.
        writer: options of the writes before the crash.
        past: these writes; by default those of `make_template`.
    """

    version: str = "6"
    table_type: str = "COPY_ON_WRITE"
    properties: Mapping[str, str] = field(default_factory=dict)
    writer: Mapping[str, object] | None = None
    past: Sequence[Write] | None = None

    def make(self, folder: Path) -> tuple[Path, Model]:
        """Return the folder of the table and its rows."""
        given = {"past": self.past, "options": self.writer}
        return make_template(
            folder,
            version=self.version,
            table_type=self.table_type,
            more=self.properties,
            **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
        )


#: Forty keys, so that a writer that names no index still finds the number of buckets.
_FORTY: Final = (Write("bulk_insert", tuple(range(40)), "first"), Write("upsert", (0, 4, 8, 41), "second"))

_RINGED: Final = (Write("upsert", tuple(range(40)), "first"), Write("upsert", (0, 4, 8, 41), "second"))

TABLES: Final = {
    "copy-on-write 6": TableKind(),
    "copy-on-write 9": TableKind("9"),
    "merge-on-read 6": TableKind("6", "MERGE_ON_READ"),
    "merge-on-read 8": TableKind("8", "MERGE_ON_READ"),
    "merge-on-read 9": TableKind("9", "MERGE_ON_READ"),
    "change log 6": TableKind("6", properties=CDC),
    "change log 9": TableKind("9", properties=CDC),
    "row groups 9": TableKind(
        # The row groups of smaller files are not copied.
        "9",
        writer={**SMALL_ROW_GROUPS},
        past=(Write("bulk_insert", tuple(range(250)), "first"),),
    ),
    "bucket index 6": TableKind(writer=TWO_BUCKETS, past=_FORTY),
    "consistent hashing 6": TableKind("6", "MERGE_ON_READ", writer=RINGS, past=_RINGED),
    "consistent hashing 9": TableKind("9", "MERGE_ON_READ", writer=RINGS, past=_RINGED),
}

OPERATIONS: Final = {
    **{write.operation: write for write in (*WRITES, MOVING)},
    "upsert to buckets": Write("upsert", (1, 3, 4, 51, 54), "upserted"),
    "copying upsert": Write("copying upsert", (1, 3, 51), "upserted"),
    "insert to buckets": Write("insert", (60, 61), "new"),
}

EVERY, NIGHT = (), (pytest.mark.nightly,)
ALL, WITHIN, AFTER, BOTH, NONE = (
    (EVERY, EVERY, EVERY),
    (NIGHT, EVERY, NIGHT),
    (NIGHT, NIGHT, EVERY),
    (NIGHT, EVERY, EVERY),
    (NIGHT, NIGHT, NIGHT),
)

#: (tables, operations) -> which deaths CI sees: before the call, within it, after it; the others run by night. A death
#: before a call leaves what a death after the call before leaves. Operations of one kind of write crash alike, so they
#: take turns.
SCHEDULE: Final = [
    # Timeline layout 1: commits and replacecommits.
    (["copy-on-write 6"], ["upsert"], ALL),
    (["copy-on-write 6"], ["insert", "sorted bulk_insert", "delete where", "insert_overwrite", "merge"], AFTER),
    (["copy-on-write 6"], ["bulk_insert", "delete", "delete partitions", "overwrite", "update"], WITHIN),
    # A global index moves rows to other partitions: out of one file group and into others.
    (["copy-on-write 6"], ["moving upsert"], AFTER),
    # Row groups that the write does not touch are copied.
    (["row groups 9"], ["copying upsert"], WITHIN),
    # The bucket index: one file group for each bucket.
    (["bucket index 6"], ["upsert to buckets"], WITHIN),
    (["bucket index 6"], ["insert to buckets"], AFTER),
    # Consistent hashing: replaced partitions get new buckets.
    (["consistent hashing 9"], ["upsert", "delete partitions"], WITHIN),
    (["consistent hashing 9"], ["insert_overwrite"], AFTER),
    (["consistent hashing 6"], ["upsert", "insert_overwrite"], NONE),
    # Timeline layout 2: requested, inflight and completed files of other names.
    (["copy-on-write 9"], ["upsert"], BOTH),
    (["copy-on-write 9"], ["overwrite"], AFTER),
    (["copy-on-write 9"], ["insert", "bulk_insert", "sorted bulk_insert"], NONE),
    (["copy-on-write 9"], ["delete", "delete where", "delete partitions"], NONE),
    (["copy-on-write 9"], ["insert_overwrite", "update", "merge"], NONE),
    # Log files: those of a dead writer must not be read.
    (["merge-on-read 6"], ["upsert"], BOTH),
    (["merge-on-read 6"], ["delete"], AFTER),
    (["merge-on-read 9"], ["upsert"], WITHIN),
    (["merge-on-read 9"], ["delete"], AFTER),
    (["merge-on-read 6", "merge-on-read 8", "merge-on-read 9"], ["insert_overwrite", "delete partitions"], NONE),
    # Change data capture: no change data of a dead writer may be left.
    (["change log 6"], ["upsert"], NONE),
    (["change log 6"], ["delete where"], AFTER),
    (["change log 9"], ["upsert"], WITHIN),
]

DEATHS: Final = {Mode.BEFORE: "before", Mode.TORN: "within", Mode.AFTER: "after"}


def _cases() -> Iterator[object]:
    for tables, operations, schedule in SCHEDULE:
        for table in tables:
            for operation in operations:
                for (mode, name), marks in zip(DEATHS.items(), schedule, strict=True):
                    yield pytest.param(table, operation, mode, marks=marks, id=f"{table}, {operation}, {name}")


CRASHES: Final = list(_cases())


@pytest.fixture(scope="module")
def table_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Model]]:
    """Make the table of a kind once; return its folder and rows. Copy the folder, never write to it."""
    return cache(lambda kind: TABLES[kind].make(tmp_path_factory.mktemp("crash")))


# --- the promise --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "operation", "mode"), CRASHES)
def test_write_that_dies_at_any_call_leaves_the_table_before_or_after_it(
    kind: str, operation: str, mode: Mode, table_of: Callable[[str], tuple[Path, Model]], tmp_path: Path
) -> None:
    write, table = OPERATIONS[operation], table_of(kind)
    if TABLES[kind].properties == CDC:
        undisturbed = copy_of(table[0], tmp_path)
        write.run(open_at(undisturbed, "writer"))
        assert len(read_logged_changes(Path(undisturbed.root))) > len(read_logged_changes(table[0]))
    if operation == "copying upsert":
        undisturbed = copy_of(table[0], tmp_path)
        write.run(open_at(undisturbed, "writer"))
        assert "copied rows" in open_at(undisturbed, "reader").history()[0].describe()
    assert failures_of(write, mode, table, tmp_path) == []


# --- crashes in the recovery --------------------------------------------------------------------------

#: A second crash follows the first in one case in so many.
TWICE_EVERY: Final = 4


def recovery_of(storage: LocalStorage, fault: Fault | None) -> list[Call]:
    """Do what the next writer does first, under the lock. Return the calls to storage."""
    faulty = FaultyStorage(storage, fault)
    store = TimelineStore(faulty)
    with faulty.lock(0):
        recover(store, store.config(), SteppingClock())
    return faulty.calls


@pytest.mark.budget(40)
@pytest.mark.slow
@pytest.mark.parametrize("write", WRITES_BY_NIGHT, ids=lambda write: write.operation)
def test_recovery_that_dies_itself_is_finished_by_the_next_writer(
    write: Write, template: tuple[Path, Model], tmp_path: Path
) -> None:
    path, before = template
    after = write.applied(before)
    changing = calls_to_fail(calls_of(write, copy_of(path, tmp_path)), Mode.AFTER)
    failures = []
    for first in changing[1::TWICE_EVERY]:
        dead = copy_of(path, tmp_path)
        assert dies_at(write, dead, first, Mode.AFTER)
        recovery = recovery_of(copy_of(Path(dead.root), tmp_path), None)
        for mode, second in [(mode, n) for mode in Mode for n in calls_to_fail(recovery, Mode.AFTER)]:
            storage = copy_of(Path(dead.root), tmp_path)
            try:
                with pytest.raises(Crash):
                    recovery_of(storage, Fault(at(second), mode))
                assert_recovered(storage, before, after, False)
            except Exception as error:
                failures.append(f"calls {first}, {second} {mode} {recovery[second]}: {error}")
            else:
                shutil.rmtree(storage.root)
    assert failures == []


def test_metadata_table_of_hudi_is_dropped_even_if_the_writer_dies_meanwhile(
    template: tuple[Path, Model], tmp_path: Path
) -> None:
    """Hudi's metadata table would lack our commit, so the writer drops it before the commit is visible."""
    path, before = template
    write = WRITES[0]
    theirs = copy_of(path, tmp_path)
    properties = Path(theirs.root, ".hoodie/hoodie.properties")
    with properties.open("a") as file:
        file.write("hoodie.table.metadata.partitions=files\n")
    Path(theirs.root, ".hoodie/metadata/.hoodie").mkdir(parents=True)
    Path(theirs.root, ".hoodie/metadata/.hoodie/hoodie.properties").write_text("hoodie.table.name=x\n")

    calls = calls_of(write, copy_of(Path(theirs.root), tmp_path))
    paths = ("hoodie.properties", ".hoodie/metadata")
    dropping = [n for n, call in enumerate(calls) if any(path in call.path for path in paths)]
    assert {calls[n].name for n in dropping} == {"read", "replace", "delete", "info", "delete_folder"}
    for mode, number in [(mode, n) for mode in Mode for n in dropping if calls[n].changes]:
        storage = copy_of(Path(theirs.root), tmp_path)
        assert dies_at(write, storage, number, mode)
        assert_recovered(storage, before, write.applied(before), True)
        assert not Path(storage.root, ".hoodie/metadata").exists()
        assert not TimelineStore(storage).config().has_metadata_table


# --- what the cases rest on ---------------------------------------------------------------------------


def test_log_blocks_of_a_dead_writer_are_taken_back_by_a_command_block(tmp_path: Path) -> None:
    """In layout 1 the log files stay where they are, and the next writer appends a command block to each."""
    path, before = TABLES["merge-on-read 6"].make(tmp_path)
    upsert = OPERATIONS["upsert"]
    storage = copy_of(path, tmp_path)
    calls = 0
    while dies_at(upsert, storage := copy_of(path, tmp_path), calls, Mode.AFTER):
        appended = {log.path for log in list_files(storage).logs} - {
            log.path for log in list_files(LocalStorage(str(path))).logs
        }
        if len(appended) > 1:
            break
        calls += 1
    assert rows_of(storage) == before
    NEXT.run(open_at(storage, "next"))
    assert rows_of(storage) == NEXT.applied(before)
    logs = list_files(storage).logs
    assert appended <= {log.path for log in logs}
    commands = [log for log in logs if [b.kind for b in read_blocks(storage, log)] == [BlockKind.COMMAND]]
    assert len(commands) == len(appended)


def test_write_to_a_bucket_table_keeps_one_file_group_a_bucket(
    table_of: Callable[[str], tuple[Path, Model]], tmp_path: Path
) -> None:
    storage = copy_of(table_of("bucket index 6")[0], tmp_path)
    lakeformat.open(storage.root).upsert(OPERATIONS["upsert to buckets"].rows)
    files = lakeformat.Table(storage).snapshot().files
    assert sorted((file.partition_path, bucket_of(file.name.file_id)) for file in files) == [
        (f"r{part}", bucket) for part in range(3) for bucket in range(2)
    ]
