"""Files whose columns differ from the table's, and the conversion of their rows into the table's rows.

Three kinds of tables have such files:

- tables whose partition columns are dropped from files (``hoodie.datasource.write.drop.partition.columns``): only the
  folder holds their values;
- tables with virtual keys (``hoodie.populate.meta.fields=false``): the record key is made of the key columns;
- tables that schema on read has changed: columns are identified by ids, not by names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.rename import FieldNames, rename_fields
from lakeformat.errors import UnsupportedTableError
from lakeformat.keys.record_keys import record_keys
from lakeformat.merge.versions import LogDeletes, LogPart
from lakeformat.model.keys import KeyGeneratorKind, KeySettings
from lakeformat.model.record import RECORD_KEY

__all__ = ["AS_STORED", "FileShape", "SchemaVersion", "StoredShape"]


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """The differences between files of an older schema and the table.

    Attributes:
        version: instant time from which files have the older schema, as a number.
        stored: mapping of each table column with another name in these files to that name, or to None if they lack it.
        refused: mapping of each table column that cannot be read from these files to the reason.
        nested: mapping of each table column with inner fields of other names in these files to the names.
        to_text: table columns that these files store as another type than text; bounds in footers do not suit text.
    """

    version: int
    stored: Mapping[str, str | None] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    nested: Mapping[str, FieldNames] = field(default_factory=dict)
    to_text: frozenset[str] = frozenset()

    @property
    def converted(self) -> frozenset[str]:
        """Return the columns that these files do not store as the table names and types them."""
        return frozenset({*self.stored, *self.refused, *self.nested, *self.to_text})


_SAME = SchemaVersion(0)


@dataclass(frozen=True, slots=True)
class StoredShape:
    """The rules for reading the files of a folder. Picklable.

    Attributes:
        constants: columns whose value comes from the folder, even if a file holds them.
        only: the instant of the files that need the constants; "" for all files.
        key: how a record key is made in a table with virtual keys; else None.
        versions: differences of the files with older schemas, oldest schema first.
        folder: for rules that are not yet those of one folder, a function that makes ``constants`` of its path.
    """

    constants: Mapping[str, pa.Scalar] = field(default_factory=dict)
    key: KeySettings | None = None
    versions: tuple[SchemaVersion, ...] = ()
    folder: Callable[[str], Mapping[str, pa.Scalar]] | None = None
    only: str = ""

    def in_folder(self, path: str) -> StoredShape:
        """Return the rules for the files of one folder."""
        return self if self.folder is None else replace(self, constants=self.folder(path), folder=None)

    def _version(self, instant_time: str) -> SchemaVersion:
        """Return the schema in effect at an instant. If the instant is older than all schemas, return the first schema.

        Source: Hudi's ``searchSchema``.
        """
        version_found = self.versions[0] if self.versions else _SAME
        for version in self.versions:
            if version.version <= int(instant_time):
                version_found = version
        return version_found

    def _constants(self, instant_time: str) -> Mapping[str, pa.Scalar]:
        return self.constants if self.only in {"", instant_time} else {}

    def needs_conversion(self, instant_time: str) -> bool:
        """Tell whether base files that an instant wrote differ from the table's columns."""
        version = self._version(instant_time)
        return bool(self._constants(instant_time) or version.converted or self.key)

    def columns_without_statistics(self, instant_time: str) -> frozenset[str]:
        """Return the columns whose statistics in the footers of files of an instant cannot be used."""
        version = self._version(instant_time)
        return version.converted.union(self._constants(instant_time))

    def stored_names(self, columns: Iterable[str], instant_time: str) -> tuple[str, ...]:
        """Return the names of the file columns that `restore` needs for these table columns.

        Raises:
            UnsupportedTableError: a column cannot be read from these files; the message names the column.
        """
        version = self._version(instant_time)
        names: list[str] = []
        constants = self._constants(instant_time)
        for column in self._needed(columns):
            if column in version.refused:
                raise UnsupportedTableError(
                    f"column {column!r} {version.refused[column]} in files of instant {instant_time}, "
                    "which lakeformat cannot convert; name the other columns, or read the table with Apache Hudi"
                )
            stored = version.stored.get(column, column)
            if stored is not None and column not in constants:
                names.append(stored)
        return tuple(dict.fromkeys(names))

    def possible_names(self, columns: Iterable[str]) -> frozenset[str]:
        """Return the names that these table columns may have in files, whichever instant wrote the file."""
        needed = frozenset(self._needed(columns))
        renamed = (version.stored.get(column) for version in self.versions for column in needed)
        return needed.union(name for name in renamed if name is not None)

    def of_file(self, instant_time: str) -> FileShape | None:
        """Return the rules for reading a base file that an instant wrote; None if it has the table's columns."""
        return FileShape(self, instant_time) if self.needs_conversion(instant_time) else None

    def _needed(self, columns: Iterable[str]) -> Iterable[str]:
        names = dict.fromkeys(columns)
        if self.key is not None and RECORD_KEY in names:
            names |= dict.fromkeys(name.partition(".")[0] for name in self.key.record_fields)
        return names

    def restore(self, rows: Any, columns: Collection[str], instant_time: str) -> Any:
        """Convert rows of a file that an instant wrote into the table's columns, without those that the file lacks.

        Rows may be a batch or a table.
        """
        version, present = self._version(instant_time), frozenset(rows.schema.names)
        columns_read: dict[str, Any] = {}
        constants = self._constants(instant_time)
        for column in self._needed(columns):
            stored = version.stored.get(column, column)
            if column in constants:
                columns_read[column] = pa.repeat(constants[column], rows.num_rows)
            elif stored in present:
                names = version.nested.get(column)
                columns_read[column] = (
                    rows.column(stored) if names is None else rename_fields(rows.column(stored), names)
                )
        if self.key is not None and RECORD_KEY in columns:
            columns_read.pop(RECORD_KEY, None)
            columns_read[RECORD_KEY] = record_keys(_rebuild(rows, columns_read), self.key)
        return _rebuild(rows, {name: columns_read[name] for name in columns if name in columns_read})

    def restore_part(self, part: LogPart, columns: Collection[str]) -> LogPart:
        """Convert the rows or keys of a log block as `restore` does. Raise the errors of `stored_names`."""
        if isinstance(part, LogDeletes):
            return replace(part, keys=_strip_prefix(part.keys, self.key))
        self.stored_names(columns, part.instant_time)
        return replace(part, rows=self.restore(part.rows, columns, part.instant_time))


#: The shape of files that store the table's columns as they are.
AS_STORED: Final = StoredShape()


@dataclass(frozen=True, slots=True)
class FileShape:
    """The rules for reading one base file whose columns differ from the table's.

    Attributes:
        instant_time: the instant that wrote the file.
    """

    shape: StoredShape
    instant_time: str

    def stored_names(self, columns: Iterable[str]) -> tuple[str, ...]:
        """Return the file's columns that `restore` needs. Raise the errors of `StoredShape.stored_names`."""
        return self.shape.stored_names(columns, self.instant_time)

    def restore(self, rows: Any, columns: Collection[str]) -> Any:
        """Convert rows of the file into the table's columns, without those that the file lacks."""
        return self.shape.restore(rows, columns, self.instant_time)


def _rebuild(rows: Any, columns: Mapping[str, Any]) -> Any:
    if not columns:
        return rows.select([])  # Keeps the number of rows.
    names, arrays = list(columns), list(columns.values())
    if isinstance(rows, pa.RecordBatch):
        return pa.RecordBatch.from_arrays(arrays, names=names)
    return pa.Table.from_arrays(arrays, names=names)


def _strip_prefix(keys: pa.Array, settings: KeySettings | None) -> pa.Array:
    """Remove the field name that some releases of Hudi write before the keys of a delete block (``id:7`` for ``7``)."""
    if settings is None or settings.kind is not KeyGeneratorKind.COMPLEX or len(settings.record_fields) > 1:
        return keys
    prefix = f"{settings.record_fields[0]}:"
    if not len(keys) or not pc.all(pc.starts_with(keys, prefix)).as_py():
        return keys
    return pc.utf8_slice_codeunits(keys, start=len(prefix))
