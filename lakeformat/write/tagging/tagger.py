"""The tagger of a write: combine the rows of each partition, then find the file groups of their keys.

Source: Hudi's ``HoodieIndex.tagLocation``. `lakeformat.write.tagging.global_index` has the tagger of global indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeformat.arrow.gather import gather
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.index.port import TagCounts, Tagged
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.timeline.write_report import Report
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.prepare import ANY_PARTITION, combine, winning_rows
from lakeformat.write.tagging.duplicates import drop_stored_rows, find_stored_keys, refuse_repeated_keys

__all__ = ["InsertFilter", "PartitionTagger", "TaggedRows", "Tagger", "combine_rows", "locate_rows"]

Ints: TypeAlias = npt.NDArray[np.int64]
#: A function that returns a mask of the rows that may be inserted.
InsertFilter: TypeAlias = Callable[[pa.Table], npt.NDArray[np.bool_]]
T = TypeVar("T")


@dataclass(frozen=True)
class TaggedRows:
    """Combined rows and the locations of their keys.

    Attributes:
        rows: partition path -> combined rows.
        tagged: partition path -> their locations; positions are those of ``rows``.
    """

    rows: Mapping[str, pa.Table]
    tagged: Mapping[str, Tagged]


class Tagger(Protocol):
    """Step 4 of a write. The index decides which tagger a write uses."""

    def tag(self, rows: Mapping[str, pa.Table], report: Report) -> TaggedRows:
        """Combine prepared rows, given by partition path, and find the file groups of their keys.

        Raises:
            DuplicateKeyError: if the job's duplicate policy refuses a key.
        """


@dataclass(frozen=True)
class PartitionTagger:
    """The tagger of indexes that look for a key in its own partition only."""

    storage: Storage
    job: WriteJob
    snapshot: Snapshot
    insert_filter: InsertFilter | None = None

    def tag(self, rows: Mapping[str, pa.Table], report: Report) -> TaggedRows:
        """Tag each partition's rows. Rows without a partition (deletes) are looked up in every partition."""
        rows, winners = combine_rows(self.job, rows, report)
        rows = _copy_to_all_partitions(rows, self.snapshot)
        winners = _copy_to_all_partitions(winners, self.snapshot)
        with report.step("tag") as counted:
            tagged = locate_rows(self, rows, winners, counted)
        return TaggedRows(rows, tagged)


def locate_rows(
    tagger: PartitionTagger, rows: Mapping[str, pa.Table], winners: Mapping[str, Ints | None], counted: dict[str, Any]
) -> Mapping[str, Tagged]:
    """Find the files of all keys. Apply the duplicate policy and the filter of insertable rows.

    Args:
        rows: partition path -> combined rows.
        winners: partition path -> the positions of the rows that remain; None is all.
        counted: takes the counts of the step.
    """
    job = tagger.job
    keyed = {path: _key_column(table, winners[path]) for path, table in rows.items()}
    if job.dup_policy == "fail":
        refuse_repeated_keys(keyed)
    keys = {path: table.column(RECORD_KEY) for path, table in keyed.items()}
    find = job.index.locate if job.needs_tagging else job.index.place
    tagged: Mapping[str, Tagged] = find(tagger.storage, tagger.snapshot, keys)
    tagged = {path: _restore_positions(found, winners[path]) for path, found in tagged.items()}
    if (insert_filter := tagger.insert_filter) is not None:
        tagged = {path: found.with_new_keys(insert_filter(rows[path])[found.new]) for path, found in tagged.items()}
    counted.update(TagCounts.total(found.counts for found in tagged.values()))
    if job.dup_policy != "none":
        counted["dropped"] = sum(len(find_stored_keys(found)) for found in tagged.values())
        tagged = drop_stored_rows(rows, tagged, fail=job.dup_policy == "fail")
    return tagged


def combine_rows(
    job: WriteJob, rows: Mapping[str, pa.Table], report: Report
) -> tuple[Mapping[str, pa.Table], Mapping[str, Ints | None]]:
    """Combine rows of the same key. Return the rows, and the positions of those that remain per partition; None is all.

    If the rule only chooses a row, the rows are not copied. If it makes a row of several, new rows are returned.
    """
    rule = job.prepare.rule
    with report.step("combine") as counted:
        winners: Mapping[str, Ints | None] = dict.fromkeys(rows)
        if job.needs_combining and (rule.folds or (job.prepare.is_global and not job.needs_tagging)):
            rows = {path: combine(table, rule) for path, table in rows.items()}
        elif job.needs_combining:
            winners = {path: winning_rows(table, rule) for path, table in rows.items()}
        counted["rows"] = sum(rows[path].num_rows if won is None else len(won) for path, won in winners.items())
    return rows, winners


def _key_column(rows: pa.Table, winners: Ints | None) -> pa.Table:
    keys = rows.select([RECORD_KEY])
    return keys if winners is None else gather(keys, winners)


def _restore_positions(tagged: Tagged, winners: Ints | None) -> Tagged:
    """Turn positions among the rows that remain into positions among all rows."""
    return tagged if winners is None else replace(tagged, keys=winners[tagged.keys], new=winners[tagged.new])


def _copy_to_all_partitions(rows: Mapping[str, T], snapshot: Snapshot) -> Mapping[str, T]:
    """Copy the entry of rows without a partition (deletes) to every partition."""
    if ANY_PARTITION not in rows:
        return rows
    return dict.fromkeys(snapshot.slices, rows[ANY_PARTITION])
