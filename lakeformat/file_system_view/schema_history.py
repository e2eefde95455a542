"""Schema on read: how files with a past schema store the table's present columns, which are matched by column id.

Hudi stores the columns with their ids in ``extraMetadata`` of commits, and all schemas of the past in the files of
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

__all__ = ["compare_schemas", "schema_versions"]

FOLDER: Final = f"{HOODIE}/.schema"
_ENDING: Final = ".schemacommit"
#: Pairs of stored type and present type for which every value converts without loss, and to the same value as in Hudi.
_WIDENS: Final = frozenset({
    ("int", "long"), ("int", "double"), ("float", "double"), ("int", "string"), ("long", "string"), ("date", "string"),
})  # fmt: skip


def schema_versions(
    storage: Storage, commits: Sequence[tuple[str, CommitMetadata]], location: str
) -> tuple[SchemaVersion, ...]:
    """Return how files of each schema store the present columns; empty if columns are identified by their names.

    Args:
        commits: the commits up to the wanted instant, in order.

    Raises:
        CorruptTableError: a schema cannot be read; the message names the file.
    """
    texts = [
        (time, metadata.extra[LATEST_SCHEMA]) for time, metadata in commits if metadata.extra.get(LATEST_SCHEMA, "")
    ]
    known = [found for time, text in texts if (found := decode_schema(text.encode(), name=f"{location} {time}"))]
    if not known:
        return ()
    now = known[-1]
    schemas = {schema.version: schema for schema in (*_read_stored(storage, location), *known)}
    return tuple(compare_schemas(schemas[at], now) for at in sorted(schemas) if at <= now.version)


def _read_stored(storage: Storage, location: str) -> Iterable[InternalSchema]:
    """Read the schemas in the newest schema file, which repeats those of all earlier files."""
    files = sorted(info.path for info in storage.list(FOLDER) if info.path.endswith(_ENDING))
    for path in reversed(files):
        data = storage.read(path)
        if data:
            return decode_history(data, name=f"{location}/{path}")
    return ()


def compare_schemas(then: InternalSchema, now: InternalSchema) -> SchemaVersion:
    """Return how files with the schema `then` store the columns of the schema `now`."""
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
        reason = _explain_refusal(old, column)
        if reason:
            refused[column.name] = reason
    return SchemaVersion(then.version, stored, refused)


def _explain_refusal(old: SchemaColumn, now: SchemaColumn) -> str:
    """Return why values of the old column cannot be read as the new one; "" if they can."""
    if not _is_widening(old.type, now.type):
        return f"has the type {old.type}, not {now.type},"
    paths = {number: path for path, (number, _) in old.inner.items()}
    for path, (number, kind) in now.inner.items():
        if paths.get(number, path) != path or (path in old.inner and number not in paths):
            return f"has its field {path[1:]!r} under another name"
        if number in paths and not _is_widening(old.inner[path][1], kind):
            return f"has its field {path[1:]!r} as {old.inner[path][1]}, not {kind},"
    return ""


def _is_widening(old: str, now: str) -> bool:
    return old == now or (old, now) in _WIDENS or _is_wider(old, now)


def _is_wider(old: str, now: str) -> bool:
    """Tell whether both types are decimals of the same scale, and the new type has at least as many digits."""
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
