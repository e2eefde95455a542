"""Tables whose files are read by calls instead of being mapped, so that the system counts every byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from lakeformat.config.resolve import resolve
from lakeformat.storage import open_storage
from lakeformat.table import Table


class ReadCalls:
    """Local storage, but for the way in which files are opened."""

    def __init__(self, root: Path) -> None:
        self._root, self._storage = root, open_storage(root)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def open_input(self, path: str) -> Any:
        """The file, unmapped."""
        return pa.OSFile(str(self._root / path))


def open_by_read_calls(table: Path) -> Any:
    """The table at a path."""
    return Table(ReadCalls(table), resolve({}))
