"""Editing a commit's file, as if another program had written it: without lakeformat's checksum."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from lakeformat.codec.timeline_files.commit import CHECKSUM_KEY

__all__ = ["edit_commit"]


def edit_commit(path: Path, edit: Callable[[str], str]) -> None:
    """Replace the text of a JSON commit by what ``edit`` makes of it, without the checksum."""
    document = json.loads(edit(path.read_text()))
    document["extraMetadata"].pop(CHECKSUM_KEY, None)
    path.write_text(json.dumps(document))
