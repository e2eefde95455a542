"""Making of a metadata table and of its partitions, for a table that has files already or has none.

Each partition is made by a deltacommit of its own, whose time no commit of the table can have. The number of its file
groups never changes later. No reader looks at a partition that the table's properties do not name. So a maker that dies
leaves only a folder, which the next maker replaces. Hudi: ``HoodieBackedTableMetadataWriter.initializeFromFilesystem``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Final

import pyarrow as pa

from lakeformat.codec import properties
from lakeformat.codec.log_blocks import BlockKind, HeaderKey, encode_block
from lakeformat.metadata_table.compaction import encode_base_file
from lakeformat.metadata_table.encode import encode_parts
from lakeformat.metadata_table.instants import MetadataInstants
from lakeformat.metadata_table.metadata_table import PROPERTIES, MetadataTable
from lakeformat.metadata_table.names import FOLDER, MetadataPartition, base_name, file_groups_of, file_id, log_name
from lakeformat.metadata_table.record_schema import new_schema, without_meta_columns
from lakeformat.model.commit import CommitMetadata, WriteStat
from lakeformat.model.files import PARTITION_MARKER
from lakeformat.model.instant import Action, Instant, State, next_instant_time
from lakeformat.model.table_config import ZONE, TableConfig, TableType, table_checksum
from lakeformat.model.table_properties import layout_properties
from lakeformat.storage.port import Clock, Storage
from lakeformat.timeline.store import put_once
from lakeformat.timeline.timeline import Timeline

__all__ = ["begin_metadata_table", "make_partition", "split_rows"]

_OPERATION: Final = "BULK_INSERT_PREPPED"
#: Prefix of the times of the deltacommits that make partitions.
_FIRST: Final = "00000000000000"
#: Number behind the prefix of the first of them in timeline layout 1.
_FIRST_SUFFIX: Final = 10
#: Digits of an instant time with milliseconds.
_DIGITS: Final = 17
#: Content of a delete block without entries. Each file group begins with a log file that has one.
_NOTHING_DELETED: Final = bytes.fromhex("000000030000000100")
#: Properties of each metadata table, and of those of each form (`TableVersion.metadata_form`).
_PROPERTIES: Final = {
    "hoodie.table.base.file.format": "HFILE",
    "hoodie.table.recordkey.fields": "key",
    "hoodie.populate.meta.fields": "false",
    "hoodie.datasource.write.drop.partition.columns": "false",
    "hoodie.compaction.payload.class": "org.apache.hudi.metadata.HoodieMetadataPayload",
}
_PROPERTIES_OF: Final[Mapping[int, Mapping[str, str]]] = {
    6: {
        "hoodie.table.keygenerator.class": "org.apache.hudi.metadata.HoodieTableMetadataKeyGenerator",
        "hoodie.compaction.record.merger.strategy": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
    },
    8: {
        "hoodie.table.keygenerator.type": "HOODIE_TABLE_METADATA",
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
    },
}
#: Properties of a table's layout that Hudi does not store for its metadata table.
_NOT_STORED: Final = frozenset({"hoodie.table.format", "hoodie.table.multiple.base.file.formats.enable"})


def begin_metadata_table(storage: Storage, config: TableConfig, timeline: Timeline) -> MetadataTable:
    """Delete what a maker that died has left, and write the properties of a new metadata table. Return it, empty.

    Args:
        config: The table's properties.
        timeline: The table's active timeline.
    """
    name = f"{config.name}_metadata"
    values = {
        "hoodie.table.name": name,
        "hoodie.table.type": TableType.MERGE_ON_READ.value,
        "hoodie.table.checksum": table_checksum(name),
        **{key: text for key, text in layout_properties(config.version).items() if key not in _NOT_STORED},
        **_PROPERTIES,
        **_PROPERTIES_OF[config.traits.metadata_form],
        **({ZONE: "UTC"} if config.zone is not None else {}),
    }
    storage.delete_folder(FOLDER)
    storage.create(PROPERTIES, properties.encode(values, comments=["Properties of the metadata table"]))
    own = TableConfig(values)
    return MetadataTable(storage, own, (), MetadataInstants.of_file_names((), timeline, own.traits))


def split_rows(partition: MetadataPartition, rows: pa.Table, groups: int) -> Iterator[pa.Table]:
    """Yield the rows of each file group, in the order of their numbers."""
    numbers = file_groups_of(partition, rows["key"].combine_chunks(), groups)
    for number in range(groups):
        yield rows.filter(pa.array(numbers == number))


def make_partition(
    table: MetadataTable,
    partition: MetadataPartition,
    contents: Iterable[pa.Table],
    timeline: Timeline,
    clock: Clock,
) -> MetadataTable:
    """Make a partition that the table's properties do not name yet. Return the metadata table with it.

    Memory: the encoded records of one file group.

    Args:
        contents: The records of each file group, with the columns of `lakeformat.metadata_table.parts.decode_parts`.
        timeline: The table's active timeline.
    """
    storage, layout = table.storage, table.layout
    storage.delete_folder(partition.folder)
    time = _choose_time(table, timeline)
    schema = table.read_schema() if table.names else new_schema(table.config.traits.metadata_form)
    requested = Instant(time, Action.DELTA_COMMIT, State.REQUESTED)
    storage.create(table.path(requested), b"")
    put_once(storage, table.path(requested.at(State.INFLIGHT)), layout.encode_commit(CommitMetadata(_OPERATION, {})))
    marker = properties.encode({"commitTime": time, "partitionDepth": "1"}, comments=["partition metadata"])
    storage.create(f"{partition.folder}/{PARTITION_MARKER}", marker)
    stats = tuple(_make_group(storage, partition, number, rows, time, schema) for number, rows in enumerate(contents))
    done = requested.at(State.COMPLETED)
    if layout.has_completion_times:
        ends = (instant.completed_at for instant in timeline.instants if instant.state is State.COMPLETED)
        newest = max((*table.instants.completions.values(), *ends), default=time)
        done = replace(done, completion_time=next_instant_time(clock.now_ms(), newest, table.config.zone))
    metadata = CommitMetadata(_OPERATION, {partition.value: stats}, {"schema": without_meta_columns(schema)})
    put_once(storage, table.path(done), layout.encode_commit(metadata))
    instants = MetadataInstants.of_file_names(table.list_timeline(), timeline, table.config.traits)
    return replace(table, names=(*table.names, partition.value), instants=instants)


def _choose_time(table: MetadataTable, timeline: Timeline) -> str:
    """Return the first free time of a deltacommit that makes a partition.

    In layout 1 it is the time of the table's last instant with a number behind it.
    """
    prefix, first = _FIRST, 0
    if not table.layout.has_completion_times:
        first = _FIRST_SUFFIX
        done = [instant.time for instant in timeline.instants if instant.state is State.COMPLETED]
        last = max(done, default="")
        prefix = last if len(last) == _DIGITS else _FIRST
    times = (f"{prefix}{number:03d}" for number in count(first))
    return next(time for time in times if time not in table.instants.times)


def _make_group(
    storage: Storage, partition: MetadataPartition, number: int, rows: pa.Table, time: str, schema: str
) -> WriteStat:
    """Write the first files of a file group: a log file without records, and a base file if it has records."""
    group = file_id(partition, number)
    log = log_name(group, time, 1)
    data = encode_block(BlockKind.DELETE, {HeaderKey.INSTANT_TIME: time}, _NOTHING_DELETED)
    storage.create(f"{partition.folder}/{log}", data)
    if not len(rows):
        return WriteStat(
            file_id=group,
            path=f"{partition.value}/{log}",
            partition_path=partition.value,
            prev_commit=time,
            num_writes=0,
            size_bytes=len(data),
            log_names=(log,),
        )
    cells = encode_parts(partition, rows, schema)
    data, name = encode_base_file(partition, cells, schema), base_name(group, time)
    put_once(storage, f"{partition.folder}/{name}", data)
    return WriteStat(
        file_id=group,
        path=f"{partition.value}/{name}",
        partition_path=partition.value,
        prev_commit=None,
        num_writes=len(cells),
        num_inserts=len(cells),
        size_bytes=len(data),
    )
