"""The manifest of layout 2's archive: which history files count (Hudi: ``LSMTimelineWriter.updateManifest``).

Each change of the archive writes ``manifest_<n + 1>``, and then the number into ``_version_``. So the manifest with the
greatest number is the newest one, and ``_version_`` names it or the one before it. Anything else is damage: an older
manifest knows fewer instants, and a query by it would lose rows.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakeformat.codec.commit_json import decode_json
from lakeformat.errors import CorruptTableError
from lakeformat.storage.port import FileInfo, Storage

__all__ = ["MANIFEST_NAME", "VERSION_NAME", "Manifest", "read_manifest", "version_damage"]

_LOG: Final = logging.getLogger("lakeformat.timeline")
#: Names of manifests; each has its number.
MANIFEST_NAME: Final = re.compile(r"manifest_(\d+)")
#: The file that holds the number of the newest manifest.
VERSION_NAME: Final = "_version_"
_BACK: Final = "restore the folder from a copy"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The newest manifest.

    Attributes:
        number: -1 if nothing was ever archived.
        files: its entries, ``fileName`` and ``fileLen`` each.
    """

    number: int
    files: Sequence[Mapping[str, Any]]

    @property
    def names(self) -> list[str]:
        """The names of the history's files."""
        return [str(file["fileName"]) for file in self.files]


def read_manifest(storage: Storage, folder: str) -> Manifest:
    """Read the manifest with the greatest number, and check that its files are there as it says.

    Raises:
        CorruptTableError: the manifest is damaged, ``_version_`` names one that is missing, or a file has another size.
        FileNotFoundError: a file is missing, perhaps because files were put together meanwhile; read again.
    """
    text = _version(storage, folder)  # Before the listing: a manifest is written before its number.
    said = int(text) if _is_number(text) else None
    entries = {entry.name: entry for entry in storage.list(folder)}
    newest = max((int(match[1]) for name in entries if (match := MANIFEST_NAME.fullmatch(name))), default=-1)
    where = f"{storage.location}/{folder}"
    if said is not None and said > newest:
        there = f"manifest_{newest} is the newest one that is there" if newest >= 0 else "no manifest is there"
        raise CorruptTableError(
            f"{where}/{VERSION_NAME} names manifest_{said}, which is missing; {there}: the archive is damaged, {_BACK}"
        )
    if newest < 0:
        return Manifest(-1, ())
    if damage := _version_damage(text, newest):
        _LOG.warning("%s/%s %s; manifest_%d is newer and is read: %s", where, VERSION_NAME, damage, newest, _BACK)
    try:
        return _decoded(storage, folder, newest, entries)
    except CorruptTableError:
        if said != newest - 1:
            raise
        return _decoded(storage, folder, said, entries)  # A writer died, or is at work, in the middle of the newest.


def version_damage(storage: Storage, folder: str) -> str:
    """Return what is wrong with ``_version_`` though the newest manifest is read; "" if nothing is."""
    return _version_damage(_version(storage, folder), read_manifest(storage, folder).number)


def _version_damage(text: bytes, newest: int) -> str:
    if not text or newest < 0:
        return ""
    if not _is_number(text):
        return "holds no number and is damaged"
    return f"says {int(text)} and is damaged" if int(text) < newest - 1 else ""


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) < 10


def _version(storage: Storage, folder: str) -> bytes:
    """Read ``_version_``; empty if it is missing, as for a moment in each change of Hudi's."""
    try:
        return storage.read(f"{folder}/{VERSION_NAME}").strip()
    except FileNotFoundError:
        return b""


def _decoded(storage: Storage, folder: str, number: int, entries: Mapping[str, FileInfo]) -> Manifest:
    where = f"{storage.location}/{folder}/manifest_{number}"
    document = decode_json(storage.read(f"{folder}/manifest_{number}"), name=where)
    files = document.get("files")
    if not isinstance(files, list) or not all(isinstance(file, dict) and file.get("fileName") for file in files):
        raise CorruptTableError(f"{where} is no manifest; {_BACK}")
    manifest = Manifest(number, files)
    if len(set(manifest.names)) < len(files):
        raise CorruptTableError(f"{where} names a file twice; {_BACK}")
    for file, name in zip(files, manifest.names, strict=True):
        if name not in entries:
            raise FileNotFoundError(f"{folder}/{name}")
        if file.get("fileLen") != entries[name].size_bytes:
            size = f"has {entries[name].size_bytes} bytes, not {file.get('fileLen')}"
            raise CorruptTableError(f"{storage.location}/{folder}/{name} {size} as manifest_{number} says; {_BACK}")
    return manifest
