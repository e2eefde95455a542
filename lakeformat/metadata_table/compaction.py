"""Compaction of a metadata table: base files that replace the log files of many deltacommits.

A base file cannot be taken back, so it must not contain the records of a commit that is pending. In timeline layout 2 a
compaction has a time before the pending instants of the table. Deltacommits that it has not merged belong to these or
to later instants, so they are completed after its time, and readers merge them after the base file. In layout 1 its
time is that of the last deltacommit with ``001`` behind it, and it runs only while no earlier instant is pending.
Hudi: ``HoodieBackedTableMetadataWriter.compactIfNecessary``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec.bloom import BloomFilter
from lakeformat.codec.hfile_writer import encode_hfile
from lakeformat.codec.timeline_files.service_plans import decode_compaction_plan, encode_compaction_plan
from lakeformat.errors import CorruptTableError, UnsupportedTableError
from lakeformat.metadata_table.encode import encode_parts
from lakeformat.metadata_table.file_groups import MetadataSlice, list_logs, list_versions
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import (
    FOLDER,
    MetadataPartition,
    base_name,
    file_id,
    group_number,
    partition_of_name,
)
from lakeformat.metadata_table.record_schema import without_meta_columns
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import LogFile
from lakeformat.model.instant import Action, Instant, State, instant_time_before, next_instant_time
from lakeformat.model.service_plans import CompactionOperation, CompactionPlan
from lakeformat.timeline.store import put_once
from lakeformat.timeline.timeline import Timeline

__all__ = [
    "compact",
    "encode_base_file",
    "find_planned",
    "is_compaction_due",
    "last_compaction",
    "may_have_merged",
    "remove_old_slices",
]

_FILTER_KEYS: Final = 10_000
_FILTER_RATE: Final = 1e-9
#: What the time of a compaction in layout 1 has behind that of a deltacommit.
_SUFFIX: Final = "001"
#: Slices of a file group that stay (Hudi: ``hoodie.metadata.clean…``, two versions).
_KEPT_SLICES: Final = 2
_REQUESTED: Final = ".compaction.requested"


def is_compaction_due(table: MetadataTable, most_logs: int) -> bool:
    """Tell whether a file group of `MetadataPartition.FILES` has too many log files. Each deltacommit adds one."""
    return any(len(piece.logs) > most_logs for piece in table.list_slices(MetadataPartition.FILES))


def last_compaction(table: MetadataTable) -> str:
    """Return the instant time of the newest base file of `MetadataPartition.FILES`; "" if there is none."""
    slices = table.list_slices(MetadataPartition.FILES)
    return max((piece.instant_time for piece in slices if piece.base is not None), default="")


def may_have_merged(table: MetadataTable, instant_time: str) -> bool:
    """Tell whether base files may have the records of a deltacommit, so that removing it does not take them back.

    Also true if its instant is not on the timeline: it may be archived, or the table was filled from a listing later.
    """
    instants, is_alone = table.instants, table.storage.has_lock
    end = instants.completions.get(instant_time)
    if end is None or not is_alone:  # Without a lock, another process may compact at any moment.
        return True
    return last_compaction(table) > end or any(instants.completions[time] > end for time in instants.filled)


def compact(
    table: MetadataTable, timeline: Timeline, instant_time: str, *, undone: Collection[str] = frozenset()
) -> bool:
    """Merge all file groups of the partitions that can be read here. Return False if that is not possible now.

    A compaction that has been planned before is carried out instead. On storage with locks, call this under the
    table's lock. It may be called again after a crash, and by several processes at once.
    Memory: the records of one file group.

    Args:
        timeline: The table's active timeline, with which the metadata table was opened.
        instant_time: The time of the caller's own pending instant.
        undone: Times of instants that were undone. The compaction gets none of them: log files of these instants that
            arrive late would count as completed.
    """
    storage, layout = table.storage, table.layout
    planned = find_planned(table)
    if planned is None:
        chosen = _choose_time(table, timeline, instant_time, undone)
        if chosen is None:
            return False
        plan = encode_compaction_plan(
            CompactionPlan(tuple(_list_operations(table, chosen))), missing_partitions=layout.has_completion_times
        )
        planned = Instant(chosen, Action.COMPACTION, State.REQUESTED)
        with suppress(FileExistsError):  # Another process has made the same choice. Its plan is carried out.
            storage.create(table.path(planned), plan)
    schema = table.read_schema()
    stats: dict[str, tuple[WriteStat, ...]] = {}
    name = table.path(planned.at(State.REQUESTED))
    operations = decode_compaction_plan(storage.read(name), name=name).operations
    put_once(storage, table.path(planned.at(State.INFLIGHT)), b"")
    for operation in operations:
        stat = _merge(table, operation, planned.time, schema)
        stats[stat.partition_path] = (*stats.get(stat.partition_path, ()), stat)
    done = Instant(planned.time, Action.COMMIT, State.COMPLETED)
    if layout.has_completion_times:  # It follows from the plan, so that all processes that carry it out agree.
        done = replace(done, completion_time=next_instant_time(0, planned.time, table.config.zone))
    metadata = CommitMetadata("COMPACT", stats, {"schema": without_meta_columns(schema)}, compacted=True)
    with suppress(FileExistsError):
        put_once(storage, table.path(done), layout.encode_commit(metadata))
    return True


def find_planned(table: MetadataTable) -> Instant | None:
    """Return the oldest compaction that is planned and not completed; None if there is none."""
    names = (name for name in table.list_timeline() if name.endswith(_REQUESTED))
    times = sorted({name.removesuffix(_REQUESTED) for name in names} - table.instants.completions.keys())
    return Instant(times[0], Action.COMPACTION, State.REQUESTED) if times else None


def _choose_time(table: MetadataTable, timeline: Timeline, instant_time: str, undone: Collection[str]) -> str | None:
    """Return the time of a new compaction; None if none is possible while the table's instants are pending.

    Under a lock, a pending instant matters only if its deltacommit is completed: one that is completed later gets a
    completion time after the compaction.
    """
    instants, last, is_alone = table.instants, last_compaction(table), table.storage.has_lock
    if not instants.has_completion_times:
        newest = max(instants.filled | instants.applied)
        pending = min((instant_time, *(instant.time for instant in timeline.pending)))
        return f"{newest}{_SUFFIX}" if is_alone and last < newest < pending else None
    times = [instant.time for instant in timeline.pending if not is_alone or instant.time in instants.times]
    before = instant_time_before(min((*times, instant_time)))
    while before in undone:
        before = instant_time_before(before)
    return before if before > last and before not in instants.times else None


def _list_operations(table: MetadataTable, instant_time: str) -> Iterator[CompactionOperation]:
    """Yield the file groups to merge, with the log files that their new base files hide.

    In layout 2 a log file belongs to the newest base file that is older than the end of its deltacommit. So what was
    completed after the time of the compaction stays, else readers would merge it with a base file that has it already.
    """
    ends = table.instants.completions if table.instants.has_completion_times else {}

    def is_hidden(log: LogFile) -> bool:
        return ends.get(log.name.instant_time, "") < instant_time

    for partition in table.partitions:
        for piece in table.list_slices(partition):
            yield CompactionOperation(
                partition.value,
                file_id(partition, piece.number),
                piece.instant_time,
                (piece.base or "").rpartition("/")[2],
                tuple(log.path.rpartition("/")[2] for log in piece.logs if is_hidden(log)),
            )


def _merge(table: MetadataTable, operation: CompactionOperation, instant_time: str, schema: str) -> WriteStat:
    """Write the base file of one file group. Return its write stat."""
    partition = partition_of_name(operation.partition_path)
    if partition is None:
        raise UnsupportedTableError(
            f"a compaction of the metadata table of {table.storage.location} is planned for "
            f"{operation.partition_path}, which is not supported; run repair(), which makes the metadata table again"
        )
    cells = encode_parts(partition, table.read_slice(partition, _slice_of(table, partition, operation)), schema)
    data = encode_base_file(partition, cells, schema)
    name = base_name(operation.file_id, instant_time)
    with suppress(FileExistsError):  # Another process carries out the same plan. What it has merged is right, too.
        put_once(table.storage, f"{partition.folder}/{name}", data)
    return WriteStat(
        file_id=operation.file_id,
        path=f"{partition.value}/{name}",
        partition_path=partition.value,
        prev_commit=operation.base_instant,
        num_writes=len(cells),
        size_bytes=len(data),
    )


def encode_base_file(partition: MetadataPartition, cells: pa.Table, schema: str) -> bytes:
    """Encode a base file of a partition of a metadata table.

    Args:
        cells: The columns ``key`` and ``value`` of the records.
        schema: The Avro schema of the values, as JSON.
    """
    keys = cells["key"].combine_chunks()
    bloom = BloomFilter.with_capacity(_FILTER_KEYS, _FILTER_RATE)
    bloom.add(keys)
    ends = pc.min_max(keys)
    info = {
        "schema": schema.encode(),
        "minRecordKey": (ends["min"].as_py() or "").encode(),
        "maxRecordKey": (ends["max"].as_py() or "").encode(),
        "bloomFilterTypeCode": bloom.type_code.encode(),
    }
    metas = {"bloomFilter": bloom.encode().encode()}
    values, size = cells["value"].combine_chunks(), partition.block_bytes
    return encode_hfile(keys, values, info=info, metas=metas, block_bytes=size)


def _slice_of(table: MetadataTable, partition: MetadataPartition, operation: CompactionOperation) -> MetadataSlice:
    """Return the file slice that a plan names."""
    number = group_number(partition, operation.file_id)
    logs = {log.path.rpartition("/")[2]: log for log in list_logs(table.storage, partition)}
    missing = [name for name in operation.log_names if name not in logs]
    if number is None or missing:
        raise CorruptTableError(
            f"{table.storage.location}/{partition.folder} lacks {(missing or [operation.file_id])[0]}, which a planned "
            "compaction names; run repair(), which makes the metadata table again"
        )
    base = f"{partition.folder}/{operation.base_name}" if operation.base_name else None
    return MetadataSlice(number, operation.base_instant, base, tuple(logs[name] for name in operation.log_names))


def remove_old_slices(table: MetadataTable, oldest: str) -> None:
    """Delete all but the two newest slices of each file group, and the instants that no file needs any more.

    A reader that began before the last compaction still finds its slice. Instants are deleted, not archived, because no
    reader looks for archived instants of a metadata table.

    Args:
        oldest: The time of the oldest instant on the table's own timeline. Instants from it on stay.
    """
    storage, instants = table.storage, table.instants
    kept_from = []
    for partition in table.partitions:
        for files in list_versions(storage, partition, instants).values():
            if len(files.bases) <= _KEPT_SLICES:
                kept_from.append("")
                continue
            first = sorted(files.bases)[-_KEPT_SLICES]
            kept_from.append(first)
            old = [path for time, path in files.bases.items() if time < first]
            old += [log.path for log in files.logs if (instants.latest_base(log.name.instant_time) or first) < first]
            storage.delete_all(old)
    limit = min((*kept_from, oldest))
    done = {time for time, end in instants.completions.items() if max(time, end) < limit}
    old = [name for name in table.list_timeline() if name.partition(".")[0].partition("_")[0] in done]
    pending_first = sorted(old, key=lambda name: not name.endswith((".requested", ".inflight")))
    for name in pending_first:
        storage.delete(f"{FOLDER}/{table.layout.folder}/{name}")
