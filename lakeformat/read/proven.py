"""What commits prove of slices whose folder alone would leave them out: that their rows lie where the folder says."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from lakeformat.errors import CorruptTableError
from lakeformat.model.files import FileSlice
from lakeformat.storage.port import Storage
from lakeformat.table_state.folder_values import own_files, own_logs
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["proven_own"]


def proven_own(storage: Storage, timeline: Timeline, slices: Sequence[FileSlice]) -> npt.NDArray[np.bool_]:
    """Slices whose rows lie in the folder that their partition columns name, as the files' commits prove.

    Of a log file that is all commits that wrote to it: one alone that did, and wrote all of it.
    """
    store = TimelineStore(storage)
    store.load()
    wanted = {each.base_instant for each in slices}
    since = min((each.base_instant for each in slices if each.logs), default=None)
    own: set[str] = set()
    logs: dict[str, int | None] = {}
    for instant in timeline.commits:
        logged = since is not None and instant.time >= since
        if instant.time in wanted or logged:
            with suppress(FileNotFoundError, CorruptTableError):  # Archived since, or damaged: it proves nothing.
                metadata = store.commit(instant)
                own |= own_files(metadata)
                logs |= {path: None if path in logs else size for path, size in own_logs(metadata).items()}
    return np.array(
        [
            (each.base is None or each.base.path in own)
            and all(logs.get(log.path) == log.size_bytes for log in each.logs)
            for each in slices
        ],
        np.bool_,
    )
