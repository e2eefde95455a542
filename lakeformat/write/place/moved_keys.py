"""A warning for upserts that give a key a second row, in another partition. Part of step 8.

Without a global index a row is identified by its key within its partition (Hudi allows a key in each partition). Such
an upsert is therefore not an error, but it often is a mistake. To find every case, all files of the table would have to
be searched. So only cheap cases are searched: the new keys of the batch, and tables with few, small files.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa

from lakeformat.errors import LakeformatError
from lakeformat.index.tagging import TagSettings, tag_files
from lakeformat.merge.order import key_codes
from lakeformat.model.operation import Operation
from lakeformat.model.record import RECORD_KEY
from lakeformat.storage.port import Storage
from lakeformat.table_state.snapshot import Snapshot
from lakeformat.write.decide.job import WriteJob
from lakeformat.write.place.profile import BucketPlan

__all__ = ["warn_of_moved_keys"]

_LOG: Final = logging.getLogger("lakeformat.write")
_INDEXES: Final = frozenset({"AUTO", "BLOOM", "SIMPLE"})
#: Limits of a table that is searched: number of base files, and their bytes in all.
_FILES, _BYTES = 32, 64 << 20
#: Limits of the new keys that are searched: per partition, and per batch.
_KEYS: Final = 1_000
_BATCH_KEYS: Final = 100_000
#: Table -> number of this process's writes that were searched. From `_MAX_CHECKS` on, writes are not searched.
_CHECK_COUNTS: Final[dict[str, int]] = {}
_MAX_CHECKS: Final = 10
_MAX_TABLES: Final = 10_000


def warn_of_moved_keys(storage: Storage, job: WriteJob, plan: BucketPlan, snapshot: Snapshot) -> None:
    """Warn, once per process and table, if a new key of an upsert is also in another partition.

    Args:
        snapshot: the table before the write.
    """
    is_checked = job.operation is Operation.UPSERT and job.index_settings.kind in _INDEXES
    if not is_checked or not job.config.partition_fields or not any(len(new) for new in plan.new.values()):
        return
    checks = _CHECK_COUNTS.get(storage.location, 0)
    if checks >= _MAX_CHECKS:
        return
    if len(_CHECK_COUNTS) >= _MAX_TABLES:
        _CHECK_COUNTS.clear()
    _CHECK_COUNTS[storage.location] = checks + 1
    with suppress(LakeformatError, OSError):  # The write is done; the next read reports a broken file.
        found = _within_batch(plan) or _in_files(storage, plan, snapshot)
        if found is not None:
            _CHECK_COUNTS[storage.location] = _MAX_CHECKS
            key, here, there = found
            _LOG.warning(
                "table %s: the upsert put key %r into partition %r, and partition %r has a row of that key, too: "
                "without a global index a key names a row within its partition; delete the other row, or upsert with "
                "hoodie.index.type=GLOBAL_BLOOM, which moves rows",
                storage.location,
                key,
                here,
                there,
            )


def _within_batch(plan: BucketPlan) -> tuple[str, str, str] | None:
    """Return a new key that the batch has in two partitions, with both partitions; None if there is none."""
    paths = [path for path, new in plan.new.items() if len(new)]
    if len(paths) < 2 or sum(len(plan.new[path]) for path in paths) > _BATCH_KEYS:
        return None
    columns = [plan.rows[path].column(RECORD_KEY).take(pa.array(plan.new[path])) for path in paths]
    keys = pa.chunked_array([chunk for column in columns for chunk in column.chunks], pa.string())
    owners = np.repeat(np.arange(len(paths)), [len(column) for column in columns])
    codes = key_codes(keys)
    if codes is None:
        return None
    least, most = np.full(len(codes), len(paths)), np.full(len(codes), -1)
    np.minimum.at(least, codes, owners)
    np.maximum.at(most, codes, owners)
    shared = np.flatnonzero(least[codes] < most[codes])
    if not len(shared):
        return None
    code = codes[shared[0]]
    return str(keys[int(shared[0])].as_py()), paths[most[code]], paths[least[code]]


def _in_files(storage: Storage, plan: BucketPlan, snapshot: Snapshot) -> tuple[str, str, str] | None:
    """Return a new key that a base file of another partition holds, with both partitions; None if there is none."""
    if snapshot.live.count > _FILES or snapshot.live.size_bytes > _BYTES:
        return None
    bases = [piece.base for piece in snapshot.each_slice() if piece.base is not None]
    for path, new in plan.new.items():
        others = [base for base in bases if base.partition_path != path]
        if not len(new) or not others:
            continue
        keys = plan.rows[path].column(RECORD_KEY).take(pa.array(new[:_KEYS]))
        with ThreadPoolExecutor(2) as pool:
            found = tag_files(storage, others, keys, TagSettings(exact=True), pool)
        if len(found.keys):
            return str(keys[int(found.keys[0])].as_py()), path, others[int(found.files[0])].partition_path
    return None
