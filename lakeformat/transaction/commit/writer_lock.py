"""The table's lock as a writer holds it: to begin, after it has undone the writes of dead writers, and to publish."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from lakeformat.concurrency import run_both
from lakeformat.errors import WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.file_index.load import undone_times
from lakeformat.locks import excludes_writers, lock_table
from lakeformat.model.instant import WRITE_ACTIONS, Action, State
from lakeformat.storage.port import Lease, is_remote
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.order import claims
from lakeformat.transaction.order.conflict import StalePlanError
from lakeformat.transaction.order.decisions import DecisionState, warn_of_single_writer
from lakeformat.transaction.order.properties_file import add_properties
from lakeformat.transaction.order.settings import TransactionSettings
from lakeformat.transaction.undo.recovery import recover
from lakeformat.transaction.upkeep.metadata_creation import make_missing_partitions

__all__ = ["StaleBaseError", "WriterLock"]

_UNDOS: Final = frozenset({Action.ROLLBACK, Action.RESTORE})


class StaleBaseError(WriteConflictError):
    """The snapshot that the write has read contains a write that was undone since."""


class WriterLock:
    """The lock of one writer. On storage without locks there is one only if Hudi writes to the table, too.

    Attributes:
        lease: the lease of the lock, if Hudi's writers respect it, too; else None.
        seen: what the recovery has left when the lock was taken; None before.
        has_begun: whether the writer has an instant, so that it must not undo pending ones.
        is_held: whether this writer holds the lock now.
    """

    def __init__(self, context: TableContext, settings: TransactionSettings) -> None:
        self._context, self._settings = context, settings
        self.lease: Lease | None = None
        self.seen: tuple[DecisionState, Timeline] | None = None
        self.has_begun = self.is_held = False

    @property
    def decisions(self) -> int:
        """Return the number of decisions that others had made when the lock was taken."""
        return self.seen[0].number if self.seen is not None else 0

    @contextmanager
    def hold(self, kept_plan: str | None) -> Iterator[None]:
        """Hold the lock during the block. Before the write has begun, first undo the writes of dead writers.

        Args:
            kept_plan: instant time of a clustering whose plan stays even if a run of it has died.
        """
        storage, store, settings = self._context.storage, self._context.store, self._settings
        clock, find = self._context.clock, partial(claims.list_claims, storage)
        warn_of_single_writer(storage)
        with lock_table(storage, settings.lock, clock=clock) as lease:
            self.lease = lease if excludes_writers(storage, settings.lock) else None
            if not self.has_begun:
                _, claimed = run_both(self._check_version, find, at_once=is_remote(storage))
                self.seen = recover(store, settings.config, clock, kept_plan=kept_plan, claimed=claimed)
                add_properties(store, clock, settings.lacking)
                make_missing_partitions(store, clock, settings, lease, self.seen[1])
            elif self.lease is not None:
                self._check_version()  # Without locks, a change of the version is a barrier for writes that have begun.
            self.is_held = True
            try:
                yield
            finally:
                self.is_held = False

    def check_base(self, base: Timeline | None) -> None:
        """Check that none of the writes on the timeline of the write's snapshot was undone since.

        The snapshot may contain files of a pending write, too: log files, which readers skip block by block.

        Raises:
            StaleBaseError: one of them was undone, so its files may be gone.
        """
        if base is None or self.seen is None:
            return
        known_undos = {i.time for i in base.instants if i.action in _UNDOS and i.state is State.COMPLETED}
        now = (i for i in self.seen[1].instants if i.action in _UNDOS and i.state is State.COMPLETED)
        undone = undone_times(self._context.store, (i for i in now if i.time not in known_undos))
        undone &= {i.time for i in base.instants if i.action in WRITE_ACTIONS}
        if undone:
            raise StaleBaseError(
                f"commit {min(undone)} of {self._context.storage.location} was undone while this write began; run "
                "the write again"
            )

    def _check_version(self) -> None:
        planned, version_now = self._settings.config.version, self._context.store.config().version
        if planned != version_now:
            raise StalePlanError(
                f"{self._context.storage.location} was moved from table version {planned} to {version_now} meanwhile; "
                "run the write again"
            )
