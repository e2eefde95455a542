"""Contents of a folder of plain Parquet files, and reasons to refuse a folder. Pure (Hudi: ``FullRecordBootstrap``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import pyarrow as pa

from lakeformat.errors import InvalidInputError, SchemaMismatchError

__all__ = ["SourceFile", "folder_type", "hidden", "joined_schema", "refused_folder", "sources_of", "typed_value"]

#: Folder names that mark another format, whose own list says which files are valid -> what the folder is.
_OWNERS: Final[Mapping[str, str]] = {
    "_delta_log": "a Delta table",
    "_spark_metadata": "written by a stream, which lists the files that count",
    "_temporary": "still being written by Spark, or was left half-written",
}
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_META: Final = "_hoodie_commit_time"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A Parquet file and the values in its folder names.

    Attributes:
        values: column and text of each folder ``column=value``, outermost first; None is null.
    """

    path: str
    size_bytes: int
    modified_ms: int
    values: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def of(cls, path: str, size_bytes: int, modified_ms: int) -> SourceFile:
        """Make a source file, parsing its folder names."""
        pairs = [folder.split("=", 1) for folder in path.split("/")[:-1] if "=" in folder]
        values = ((unquote(name), None if text == _NULL else unquote(text)) for name, text in pairs)
        return cls(path, size_bytes, modified_ms, tuple(values))

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that its folders name."""
        return tuple(name for name, _ in self.values)


def hidden(name: str, *, is_folder: bool) -> bool:
    """Tell whether engines skip a name: it begins with a dot or an underscore, except for a folder ``_c=value``."""
    return name[:1] in {".", "_"} and not (is_folder and "=" in name)


def refused_folder(path: str, location: str, *, is_folder: bool) -> InvalidInputError | None:
    """Return the error if this entry of a listing shows that the folder is not plain Parquet; else None."""
    name = path.rpartition("/")[2]
    if name in _OWNERS:
        owner = _OWNERS[name]
        return InvalidInputError(f"{location} is {owner} ({path}); read it with its own engine, and write the rows")
    if name.endswith(".metadata.json"):
        return InvalidInputError(
            f"{location} is an Iceberg table ({path}); read it with its own engine, and write the rows"
        )
    if not is_folder and not hidden(name, is_folder=False) and not name.endswith(".parquet"):
        return InvalidInputError(f"{location}/{path} is no Parquet file; move it out of the folder")
    return None


def sources_of(files: Iterable[SourceFile], location: str) -> tuple[SourceFile, ...]:
    """Return the files sorted by path.

    Raises:
        InvalidInputError: there are no files, or their partition folders differ.
    """
    found = tuple(sorted(files, key=lambda file: file.path))
    if not found:
        raise InvalidInputError(f"{location} holds no Parquet file; give the folder that does")
    odd = next((file for file in found if file.columns != found[0].columns), None)
    if odd is not None:
        names = [f"{'/'.join(file.columns) or 'no'} folders ({file.path})" for file in (found[0], odd)]
        raise InvalidInputError(f"{location}: files stand in {names[0]} and in {names[1]}; adopt one of the two")
    return found


def folder_type(texts: Iterable[str | None]) -> pa.DataType:
    """Return the type of a folder column: int32, int64 or string. Numbers only if all texts are in canonical form.

    >>> folder_type(["1", "12"]), folder_type(["01", "12"])
    (DataType(int32), DataType(string))
    """
    known = [text for text in texts if text is not None]
    if not known or not all(_is_number(text) for text in known):
        return pa.string()
    return pa.int32() if all(-(2**31) <= int(text) < 2**31 for text in known) else pa.int64()


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and str(int(text)) == text and len(digits) < 19


def typed_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Convert a folder's text to a value of its column's type."""
    return pa.scalar(text if text is None or pa.types.is_string(kind) else int(text), kind)


def joined_schema(
    schemas: Sequence[tuple[SourceFile, pa.Schema]], folders: Mapping[str, pa.DataType], location: str
) -> pa.Schema:
    """Return the columns of all files, followed by those of their folders. A file that lacks a column has nulls there.

    Raises:
        SchemaMismatchError: a column has two types, or is both in the files and in their folder names.
        InvalidInputError: the files belong to a Hudi table.
    """
    fields: dict[str, tuple[pa.DataType, str]] = {}
    for file, schema in schemas:
        if _META in schema.names:
            raise InvalidInputError(f"{location}/{file.path} is a file of a Hudi table; copy that table, and open it")
        for field in schema:
            kind, first = fields.setdefault(field.name, (field.type, file.path))
            if kind != field.type:
                raise SchemaMismatchError(
                    f"{location}: column {field.name!r} is {kind} in {first} and {field.type} in {file.path}; "
                    "write one of them anew"
                )
    if both := sorted(fields.keys() & folders.keys()):
        raise SchemaMismatchError(
            f"{location}: column {both[0]!r} stands in the files and in their folders' names; write them without it"
        )
    return pa.schema([*((name, kind) for name, (kind, _) in fields.items()), *folders.items()])
