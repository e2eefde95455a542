"""A folder on the disk: what a storage does on a file system that lies in memory proves less."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Yield a new folder on the disk, and delete it after the test."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder).resolve()
