"""Partition paths: computed from the rows of a write, matched against a table's partitions, and parsed into values.

Hudi: ``KeyGenUtils.getRecordPartitionPath``, ``TimestampBasedAvroKeyGenerator`` and ``PartitionPathEncodeUtils``. Texts
are formatted and escaped once per distinct value, not once per row.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.arrow.kinds import Kind, field_type, kind_of
from lakeformat.codec.java import (
    END_MILLI,
    FIRST_MILLI,
    JavaPattern,
    arrow_zone,
    format_millis,
    java_text,
    parse_millis,
)
from lakeformat.errors import InvalidInputError, InvalidOptionError, nearest
from lakeformat.keys.record_keys import field_column
from lakeformat.model.keys import (
    KeyGeneratorKind,
    KeySettings,
    PartitionField,
    PartitionKind,
    TimestampSettings,
    TimeUnit,
)

__all__ = [
    "DEFAULT_PARTITION",
    "PARSED_KINDS",
    "distinct_partitions",
    "find_nested_pair",
    "folders_above",
    "match_partitions",
    "partition_paths",
    "partition_values",
]

#: The folder name for null and for the empty string.
DEFAULT_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
#: The folder name for null and for the empty string in tables of Hudi before 0.12.
OLD_DEFAULT_PARTITION: Final = "default"

#: Maximum length of a folder name that file systems accept.
MAX_SEGMENT_BYTES: Final = 255

_ESCAPED: Final[Mapping[int, str]] = {
    code: f"%{code:02X}" for code in [*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{[]^")]
}
_ESCAPE: Final = re.compile("%([0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")
_NANOS_PER_MILLI: Final = 1_000_000
#: Kinds of columns whose values can be read from the names of folders.
PARSED_KINDS: Final = frozenset({Kind.TEXT, Kind.INTEGER, Kind.BOOLEAN, Kind.DATE})

Int64s = npt.NDArray[np.int64]


def partition_paths(rows: pa.Table | pa.RecordBatch, settings: KeySettings) -> pa.DictionaryArray:
    """Return the partition path of every row; ``""`` if the table is not partitioned.

    Returns:
        One entry per row, never null: int32 indices into the distinct paths, which are strings.

    Raises:
        InvalidInputError: a value cannot be a folder's name (``..``, an empty segment, control characters,
            over 255 bytes ...), a date cannot be read, or the column has a type that a partition field cannot have.
        SchemaMismatchError: a partition field is not among the columns.
        InvalidOptionError: a timestamp field's settings are missing or unusable.
    """
    codes: Int64s = np.zeros(rows.num_rows, np.int64)
    paths = [""] if rows.num_rows else []
    for index, field in enumerate(settings.partition_fields):
        field_codes, texts = _format_field(rows, field, settings)
        pairs = pa.array(codes * max(len(texts), 1) + field_codes).dictionary_encode()
        left, right = np.divmod(pairs.dictionary.to_numpy(), max(len(texts), 1))
        slash = "/" if index else ""
        paths = [
            f"{paths[before]}{slash}{texts[own]}" for before, own in zip(left.tolist(), right.tolist(), strict=True)
        ]
        codes = pairs.indices.to_numpy().astype(np.int64)
    distinct = pa.array(paths, pa.string()).dictionary_encode()  # Merge equal paths of different values.
    for path in distinct.dictionary.to_pylist():
        if settings.partition_fields:
            _refuse_dangerous(path)
    indices = distinct.indices.take(pa.array(codes))
    return pa.DictionaryArray.from_arrays(indices.cast(pa.int32()), distinct.dictionary)


def _format_field(
    rows: pa.Table | pa.RecordBatch, field: PartitionField, settings: KeySettings
) -> tuple[Int64s, list[str]]:
    """Format one field of the path for all rows.

    Returns:
        The code of each row, and a list of the path segments: code ``n`` has the ``n``-th segment. Codes may have equal
        segments.
    """
    column = field_column(rows, field.name, "partition")
    if kind_of(column.type) is Kind.DICTIONARY:
        column = column.cast(column.type.value_type)
    try:
        match settings.kind_of(field):
            case PartitionKind.SIMPLE:
                codes, values = _format_simple(column, settings)
            case PartitionKind.TIMESTAMP:
                codes, values = _format_timestamps(column, settings.timestamp)
            case PartitionKind.UNKNOWN:
                raise InvalidOptionError(
                    "the table does not store whether it is SIMPLE or TIMESTAMP; "
                    f"set hoodie.datasource.write.partitionpath.field with {field.name}:<type>"
                )
    except (InvalidInputError, InvalidOptionError) as error:
        raise type(error)(f"partition column {field.name!r}: {error}") from None
    if settings.url_encode:
        values = [value.translate(_ESCAPED) for value in values]
    if settings.slash_dates and len(settings.partition_fields) == 1 and settings.kind is not KeyGeneratorKind.TIMESTAMP:
        values = [value.replace("-", "/") for value in values]
    if settings.hive_style:
        values = [f"{field.name}={value}" for value in values]
    return codes, values


def _encode_dictionary(column: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray:
    """Dictionary-encode a column. A null gets an index too, and becomes an entry of the dictionary."""
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded


def _format_simple(column: pa.Array | pa.ChunkedArray, settings: KeySettings) -> tuple[Int64s, list[str]]:
    is_logical = settings.logical_times and kind_of(column.type) is Kind.TIMESTAMP and column.type.tz
    if is_logical and not settings.url_encode:
        raise InvalidInputError(
            "a folder of a time has `:` in its name, which Hudi cannot read; create the table with "
            "hoodie.datasource.write.partitionpath.urlencode=true"
        )
    encoded = _encode_dictionary(column)
    texts = java_text(encoded.dictionary, logical_times=settings.logical_times).to_pylist()
    return encoded.indices.to_numpy().astype(np.int64), [text or DEFAULT_PARTITION for text in texts]


def _format_timestamps(
    column: pa.Array | pa.ChunkedArray, settings: TimestampSettings | None
) -> tuple[Int64s, list[str]]:
    if settings is None:
        raise InvalidOptionError(
            "a timestamp partition needs the options hoodie.keygen.timebased.timestamp.type and "
            "hoodie.keygen.timebased.output.dateformat; set them"
        )
    pattern = JavaPattern.parse(settings.output_format)
    zone = arrow_zone(settings.output_timezone)
    if kind_of(column.type) is Kind.TEXT:
        encoded = _encode_dictionary(column)
        codes, texts = format_millis(_millis_of_texts(encoded.dictionary, settings), pattern, zone)
        return codes[encoded.indices.to_numpy()], texts
    return format_millis(_millis_of_numbers(column, settings), pattern, zone)


def _millis_of_texts(texts: pa.Array, settings: TimestampSettings) -> Int64s:
    if not settings.input_formats:
        raise InvalidInputError(
            f"it holds texts, but hoodie.keygen.timebased.timestamp.type is {settings.type.value}; "
            "set DATE_STRING and the input.dateformat"
        )
    patterns = [JavaPattern.parse(text, takes_offset=True) for text in settings.input_formats]
    zone = arrow_zone(settings.input_timezone)
    has_value = texts.is_valid().to_numpy(zero_copy_only=False)
    millis = np.empty(len(texts), np.int64)
    millis[has_value] = parse_millis(texts.drop_null().cast(pa.string()), patterns, zone)
    # Hudi replaces a null by the moment 1 ms after the epoch, formatted with the first input pattern.
    first = patterns[0].without_offset
    _, null_texts = format_millis(np.ones(1, np.int64), first, zone)
    millis[~has_value] = parse_millis(pa.array(null_texts), [first], zone)
    return millis


def _millis_of_numbers(column: pa.Array | pa.ChunkedArray, settings: TimestampSettings) -> Int64s:
    """Return the moment of each row in milliseconds since the epoch. A null counts as the number 1, as in Hudi."""
    kind, unit = column.type, settings.unit
    stored = {Kind.TIMESTAMP: TimeUnit.MICROSECONDS, Kind.DATE: TimeUnit.DAYS}.get(kind_of(kind), unit)
    if unit is None or stored is not unit:
        advice = f"set SCALAR with unit {stored.name}" if stored else "set UNIX_TIMESTAMP, EPOCHMILLISECONDS ..."
        raise InvalidInputError(
            f"it holds {kind}, but hoodie.keygen.timebased.timestamp.type is {settings.type.value}; {advice}"
        )
    try:
        if kind_of(kind) is Kind.TIMESTAMP:
            column = column.cast(pa.timestamp("us", kind.tz))
        elif kind_of(kind) is Kind.DATE:
            column = column.cast(pa.date32()).cast(pa.int32())
        elif kind_of(kind) in (Kind.FLOAT, Kind.DECIMAL):
            column = pc.trunc(column)
        elif kind_of(kind) is not Kind.INTEGER:
            raise InvalidInputError(f"a {kind} column is not a timestamp; convert it to long or string")
        values = pc.fill_null(column.cast(pa.int64()), 1).to_numpy()
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"{error}; correct it") from None
    first, last = FIRST_MILLI * _NANOS_PER_MILLI // unit.value, END_MILLI * _NANOS_PER_MILLI // unit.value
    if len(values) and not first <= values.min() <= values.max() < last:
        worst = values[(values < first) | (values >= last)][0]
        raise InvalidInputError(
            f"{worst} {unit.name.lower()} lie outside the years 1 to 9999; check the timestamp.type"
        )
    if unit.value >= _NANOS_PER_MILLI:
        return np.asarray(values * (unit.value // _NANOS_PER_MILLI), np.int64)
    divisor = _NANOS_PER_MILLI // unit.value  # Round towards zero, like Java's TimeUnit.
    return np.asarray(np.sign(values) * (np.abs(values) // divisor), np.int64)


def _refuse_dangerous(path: str) -> None:
    """Refuse a partition path that would leave the table, lie in ``.hoodie`` or have an unusable folder name.

    Raises:
        InvalidInputError: The path is refused; the message names it.
    """
    segments = path.split("/")
    if "" in segments:
        problem = "starts or ends with / or has // in it"
    elif {".", ".."} & set(path.replace("\\", "/").split("/")):
        problem = "has a segment . or .."
    elif segments[0] == ".hoodie":
        problem = "is the table's own folder"
    elif _CONTROL.search(path):
        problem = "has control characters"
    elif any(len(segment.encode()) > MAX_SEGMENT_BYTES for segment in segments):
        problem = f"has a folder name over {MAX_SEGMENT_BYTES} bytes"
    else:
        return
    raise InvalidInputError(f"partition path {path[:300]!r} {problem}; change the values it is made of")


def distinct_partitions(batches: Iterable[pa.RecordBatch], settings: KeySettings) -> tuple[frozenset[str], int]:
    """Read a stream of rows; return its distinct partition paths and its number of rows.

    Raise the errors of `partition_paths`.
    """
    paths_found: set[str] = set()
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        paths_found.update(pc.unique(partition_paths(batch, settings).cast(pa.string())).to_pylist())
    return frozenset(paths_found), rows


def match_partitions(
    wanted: Iterable[str], existing: Collection[str], *, wildcards: bool = True
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Find the existing partitions that match the wanted paths (Hudi: ``resolvePartitionWildcards``).

    Args:
        wanted: Partition paths to look for.
        existing: The table's partition paths.
        wildcards: Whether ``*`` in a wanted path matches any text, slashes included.

    Returns:
        The matching partitions, and the wanted paths that match none.

    Raises:
        InvalidInputError: a path would leave the table or is empty, or no partition matches any path.
    """
    matched: set[str] = set()
    unmatched: list[str] = []
    for pattern in wanted:
        _refuse_dangerous(pattern)
        parts = pattern.split("*") if wildcards else [pattern]
        whole = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
        matches = {path for path in existing if whole.fullmatch(path)}
        matched |= matches
        if not matches:
            unmatched.append(pattern)
    if not matched:
        if not unmatched:
            raise InvalidInputError(
                "delete_partition got no rows and no partitions; name partitions in "
                "hoodie.datasource.write.partitions.to.delete"
            )
        raise InvalidInputError(
            f"the table has no partition {unmatched[0]!r}{nearest(unmatched[0], existing)}; name partition "
            "paths as they are in the table"
        )
    return frozenset(matched), tuple(unmatched)


def find_nested_pair(new: Collection[str], existing: Collection[str]) -> tuple[str, str] | None:
    """Return two partition paths (outer, inner), where ``inner`` lies inside ``outer``; None if there are none.

    At least one path of the pair is in ``new``: pairs of existing paths are not reported.
    """
    if len({path.count("/") for paths in (new, existing) for path in paths}) < 2:
        return None  # Folders of equal depth are never nested.
    fresh = frozenset(new)
    every = fresh.union(existing)
    for inner in sorted(every):
        above = every if inner in fresh else fresh
        for outer in folders_above(inner):
            if outer in above:
                return outer, inner
    return None


def folders_above(path: str) -> Iterator[str]:
    """Yield the parent folders of a partition path, the outermost first, without the table's own folder.

    >>> list(folders_above("a/b/c"))
    ['a', 'a/b']
    """
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)


def partition_values(path: str, settings: KeySettings, schema: pa.Schema) -> dict[str, pa.Scalar]:
    """Parse a partition path into the values of the partition fields: the inverse of `partition_paths`, for pruning.

    A value is returned only if the path determines it without doubt:

    - The field is simple, not a timestamp field, and its type is string, integer, boolean or date.
    - The path's segments can be assigned to fields.
    - The segment is not that of the default partition, which may mean null or an empty value.
    - The text has no slash: Hudi may have written ``/`` for each ``-`` of the value. Dates are known nevertheless.
    - The parsed value makes the same path again.

    Args:
        path: Partition path, relative to the table.
        settings: The table's key settings; ``timestamp`` may be None if the table does not store it.
        schema: Schema of the table's files; it gives the types of the returned scalars.

    Returns:
        A mapping of field name (nested fields with dots) to value. A field whose value is unknown has no entry.
    """
    fields = settings.partition_fields
    widths = [_count_segments(field, settings) for field in fields]
    segments = path.split("/")
    if len(fields) == 1 and settings.kind_of(fields[0]) is PartitionKind.SIMPLE:
        texts = [path]
    elif None in widths or len(segments) != sum(width or 0 for width in widths):
        return {}
    else:
        ends = np.cumsum(np.array(widths, np.int64)).tolist()
        texts = ["/".join(segments[end - (width or 0) : end]) for end, width in zip(ends, widths, strict=True)]
    values = {}
    for field, text in zip(fields, texts, strict=True):
        type_ = field_type(schema, field.name)
        if type_ is not None and settings.kind_of(field) is PartitionKind.SIMPLE:
            value = _parse_value(text, field.name, settings, type_)
            if value is not None:
                values[field.name] = value
    return values


def _count_segments(field: PartitionField, settings: KeySettings) -> int | None:
    """Return the number of path segments that a partition field takes; None if the settings do not determine it."""
    match settings.kind_of(field):
        case PartitionKind.SIMPLE:
            return 1
        case PartitionKind.TIMESTAMP if settings.timestamp is not None:
            return 1 if settings.url_encode else 1 + JavaPattern.parse(settings.timestamp.output_format).slashes
        case _:
            return None


def _parse_value(text: str, name: str, settings: KeySettings, type_: pa.DataType) -> pa.Scalar | None:
    if settings.hive_style:
        if not text.startswith(f"{name}="):
            return None
        text = text.removeprefix(f"{name}=")
    if text in {"", DEFAULT_PARTITION, OLD_DEFAULT_PARTITION}:
        return None
    if settings.url_encode:
        raw = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
        if raw.translate(_ESCAPED) != text:
            return None
        text = raw
    if kind_of(type_) not in PARSED_KINDS:
        return None
    if "/" in text and not settings.url_encode:
        if kind_of(type_) is not Kind.DATE:
            return None
        text = text.replace("/", "-")
    try:
        value = pa.array([text], pa.string()).cast(type_)
        return value[0] if java_text(value)[0].as_py() == text else None
    except (pa.ArrowInvalid, InvalidInputError):
        return None
