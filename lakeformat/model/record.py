"""Names of columns that have a meaning for Hudi: the meta columns and the markers of deletes (``HoodieRecord``)."""

from __future__ import annotations

from typing import Final

__all__ = [
    "COMMIT_SEQNO",
    "COMMIT_TIME",
    "FILE_NAME",
    "IS_DELETED",
    "META_COLUMNS",
    "OPERATION",
    "PARTITION_PATH",
    "RECORD_KEY",
]

COMMIT_TIME: Final = "_hoodie_commit_time"
COMMIT_SEQNO: Final = "_hoodie_commit_seqno"
RECORD_KEY: Final = "_hoodie_record_key"
PARTITION_PATH: Final = "_hoodie_partition_path"
FILE_NAME: Final = "_hoodie_file_name"

#: The five meta columns, in their order in base files.
META_COLUMNS: Final = (COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME)

#: A boolean column of the user. A row with the value true deletes the record of its key
#: (Hudi: ``HoodieRecord.HOODIE_IS_DELETED_FIELD``).
IS_DELETED: Final = "_hoodie_is_deleted"

#: A text column of tables written by streams, with the kind of change of each row (Hudi: ``OPERATION_METADATA_FIELD``).
OPERATION: Final = "_hoodie_operation"
