"""The tagger of a write: combine the rows of each partition, then find the file groups of their keys.

Source: Hudi's ``HoodieIndex.tagLocation``. `lakeformat.write.tagging.global_index` has the tagger of global indexes.
The duplicate policy of an insert is applied here, too (Hudi: ``DataSourceUtils.resolveDuplicates``). Memory: the keys
of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.gather import combine_table, gather
from lakeformat.errors import DuplicateKeyError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.index.factory import make_index
from lakeformat.index.port import Ints, TagCounts, Tagged
from lakeformat.merge.order import key_codes
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.timeline.write_report import Report
from lakeformat.write.plan.job import WriteJob
from lakeformat.write.rows.bad_rows import BadRows
from lakeformat.write.rows.faults import Reason
from lakeformat.write.rows.prepare import ANY_PARTITION, combine, winning_rows

__all__ = [
    "InsertFilter",
    "PartitionTagger",
    "TaggedRows",
    "Tagger",
    "choose_new",
    "combine_rows",
    "drop_stored_rows",
    "find_repeated_keys",
    "find_stored_keys",
    "locate_rows",
    "refuse_repeated_keys",
    "stored_keys_error",
]


def find_repeated_keys(keys: pa.ChunkedArray) -> pa.Array:
    """Return the keys that occur more than once, each once."""
    if pc.count_distinct(keys).as_py() == len(keys):
        return pa.array([], keys.type)
    counts = pc.value_counts(keys)
    return counts.field("values").filter(pc.greater(counts.field("counts"), 1))


def refuse_repeated_keys(rows: Mapping[str, pa.Table]) -> None:
    """Refuse a batch that holds a key twice in one partition.

    Args:
        rows: for each partition path, its prepared rows.

    Raises:
        DuplicateKeyError: if a partition has a key twice; the message names the key.
    """
    for partition, table in rows.items():
        repeated = find_repeated_keys(table.column(RECORD_KEY))
        if len(repeated):
            raise DuplicateKeyError(
                f"{len(repeated)} record key(s) come more than once in the input, e.g. {repeated[0].as_py()!r}"
                f"{_partition_text(partition)}; leave them out, or set hoodie.datasource.insert.dup.policy=drop"
            )


def drop_stored_rows(rows: Mapping[str, pa.Table], tagged: Mapping[str, Tagged], *, fail: bool) -> dict[str, Tagged]:
    """Return the locations without the rows whose keys are stored, so that an insert does not write these rows.

    If log files have deleted the stored version, the key does not count as stored, and its new row goes to the slice of
    the deleted version.

    Args:
        rows: for each partition path, its prepared rows.
        tagged: for each partition path, the exact locations of its rows.
        fail: whether a stored key raises an error. If not, its row is dropped.

    Raises:
        DuplicateKeyError: if ``fail`` and a key is stored; the message names the key.
    """
    stored = {path: keys for path, places in tagged.items() if len(keys := find_stored_keys(places))}
    if fail and stored:
        path, keys = next(iter(stored.items()))
        key = rows[path].column(RECORD_KEY)[int(keys[0])].as_py()
        raise stored_keys_error(sum(map(len, stored.values())), key, path)
    return {path: _drop_keys(places, find_stored_keys(places)) for path, places in tagged.items()}


def stored_keys_error(count: int, example: str, partition: str) -> DuplicateKeyError:
    """Return the error for an insert whose keys are stored.

    Args:
        count: number of these keys.
        example: one of them.
        partition: its partition path.
    """
    return DuplicateKeyError(
        f"{count} record key(s) of the input are in the table already, e.g. {example!r}{_partition_text(partition)}; "
        "leave them out, use operation upsert, or set hoodie.datasource.insert.dup.policy=drop"
    )


def find_stored_keys(tagged: Tagged) -> Ints:
    """Return the positions of the rows whose keys are stored in a slice and not deleted by its log files."""
    return np.unique(tagged.keys if tagged.is_deleted is None else tagged.keys[~tagged.is_deleted])


def _drop_keys(tagged: Tagged, stored: Ints) -> Tagged:
    """Return ``tagged`` without the rows at the positions ``stored``, and with only one slice for each other row."""
    kept_pairs = np.flatnonzero(~np.isin(tagged.keys, stored))
    kept_pairs = kept_pairs[np.unique(tagged.keys[kept_pairs], return_index=True)[1]]
    kept_gone = None if tagged.is_deleted is None else tagged.is_deleted[kept_pairs]
    return replace(
        tagged, keys=tagged.keys[kept_pairs], files=tagged.files[kept_pairs], is_deleted=kept_gone, base_rows=None
    )


def _partition_text(partition: str) -> str:
    return "" if partition == ANY_PARTITION else f" in partition {partition!r}"


#: A function that takes rows and returns a mask of those that may be inserted.
InsertFilter: TypeAlias = Callable[[pa.Table], npt.NDArray[np.bool_]]
T = TypeVar("T")


@dataclass(frozen=True)
class TaggedRows:
    """Rows and the locations of their keys.

    Attributes:
        rows: for each partition path, its rows. Rows that were dropped for another row with their key may be among
            them.
        tagged: for each partition path, the locations of the remaining rows, by their positions in ``rows``.
    """

    rows: Mapping[str, pa.Table]
    tagged: Mapping[str, Tagged]


class Tagger(Protocol):
    """The interface of objects that find the file groups of rows' keys. The index decides which one a write uses."""

    def tag(self, rows: Mapping[str, pa.Table], report: Report) -> TaggedRows:
        """Combine prepared rows, given by partition path, and find the file groups of their keys.

        Raises:
            DuplicateKeyError: if the job's duplicate policy refuses a key.
        """


@dataclass(frozen=True)
class PartitionTagger:
    """The tagger of indexes that look for a key in its own partition only.

    Attributes:
        duplicates: collects the rows that the duplicate policy refuses; None refuses the write.
    """

    storage: Storage
    job: WriteJob
    snapshot: Snapshot
    insert_filter: InsertFilter | None
    duplicates: BadRows | None = field(default=None, kw_only=True)

    def tag(self, rows: Mapping[str, pa.Table], report: Report) -> TaggedRows:
        """Look up each partition's rows in that partition, and rows without partition (deletes) in every partition."""
        rows, winners = combine_rows(self.job, rows, report)
        rows = _copy_to_all_partitions(rows, self.snapshot)
        winners = _copy_to_all_partitions(winners, self.snapshot)
        with report.step("tag") as counted:
            tagged = locate_rows(self, rows, winners, counted)
            if (choose := self.insert_filter) is not None:
                tagged = {path: places.with_new_keys(choose(rows[path])[places.new]) for path, places in tagged.items()}
        return TaggedRows(rows, tagged)


def choose_new(rows: pa.Table, new: Ints, insert_filter: InsertFilter | None) -> Ints:
    """Return the positions of the new rows that may be inserted, in their order.

    Args:
        new: positions of the new rows.
        insert_filter: function that returns a mask of the rows that may be inserted; None allows all rows.
    """
    return new if insert_filter is None else new[insert_filter(gather(rows, new))]


def locate_rows(
    tagger: PartitionTagger, rows: Mapping[str, pa.Table], winners: Mapping[str, Ints | None], counted: dict[str, Any]
) -> Mapping[str, Tagged]:
    """Find the file slices that hold the rows' keys. Drop rows that the duplicate policy refuses.

    Return for each partition path the locations of its rows.

    Args:
        rows: for each partition path, its rows.
        winners: for each partition path, the positions of the rows that remain after combining; None for all rows.
        counted: the mapping to which the counts of the step are added.
    """
    job, duplicates = tagger.job, tagger.duplicates
    if duplicates is not None:
        duplicates.clear()  # An earlier attempt may have collected rows.
        winners = {path: _take_out_repeats(job, table, winners[path], duplicates) for path, table in rows.items()}
    keyed = {path: _key_column(table, winners[path]) for path, table in rows.items()}
    if job.dup_policy == "fail":
        refuse_repeated_keys(keyed)
    keys = {path: table.column(RECORD_KEY) for path, table in keyed.items()}
    settings = job.index_settings
    if tagger.insert_filter is not None and settings.is_global:  # The filter must see every row that is new.
        settings = replace(settings, exact=True)
    index = make_index(settings)
    find = index.locate if job.needs_tagging else index.place
    tagged: Mapping[str, Tagged] = find(tagger.storage, tagger.snapshot, keys)
    tagged = {path: _restore_positions(found_places, winners[path]) for path, found_places in tagged.items()}
    counted.update(TagCounts.total(found_places.counts for found_places in tagged.values()))
    if job.dup_policy != "none":
        counted["dropped"] = sum(len(find_stored_keys(found_places)) for found_places in tagged.values())
        if duplicates is not None:
            key = ",".join(job.prepare.keys.record_fields)
            for path, places in tagged.items():
                stored = gather(rows[path], find_stored_keys(places))
                duplicates.add_duplicates(stored, Reason.STORED_KEY, key, "the record key is in the table already")
        tagged = drop_stored_rows(rows, tagged, fail=job.dup_policy == "fail" and duplicates is None)
    return tagged


def _take_out_repeats(job: WriteJob, rows: pa.Table, winners: Ints | None, duplicates: BadRows) -> Ints:
    """Collect each row whose key an earlier row has. Return the positions of the other rows, in order.

    Args:
        rows: the rows of one partition.
        winners: the positions of the rows that remain after combining; None for all rows.
    """
    own = np.arange(rows.num_rows) if winners is None else winners
    codes = key_codes(_key_column(rows, winners).column(RECORD_KEY))
    if codes is None:
        return own
    first = np.sort(np.unique(codes, return_index=True)[1])
    later = np.delete(own, first)
    if len(later):
        message = "the record key comes more than once in the input, and an earlier row was written"
        key = ",".join(job.prepare.keys.record_fields)
        duplicates.add_duplicates(gather(combine_table(rows), later), Reason.REPEATED_KEY, key, message)
    return own[first]


def combine_rows(
    job: WriteJob, rows: Mapping[str, pa.Table], report: Report
) -> tuple[Mapping[str, pa.Table], Mapping[str, Ints | None]]:
    """Combine rows with the same key in each partition.

    If the rule only chooses one of the rows, nothing is copied: return all rows, and the positions of the chosen rows.
    If the rule makes one row of several, return the new rows, with None for the positions.
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
    """Convert the positions in ``tagged``, which count only the rows ``winners``, to positions among all rows."""
    return tagged if winners is None else replace(tagged, keys=winners[tagged.keys], new=winners[tagged.new])


def _copy_to_all_partitions(rows: Mapping[str, T], snapshot: Snapshot) -> Mapping[str, T]:
    """Return ``rows`` by partition path. If they have no partition path (deletes), every partition gets all of them."""
    if ANY_PARTITION not in rows:
        return rows
    return dict.fromkeys(snapshot.slices, rows[ANY_PARTITION])
