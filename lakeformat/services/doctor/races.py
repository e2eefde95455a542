"""Finds rows that two concurrent writers have lost: which commit hides which file, and the keys in the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow.compute as pc

from lakeformat.errors import CorruptTableError
from lakeformat.files.footers import open_base, open_parquet, row_batches
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import BaseFile
from lakeformat.model.instant import Instant
from lakeformat.model.record import COMMIT_TIME, RECORD_KEY
from lakeformat.services.doctor.findings import Finding, Kind
from lakeformat.storage.port import Storage
from lakeformat.table_state.file_groups import Listing
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline
from lakeformat.transaction.late_look import plan_sources
from lakeformat.transaction.lost_writes import LostWrite, lost_writes

__all__ = ["hidden_writes", "lost_of_table"]

_ROWS: Final = 1 << 16
#: How many keys a finding names at most.
_MAX_KEYS: Final = 5


def lost_of_table(
    store: TimelineStore, timeline: Timeline, commits: Sequence[tuple[Instant, CommitMetadata]]
) -> list[LostWrite]:
    """Find the lost files where the losing or the hiding commit is on the timeline.

    Args:
        commits: the commits of the timeline and the newest archived ones.
    """
    sources = plan_sources(store, timeline, timeline.commit_times)
    found = lost_writes(commits, sources, by_name=not timeline.layout.tells_completion)
    return [each for each in found if {each.lost, each.kept} & timeline.commit_times]


def hidden_writes(lost: Iterable[LostWrite], listing: Listing, storage: Storage | None) -> Iterator[Finding]:
    """Yield a finding for each lost file that names the commit whose rows must be written again.

    Args:
        storage: used to read the keys in the files; None names no keys.
    """
    bases = {file.path: file for file in listing.bases}
    there = bases.keys() | {file.path for file in listing.logs}
    for each in lost:
        stat = each.stat
        counts = f"{stat.num_inserts:,} inserted, {stat.num_updates:,} updated, {stat.num_deletes:,} deleted"
        keys = _keys(storage, bases[stat.path], each.lost) if storage is not None and stat.path in bases else ""
        where = "they are in this file" if stat.path in there else "the file has been cleaned"
        yield Finding(
            Kind.LOST_WRITE,
            stat.path,
            f"commit {each.kept} was made beside commit {each.lost} and hides this file: write the rows of commit "
            f"{each.lost} to this file group again ({counts}{keys}; {where}), with one writer at a time",
            rows=stat.num_inserts + stat.num_updates + stat.num_deletes,
            size_bytes=stat.size_bytes,
        )


def _keys(storage: Storage, base: BaseFile, instant_time: str) -> str:
    """Return text that names some keys that the commit wrote to its file; "" if the file cannot be read."""
    named: list[str] = []
    try:
        with open_base(storage, base) as source, open_parquet(source, base.path) as parquet:
            if not {RECORD_KEY, COMMIT_TIME} <= set(parquet.schema_arrow.names):
                return ""
            for batch in row_batches(parquet, base.path, _ROWS, columns=[RECORD_KEY, COMMIT_TIME]):
                written = batch.filter(pc.equal(batch.column(COMMIT_TIME), instant_time))
                named += written.column(RECORD_KEY).slice(0, _MAX_KEYS + 1 - len(named)).to_pylist()
                if len(named) > _MAX_KEYS:
                    break
    except CorruptTableError:
        return ""
    more = ", ..." if len(named) > _MAX_KEYS else ""
    return f"; keys {', '.join(map(repr, named[:_MAX_KEYS]))}{more}" if named else ""
