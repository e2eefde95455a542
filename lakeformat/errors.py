"""All errors that lakeformat raises on purpose: one class for each thing that the caller can do about it.

::

    LakeformatError
    ├── InvalidOptionError            change an option
    ├── InvalidInputError             change the data (also a ValueError)
    │   ├── SchemaMismatchError       change the columns
    │   └── DuplicateKeyError         leave out the keys that are there, or upsert
    ├── TableNotFoundError            check the path, or create the table
    ├── UnsupportedTableError         the table uses a feature that lakeformat lacks
    ├── CorruptTableError             restore the named file
    │   └── SkippingError             read without skipping: the value statistics of a file are wrong
    ├── InstantNotAvailableError      ask for another instant, or keep more history
    ├── WriteConflictError            run the write again
    │   └── LockLostError             the lease of the lock ended before the commit: run the write again
    ├── ValidationFailedError         a validator refused the write: look at the data, or at the validator
    ├── LockTimeoutError              wait, or stop the other writer
    ├── StorageError                  permissions, space, network
    ├── CatalogError                  register the table again; its data and commits are not concerned
    ├── SyncError                     sync the table again; its data and commits are not concerned
    └── CommitStateUnknownError       look at the timeline before doing anything

Every message is one line: what happened, to what, what to do.
"""

from __future__ import annotations

import difflib
import os
import traceback
from collections.abc import Iterable

from lakeformat.public import public

__all__ = [
    "CatalogError",
    "CommitStateUnknownError",
    "CorruptTableError",
    "DuplicateKeyError",
    "InstantNotAvailableError",
    "InvalidInputError",
    "InvalidOptionError",
    "LakeformatError",
    "LockLostError",
    "LockTimeoutError",
    "SchemaMismatchError",
    "SkippingError",
    "StorageError",
    "SyncError",
    "TableNotFoundError",
    "UnsupportedTableError",
    "ValidationFailedError",
    "WriteConflictError",
    "meant",
    "nearest",
    "nearest_name",
    "reason_of",
]


@public
class LakeformatError(Exception):
    """Base class of all errors; catch it to catch everything that lakeformat refuses or fails to do."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    def _render_traceback_(self) -> list[str]:
        """Return what IPython prints for the error: one line, or with ``LAKEFORMAT_TRACEBACK=1`` the traceback."""
        if os.environ.get("LAKEFORMAT_TRACEBACK"):
            return "".join(traceback.format_exception(self)).splitlines()
        return [f"{type(self).__name__}: {self}"]


@public
class InvalidOptionError(LakeformatError, ValueError):
    """An option is unknown, has a bad value or contradicts the table's settings."""


@public
class InvalidInputError(LakeformatError, ValueError):
    """The rows cannot be written, or the request is not valid. Nothing was published."""


@public
class SchemaMismatchError(InvalidInputError):
    """The columns of the input do not fit the columns of the table. Nothing was published."""


@public
class DuplicateKeyError(InvalidInputError):
    """An insert that forbids duplicates got a key that is already in the table or occurs twice in the input.

    Hudi: ``HoodieDuplicateKeyException``. Nothing was published.
    """


@public
class TableNotFoundError(LakeformatError, FileNotFoundError):
    """There is no table at the path."""


@public
class UnsupportedTableError(LakeformatError):
    """The table uses a version or a feature that lakeformat does not support; the table is left untouched."""


@public
class CorruptTableError(LakeformatError):
    """A file of the table is damaged or missing, or its content does not fit its name. The message names the file."""


@public
class SkippingError(CorruptTableError):
    """A read that verifies file skipping found rows in files that would be skipped. The message names the files."""


@public
class InstantNotAvailableError(LakeformatError):
    """The files of the requested instant were deleted by a clean, or the instant cannot be read."""


@public
class WriteConflictError(LakeformatError):
    """Another writer changed the same file groups. Nothing was published: a retry is safe.

    Attributes:
        file_ids: File groups that both writers changed; empty if the conflict has another cause.
    """

    def __init__(self, message: str, *, file_ids: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.file_ids = frozenset(file_ids)


@public
class LockLostError(WriteConflictError):
    """The lease of the table's lock ended before the commit. Nothing was published: a retry is safe."""


@public
class ValidationFailedError(LakeformatError):
    """A pre-commit validator refused the write. Nothing was published."""


@public
class LockTimeoutError(LakeformatError, TimeoutError):
    """Another writer holds the table's lock. Nothing was published."""


@public
class StorageError(LakeformatError, OSError):
    """The storage refused or failed: no permission, no space, no network."""


@public
class CatalogError(LakeformatError):
    """A catalog refused a registration, or could not be reached; every commit of the table stays as it is."""


@public
class SyncError(LakeformatError):
    """The metadata of another format beside the table cannot follow it; every commit of the table stays as it is."""


@public
class CommitStateUnknownError(LakeformatError):
    """The commit may or may not be visible; no file was deleted. The message says how to find out."""


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Return ``"; did you mean 'x'?"`` for the member of ``known`` that is closest to ``name``.

    Return ``""`` if no member is at least ``likeness`` (0 to 1) similar.
    """
    match = nearest_name(name, known, likeness)
    return f"; did you mean {match!r}?" if match else ""


def meant(name: str, given: Iterable[str]) -> str:
    """Return ``"; 'x' may be meant"`` for the member of ``given`` that is closest to ``name``; "" if none is similar.

    For a name that is right and missing, where a given name may be a misspelling of it.
    """
    match = nearest_name(name, given)
    return f"; {match!r} may be meant" if match else ""


def nearest_name(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Return the member of ``known`` closest to ``name``; ``""`` if none is at least ``likeness`` (0 to 1) similar."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)), "")


def reason_of(error: Exception, most: int | None = 300) -> str:
    """Return the first ``most`` characters of an error's message as one line; its type's name if it has none."""
    return " ".join(str(error).split())[:most] or type(error).__name__
