"""What commits do to the hashing metadata of a table with consistent hashing (Hudi: ``ConsistentBucketIndexUtils``).

A commit writes its rings before it is visible: readers of rings pass over those of instants that have not completed.
The marker that a ring is committed follows the commit. It matters only after the commit is archived, so a later write
may add a missing marker. The undo of a commit removes its rings.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from lakeformat.codec.hashing_metadata import encode_ring
from lakeformat.errors import CorruptTableError, LakeformatError, WriteConflictError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.hashing_rings import (
    MARKER_SUFFIX,
    list_stored_rings,
    load_ring,
    ring_path,
    uses_consistent_hashing,
)
from lakeformat.index.consistent_hashing import renew_ring
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.hashing_metadata import FIRST_INSTANT, HashRing, make_first_ring
from lakeformat.model.instant import REPLACE_ACTIONS
from lakeformat.storage.port import Storage
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.commit.completed_file import OpenCommit
from lakeformat.transaction.order.outcome import Outcome

__all__ = ["mark_rings", "put_rings"]

_LOG: Final = logging.getLogger("lakeformat.write")


def put_rings(
    context: TableContext,
    commit: OpenCommit,
    metadata: CommitMetadata,
    outcome: Outcome,
    first_buckets: int | None,
) -> tuple[HashRing, ...]:
    """Write the rings that a commit changes, and check that its files belong to buckets. Return the changed rings.

    Call it directly before the commit is visible. Repeated calls do the same.

    Args:
        first_buckets: number of buckets of a new partition, if the write has a bucket index with consistent hashing;
            None if it writes to existing file groups only.

    Raises:
        WriteConflictError: another writer has changed the buckets of a partition meanwhile.
        CorruptTableError: hashing metadata is damaged, or rows would be invisible.
    """
    storage, overwritten = context.storage, outcome.overwritten if outcome.replaced is None else None
    renews = bool(overwritten) and uses_consistent_hashing(storage)
    if first_buckets is None and not (renews or outcome.rings):
        return ()
    writer = _RingWriter(context, context.store.load(), commit, outcome)
    changed = [*outcome.rings, *(writer.renew(overwritten or ()) if renews else ())]
    for ring in changed:
        storage.replace(ring_path(ring), encode_ring(ring))
    if first_buckets is not None:
        writer.check(metadata, {ring.partition_path: ring for ring in changed}, first_buckets)
    return tuple(changed)


@dataclass(frozen=True)
class _RingWriter:
    """Reads and writes the rings for one commit.

    Attributes:
        timeline: the timeline as it is now.
    """

    context: TableContext
    timeline: Timeline
    commit: OpenCommit
    outcome: Outcome

    def renew(self, partitions: Iterable[str]) -> list[HashRing]:
        """Return the rings of replaced partitions: their buckets become new file groups."""
        rings: list[HashRing] = []
        for path in sorted(partitions):
            stored = list_stored_rings(self.context.storage, path)
            ring = load_ring(self.context.storage, self.timeline, stored, ())
            if ring is not None:
                rings.append(renew_ring(ring, self.commit.time, self.commit.token))
        return rings

    def check(self, metadata: CommitMetadata, changed: Mapping[str, HashRing], first_buckets: int) -> None:
        """Check that each written file belongs to a bucket. Make the rings of new partitions, and missing markers."""
        opened: list[WriteStat] = []
        for path, stats in metadata.stats.items():
            ring = changed.get(path) or self._ring_in_force(path, first_buckets)
            file_ids = {*ring.file_ids}
            for stat in stats:
                if stat.file_id not in file_ids:
                    raise WriteConflictError(
                        f"the buckets of {self._name(path)} were changed by another writer while commit "
                        f"{self.commit.time} ran; run the write again"
                    )
            opened += [stat for stat in stats if stat.prev_commit in {None, self.commit.time}]
        self._check_visible(opened)

    def _ring_in_force(self, path: str, first_buckets: int) -> HashRing:
        storage, before = self.context.storage, self.outcome.snapshot
        stored = list_stored_rings(storage, path)
        newest = next(iter(stored.valid_times(self.timeline)), FIRST_INSTANT)
        # If the ring is newer than the slices that the write has read, it need not have buckets for them.
        is_new = newest in self.timeline.commit_times.difference(before.timeline.commit_times)
        live_ids = () if is_new else [piece.group.file_id for piece in before.slices.get(path, ())]
        ring = load_ring(storage, self.timeline, stored, live_ids)
        if ring is None:
            ring = make_first_ring(path, first_buckets)
            try:
                storage.create(ring_path(ring), encode_ring(ring))
            except FileExistsError:
                ring = stored.read(storage, FIRST_INSTANT)
        elif ring.instant not in {FIRST_INSTANT, *stored.marked}:
            _put_marker(storage, ring)
        return ring

    def _check_visible(self, opened: Iterable[WriteStat]) -> None:
        """Check that no commit has removed the file groups that the write opens: readers would never show their rows.

        Apache Hudi removes the file groups of a partition but leaves its ring as it is.
        """
        groups = {stat.group for stat in opened}
        store = self.context.store
        for instant in self.timeline.commits if groups else ():
            is_replacing = instant.action in REPLACE_ACTIONS
            gone = groups.intersection(store.read_commit(instant).replaced_groups) if is_replacing else ()
            if gone:
                path = min(gone).partition_path
                raise CorruptTableError(
                    f"commit {instant.time} of Apache Hudi has removed the file groups of {self._name(path)} but kept "
                    "its buckets, so new rows in them would be invisible; write the partition again with "
                    "insert_overwrite"
                )

    def _name(self, path: str) -> str:
        return f"{self.context.storage.location}/{path}"


def mark_rings(storage: Storage, rings: Iterable[HashRing]) -> None:
    """Note that the commits of rings have completed. If that fails, log it; the next write to the partition does it."""
    for ring in rings:
        try:
            _put_marker(storage, ring)
        except (LakeformatError, OSError) as error:
            _LOG.warning(
                "the marker of hashing metadata %s of %s is missing until the next write: %s",
                ring.instant,
                storage.location,
                error,
            )


def _put_marker(storage: Storage, ring: HashRing) -> None:
    with suppress(FileExistsError):
        storage.create(ring_path(ring, MARKER_SUFFIX), b"")
