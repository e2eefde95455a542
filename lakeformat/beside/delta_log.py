"""The Delta log beside a table, ``_delta_log``: read, a version added if it is absent, checkpoints.

Source: the protocol of Delta Lake (``PROTOCOL.md``). No library writes such actions: deltalake can append files and
overwrite all of them, but not hide some. The log is reached through the table's storage, so that it works wherever
the table does.

Memory: the paths of the files shown, and for a checkpoint their actions.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lakeformat.beside.delta_actions import encode_actions
from lakeformat.beside.face import COMPLETED, INSTANT, Face
from lakeformat.concurrency import run_all
from lakeformat.config.beside_options import FORMATS
from lakeformat.errors import CorruptTableError, LakeformatError
from lakeformat.storage.port import OutcomeUnknownError, Storage

__all__ = ["FOLDER", "DeltaLog", "delete_log", "put_version", "read_log"]

_LOG: Final = logging.getLogger("lakeformat.beside")
FOLDER: Final = FORMATS["delta"]
_NAME: Final = re.compile(r"(\d{20})\.(json|checkpoint\.parquet)")
_LAST: Final = f"{FOLDER}/_last_checkpoint"
#: A checkpoint is made after this many versions.
_BETWEEN_CHECKPOINTS: Final = 20
_READERS: Final = 8
#: Hidden files stay in checkpoints for this time, as the protocol says.
_REMOVED_MS: Final = 7 * 24 * 3600 * 1000
_TEXTS: Final = pa.map_(pa.string(), pa.string())
_CHECKPOINT: Final = pa.schema(
    [
        pa.field(
            "protocol",
            pa.struct(
                [
                    pa.field("minReaderVersion", pa.int32()),
                    pa.field("minWriterVersion", pa.int32()),
                    pa.field("readerFeatures", pa.list_(pa.string())),
                    pa.field("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
        pa.field(
            "metaData",
            pa.struct(
                [
                    pa.field("id", pa.string()),
                    pa.field("format", pa.struct([pa.field("provider", pa.string()), pa.field("options", _TEXTS)])),
                    pa.field("schemaString", pa.string()),
                    pa.field("partitionColumns", pa.list_(pa.string())),
                    pa.field("configuration", _TEXTS),
                    pa.field("createdTime", pa.int64()),
                ]
            ),
        ),
        pa.field(
            "add",
            pa.struct(
                [
                    pa.field("path", pa.string()),
                    pa.field("partitionValues", _TEXTS),
                    pa.field("size", pa.int64()),
                    pa.field("modificationTime", pa.int64()),
                    pa.field("dataChange", pa.bool_()),
                    pa.field("stats", pa.string()),
                ]
            ),
        ),
        pa.field(
            "remove",
            pa.struct(
                [
                    pa.field("path", pa.string()),
                    pa.field("deletionTimestamp", pa.int64()),
                    pa.field("dataChange", pa.bool_()),
                ]
            ),
        ),
    ]
)


@dataclass
class _Replay:
    """The state after some actions, by the protocol's rules. Values are actions without their name."""

    protocol: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    adds: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    removes: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def follow(self, actions: Iterable[Mapping[str, Any]]) -> None:
        for action in actions:
            if added := action.get("add"):
                self.adds[added["path"]] = added
                self.removes.pop(added["path"], None)
            elif removed := action.get("remove"):
                self.adds.pop(removed["path"], None)
                self.removes[removed["path"]] = removed
            self.protocol = action.get("protocol") or self.protocol
            self.metadata = action.get("metaData") or self.metadata
            self.info = action.get("commitInfo") or self.info


@dataclass(frozen=True, slots=True)
class DeltaLog:
    """The newest version of a Delta log.

    Attributes:
        version: its number; -1 if there is no log.
        checkpoint: number of the version of the newest checkpoint; -1 if there is none.
        protocol, metadata: the actions in force.
        info: ``commitInfo`` of the newest version.
        paths: the files shown, relative to the table.
    """

    version: int = -1
    checkpoint: int = -1
    protocol: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    info: Mapping[str, Any] = field(default_factory=dict)
    paths: frozenset[str] = frozenset()

    @property
    def face(self) -> Face:
        """Return what the log shows of the table."""
        is_own = self.version < 0 or INSTANT in self.info
        return Face(
            self.version,
            self.info.get(INSTANT, ""),
            self.info.get(COMPLETED, ""),
            self.paths,
            "" if is_own else self.info.get("engineInfo", "another program"),
            stored=self,
        )


def read_log(storage: Storage) -> DeltaLog:
    """Read the newest version of the log.

    Raises:
        CorruptTableError: a file of the log is missing or damaged.
    """
    versions, checkpoint = _list(storage)
    if not versions and checkpoint < 0:
        return DeltaLog()
    state = _replay(storage, versions, checkpoint, ["protocol", "metaData", "add.path"])
    version = max(versions, default=checkpoint)
    paths = frozenset(map(unquote, state.adds))
    return DeltaLog(version, checkpoint, state.protocol, state.metadata, state.info, paths)


def _list(storage: Storage) -> tuple[list[int], int]:
    """Return the versions from the newest checkpoint on, and the version of the checkpoint."""
    names = [matched for info in storage.list(FOLDER) if (matched := _NAME.fullmatch(info.name))]
    checkpoint = max((int(name[1]) for name in names if name[2] != "json"), default=-1)
    versions = sorted(int(name[1]) for name in names if name[2] == "json")
    return [version for version in versions if version >= checkpoint], checkpoint


def _replay(storage: Storage, versions: list[int], checkpoint: int, columns: list[str] | None) -> _Replay:
    state = _Replay()
    if checkpoint >= 0:
        state.follow(_read_checkpoint(storage, checkpoint, columns))
    after = [version for version in versions if version > checkpoint]
    if after != list(range(checkpoint + 1, checkpoint + 1 + len(after))):
        raise _damaged(storage, f"{FOLDER} lacks a version after {checkpoint}")
    # The file of the checkpoint's version, too: it names the instant.
    for actions in run_all(lambda version: _read_version(storage, version), versions, threads=_READERS):
        state.follow(actions)
    return state


def _read_version(storage: Storage, version: int) -> list[Mapping[str, Any]]:
    path = _path(version)
    try:
        return [json.loads(line) for line in storage.read(path).splitlines() if line.strip()]
    except (FileNotFoundError, ValueError) as error:
        raise _damaged(storage, f"{path} cannot be read ({type(error).__name__})") from None


def _read_checkpoint(storage: Storage, version: int, columns: list[str] | None) -> Iterator[Mapping[str, Any]]:
    path = _checkpoint_path(version)
    try:
        with storage.open_input(path) as source:
            table = pq.ParquetFile(source).read(columns=columns)
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise _damaged(storage, f"{path} cannot be read ({type(error).__name__})") from None
    yield from table.to_pylist()


def _damaged(storage: Storage, what: str) -> CorruptTableError:
    return CorruptTableError(f"{storage.location}: {what}; make it again by sync('delta', replace=True)")


def _path(version: int) -> str:
    return f"{FOLDER}/{version:020d}.json"


def _checkpoint_path(version: int) -> str:
    return f"{FOLDER}/{version:020d}.checkpoint.parquet"


def put_version(
    storage: Storage,
    log: DeltaLog,
    actions: Iterable[Mapping[str, Any]],
    now_ms: int,
    keeps: Callable[[str], bool],
) -> int | None:
    """Add a version after the one that was read, and a checkpoint if one is due. With it old versions are deleted.

    Return its number; None if another writer has added a version, or may have, so that the log must be read again.

    Args:
        keeps: tells whether the files of an instant are all there.
    """
    version = log.version + 1
    try:
        storage.create(_path(version), encode_actions(actions))
    except (FileExistsError, OutcomeUnknownError):
        return None
    if version - log.checkpoint >= _BETWEEN_CHECKPOINTS:
        try:
            _put_checkpoint(storage, version, now_ms)
            _delete_old_versions(storage, version, keeps)
        except LakeformatError as error:  # The version is there; the next one makes the checkpoint.
            _LOG.warning("%s: no checkpoint of %s was made: %s", storage.location, FOLDER, error)
    return version


def _put_checkpoint(storage: Storage, version: int, now_ms: int) -> None:
    versions, checkpoint = _list(storage)
    if checkpoint >= version:
        return
    state = _replay(storage, [number for number in versions if number <= version], checkpoint, None)
    kept = (remove for remove in state.removes.values() if remove["deletionTimestamp"] > now_ms - _REMOVED_MS)
    rows: list[Mapping[str, Any]] = [
        {"protocol": state.protocol},
        {"metaData": _without_mappings(state.metadata)},
        *({"add": {**_without_mappings(add), "dataChange": False}} for add in state.adds.values()),
        *({"remove": {**remove, "dataChange": False}} for remove in kept),
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=_CHECKPOINT), sink)
    storage.replace(_checkpoint_path(version), sink.getvalue().to_pybytes())
    storage.replace(_LAST, json.dumps({"version": version, "size": len(rows)}).encode())


def _delete_old_versions(storage: Storage, newest: int, keeps: Callable[[str], bool]) -> None:
    """Delete the versions before the last checkpoint whose rows are gone: no reader can read them."""
    names = {info.path: matched for info in storage.list(FOLDER) if (matched := _NAME.fullmatch(info.name))}
    checkpoints = sorted(int(name[1]) for name in names.values() if name[2] != "json")
    for number in reversed(checkpoints):
        state = _Replay()
        state.follow(_read_version(storage, number))
        if number != newest and not keeps(state.info.get(INSTANT, "")):
            storage.delete_all(sorted(path for path, name in names.items() if int(name[1]) < number))
            return


def _without_mappings(action: Mapping[str, Any]) -> dict[str, Any]:
    """Return an action with lists of pairs for its mappings, as Arrow wants them; the format's options stay empty."""
    made = dict(action)
    for name in ("partitionValues", "configuration"):
        if name in made:
            made[name] = list(dict(made[name] or {}).items())
    if "format" in made:
        made["format"] = {"provider": made["format"]["provider"], "options": []}
    return made


def delete_log(storage: Storage) -> None:
    """Delete all files of the log; the newest versions first, so that no reader sees a gap between two versions."""
    paths = [info.path for info in storage.list(FOLDER) if not info.is_folder]
    for path in sorted(paths, reverse=True):
        storage.delete(path)
