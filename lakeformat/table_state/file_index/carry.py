"""Update of the file index when lakeformat archives commits: the archiving process knows that no commit was missed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from lakeformat.errors import LakeformatError
from lakeformat.model.instant import COMMIT_ACTIONS, Instant
from lakeformat.model.table_config import TableConfig
from lakeformat.table_state.file_index.keep import write_manifest
from lakeformat.table_state.file_index.load import rolled_back
from lakeformat.table_state.file_index.replay import to_replay
from lakeformat.table_state.file_index.stored import FOLDER, Covered, IndexName, Manifest, read_manifest
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = ["carried_over", "provable"]

_LOG: Final = logging.getLogger("lakeformat.file_index")


def provable(store: TimelineStore, before: Timeline) -> Manifest | None:
    """Return the newest snapshot of the index that is proved complete now; None if there is none or reading fails.

    Args:
        before: the timeline before the archiving, loaded with the mark of the archive.
    """
    try:
        entries = [(IndexName.parse(entry.name), entry) for entry in store.storage.list(FOLDER)]
        manifests = [(name, entry) for name, entry in entries if name is not None and name.kind == "manifest"]
        for _, _, path in sorted(((n.instant_time, e.modified_ms, e.path) for n, e in manifests), reverse=True):
            manifest = read_manifest(store.storage, path)
            if manifest is None:
                continue
            if to_replay(manifest.covered, before, None, lambda: rolled_back(store, before)) is not None:
                return manifest
    except (LakeformatError, OSError) as error:
        _LOG.warning("the file index of %s cannot be carried over an archiving: %s", store.storage.location, error)
    return None


def carried_over(
    store: TimelineStore, config: TableConfig, manifest: Manifest | None, archived: Sequence[Instant]
) -> bool:
    """Write a snapshot of the index again without the commits that have been archived. Return whether it was written.

    Call it under the lock under which the snapshot was proved and the commits were archived. If the snapshot does not
    cover all of them and at least one more, nothing is written, and the next write makes the index again. Storage
    errors are logged, not raised.
    """
    gone = frozenset(instant.time for instant in archived if instant.action in COMMIT_ACTIONS)
    if manifest is None or not gone < manifest.covered.commits:
        return False
    try:
        now = store.load(config.archive_folder)
        pending = manifest.covered.pending & {instant.time for instant in now.instants}
        covered = Covered(manifest.covered.commits - gone, pending, now.archive or "")
        write_manifest(store.storage, [manifest.shards], covered)
    except (LakeformatError, OSError) as error:
        _LOG.warning("the file index of %s is made anew by the next write: %s", store.storage.location, error)
        return False
    return True
