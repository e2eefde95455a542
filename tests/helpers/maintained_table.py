"""The state machine of `tests.helpers.written_table` with all services, from clustering to upgrade."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

import lakeformat
from lakeformat.model.instant import Action
from lakeformat.model.record import COMMIT_TIME, META_COLUMNS
from lakeformat.read.scan import Scan
from tests.helpers.written_table import COLUMNS, VARIANTS, Entry, Key, Model, Row, Variant, WrittenTable

__all__ = ["KeptTable"]

PLACES: Final = st.integers(0, 99)
SORTED_BY: Final = st.sampled_from(["ts", "v", "id"])


@dataclass
class Held:
    """A scan that was planned and is read later, and the instant from which changes are read."""

    entry: Entry
    scan: Scan
    until: str


class KeptTable(WrittenTable):
    """A table with writes and all services."""

    #: Service -> how often it did something.
    reached: ClassVar[Counter[str]] = Counter()

    @initialize(variant=VARIANTS)
    def create(self, variant: Variant) -> None:
        super().create(variant)
        self.version = self.kind.version
        self.saved: dict[str, Entry] = {}
        #: Savepoints after which a service has changed files of their commit.
        self.shaken: set[str] = set()
        self.held: list[Held] = []

    def ends(self) -> None:
        self.check()
        super().ends()

    def count(self, service: str) -> None:
        type(self).reached[service] += 1

    def now(self) -> Entry:
        """Return the newest commit; for an empty table a commit without rows."""
        return self.past[-1] if self.past else Entry("", {}, dict(COLUMNS))

    def record_service(self, service: str, result: Any) -> None:
        """Record the commit of a service, if there is one. Its instant is that of the plan, which may be old."""
        if result is None or result.skipped:
            return
        self.count(service)
        self.record_completion(result.instant_time)

    def record_completion(self, instant: str) -> None:
        """Record a completed commit of a service."""
        at = len(self.past)
        while at and self.past[at - 1].instant > instant:
            at -= 1
        place = at if self.version < 8 else len(self.past)
        before, older = self.past[place - 1], self.past[at - 1].model if at else {}
        if place == at:  # In layout 1 the commit belongs to states that were saved before, but its files are not saved.
            self.shaken |= {saved for saved in self.saved if saved > instant}
        # The archive takes the commit by its instant, even if the commit completed late.
        entry = Entry(instant, before.model, before.columns, True, before.sure and place == at, older)
        self.past.insert(place, entry)
        self.forget(self.variant.kept)

    # --- clustering and compaction --------------------------------------------------------------------

    @rule(by=SORTED_BY)
    def cluster(self, by: str) -> None:
        errors = lakeformat.UnsupportedTableError, lakeformat.WriteConflictError
        self.record_service("cluster", self.refused(lambda: self.table.cluster([by]), *errors))

    @rule(by=SORTED_BY)
    def schedule_clustering(self, by: str) -> None:
        errors = lakeformat.UnsupportedTableError, lakeformat.WriteConflictError
        if self.refused(lambda: self.table.schedule_clustering([by]), *errors):
            self.count("schedule_clustering")

    @precondition(lambda self: self.waiting(Action.CLUSTERING, Action.REPLACE_COMMIT))
    @rule()
    def run_clustering(self) -> None:
        self.record_service("run_clustering", self.table.run_clustering())

    @precondition(lambda self: self.waiting(Action.CLUSTERING, Action.REPLACE_COMMIT))
    @rule()
    def cancel_clustering(self) -> None:
        self.table.cancel_clustering(self.waiting(Action.CLUSTERING, Action.REPLACE_COMMIT)[0])
        self.count("cancel_clustering")

    def waiting(self, *actions: Action) -> list[str]:
        pending = self.table.snapshot().timeline.pending
        return [instant.time for instant in pending if instant.action in actions]

    @precondition(lambda self: self.kind.is_merge_on_read)
    @rule()
    def compact(self) -> None:
        """Compact. Pending plans are run first; the result is that of the last run."""
        waiting = self.waiting(Action.COMPACTION)
        result = self.table.compact()
        for plan in waiting:
            if plan != result.instant_time:
                self.record_completion(plan)
        self.record_service("compact", result)

    @precondition(lambda self: self.kind.is_merge_on_read)
    @rule()
    def schedule_compaction(self) -> None:
        if self.table.schedule_compaction():
            self.count("schedule_compaction")

    @precondition(lambda self: self.waiting(Action.COMPACTION))
    @rule()
    def run_compaction(self) -> None:
        self.record_service("run_compaction", self.table.run_compaction())

    @precondition(lambda self: self.waiting(Action.COMPACTION))
    @rule()
    def cancel_compaction(self) -> None:
        """Cancel a compaction. In version 6 this is refused once a writer has appended to its slices."""
        plan = self.waiting(Action.COMPACTION)[0]
        self.refused(lambda: self.table.cancel_compaction(plan), lakeformat.WriteConflictError)
        if plan in self.plans:
            assert self.version < 8
        else:
            self.count("cancel_compaction")

    # --- clean, archive and TTL -----------------------------------------------------------------------

    @rule(how=st.sampled_from(["commits", "commits", "hours", "versions"]), count=st.integers(1, 3))
    def clean(self, how: str, count: int) -> None:
        preview = self.table.clean(**{how: count}, dry_run=True)
        done = self.table.clean(**{how: count})
        assert {file.path for file in done.files} == {file.path for file in preview.files}
        if how != "hours":
            self.forget(count if how == "commits" else 1)
        if done.files:
            self.count("clean")

    @rule(least=st.integers(1, 4))
    def archive(self, least: int) -> None:
        if self.table.archive(min_commits=least).instants:
            self.count("archive")

    # --- savepoint, restore and rollback ----------------------------------------------------------------

    @precondition(lambda self: self.past)
    @rule(back=PLACES)
    def savepoint(self, back: int) -> None:
        """Make a savepoint of the newest commit or of an older one."""
        entry = self.past[-1 - (back % len(self.past) if back % 2 else 0)]
        if entry.instant in self.saved:
            return
        errors = () if entry.sure else (lakeformat.InstantNotAvailableError,)
        if self.refused(lambda: self.table.savepoint(entry.instant), *errors) is not None:
            self.saved[entry.instant] = entry
            self.count("savepoint")
        assert {one.instant_time for one in self.table.savepoints()} == set(self.saved)

    @precondition(lambda self: self.saved)
    @rule(which=PLACES)
    def delete_savepoint(self, which: int) -> None:
        instant = sorted(self.saved)[which % len(self.saved)]
        self.table.delete_savepoint(instant)
        del self.saved[instant]
        self.shaken.discard(instant)
        self.count("delete_savepoint")

    @precondition(lambda self: self.past)
    @rule(back=PLACES)
    def restore(self, back: int) -> None:
        if self.saved and back % 2:
            entry = self.saved[sorted(self.saved)[-1]]
        else:
            entry = self.past[-1 - back // 2 % min(4, len(self.past))]
        gone = self.past[self.past.index(entry) + 1 :]
        errors: list[type[lakeformat.LakeformatError]] = []
        if any(one.instant in self.saved for one in gone):
            errors += [lakeformat.InvalidInputError]
        if not entry.sure and entry.instant not in self.saved.keys() - self.shaken:
            errors += [lakeformat.InstantNotAvailableError]
        if self.refused(lambda: self.table.restore(entry.instant), *errors) is not None:
            assert lakeformat.InvalidInputError not in errors
            self.restore_model(gone)
            self.count("restore")

    @rule(often=PLACES)
    def rollback(self, often: int) -> None:
        """Roll back, but not too often: otherwise no table gets old."""
        if often % 3 != 1:
            return
        errors: list[type[lakeformat.LakeformatError]] = []
        before = self.past[-2] if len(self.past) > 1 else Entry("", {}, dict(COLUMNS))
        if not self.past:
            errors = [lakeformat.InstantNotAvailableError]
        elif self.now().instant in self.saved:
            errors = [lakeformat.InvalidInputError]
        else:
            errors += [lakeformat.WriteConflictError] * bool(self.plans)
            errors += [lakeformat.InstantNotAvailableError] * (not before.sure)
        if self.refused(self.table.rollback, *errors) is not None:
            self.restore_model(self.past[-1:])
            self.count("rollback")

    def restore_model(self, gone: list[Entry]) -> None:
        """Restore the model to the state before these commits."""
        self.past = self.past[: len(self.past) - len(gone)]
        for entry in gone:
            entry.sure = False
        now = self.now()
        self.model, self.columns = dict(now.model), dict(now.columns)
        self.held = [one for one in self.held if one.entry not in gone]

    # --- other versions -------------------------------------------------------------------------------

    @rule(to=st.sampled_from([6, 8, 9]))
    def change_version(self, to: int) -> None:
        errors: list[type[lakeformat.LakeformatError]] = []
        errors += [lakeformat.WriteConflictError] * bool(self.plans)
        errors += [lakeformat.UnsupportedTableError] * self.kind.is_merge_on_read
        move = self.table.upgrade if to >= self.version else self.table.downgrade
        done = self.refused(lambda: move(to), *errors)
        if done is None or done.skipped:
            return
        self.count("change_version")
        self.version = to
        self.reopen()
        self.held = []
        newest = max((entry.instant_time for entry in self.table.history()), default="")
        if self.past and newest > max(entry.instant for entry in self.past):  # The upgrade compacted the table.
            last = self.past[-1]
            self.add_commit(Entry(newest, last.model, last.columns, True, last.sure, last.model))

    # --- reads -----------------------------------------------------------------------------------------

    @rule()
    def hold(self) -> None:
        """Plan a scan that is read later, and note the instant from which changes are read."""
        now = self.now()
        until = self.table.changes("000").until
        self.held.append(Held(now, self.table.read(meta_columns=False), until))

    @precondition(lambda self: self.held)
    @rule(which=PLACES)
    def read_what_is_held(self, which: int) -> None:
        held = self.held[which % len(self.held)]
        errors = () if held.entry.sure else (lakeformat.LakeformatError,)
        rows = self.refused(held.scan.to_arrow, *errors)
        if rows is not None:
            assert self.keyed(rows.to_pylist()) == self.filled(held.entry.model, held.entry.columns)
            self.count("read_what_is_held")

    @precondition(lambda self: self.held)
    @rule(which=PLACES)
    def fold_changes(self, which: int) -> None:
        """Check that the older rows with the changes since then are the newer rows, except for deleted rows.

        The answer also has log records that lose to a row from before the range, as Hudi's has. They are left out.
        """
        held = self.held[which % len(self.held)]
        if self.plans and self.version < 8:
            return  # The range ends before pending instants.
        errors = () if self.reaches_back(held) else (lakeformat.InstantNotAvailableError,)
        changes = self.refused(lambda: self.table.changes(held.until).to_arrow(meta_columns=True), *errors)
        if changes is None:
            return
        commits = {self.key(row): row[COMMIT_TIME] for row in self.table.to_arrow(meta_columns=True).to_pylist()}
        won = [row for row in changes.to_pylist() if commits.get(self.key(row)) in {None, row[COMMIT_TIME]}]
        changed = self.keyed([{name: row[name] for name in row if name not in META_COLUMNS} for row in won])
        assert changed.keys() <= self.model.keys()
        folded = self.filled(held.entry.model, self.columns) | changed
        assert {key: folded.get(key) for key in self.model} == self.model
        self.count("fold_changes")

    @precondition(lambda self: self.held)
    @rule(which=PLACES)
    def fold_images(self, which: int) -> None:
        """Check that the older rows with every change image since then are the newer rows."""
        held = self.held[which % len(self.held)]
        if self.plans and self.version < 8:
            return
        errors = () if self.reaches_back(held) else (lakeformat.InstantNotAvailableError,)
        images = self.refused(lambda: self.table.changes(held.until, images=True).to_arrow(), *errors)
        if images is None:
            return
        folded = self.filled(held.entry.model, self.columns)
        for change in images.to_pylist():
            if change["before"] is not None:
                folded.pop(self.key(change["before"]), None)
            if change["after"] is not None:
                folded[self.key(change["after"])] = change["after"]
        assert folded == self.model
        self.count("fold_images")

    def reaches_back(self, held: Held) -> bool:
        """Tell whether all changes since then must still be readable."""
        return held.entry.sure and (bool(held.entry.instant) or all(entry.sure for entry in self.past))

    def keyed(self, rows: list[Row]) -> Model:
        keyed: dict[Key, Row] = {self.key(row): row for row in rows}
        assert len(keyed) == len(rows), "a key is in two rows"
        return keyed

    def filled(self, model: Model, columns: Any) -> Model:
        """Return the rows with these columns; missing values are null."""
        return {key: {name: row.get(name) for name in columns} for key, row in model.items()}

    @rule()
    def read_optimized(self) -> None:
        """Read the table read-optimized. This read never fails, and a copy-on-write table returns all rows.

        In a merge-on-read table, the base files hold a key twice if log files delete the key in one file group and a
        later write inserted it into another.
        """
        table = lakeformat.open(self.path, **{"hoodie.datasource.query.type": "read_optimized"})
        rows = table.to_arrow(meta_columns=False).to_pylist()
        if not self.kind.is_merge_on_read:
            assert self.keyed(rows) == self.model

    @rule(least=st.integers(0, 11))
    def counts(self, least: int) -> None:
        assert self.table.count() == len(self.model)
        assert self.table.count(f"id >= {least}") == sum(key[1] >= least for key in self.model)

    @rule()
    def describe(self) -> None:
        described = self.table.describe()
        assert str(described)
        assert described.version == self.version
        assert described.instant_time == (max(entry.instant for entry in self.past) if self.past else None)

    @rule()
    def check(self) -> None:
        assert str(self.table.check()) == "nothing is wrong"
        assert not self.table.repair(dry_run=True)
