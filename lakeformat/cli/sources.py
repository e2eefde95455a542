"""The files that an argument means: one file, the files of a folder, or those whose names fit a pattern."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from lakeformat.errors import InvalidInputError

if TYPE_CHECKING:
    from lakeformat.storage.port import Storage

__all__ = ["HINT", "STDIN", "find_files", "open_parent"]

STDIN: Final = "-"
#: Last part of the message of an error about a value or a line.
HINT: Final = "; -o bad_rows=aside writes the other rows and puts such rows aside"
_MAGIC: Final = frozenset("*?[")


def open_parent(source: str, storage_options: Mapping[str, Any]) -> tuple[Storage, str]:
    """Open the storage of the folder in which a file is. Return it with the file's name."""
    from lakeformat.storage import open_storage

    folder, _, name = source.rpartition("/")
    return open_storage(folder or ("/" if source.startswith("/") else "."), **storage_options), name


def find_files(
    sources: Sequence[str], is_rows: Callable[[str], bool], storage_options: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the paths or URLs of the files, those of one folder or pattern by name. ``-`` is stdin and must be alone.

    Files and folders whose names begin with ``.`` or ``_`` are found only by their full names. In a pattern ``*``,
    ``?`` and ``[ab]`` stand for parts of a name, and ``**`` for folders of any depth.

    Args:
        is_rows: tells whether a file of this name holds rows.

    Raises:
        InvalidInputError: a file does not exist, or a folder or pattern has no file of rows.
    """
    if STDIN in sources and len(sources) > 1:
        raise InvalidInputError("stdin (-) is given beside files; give it alone")
    paths = [path for source in sources for path in _find(source, is_rows, storage_options)]
    return tuple(dict.fromkeys(paths))


def _find(source: str, is_rows: Callable[[str], bool], storage_options: Mapping[str, Any]) -> Sequence[str]:
    if source == STDIN:
        return (source,)
    if not source.endswith("/"):
        storage, name = open_parent(source, storage_options)
        info = storage.info(name)
        if info is not None and not info.is_folder:
            return (source,)
        if info is None and _MAGIC.isdisjoint(source):
            raise InvalidInputError(f"there is no file {source}; check the path")
        if info is None:
            return _find_fitting(source, is_rows, storage_options)
    folder = source.rstrip("/")
    files = list(_walk(_open(folder, storage_options), "", ("*",), is_rows))
    if not files:
        raise InvalidInputError(
            f"{source} holds no file of rows; give files, a pattern such as '{folder}/**/*.parquet', or --format"
        )
    return [f"{folder}/{file}" for file in files]


def _open(folder: str, storage_options: Mapping[str, Any]) -> Storage:
    from lakeformat.storage import open_storage

    return open_storage(folder or "/", **storage_options)


def _find_fitting(pattern: str, is_rows: Callable[[str], bool], storage_options: Mapping[str, Any]) -> Sequence[str]:
    """Return the files that fit a pattern, in the order of their names."""
    parts = pattern.split("/")
    first = next(number for number, part in enumerate(parts) if not _MAGIC.isdisjoint(part))
    folder, rest = "/".join(parts[:first]), tuple(parts[first:])
    storage = _open(folder if first else ".", storage_options)
    files = list(_walk(storage, "", (*rest, "*") if rest[-1] == "**" else rest, is_rows))
    if not files:
        raise InvalidInputError(f"no file fits {pattern}; check the pattern, or give --format")
    return [f"{folder}/{file}" if first else file for file in files]


def _walk(storage: Storage, folder: str, parts: Sequence[str], is_rows: Callable[[str], bool]) -> Iterator[str]:
    """Yield the paths of the files below a folder that fit the parts of a pattern, one part for each folder."""
    part, *rest = parts
    if part == "**":
        yield from _walk(storage, folder, rest, is_rows)
    for child in storage.list(folder):
        if child.name.startswith((".", "_")) and not part.startswith((".", "_")):
            continue
        if part == "**":
            if child.is_folder:
                yield from _walk(storage, child.path, parts, is_rows)
        elif fnmatchcase(child.name, part):
            if rest and child.is_folder:
                yield from _walk(storage, child.path, rest, is_rows)
            elif not rest and not child.is_folder and is_rows(child.name):
                yield child.path
