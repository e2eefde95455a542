"""The timeline's files: loading, and the three steps of an action (Hudi: ``ActiveTimelineV1``)."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from lakeformat.codec import properties
from lakeformat.codec.commit_json import decode_commit
from lakeformat.codec.requested_replace import RequestedReplace, decode_requested_replace
from lakeformat.errors import CorruptTableError, TableNotFoundError
from lakeformat.model.commit import CommitMetadata
from lakeformat.model.files import FileGroupId
from lakeformat.model.instant import Action, Instant, State
from lakeformat.model.table_config import PROPERTIES_PATH, TableConfig
from lakeformat.storage.port import HOODIE, Storage, check_path
from lakeformat.timeline.timeline import Timeline
from lakeformat.timeline.transition import check_step

__all__ = ["CommitCache", "CommitKey", "TimelineStore"]

#: Commits kept, in bytes of their files; in memory they take about two thirds of that.
_CACHED_BYTES: Final = 128 << 20
#: In the name of each file of archived instants.
_ARCHIVE: Final = ".archive"


class CommitKey(NamedTuple):
    """A completed file as a listing shows it: another one of the same name differs in size or time."""

    location: str
    file_name: str
    size_bytes: int
    modified_ms: int


class CommitCache:
    """Completed commits never change, so each is read once a process. Safe for threads.

    Those asked for longest ago go first. One that is larger than all may be together is not kept.

    Args:
        most_bytes: of the commits' files together.
    """

    def __init__(self, most_bytes: int) -> None:
        self._entries: OrderedDict[CommitKey, CommitMetadata] = OrderedDict()
        self._most_bytes, self._bytes = most_bytes, 0
        self._guard = threading.Lock()

    def get(self, key: CommitKey) -> CommitMetadata | None:
        """The commit, if it is kept."""
        with self._guard:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, key: CommitKey, metadata: CommitMetadata) -> None:
        """Keep a commit."""
        with self._guard:
            if key not in self._entries and key.size_bytes <= self._most_bytes:
                self._entries[key] = metadata
                self._bytes += key.size_bytes
            while self._bytes > self._most_bytes:
                self._bytes -= self._entries.popitem(last=False)[0].size_bytes


_COMMITS: Final = CommitCache(_CACHED_BYTES)


class TimelineStore:
    """Reads and moves instants of one table. Holds no state but the storage and one listing's stamps."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._stamps: dict[str, tuple[int, int]] = {}

    def config(self) -> TableConfig:
        """The table's properties; the backup stands in while Hudi rewrites them.

        Raises:
            TableNotFoundError: neither file is there.
            CorruptTableError: the file cannot be read as properties.
        """
        for path in (PROPERTIES_PATH, f"{PROPERTIES_PATH}.backup"):
            try:
                data = self.storage.read(path)
            except FileNotFoundError:
                continue
            if data.strip():
                return TableConfig(properties.decode(data, name=f"{self.storage.location}/{path}"))
        if self.storage.info(PROPERTIES_PATH) is not None:
            raise CorruptTableError(f"{self.storage.location}/{PROPERTIES_PATH} is empty; restore it from a copy")
        raise TableNotFoundError(
            f"no table at {self.storage.location} (there is no {PROPERTIES_PATH}); check the path, or write to it first"
        )

    def load(self, archive_folder: str | None = None) -> Timeline:
        """The active timeline as it stands now.

        Args:
            archive_folder: listed afterwards for the mark of the archive; None leaves it out.
        """
        entries = [entry for entry in self.storage.list(HOODIE) if not entry.is_folder]
        self._stamps = {entry.name: (entry.size_bytes, entry.modified_ms) for entry in entries}
        archive = None if archive_folder is None else self._archive_mark(archive_folder)
        return Timeline.of_file_names((entry.name for entry in entries), archive)

    def _archive_mark(self, folder: str) -> str:
        files = [entry for entry in self.storage.list(check_path(folder)) if _ARCHIVE in entry.name]
        stamps = "\n".join(sorted(f"{entry.name} {entry.size_bytes}" for entry in files))
        return hashlib.blake2b(stamps.encode(), digest_size=16).hexdigest() if files else ""

    def read(self, instant: Instant) -> bytes:
        """The bytes of an instant's file."""
        return self.storage.read(f"{HOODIE}/{instant.file_name}")

    def commit(self, instant: Instant) -> CommitMetadata:
        """The metadata of a completed commit.

        Raises:
            CorruptTableError: the file is empty, torn or no commit metadata; names the file.
        """
        stamp = self._stamps.get(instant.file_name)
        key = CommitKey(self.storage.location, instant.file_name, *stamp) if stamp else None
        cached = _COMMITS.get(key) if key else None
        if cached is None:
            name = f"{self.storage.location}/{HOODIE}/{instant.file_name}"
            cached = decode_commit(self.read(instant), name=name)
            if key:
                _COMMITS.put(key, cached)
        return cached

    def requested_replace(self, instant: Instant) -> RequestedReplace | None:
        """What a replacecommit's requested file says; None if it is empty or gone."""
        requested = instant.at(State.REQUESTED)
        try:
            return decode_requested_replace(self.read(requested), name=requested.file_name)
        except FileNotFoundError:
            return None

    def pending_clustering(self, timeline: Timeline) -> Mapping[FileGroupId, str]:
        """File groups that a pending clustering plan is going to replace -> the plan's instant time."""
        groups: dict[FileGroupId, str] = {}
        for instant in timeline.pending:
            if instant.action is Action.REPLACE_COMMIT:
                requested = self.requested_replace(instant)
                groups.update(dict.fromkeys(requested.file_groups if requested else (), instant.time))
        return groups

    def request(self, instant: Instant, data: bytes = b"") -> None:
        """Put a new instant on the timeline. Raises ``FileExistsError`` if its time is taken."""
        self.storage.create(f"{HOODIE}/{instant.at(State.REQUESTED).file_name}", data)

    def advance(self, instant: Instant, data: bytes) -> Instant:
        """The next step, by create-if-absent; ``FileExistsError`` if somebody else took it."""
        following = check_step(instant, State(instant.state + 1))
        self.storage.create(f"{HOODIE}/{following.file_name}", data)
        return following

    def erase(self, instant: Instant) -> None:
        """Take a pending instant off the timeline; its inflight file goes last."""
        self.storage.delete(f"{HOODIE}/{instant.at(State.REQUESTED).file_name}")
        self.storage.delete(f"{HOODIE}/{instant.at(State.INFLIGHT).file_name}")
