"""Decoding of completed commits in both forms: JSON of timeline layout 1 and Avro of layout 2."""

from __future__ import annotations

from lakeformat.codec import commit_avro, commit_json
from lakeformat.codec.avro_container import is_container
from lakeformat.model.commit import CommitMetadata

__all__ = ["decode_commit"]


def decode_commit(data: bytes, *, name: str) -> CommitMetadata:
    """Decode the file of a commit, deltacommit or replacecommit, in the form that its first bytes show.

    Raises:
        CorruptTableError: The file is not commit metadata; the message names the file.
    """
    if is_container(data):
        return commit_avro.decode_commit_avro(data, name=name)
    return commit_json.decode_commit_json(data, name=name)
