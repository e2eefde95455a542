"""Base files that Arrow and polars read as they are, as fast as any Parquet files.

A base file is plain if it lies on a local disk, in a snapshot without log files, and stores the wanted columns with the
types that a read returns. Which files and row groups are read is still decided by the plan of the read.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.dataset as ds

from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.files.missing_files import missing_file_error
from lakeformat.read.plan import FilePart, Part
from lakeformat.storage import Storage, arrow_file_system

__all__ = ["may_be_plain", "plain_dataset"]


def may_be_plain(storage: Storage, snapshot: Snapshot) -> bool:
    """Tell whether a snapshot may have plain base files. It costs nothing, so that a read is not planned in vain."""
    return arrow_file_system(storage) is not None and not snapshot.live.has_logs


def plain_dataset(storage: Storage, parts: Sequence[Part], columns: pa.Schema) -> ds.FileSystemDataset | None:
    """Return the row groups of the parts as a dataset of Parquet files; None if a part is not of plain base files.

    Each file's footer is read.

    Args:
        parts: the parts of a read's plan.
        columns: the columns that may be asked of the dataset.

    Raises:
        CleanedFileError, CorruptTableError: a file is missing; the message names it.
    """
    place = arrow_file_system(storage)
    if place is None:
        return None
    file_system, root = place
    groups: dict[str, tuple[int, ...] | None] = {}
    for part in parts:
        if not isinstance(part, FilePart) or part.shape is not None:
            return None
        known = groups.setdefault(part.path, part.row_groups)
        if known is not None and part.row_groups is not None:
            groups[part.path] = tuple(sorted({*known, *part.row_groups}))
    form = ds.ParquetFileFormat()
    fragments = []
    for path, row_groups in groups.items():
        fragment = form.make_fragment(f"{root}/{path}", file_system, row_groups=row_groups)
        try:
            stored = fragment.physical_schema
        except FileNotFoundError:
            raise missing_file_error(storage, path) from None
        for field in columns:
            at = stored.get_field_index(field.name)
            if at < 0 or not stored.field(at).type.equals(field.type):
                return None
        fragments.append(fragment)
    return ds.FileSystemDataset(fragments, columns, form, file_system)
