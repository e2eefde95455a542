"""Parquet files that list things, a row for each: files of the file index, and of the history of the timeline.

Such a file is read whole. The Parquet reader takes memory for as many values as the footer says, so the footer is
compared with the size of the file first. A row has a name of its own in it, and so more than a few bits.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["SAFE_OPTIONS", "open_listing"]

#: Values of a column chunk that are always believed, and for each byte of the file.
_ALWAYS: Final = 1_000_000
_EACH: Final = 8
#: Options with which every Parquet file is opened: checksums of pages are verified, and a footer may claim so many row
#: groups, columns, entries, and chunks of a row group.
SAFE_OPTIONS: Final = {"page_checksum_verification": True, "thrift_container_size_limit": 200_000}


def open_listing(source: Any, size_bytes: int) -> pq.ParquetFile:
    """Open a Parquet file whose rows name different things, and verify the checksums of the pages that are read.

    Args:
        size_bytes: size of the file.

    Raises:
        ArrowInvalid, OSError: the file is damaged, or says that it has far more values than a file of this size.
    """
    parquet = pq.ParquetFile(source, **SAFE_OPTIONS)
    footer, most = parquet.metadata, _ALWAYS + _EACH * size_bytes
    rows = 0
    for group in map(footer.row_group, range(footer.num_row_groups)):
        rows += group.num_rows
        if rows > most or any(group.column(column).num_values > most for column in range(group.num_columns)):
            raise pa.ArrowInvalid(f"its {size_bytes:,} bytes stand for more rows than any file of its kind")
    return parquet
