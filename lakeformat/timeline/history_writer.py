"""The archive of timeline layout 2, written once as a whole: one file, its manifest and its version.

Source: Hudi's ``LSMTimelineWriter``.
"""

from __future__ import annotations

import json
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.codec.commit_avro import encode_commit
from lakeformat.model.instant import Action
from lakeformat.storage.port import Storage
from lakeformat.timeline.archived import ArchivedTimeline

__all__ = ["write_history"]

#: Commits in memory at a time.
_AT_A_TIME: Final = 500
_SCHEMA: Final = pa.schema(
    [
        pa.field("instantTime", pa.string()),
        pa.field("completionTime", pa.string()),
        pa.field("action", pa.string()),
        pa.field("metadata", pa.binary()),
        pa.field("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
_VERSION: Final = 1


def write_history(storage: Storage, archived: ArchivedTimeline, folder: str) -> None:
    """Write the commits of an archive of layout 1 as the history of layout 2; nothing if there are none.

    Its commits completed when they began, for all that layout tells.

    Args:
        folder: where no history is yet.
    """
    commits = archived.completed_in("")
    if not commits:
        return
    name = f"{commits[0].time}_{commits[-1].time}_0.parquet"
    path = f"{folder}/{name}"
    with storage.open_output(path) as sink, pq.ParquetWriter(sink, _SCHEMA) as writer:
        found = archived.commits(commits)
        while portion := list(islice(found, _AT_A_TIME)):
            rows = [
                {
                    "instantTime": instant.time,
                    "completionTime": instant.completed_at,
                    "action": instant.action.value,
                    "metadata": encode_commit(metadata, replace=instant.action is Action.REPLACE_COMMIT),
                    "version": _VERSION,
                }
                for instant, metadata in portion
            ]
            writer.write_table(pa.Table.from_pylist(rows, _SCHEMA))
    info = storage.info(path)
    files = [{"fileName": name, "fileLen": info.size_bytes if info else 0}]
    storage.create(f"{folder}/manifest_1", json.dumps({"files": files}).encode())
    storage.create(f"{folder}/_version_", b"1")
