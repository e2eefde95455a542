"""Schema on read: what past schemas of a table's files mean to its columns today, by column ids.

Hudi keeps the columns with their ids in ``extraMetadata`` of commits, and all schemas of the past in the files of
``.hoodie/.schema`` (Hudi: ``FileBasedInternalSchemaStorageManager``). A file has the schema of its own instant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from lakeformat.codec.internal_schema import LATEST_SCHEMA, InternalSchema, SchemaColumn, decode_history
from lakeformat.codec.internal_schema import decode_internal_schema as decode_schema
from lakeformat.files.stored_shape import SchemaVersion
from lakeformat.model.commit import CommitMetadata
from lakeformat.storage.port import HOODIE, Storage

__all__ = ["schema_versions", "version_of"]

FOLDER: Final = f"{HOODIE}/.schema"
_ENDING: Final = ".schemacommit"
#: Types that are read as others without a loss and as Hudi does, whatever the values are.
_WIDENS: Final = frozenset({
    ("int", "long"), ("int", "double"), ("float", "double"), ("int", "string"), ("long", "string"), ("date", "string"),
})  # fmt: skip


def schema_versions(
    storage: Storage, commits: Sequence[tuple[str, CommitMetadata]], location: str
) -> tuple[SchemaVersion, ...]:
    """What differs in files of each schema of the past; empty where columns go by their names.

    Args:
        commits: up to the wanted instant, in order.

    Raises:
        CorruptTableError: a schema cannot be read; names the file.
    """
    told = [
        (time, metadata.extra[LATEST_SCHEMA]) for time, metadata in commits if metadata.extra.get(LATEST_SCHEMA, "")
    ]
    known = [found for time, text in told if (found := decode_schema(text.encode(), name=f"{location} {time}"))]
    if not known:
        return ()
    now = known[-1]
    schemas = {schema.version: schema for schema in (*_stored(storage, location), *known)}
    return tuple(version_of(schemas[at], now) for at in sorted(schemas) if at <= now.version)


def _stored(storage: Storage, location: str) -> Iterable[InternalSchema]:
    """Of the newest file, which repeats all before it."""
    files = sorted(info.path for info in storage.list(FOLDER) if info.path.endswith(_ENDING))
    for path in reversed(files):
        data = storage.read(path)
        if data:
            return decode_history(data, name=f"{location}/{path}")
    return ()


def version_of(then: InternalSchema, now: InternalSchema) -> SchemaVersion:
    """What the columns of now are in files of then."""
    by_id: Mapping[int, SchemaColumn] = {column.id: column for column in then.columns}
    names = {column.name for column in then.columns}
    stored: dict[str, str | None] = {}
    refused: dict[str, str] = {}
    for column in now.columns:
        old = by_id.get(column.id)
        if old is None:
            if column.name in names:
                stored[column.name] = None
            continue
        if old.name != column.name:
            stored[column.name] = old.name
        reason = _reason(old, column)
        if reason:
            refused[column.name] = reason
    return SchemaVersion(then.version, stored, refused)


def _reason(old: SchemaColumn, now: SchemaColumn) -> str:
    """Why values of the old column are none of the new one's; "" where they are."""
    if not _widens(old.type, now.type):
        return f"has the type {old.type}, not {now.type},"
    paths = {number: path for path, (number, _) in old.inner.items()}
    for path, (number, kind) in now.inner.items():
        if paths.get(number, path) != path or (path in old.inner and number not in paths):
            return f"has its field {path[1:]!r} under another name"
        if number in paths and not _widens(old.inner[path][1], kind):
            return f"has its field {path[1:]!r} as {old.inner[path][1]}, not {kind},"
    return ""


def _widens(old: str, now: str) -> bool:
    return old == now or (old, now) in _WIDENS or _is_wider(old, now)


def _is_wider(old: str, now: str) -> bool:
    """Decimals with more digits."""
    numbers = [_digits(kind) for kind in (old, now)]
    if numbers[0] is None or numbers[1] is None:
        return False
    return numbers[0][1] == numbers[1][1] and numbers[0][0] <= numbers[1][0]


def _digits(kind: str) -> tuple[int, int] | None:
    inside = kind.removeprefix("decimal(").removesuffix(")")
    parts = [part.strip() for part in inside.split(",")]
    return (
        (int(parts[0]), int(parts[1])) if kind != inside and len(parts) == 2 and all(map(str.isdigit, parts)) else None
    )
