"""Put a file under a name once, also where the storage's answer is lost."""

from __future__ import annotations

import time
from typing import Final

from lakeformat.errors import StorageError
from lakeformat.storage.port import OutcomeUnknownError, Storage

__all__ = ["put_once"]

#: Seconds between tries. No further try is made once the tries have taken so long: clients try many times by themselves
#: before they say that no answer came.
_PAUSES: Final = (0.0, 0.1, 0.3)
_PATIENCE_SECONDS: Final = 10.0


def put_once(storage: Storage, path: str, data: bytes) -> None:
    """Put a file if there is none, and again with the same bytes while no answer comes.

    A file of the same bytes is ours, whatever the storage says: it may be the echo of an earlier try. One that is not
    there after a try without an answer may still come, so it is never taken for failed.

    Raises:
        FileExistsError: another file has the name.
        OutcomeUnknownError: no try was answered; the file may come at any time.
    """
    began = time.monotonic()
    for pause in (*_PAUSES, None):
        try:
            storage.create(path, data)
            return
        except FileExistsError:
            if storage.read(path) != data:
                raise
            return
        except OutcomeUnknownError:
            if _holds(storage, path, data):
                return
            if pause is None or time.monotonic() - began > _PATIENCE_SECONDS:
                raise
        time.sleep(pause)


def _holds(storage: Storage, path: str, data: bytes) -> bool:
    """Whether the file is there. Raises ``FileExistsError`` if it is another's."""
    try:
        found = storage.read(path)
    except (FileNotFoundError, StorageError):
        return False
    if found != data:
        raise FileExistsError(path)
    return True
