"""Tables whose files are read by calls instead of being mapped, so that the operating system counts every byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from lakeformat.config.resolve import resolve
from lakeformat.storage import open_storage
from lakeformat.table import Table


class ReadCalls:
    """A local storage that opens files without mapping them."""

    def __init__(self, root: Path) -> None:
        self._root, self._storage = root, open_storage(root)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def open_input(self, path: str) -> Any:
        """Open the file without mapping it."""
        return pa.OSFile(str(self._root / path))


def open_by_read_calls(table: Path) -> Any:
    """Return the table at a path, with a storage that reads files by calls."""
    return Table(ReadCalls(table), resolve({}))
