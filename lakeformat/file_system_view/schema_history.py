"""Schema on read: how files with a past schema store the table's present columns, which are matched by column id.

Hudi stores the columns with their ids in ``extraMetadata`` of commits, and all schemas of the past in the files of
``.hoodie/.schema`` (Hudi: ``FileBasedInternalSchemaStorageManager``). A file has the schema of its own instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from lakeformat.arrow.rename import FieldNames
from lakeformat.codec.column_ids import is_widening
from lakeformat.codec.internal_schema import LATEST_SCHEMA, decode_history, encode_history
from lakeformat.codec.internal_schema import decode_internal_schema as decode_schema
from lakeformat.files.stored_shape import SchemaVersion
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.instant import next_instant_time
from lakeformat.model.internal_schema import InternalSchema, SchemaType
from lakeformat.storage.port import HOODIE, Clock, Storage
from lakeformat.timeline.store import TimelineStore
from lakeformat.timeline.timeline import Timeline

__all__ = [
    "compare_schemas",
    "delete_old_schemas",
    "has_column_ids",
    "read_schemas",
    "schema_versions",
    "write_schemas",
]

_FOLDER: Final = f"{HOODIE}/.schema"
_ENDING: Final = ".schemacommit"


def read_schemas(
    storage: Storage, commits: Sequence[tuple[str, CommitMetadata]], location: str
) -> tuple[InternalSchema, ...]:
    """Return all schemas with column ids that the table has had, oldest first; the last is the present one.

    The result is empty if columns are identified by their names.

    Args:
        commits: the commits up to the wanted instant, in order.

    Raises:
        CorruptTableError: a schema cannot be read; the message names the file.
    """
    texts = [
        (time, metadata.extra[LATEST_SCHEMA]) for time, metadata in commits if metadata.extra.get(LATEST_SCHEMA, "")
    ]
    decoded = [schema for time, text in texts if (schema := decode_schema(text.encode(), name=f"{location} {time}"))]
    if not decoded:
        return ()
    now = decoded[-1]
    schemas = {schema.version: schema for schema in (*_read_stored(storage, location), *decoded)}
    return (*(schemas[number] for number in sorted(schemas) if number < now.version), now)


def has_column_ids(store: TimelineStore, timeline: Timeline) -> bool:
    """Tell whether the newest commit on a timeline stores ids of columns. Bounds and statistics go by names instead."""
    return bool(timeline.commits) and LATEST_SCHEMA in store.read_commit(timeline.commits[-1]).extra


def schema_versions(schemas: Sequence[InternalSchema]) -> tuple[SchemaVersion, ...]:
    """Return for each schema how files that have it store the columns of the last one."""
    return tuple(compare_schemas(schema, schemas[-1]) for schema in schemas)


def _read_stored(storage: Storage, location: str) -> Iterable[InternalSchema]:
    """Read the schemas in the newest schema file, which repeats those of all earlier files."""
    files = sorted(info.path for info in storage.list(_FOLDER) if info.path.endswith(_ENDING))
    for path in reversed(files):
        data = storage.read(path)
        if data:
            return decode_history(data, name=f"{location}/{path}")
    return ()


def write_schemas(store: TimelineStore, clock: Clock, instant_time: str, schemas: Sequence[InternalSchema]) -> None:
    """Write all schemas into the schema file of a commit, as Hudi does, with its empty requested and inflight files."""
    name = f"{_FOLDER}/{instant_time}"
    for state in (".requested", ".inflight"):
        store.storage.replace(f"{name}{_ENDING}{state}", b"")
    if store.layout.has_completion_times:
        name += f"_{next_instant_time(clock.now_ms(), instant_time, store.known_config.zone)}"
    store.storage.replace(name + _ENDING, encode_history(schemas))


def delete_old_schemas(storage: Storage, timeline: Timeline) -> None:
    """Delete the schema files of commits that are older than those on the timeline."""
    first = min(timeline.commit_times, default="")
    for info in storage.list(_FOLDER):
        if info.path.rpartition("/")[2][: len(first)] < first:
            storage.delete(info.path)


def compare_schemas(then: InternalSchema, now: InternalSchema) -> SchemaVersion:
    """Return how files with the schema `then` store the columns of the schema `now`."""
    by_id = {column.id: column for column in then.columns}
    names = {column.name for column in then.columns}
    stored: dict[str, str | None] = {}
    refused: dict[str, str] = {}
    nested: dict[str, FieldNames] = {}
    to_text: set[str] = set()
    for column in now.columns:
        old = by_id.get(column.id)
        if old is None:
            if column.name in names:
                stored[column.name] = None
            continue
        if old.name != column.name:
            stored[column.name] = old.name
        if reason := _explain_refusal(old.type, column.type, ""):
            refused[column.name] = reason
        if _has_renames(old.type, column.type):
            nested[column.name] = _inner_names(old.type, column.type)
        if old.type.name != column.type.name == "string":
            to_text.add(column.name)
    return SchemaVersion(then.version, stored, refused, nested, frozenset(to_text))


def _inner_names(old: SchemaType, now: SchemaType) -> FieldNames:
    """Map the stored name of each inner field that is still there to its present name and its own inner fields."""
    if old.name != now.name:
        return {}
    present = {field.id: field for field in now.fields}
    return {
        field.name: (present[field.id].name, _inner_names(field.type, present[field.id].type))
        for field in old.fields
        if field.id in present
    }


def _has_renames(old: SchemaType, now: SchemaType) -> bool:
    """Tell whether an inner field has another name now, or its name belongs to another field."""
    present = {field.id: field for field in now.fields}
    names = {field.name for field in now.fields}
    for field in old.fields:
        new = present.get(field.id)
        if new is None:
            if field.name in names:
                return True
        elif new.name != field.name or _has_renames(field.type, new.type):
            return True
    return False


def _explain_refusal(old: SchemaType, now: SchemaType, path: str) -> str:
    """Return why values of the old type cannot be read as the new one; "" if they can."""
    if not is_widening(old.name, now.name):
        place = f"has its field {path!r} as" if path else "has the type"
        return f"{place} {old.name}, not {now.name},"
    present = {field.id: field for field in now.fields}
    reasons = (
        _explain_refusal(field.type, present[field.id].type, f"{path}.{field.name}".lstrip("."))
        for field in old.fields
        if field.id in present
    )
    return next(filter(None, reasons), "")
