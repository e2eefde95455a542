"""Rows that two writers at the same time have lost: which commit hides which file, and the keys in it."""

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
#: Keys that a finding names.
_NAMED: Final = 5


def lost_of_table(
    store: TimelineStore, timeline: Timeline, commits: Sequence[tuple[Instant, CommitMetadata]]
) -> list[LostWrite]:
    """Find the lost files of commits on the timeline, or of those that hide them.

    Args:
        commits: those of the timeline, and the newest archived ones.
    """
    sources = plan_sources(store, timeline, timeline.commit_times)
    found = lost_writes(commits, sources, by_name=not timeline.layout.tells_completion)
    return [each for each in found if {each.lost, each.kept} & timeline.commit_times]


def hidden_writes(lost: Iterable[LostWrite], listing: Listing, storage: Storage | None) -> Iterator[Finding]:
    """Say of each lost file which commit's rows to write again.

    Args:
        storage: opened to name the keys; None names none.
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
    """Name some keys of the rows that the commit has written to its file; "" if that cannot be read."""
    named: list[str] = []
    try:
        with open_base(storage, base) as source, open_parquet(source, base.path) as parquet:
            if not {RECORD_KEY, COMMIT_TIME} <= set(parquet.schema_arrow.names):
                return ""
            for batch in row_batches(parquet, base.path, _ROWS, columns=[RECORD_KEY, COMMIT_TIME]):
                written = batch.filter(pc.equal(batch.column(COMMIT_TIME), instant_time))
                named += written.column(RECORD_KEY).slice(0, _NAMED + 1 - len(named)).to_pylist()
                if len(named) > _NAMED:
                    break
    except CorruptTableError:
        return ""
    more = ", ..." if len(named) > _NAMED else ""
    return f"; keys {', '.join(map(repr, named[:_NAMED]))}{more}" if named else ""
