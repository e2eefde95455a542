"""Completed commits by what their bytes are: JSON of timeline layout 1, Avro of layout 2."""

from __future__ import annotations

from lakeformat.codec import commit_avro, commit_json
from lakeformat.codec.avro_container import is_container
from lakeformat.model.commit import CommitMetadata

__all__ = ["decode_commit"]


def decode_commit(data: bytes, *, name: str) -> CommitMetadata:
    """The metadata of a commit, deltacommit or replacecommit, whatever its action and the timeline's layout are.

    Raises:
        CorruptTableError: the file cannot be commit metadata; names the file.
    """
    if is_container(data):
        return commit_avro.decode_commit(data, name=name)
    return commit_json.decode_commit(data, name=name)
