"""A metadata table for a table that has no commits yet, with the partitions ``files`` and ``record_index``."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from lakeformat.codec import properties
from lakeformat.codec.hfile_writer import encode_hfile
from lakeformat.codec.log_blocks import BlockKind, HeaderKey, encode_block
from lakeformat.metadata_table.deltacommit import rows_of_files
from lakeformat.metadata_table.encode import encode_parts
from lakeformat.metadata_table.names import FOLDER, MetadataPartition, file_id, log_name
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import Action, Instant, State
from lakeformat.model.table_config import METADATA_PARTITIONS
from lakeformat.table import Table
from lakeformat.transaction.order.properties_file import write_properties
from tests.helpers.fixture_tables import unpack
from tests.metadata_table.test_fixtures import open_table

__all__ = ["make_metadata_table"]

_GROUPS = {MetadataPartition.FILES: 1, MetadataPartition.RECORD_INDEX: 2}
_NOTHING_DELETED = bytes.fromhex("000000030000000100")


@cache
def _pattern(version: int) -> tuple[bytes, str]:
    """Return the properties of a metadata table that Hudi made, and the schema of its records."""
    name = {6: "v6_cow_overwrite_clean", 9: "v9_cow_delete_partition"}[version]
    with tempfile.TemporaryDirectory() as folder:
        path = unpack(f"hudi_metadata/{name}", Path(folder))
        table = open_table(path)
        assert table is not None
        return (path / FOLDER / ".hoodie/hoodie.properties").read_bytes(), table.read_schema()


def make_metadata_table(table: Table) -> None:
    """Make the metadata table, as Hudi does: a deltacommit for each partition."""
    store = table.context.store
    storage, layout, config = store.storage, store.layout, store.config()
    own, schema = _pattern(config.version)
    storage.create(f"{FOLDER}/.hoodie/hoodie.properties", own)
    for number, (partition, groups) in enumerate(_GROUPS.items()):
        time = f"00000000000000{number:03d}" if layout.has_completion_times else f"00000000000000{number + 10:03d}"
        requested = Instant(time, Action.DELTA_COMMIT, State.REQUESTED)
        storage.create(f"{FOLDER}/{layout.path(requested)}", b"")
        empty = layout.encode_commit(CommitMetadata("BULK_INSERT_PREPPED", {}))
        storage.create(f"{FOLDER}/{layout.path(requested.at(State.INFLIGHT))}", empty)
        marker = properties.encode({"commitTime": time, "partitionDepth": "1"}, comments=["partition metadata"])
        storage.create(f"{partition.folder}/.hoodie_partition_metadata", marker)
        for group in range(groups):
            data = encode_block(BlockKind.DELETE, {HeaderKey.INSTANT_TIME: time}, _NOTHING_DELETED)
            if partition is MetadataPartition.FILES:
                cells = encode_parts(partition, rows_of_files(()), schema)
                content = encode_hfile(
                    cells["key"].combine_chunks(), cells["value"].combine_chunks(), info={"schema": schema.encode()}
                )
                header = {HeaderKey.INSTANT_TIME: time, HeaderKey.SCHEMA: schema}
                data += encode_block(BlockKind.HFILE_DATA, header, content)
            storage.create(f"{partition.folder}/{log_name(file_id(partition, group), time, 1)}", data)
        done = requested.at(State.COMPLETED)
        if layout.has_completion_times:
            done = Instant(time, Action.DELTA_COMMIT, State.COMPLETED, f"19700101000000{number:03d}")
        storage.create(f"{FOLDER}/{layout.path(done)}", empty)
    names = ",".join(partition.value for partition in _GROUPS)
    version = None if storage.has_lock else storage.read_versioned(".hoodie/hoodie.properties")[1]
    write_properties(store, {**config.values, METADATA_PARTITIONS: names}, table.context.clock, version)
    store.config()
