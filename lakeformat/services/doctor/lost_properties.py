"""A table whose ``hoodie.properties`` is lost: the file is made again from what the table's other files prove.

lakeformat keeps a copy of the file (`COPY_PATH`), written when it creates a table or changes its settings. If the copy
fits the timeline and the rows, it is taken. Else the timeline shows layout and type, the newest commit the columns, and
the rows the key: a column is a key field if its values give the stored `_hoodie_record_key` of every row looked at, and
a partition field if they give `_hoodie_partition_path`. Options of the call go before all of that, and are checked the
same way. No row shows an ordering column or a merge mode: only the copy or the options name them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from lakeformat.codec import properties
from lakeformat.codec.avro.schema import from_avro, without_meta
from lakeformat.codec.java import java_text
from lakeformat.codec.timeline_files.commit import decode_commit
from lakeformat.config.resolve import Options
from lakeformat.errors import CorruptTableError, InvalidInputError, LakeformatError
from lakeformat.file_system_view.context import TableContext
from lakeformat.file_system_view.file_groups import list_files
from lakeformat.files.footers import open_base, open_parquet, row_batches
from lakeformat.keys.partition_paths import partition_paths
from lakeformat.keys.record_keys import GENERATED_KEY, record_keys
from lakeformat.metadata_table.names import FIXED_PARTITIONS, FOLDER
from lakeformat.model import table_config as names
from lakeformat.model.files import BaseFile
from lakeformat.model.instant import Action
from lakeformat.model.keys import KeyGeneratorKind
from lakeformat.model.record import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakeformat.model.table_config import PROPERTIES_PATH, TableConfig, TableType
from lakeformat.storage.port import Storage
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.timeline_layout import LAYOUT_1, LAYOUT_2, layout_of
from lakeformat.transaction.order.properties_file import COPY_PATH
from lakeformat.write.plan.table_settings import NEW_ENCODING, key_settings, new_table_values

__all__ = ["MadeProperties", "fits_rows", "make_properties"]

_W: Final = "hoodie.datasource.write."
_RECORD: Final = _W + "recordkey.field"
_PARTITION: Final = _W + "partitionpath.field"
_GENERATOR: Final = _W + "keygenerator.type"
_TYPE: Final = _W + "table.type"
_VERSION: Final = "hoodie.write.table.version"
_ORDERING: Final = "hoodie.table.ordering.fields"
#: Number of base files, and of rows of each, that are looked at.
_FILES: Final = 256
_ROWS: Final = 1 << 12
_NAMED_KEY: Final = re.compile(r"(?:^|,)([^:,]+):")


@dataclass(frozen=True)
class MadeProperties:
    """Properties that fit the table.

    Attributes:
        why: what they rest on, for people.
    """

    values: Mapping[str, str]
    why: str


@dataclass(frozen=True)
class _Sample:
    """Rows of one base file, with their meta columns."""

    file: BaseFile
    rows: pa.Table


def make_properties(context: TableContext, options: Options) -> MadeProperties:
    """Return the properties that the table's files prove. Nothing is written.

    Args:
        options: options of the call. Those that are set must fit the rows.

    Raises:
        CorruptTableError: the files do not prove all that is needed; the message says what is missing.
    """
    storage = context.storage
    timeline = _load_timeline(storage)
    samples = list(_read_samples(storage, timeline))
    of_metadata = _metadata_properties(storage)
    copied = _read_copy(storage, timeline, samples, options)
    if copied is not None:
        return MadeProperties({**copied, **of_metadata}, f"from its copy {COPY_PATH}, which fits the rows")
    values, key = _derive(storage, timeline, samples, options)
    rows = sum(sample.rows.num_rows for sample in samples)
    named = options.values.get(_ORDERING)
    ordering = f"ordering by {named}" if named else "no ordering column, which rows do not show: name one that it had"
    return MadeProperties({**values, **of_metadata}, f"{key}, as {rows:,} rows prove; {ordering}")


def fits_rows(context: TableContext, config: TableConfig, options: Options) -> bool:
    """Tell whether a table's settings give the stored record key and partition path of all rows that are looked at."""
    return _fits(config, options, _read_samples(context.storage, context.store.load()))


def _load_timeline(storage: Storage) -> Timeline:
    """Load the timeline without the properties: the layout whose folder has instants is the table's."""
    for layout in (LAYOUT_2, LAYOUT_1):
        listed = [entry.name for entry in storage.list_at_once(layout.folder) if not entry.is_folder]
        timeline = Timeline.of_file_names(listed, layout=layout)
        if timeline.commits:
            return timeline
    raise CorruptTableError(f"{storage.location} has no commit that proves what its {PROPERTIES_PATH} was")


def _read_samples(storage: Storage, timeline: Timeline) -> Iterator[_Sample]:
    bases = [base for base in list_files(storage).bases if timeline.is_committed(base.name.instant_time)]
    newest_first = sorted(bases, key=lambda base: base.name.instant_time, reverse=True)
    for base in newest_first[:_FILES]:
        with suppress(CorruptTableError), open_base(storage, base) as source:
            parquet = open_parquet(source, base.path)
            columns = parquet.schema_arrow.names
            if set(META_COLUMNS) <= set(columns):
                batch = next(row_batches(parquet, base.path, _ROWS, columns=columns), None)
                if batch is not None and batch.num_rows:
                    yield _Sample(base, pa.Table.from_batches([batch]))


def _metadata_properties(storage: Storage) -> Mapping[str, str]:
    """Return the property that names the partitions of the metadata table, as its folders show them."""
    folders = {entry.name for entry in storage.list(FOLDER) if entry.is_folder}
    present = [partition.value for partition in FIXED_PARTITIONS if partition.value in folders]
    return {names.METADATA_PARTITIONS: ",".join(present)} if present else {}


def _read_copy(
    storage: Storage, timeline: Timeline, samples: Sequence[_Sample], options: Options
) -> Mapping[str, str] | None:
    """Return the properties in lakeformat's copy; None if there is none, or if it does not fit the table any more."""
    try:
        config = TableConfig(dict(properties.decode(storage.read(COPY_PATH), name=COPY_PATH)))
        config.check_readable(storage.location)
    except (FileNotFoundError, LakeformatError):
        return None
    layout = layout_of(config)
    fits = layout is not None and layout.folder == timeline.layout.folder and _fits(config, options, samples)
    return config.values if fits else None


def _fits(config: TableConfig, options: Options, samples: Iterable[_Sample]) -> bool:
    """Tell whether the settings give the stored record key and partition path of every row."""
    try:
        settings = key_settings(config, options)
        for sample in samples:
            stored = sample.rows.column(RECORD_KEY)
            if config.record_fields:
                if not _equal(record_keys(sample.rows, settings), stored):
                    return False
            elif not all(map(GENERATED_KEY.fullmatch, stored.to_pylist())):
                return False
            made = partition_paths(sample.rows, settings).cast(pa.string())
            if not _equal(made, sample.rows.column(PARTITION_PATH)):
                return False
    except (LakeformatError, pa.ArrowInvalid):
        return False
    return True


def _equal(made: Any, stored: pa.ChunkedArray) -> bool:
    return bool(pc.all(pc.equal(_chunked(made), stored)).as_py())


def _chunked(array: Any) -> pa.ChunkedArray:
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


# --- what the rows prove ----------------------------------------------------------------------------------


def _derive(
    storage: Storage, timeline: Timeline, samples: Sequence[_Sample], options: Options
) -> tuple[Mapping[str, str], str]:
    """Return the properties that the rows prove, and the key as a text.

    Raises:
        CorruptTableError: no row could be read, no columns give the keys, or several do.
    """
    where = f"{storage.location}/{PROPERTIES_PATH} cannot be made again"
    if not samples:
        raise CorruptTableError(f"{where}: no base file has rows that prove the key; restore it from a copy")
    schema = _read_schema(storage, timeline) or without_meta(samples[0].rows.schema)
    logs = bool(list_files(storage).logs) or bool(timeline.of_action(Action.DELTA_COMMIT))
    base = options.with_values(
        **{
            _TYPE: (TableType.MERGE_ON_READ if logs else TableType.COPY_ON_WRITE).value,
            _VERSION: _find_version(storage, timeline, options),
        }
    )
    fitting: dict[tuple[tuple[str, ...], tuple[str, ...]], Mapping[str, str]] = {}
    for record, (partition, hive), further in product(
        _list_record_fields(samples, options), _list_partition_fields(samples, options), _list_forms()
    ):
        operation = {} if record else {_W + "operation": "insert"}
        tried = base.with_values(
            **{_RECORD: record, _PARTITION: partition, names.HIVE_STYLE: hive, **operation, **further}
        )
        with suppress(LakeformatError):
            values = new_table_values(tried, schema, storage.location)
            if (record, partition) not in fitting and _fits(TableConfig(values), tried, samples):
                fitting[record, partition] = values
    if len(fitting) != 1:
        why = "no columns give the stored keys of all rows; name them"
        if fitting:
            why = f"the rows fit {', or '.join(map(_describe_key, fitting))}; say which"
        raise CorruptTableError(f"{where}: {why} (options recordkey, partitionpath), or restore it from a copy")
    ((key, values),) = fitting.items()
    return values, _describe_key(key)


def _describe_key(key: tuple[tuple[str, ...], tuple[str, ...]]) -> str:
    record, partition = key
    return f"record key {','.join(record) or 'generated'}, partitioned by {','.join(partition) or 'nothing'}"


def _list_forms() -> Iterator[Mapping[str, Any]]:
    """Yield the settings of key generators that names of columns leave open, the usual ones first."""
    for url_encode in (False, True):
        yield {names.URL_ENCODE: url_encode}
        for encoding in (False, True):
            yield {
                names.URL_ENCODE: url_encode, _GENERATOR: KeyGeneratorKind.COMPLEX.type_name, NEW_ENCODING: encoding
            }  # fmt: skip


def _read_schema(storage: Storage, timeline: Timeline) -> pa.Schema | None:
    for instant in reversed(timeline.commits):
        path = timeline.layout.path(instant)
        with suppress(CorruptTableError):
            text = decode_commit(storage.read(path), name=f"{storage.location}/{path}").schema_text
            if text:
                return without_meta(from_avro(text, name=path))
    return None


def _find_version(storage: Storage, timeline: Timeline, options: Options) -> str:
    """Return the table version: 6 in layout 1; in layout 2 that of the options or of the metadata table, else 8.

    Versions 8 and 9 have the same files, and every release that reads 9 reads 8.
    """
    if not timeline.layout.has_completion_times:
        return "6"
    own = f"{FOLDER}/{PROPERTIES_PATH}"
    with suppress(FileNotFoundError, CorruptTableError):
        stored = properties.decode(storage.read(own), name=own).get(names.VERSION, "")
        if stored in {"8", "9"}:
            return stored
    return str(options.values.get(_VERSION, "8"))


def _list_record_fields(samples: Sequence[_Sample], options: Options) -> Iterator[tuple[str, ...]]:
    """Yield the key fields that the options name; else those that the stored keys name, and columns equal to them."""
    if (given := options.values.get(_RECORD)) is not None:
        yield tuple(given)
        return
    rows = samples[0].rows
    key = rows.column(RECORD_KEY)[0].as_py()
    columns = [name for name in rows.schema.names if name not in META_COLUMNS]
    if GENERATED_KEY.fullmatch(key):
        yield ()
    named = tuple(_NAMED_KEY.findall(key))
    if named and set(named) <= set(columns):
        yield named
    for name in columns:
        if _gives(rows, name, key):
            yield (name,)


def _gives(rows: pa.Table, name: str, key: str) -> bool:
    """Tell whether a column's first value is the key's text. Rows that have it are compared in full later."""
    with suppress(InvalidInputError, pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return bool(java_text(rows.column(name).slice(0, 1).combine_chunks())[0].as_py() == key)
    return False


def _list_partition_fields(samples: Sequence[_Sample], options: Options) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield partition fields, and whether the folders are named ``field=value``, that may give the stored paths."""
    rows, path = samples[0].rows, samples[0].file.partition_path
    segments = path.split("/") if path else []
    parts = [segment.partition("=") for segment in segments]
    hive = bool(parts) and all(sep for _, sep, _ in parts)
    if (given := options.values.get(_PARTITION)) is not None:
        yield tuple(given), hive
        return
    if not segments:
        yield (), False
        return
    if hive:
        yield tuple(name for name, _, _ in parts), True
    columns = [name for name in rows.schema.names if name not in META_COLUMNS]
    fitting = [[name for name in columns if _is_segment(rows, name, segment)] for segment in segments]
    for fields in product(*fitting):
        yield fields, False
    if len(segments) > 1:
        yield from (((name,), False) for name in columns if _is_segment(rows, name, path))


def _is_segment(rows: pa.Table, name: str, segment: str) -> bool:
    return _gives(rows, name, segment) or _gives(rows, name, unquote(segment)) or segment.startswith("__HIVE_DEFAULT")
