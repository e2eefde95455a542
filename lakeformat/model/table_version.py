"""The table versions that lakeformat reads and writes, one row of traits for each (Hudi: ``HoodieTableVersion``).

Other modules ask for a trait and never compare numbers of versions. So a new version is one more row here, beside the
code that only its new traits need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

__all__ = [
    "SEVERAL_ORDERING_FIELDS",
    "SINGLE_KEY_NAMES",
    "TABLE_VERSIONS",
    "WRITTEN_VERSIONS",
    "TableVersion",
    "table_version",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """The traits of one table version.

    Attributes:
        number: ``hoodie.table.version``.
        timeline_layout: version of the timeline's layout, 1 or 2.
        metadata_form: form of the metadata table: the version whose records and properties it has.
        lists_all_columns: whether the schema in commits of a copy-on-write table lists all columns, so that no file is
            opened to find out whether it has the operation column.
        has_completion_times: whether the timeline stores when an instant completed, so that readers order commits by
            it. Also the timeline of the metadata table.
        names_log_writers: whether the instant time in a log file's name is that of its writer, not of its slice.
        has_index_definitions: whether the indexes of the metadata table are defined in a file, which names the columns
            of column statistics. If not, all columns have statistics, and all meta columns.
        has_partition_statistics: whether Hudi keeps statistics of partitions.
        stores_bound_types: whether the type of a column is stored beside its bounds.
        stores_generator_class: whether the class of the key generator is stored, not its type. Then the types of a
            custom generator's fields and the partition value extractor are not stored.
        stores_old_ordering: whether Hudi 0.x's key for the ordering column is used.
        stores_payload: whether the payload class decides how records are merged.
        stores_merge_mode: whether a merge mode is stored.
        takes_several_ordering_fields: whether there may be several ordering columns.
        names_single_keys: whether Hudi's complex generator always writes a key of one field as ``field:value``. If
            not, an option decides; releases 0.14.1 to 1.0.2 always write ``value``.
        storage_layouts: the values of ``hoodie.table.storage.layout``. In ``lsm_tree`` all files are sorted by key,
            which a reader that merges by key need not know.
        is_written: whether lakeformat writes tables of this version.
        combines_by_arrival: whether rows of one batch with `AWSDmsAvroPayload` are combined by their order of arrival.
    """

    number: int
    timeline_layout: int
    metadata_form: int
    lists_all_columns: bool = False
    has_completion_times: bool = False
    names_log_writers: bool = False
    has_index_definitions: bool = False
    has_partition_statistics: bool = False
    stores_bound_types: bool = False
    stores_generator_class: bool = False
    stores_old_ordering: bool = False
    stores_payload: bool = False
    stores_merge_mode: bool = False
    takes_several_ordering_fields: bool = False
    names_single_keys: bool = False
    combines_by_arrival: bool = False
    storage_layouts: tuple[str, ...] = ("default",)
    is_written: bool = True


_6: Final = TableVersion(
    number=6,
    timeline_layout=1,
    metadata_form=6,
    lists_all_columns=True,
    stores_generator_class=True,
    stores_old_ordering=True,
    stores_payload=True,
)
_8: Final = TableVersion(
    number=8,
    timeline_layout=2,
    metadata_form=8,
    has_completion_times=True,
    names_log_writers=True,
    has_index_definitions=True,
    has_partition_statistics=True,
    stores_payload=True,
    stores_merge_mode=True,
)
_9: Final = replace(
    _8,
    number=9,
    stores_payload=False,
    stores_bound_types=True,
    takes_several_ordering_fields=True,
    names_single_keys=True,
    combines_by_arrival=True,
)
#: Its log files are native. No released Hudi writes it, so none can judge what we would write.
_10: Final = replace(_9, number=10, storage_layouts=("default", "lsm_tree"), is_written=False)
#: Maps the number of each supported version to its traits, in order. Version 7 exists only during Hudi's upgrade from 6
#: to 8. Hudi 1.3 makes tables of version 10, and upgrades others to it.
TABLE_VERSIONS: Final[Mapping[int, TableVersion]] = {row.number: row for row in (_6, _8, _9, _10)}
#: The numbers of the versions that lakeformat writes.
WRITTEN_VERSIONS: Final = tuple(row.number for row in TABLE_VERSIONS.values() if row.is_written)


def table_version(number: int) -> TableVersion:
    """Return the traits of a version. A version that is not supported has those of the oldest one."""
    return TABLE_VERSIONS.get(number, _6)


def _first(has_trait: Callable[[TableVersion], bool]) -> int:
    return next(row.number for row in TABLE_VERSIONS.values() if has_trait(row))


#: The first version that may have several ordering columns.
SEVERAL_ORDERING_FIELDS: Final = _first(lambda row: row.takes_several_ordering_fields)
#: The first version in which a key of one field always has the field's name.
SINGLE_KEY_NAMES: Final = _first(lambda row: row.names_single_keys)
