"""Bounds of columns from the statistics of the metadata table, for the files or slices of a listing.

The bounds of a slice cover its base file and all its log files. A merged row has each of its values from one of them,
so it cannot match if these bounds rule it out, even if it has values of several files.

Hudi makes the statistics of a file from those of its row groups in the footer. If one row group has none, those of the
others count for the whole file. Such bounds, and bounds in another order or unit, must not rule a file out. So these
are not known here, and the files are read:

- floats: a row group with NaN has no bounds;
- texts of a column with nulls: a row group whose bounds have over 4,096 bytes has none, and takes 1 from the number of
  nulls;
- texts with a character from U+E000 on, where Java's order of texts differs from that of UTF-8;
- timestamps before 1973, which may be milliseconds that were written for a column of microseconds;
- binary values, whose order differs between releases.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, kind_of
from lakeformat.errors import LakeformatError
from lakeformat.files.footer_bounds import fold_files
from lakeformat.metadata_table.bounds import typed_bounds
from lakeformat.metadata_table.metadata_table import MetadataTable
from lakeformat.metadata_table.names import MetadataPartition, partition_of_key, partition_prefix
from lakeformat.model.files import FileSlice
from lakeformat.predicate import ColumnBounds, path_parts, resolve_column

__all__ = ["MetadataBounds", "bounds_of_files"]

_LOG: Final = logging.getLogger("lakeformat.read")
#: Characters whose order in Java is not that of UTF-8: those outside the basic plane, and those before which Java has
#: them.
_DISPUTED: Final = r"[\x{E000}-\x{10FFFF}]"
#: As milliseconds this is the year 5138, as microseconds the year 1973.
_SURELY_MICROSECONDS: Final = 10**14


@dataclass(frozen=True, slots=True)
class MetadataBounds:
    """The statistics of the files of one table.

    Attributes:
        table: the metadata table as it was when the files were listed.
        schema: the columns of the table with the meta columns; bounds get their types.
    """

    table: MetadataTable
    schema: pa.Schema

    def read(self, files: pa.Table, columns: Sequence[str]) -> Mapping[str, ColumnBounds]:
        """Return a mapping of column path to bounds with an entry per file. Leave out columns without statistics.

        If the statistics cannot be read, log one line and return no bounds.

        Args:
            files: a table with the columns ``partition_path`` and ``name``.
            columns: paths of columns.
        """
        return {path: bounds for path, (bounds, _) in self._read(files, columns).items()}

    def read_slices(self, slices: Sequence[FileSlice], columns: Sequence[str]) -> Mapping[str, ColumnBounds]:
        """Return a mapping of column path to bounds with an entry per slice. Leave out columns without statistics.

        If the statistics of one of its files are not known, those of the slice are not.
        """
        paths = [(piece.group.partition_path, str(file.name)) for piece in slices for file in piece.files]
        folders, names = zip(*paths, strict=True) if paths else ((), ())
        files = pa.table({"partition_path": pa.array(folders, pa.string()), "name": pa.array(names, pa.string())})
        owners = np.repeat(np.arange(len(slices)), [len(piece.files) for piece in slices])
        bounds_by_path = self._read(files, columns)
        return {
            path: fold_files({path: bounds}, counts, owners, len(slices))[0][path]
            for path, (bounds, counts) in bounds_by_path.items()
        }

    def _read(self, files: pa.Table, columns: Sequence[str]) -> Mapping[str, tuple[ColumnBounds, pa.Array]]:
        """Return the result of `bounds_of_files` for each column that has statistics."""
        stored = frozenset(self.schema.names)
        types = {
            path: of
            for path, of in (resolve_column(name, self.schema) for name in columns if path_parts(name)[0] in stored)
            if _is_usable(path, of)
        }
        if not types or not files.num_rows or not self.table.has(MetadataPartition.COLUMN_STATS):
            return {}
        try:
            rows = self.table.column_stats(list(types))
        except (LakeformatError, OSError) as error:
            _LOG.warning("%s: no file is skipped by the metadata table: %s", self.table.storage.location, error)
            return {}
        rows_by_path = ((path, rows.filter(pc.equal(rows["column_name"], path)), of) for path, of in types.items())
        return {path: bounds_of_files(files, own, of) for path, own, of in rows_by_path if len(own)}


def _is_usable(path: str, data_type: pa.DataType) -> bool:
    """Tell whether statistics of the column are used. A name with a dot could be that of a field of a struct."""
    is_plain = path == ".".join(path_parts(path))
    return is_plain and not (kind_of(data_type).is_nested or kind_of(data_type) in (Kind.BYTES, Kind.FLOAT))


def _file_keys(files: pa.Table) -> pa.Array:
    """Return a text for each file, of its partition and its name; statistics have the same in their rows."""
    folders = files["partition_path"].combine_chunks().dictionary_encode()
    prefixes = pa.array(map(partition_prefix, folders.dictionary.to_pylist()), pa.string())
    return pc.binary_join_element_wise(prefixes.take(folders.indices), files["name"].combine_chunks(), "/")


def bounds_of_files(files: pa.Table, rows: pa.Table, data_type: pa.DataType) -> tuple[ColumnBounds, pa.Array]:
    """Return the bounds of one column, and the row counts, with an entry per file. What is not known is null.

    A row count is only known if it is 0, as that of a log file with deletes alone: such a file has no bounds.

    Args:
        files: a table with the columns ``partition_path`` and ``name``.
        rows: rows of `MetadataTable.column_stats` of this column.
        data_type: the type of the column.
    """
    rows = rows.combine_chunks()
    stored = pc.binary_join_element_wise(partition_of_key(rows["key"]), rows["file_name"], "/").combine_chunks()
    place = pc.index_in(_file_keys(files), stored)
    low, high = typed_bounds(rows, data_type)
    nulls = rows["nulls"].combine_chunks().cast(pa.int64())
    is_known = np.asarray(low.is_valid()) & np.asarray(high.is_valid()) & _is_true(pc.greater_equal(nulls, 0))
    if kind_of(data_type) is Kind.TEXT:
        is_known &= _is_true(pc.equal(nulls, 0))
        for bound in (low, high):
            is_known &= ~_is_true(pc.match_substring_regex(bound, _DISPUTED))
    if kind_of(data_type) is Kind.TIMESTAMP:
        ends = (pc.abs(bound.cast(pa.int64())) for bound in (low, high))
        is_known &= np.logical_or(*(_is_true(pc.greater_equal(end, _SURELY_MICROSECONDS)) for end in ends))
    counts = rows["values"].combine_chunks().cast(pa.int64())
    is_empty = _is_true(pc.equal(counts, 0)) & _is_true(pc.equal(nulls, 0))
    sure, is_counted = pa.array(is_known & ~is_empty), pa.array(is_known | is_empty)
    parts = [
        pc.if_else(flags, part, pa.scalar(None, part.type)).take(place)
        for part, flags in ((low, sure), (high, sure), (nulls, is_counted), (counts, pa.array(is_empty)))
    ]
    return ColumnBounds(parts[0], parts[1], parts[2]), parts[3]


def _is_true(flags: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(flags.fill_null(False))
