"""The numbers of the fields of a Parquet footer that are read or changed. Source: ``parquet.thrift``, Parquet 2.12."""

from __future__ import annotations

from typing import Final

__all__ = [
    "BLOOM",
    "BLOOM_BYTES",
    "CHILDREN",
    "CHUNK_FIELDS",
    "CHUNK_OFFSET",
    "COLUMNS",
    "COLUMN_INDEX",
    "COLUMN_INDEX_BYTES",
    "COLUMN_ORDERS",
    "COMPRESSED_BYTES",
    "CREATED_BY",
    "DATA_PAGE",
    "DICTIONARY_PAGE",
    "ENCODINGS",
    "FILE_FIELDS",
    "GROUP_FIELDS",
    "GROUP_OFFSET",
    "GROUP_ROWS",
    "INDEX_FIELDS",
    "INDEX_PAGE",
    "KEY_VALUES",
    "LOCATIONS",
    "LOCATION_FIELDS",
    "META",
    "META_FIELDS",
    "NAME",
    "NUM_ROWS",
    "OFFSET_INDEX",
    "OFFSET_INDEX_BYTES",
    "ORDINAL",
    "PAGE_OFFSET",
    "PATH",
    "PLAIN_BYTES",
    "REPETITION",
    "ROW_GROUPS",
    "SCHEMA",
    "SORTING_COLUMNS",
    "STORED_BYTES",
    "TOTAL_BYTES",
]

# ``FileMetaData``. The fields 8 and 9 belong to encrypted files.
SCHEMA, NUM_ROWS, ROW_GROUPS, KEY_VALUES, CREATED_BY, COLUMN_ORDERS = 2, 3, 4, 5, 6, 7
FILE_FIELDS: Final = frozenset(range(1, 8))
# ``SchemaElement``.
REPETITION, NAME, CHILDREN = 3, 4, 5
# ``RowGroup``.
COLUMNS, TOTAL_BYTES, GROUP_ROWS, SORTING_COLUMNS, GROUP_OFFSET, COMPRESSED_BYTES, ORDINAL = 1, 2, 3, 4, 5, 6, 7
GROUP_FIELDS: Final = frozenset(range(1, 8))
# ``ColumnChunk``. Field 1 names another file, the fields 8 and 9 belong to encrypted columns.
CHUNK_OFFSET, META, OFFSET_INDEX, OFFSET_INDEX_BYTES, COLUMN_INDEX, COLUMN_INDEX_BYTES = 2, 3, 4, 5, 6, 7
CHUNK_FIELDS: Final = frozenset(range(2, 8))
# ``ColumnMetaData``.
ENCODINGS, PATH, PLAIN_BYTES, STORED_BYTES = 2, 3, 6, 7
DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, BLOOM, BLOOM_BYTES = 9, 10, 11, 14, 15
META_FIELDS: Final = frozenset(range(1, 18))
# ``OffsetIndex`` and ``PageLocation``.
LOCATIONS, PAGE_OFFSET = 1, 1
INDEX_FIELDS: Final = frozenset({1, 2})
LOCATION_FIELDS: Final = frozenset({1, 2, 3})
