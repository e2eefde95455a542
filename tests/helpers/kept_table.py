"""The same table and dictionary, and all that keeps a table: services, savepoints, going back, other versions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

import lakeformat
from lakeformat.model.instant import Action
from lakeformat.read.scan import Scan
from tests.helpers.written_table import VARIANTS, Entry, Key, Model, Row, Variant, WrittenTable

__all__ = ["KeptTable"]

PLACES: Final = st.integers(0, 99)
SORTED_BY: Final = st.sampled_from(["ts", "v", "id"])


@dataclass
class Held:
    """What somebody remembers of the table: rows that were asked for and not read yet, and where changes begin."""

    entry: Entry
    scan: Scan
    until: str


class KeptTable(WrittenTable):
    """A table's whole life."""

    #: How often each service did something.
    reached: ClassVar[Counter[str]] = Counter()

    @initialize(variant=VARIANTS)
    def create(self, variant: Variant) -> None:
        super().create(variant)
        self.version = self.kind.version
        self.saved: dict[str, Entry] = {}
        #: Those of them that a service has changed since.
        self.shaken: set[str] = set()
        self.held: list[Held] = []

    def ends(self) -> None:
        self.check()
        super().ends()

    def did(self, service: str) -> None:
        type(self).reached[service] += 1

    def now(self) -> Entry:
        """The newest commit; of an empty table one that never was."""
        return self.past[-1] if self.past else Entry("", {}, dict(self.columns))

    def served(self, service: str, result: Any) -> None:
        """A service may have made a commit: at the instant of its plan, which in layout 1 may be an old one."""
        if result is None or result.skipped:
            return
        self.did(service)
        self.completed(result.instant_time)

    def completed(self, instant: str) -> None:
        """A service's commit stands on the timeline."""
        at = len(self.past)
        while at and self.past[at - 1].instant > instant:
            at -= 1
        place = at if self.version < 8 else len(self.past)
        before, older = self.past[place - 1], self.past[at - 1].model if at else {}
        if place == at:  # In layout 1 it belongs to states that were saved before, and its files are not saved.
            self.shaken |= {saved for saved in self.saved if saved > instant}
        # The archive takes it by its instant, however late it completed.
        entry = Entry(instant, before.model, before.columns, True, before.sure and place == at, older)
        self.past.insert(place, entry)
        self.forget(self.variant.kept)

    # --- clustering and compaction --------------------------------------------------------------------

    @rule(by=SORTED_BY)
    def cluster(self, by: str) -> None:
        errors = lakeformat.UnsupportedTableError, lakeformat.WriteConflictError
        self.served("cluster", self.refused(lambda: self.table.cluster([by]), *errors))

    @rule(by=SORTED_BY)
    def schedule_clustering(self, by: str) -> None:
        errors = lakeformat.UnsupportedTableError, lakeformat.WriteConflictError
        if self.refused(lambda: self.table.schedule_clustering([by]), *errors):
            self.did("schedule_clustering")

    @precondition(lambda self: self.waiting(Action.CLUSTERING, Action.REPLACE_COMMIT))
    @rule()
    def run_clustering(self) -> None:
        self.served("run_clustering", self.table.run_clustering())

    @precondition(lambda self: self.waiting(Action.CLUSTERING, Action.REPLACE_COMMIT))
    @rule()
    def cancel_clustering(self) -> None:
        self.table.cancel_clustering(self.waiting(Action.CLUSTERING, Action.REPLACE_COMMIT)[0])
        self.did("cancel_clustering")

    def waiting(self, *actions: Action) -> list[str]:
        pending = self.table.snapshot().timeline.pending
        return [instant.time for instant in pending if instant.action in actions]

    @precondition(lambda self: self.kind.is_merge_on_read)
    @rule()
    def compact(self) -> None:
        """What waits is run first; the result is the last run's."""
        waiting = self.waiting(Action.COMPACTION)
        result = self.table.compact()
        for plan in waiting:
            if plan != result.instant_time:
                self.completed(plan)
        self.served("compact", result)

    @precondition(lambda self: self.kind.is_merge_on_read)
    @rule()
    def schedule_compaction(self) -> None:
        if self.table.schedule_compaction():
            self.did("schedule_compaction")

    @precondition(lambda self: self.waiting(Action.COMPACTION))
    @rule()
    def run_compaction(self) -> None:
        self.served("run_compaction", self.table.run_compaction())

    @precondition(lambda self: self.waiting(Action.COMPACTION))
    @rule()
    def cancel_compaction(self) -> None:
        """In version 6 only until somebody has appended to what it opened."""
        plan = self.waiting(Action.COMPACTION)[0]
        self.refused(lambda: self.table.cancel_compaction(plan), lakeformat.WriteConflictError)
        if plan in self.plans:
            assert self.version < 8
        else:
            self.did("cancel_compaction")

    # --- what is old ----------------------------------------------------------------------------------

    @rule(how=st.sampled_from(["commits", "commits", "hours", "versions"]), count=st.integers(1, 3))
    def clean(self, how: str, count: int) -> None:
        told = self.table.clean(**{how: count}, dry_run=True)
        done = self.table.clean(**{how: count})
        assert {file.path for file in done.files} == {file.path for file in told.files}
        if how != "hours":
            self.forget(count if how == "commits" else 1)
        if done.files:
            self.did("clean")

    @rule(least=st.integers(1, 4))
    def archive(self, least: int) -> None:
        if self.table.archive(min_commits=least).instants:
            self.did("archive")

    # --- going back -----------------------------------------------------------------------------------

    @precondition(lambda self: self.past)
    @rule(back=PLACES)
    def savepoint(self, back: int) -> None:
        """Of the newest commit, or an older one."""
        entry = self.past[-1 - (back % len(self.past) if back % 2 else 0)]
        if entry.instant in self.saved:
            return
        errors = () if entry.sure else (lakeformat.InstantNotAvailableError,)
        if self.refused(lambda: self.table.savepoint(entry.instant), *errors) is not None:
            self.saved[entry.instant] = entry
            self.did("savepoint")
        assert {one.instant_time for one in self.table.savepoints()} == set(self.saved)

    @precondition(lambda self: self.saved)
    @rule(which=PLACES)
    def delete_savepoint(self, which: int) -> None:
        instant = sorted(self.saved)[which % len(self.saved)]
        self.table.delete_savepoint(instant)
        del self.saved[instant]
        self.shaken.discard(instant)
        self.did("delete_savepoint")

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
            self.went_back(gone)
            self.did("restore")

    @rule(often=PLACES)
    def rollback(self, often: int) -> None:
        """Not too often, or no table grows old."""
        if often % 3 != 1:
            return
        errors: list[type[lakeformat.LakeformatError]] = []
        before = self.past[-2] if len(self.past) > 1 else Entry("", {}, dict(self.columns))
        if not self.past:
            errors = [lakeformat.InstantNotAvailableError]
        elif self.now().instant in self.saved:
            errors = [lakeformat.InvalidInputError]
        else:
            errors += [lakeformat.WriteConflictError] * bool(self.plans)
            errors += [lakeformat.InstantNotAvailableError] * (not before.sure)
        if self.refused(self.table.rollback, *errors) is not None:
            self.went_back(self.past[-1:])
            self.did("rollback")

    def went_back(self, gone: list[Entry]) -> None:
        """The model goes back, too."""
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
        self.did("change_version")
        self.version = to
        self.reopen()
        self.held = []
        newest = max((entry.instant_time for entry in self.table.history()), default="")
        if self.past and newest > max(entry.instant for entry in self.past):  # It compacted on the way.
            last = self.past[-1]
            self.passed(Entry(newest, last.model, last.columns, True, last.sure, last.model))

    # --- who looks ------------------------------------------------------------------------------------

    @rule()
    def hold(self) -> None:
        """Somebody asks for rows that he reads later, and for changes from now on."""
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
            self.did("read_what_is_held")

    @precondition(lambda self: self.held)
    @rule(which=PLACES)
    def fold_changes(self, which: int) -> None:
        """The older rows and what was written since are the newer rows, but for those that were deleted."""
        held = self.held[which % len(self.held)]
        if self.plans and self.version < 8:
            return  # The range ends before what is pending.
        errors = () if self.reaches_back(held) else (lakeformat.InstantNotAvailableError,)
        changes = self.refused(lambda: self.table.changes(held.until).to_arrow(meta_columns=False), *errors)
        if changes is None:
            return
        changed = self.keyed(changes.to_pylist())
        assert changed.keys() <= self.model.keys()
        folded = self.filled(held.entry.model, self.columns) | changed
        assert {key: folded.get(key) for key in self.model} == self.model
        self.did("fold_changes")

    @precondition(lambda self: self.held)
    @rule(which=PLACES)
    def fold_images(self, which: int) -> None:
        """The older rows and every change since are the newer rows."""
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
        self.did("fold_images")

    def reaches_back(self, held: Held) -> bool:
        """Whether all that was written since must still be there."""
        return held.entry.sure and (bool(held.entry.instant) or all(entry.sure for entry in self.past))

    def keyed(self, rows: list[Row]) -> Model:
        keyed: dict[Key, Row] = {self.key(row): row for row in rows}
        assert len(keyed) == len(rows), "a key stands in two rows"
        return keyed

    def filled(self, model: Model, columns: Any) -> Model:
        """The rows with these columns, null where they had none."""
        return {key: {name: row.get(name) for name in columns} for key, row in model.items()}

    @rule()
    def read_optimized(self) -> None:
        """It never fails; of a copy-on-write table it is the table.

        Base files alone hold a key twice that log files delete in one and that was inserted again into another.
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
