"""Commits whose completed files may be damaged: what undoes them must do without their metadata."""

from __future__ import annotations

from lakeformat.errors import CorruptTableError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import Instant, State
from lakeformat.timeline.store import TimelineStore

__all__ = ["read_commit_if_whole"]


def read_commit_if_whole(store: TimelineStore, instant: Instant) -> CommitMetadata | None:
    """Return the metadata of a completed commit; None if its file is damaged, or if the instant has not completed."""
    if instant.state is not State.COMPLETED:
        return None
    try:
        return store.read_commit(instant)
    except CorruptTableError:
        return None
