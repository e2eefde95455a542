"""The rings of a table with consistent hashing, read from its hashing metadata.

``.hoodie/.bucket_index/consistent_hashing_metadata/<partition>/`` has one file ``<instant>.hashing_meta`` per ring. The
ring in force is the newest whose commit has completed. An empty file ``<instant>.commit`` beside it says so after the
commit was archived. Hudi: ``ConsistentBucketIndexUtils``. The folder beside it has the rules by which partitions have
their own numbers of buckets: `find_bucket_engine` reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lakeformat.codec.hashing_metadata import decode_ring
from lakeformat.codec.json_text import parse_json
from lakeformat.concurrency import run_all
from lakeformat.errors import CorruptTableError
from lakeformat.file_system_view.snapshot import Snapshot
from lakeformat.model.bucket_rule import BucketRule
from lakeformat.model.files import join_path
from lakeformat.model.hashing_metadata import FIRST_INSTANT, MOST_BUCKETS, HashRing
from lakeformat.storage.port import HOODIE, Storage
from lakeformat.timeline.timeline import Timeline

__all__ = [
    "MARKER_SUFFIX",
    "RING_SUFFIX",
    "RULE_SUFFIX",
    "StoredBuckets",
    "StoredRings",
    "find_bucket_engine",
    "find_first_buckets",
    "list_ring_folders",
    "list_stored_rings",
    "load_ring",
    "load_rings",
    "ring_folder",
    "ring_path",
    "stored_paths",
    "uses_consistent_hashing",
]

_FOLDER: Final = f"{HOODIE}/.bucket_index"
#: Folder of the hashing metadata. It exists only in tables with consistent hashing.
_ROOT: Final = f"{_FOLDER}/consistent_hashing_metadata"
#: Folder of the rules that give partitions their own numbers of buckets. Hudi's ``partition_bucket_index_manager``
#: writes them.
_RULES: Final = f"{_FOLDER}/partition_bucket_index_meta/configs"
RULE_SUFFIX: Final = ".hashing_config"
RING_SUFFIX: Final = ".hashing_meta"
MARKER_SUFFIX: Final = ".commit"
#: Number of partitions whose rings are read at once.
_THREADS: Final = 16


def uses_consistent_hashing(storage: Storage) -> bool:
    """Tell whether the table's rows are found by consistent hashing. No table property shows it, only its metadata."""
    return bool(storage.list(_ROOT))


@dataclass(frozen=True, slots=True)
class StoredBuckets:
    """What a table's own files say about its buckets.

    Attributes:
        is_consistent: whether the table has consistent hashing.
        rule: the rule by which partitions have their own numbers of buckets; None if none is stored.
    """

    is_consistent: bool
    rule: BucketRule | None = None


def find_bucket_engine(storage: Storage, timeline: Timeline) -> StoredBuckets:
    """Read what the table's files say about its buckets, with one request if they say nothing.

    Args:
        timeline: all active instants.

    Raises:
        CorruptTableError: the file of a rule is damaged; the message names the file.
    """
    folders = {entry.path for entry in storage.list(_FOLDER) if entry.is_folder}
    rule = _load_rule(storage, timeline) if _RULES.rpartition("/")[0] in folders else None
    return StoredBuckets(_ROOT in folders and uses_consistent_hashing(storage), rule)


def _load_rule(storage: Storage, timeline: Timeline) -> BucketRule | None:
    """Return the newest rule whose instant has completed. An instant that is not on the timeline was archived."""
    pending = {instant.time for instant in timeline.instants} - timeline.commit_times
    rules = {
        time: entry.path
        for entry in storage.list(_RULES)
        if (time := entry.path.rpartition("/")[2].removesuffix(RULE_SUFFIX)) not in pending
        and entry.path.endswith(RULE_SUFFIX)
    }
    if not rules:
        return None
    path = rules[max(rules)]
    try:
        fields = parse_json(storage.read(path))
        return BucketRule.parse(fields["expressions"], int(fields["defaultBucketNumber"]))
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptTableError(
            f"{storage.location}/{path} is no rule for the numbers of buckets ({error}); restore it from a copy"
        ) from None


def ring_path(ring: HashRing, suffix: str = RING_SUFFIX) -> str:
    """Return the path of a ring, or of its commit marker."""
    return _path(ring.partition_path, ring.instant, suffix)


def _path(partition_path: str, time: str, suffix: str = RING_SUFFIX) -> str:
    return f"{ring_folder(partition_path)}/{time}{suffix}"


def ring_folder(partition_path: str) -> str:
    """Return the folder of a partition's hashing metadata."""
    return f"{_ROOT}/{partition_path}" if partition_path else _ROOT


@dataclass(frozen=True, slots=True)
class StoredRings:
    """The hashing metadata of one partition.

    Attributes:
        times: instants of the rings, oldest first.
        marked: instants of the rings with a commit marker.
    """

    partition_path: str
    times: tuple[str, ...]
    marked: frozenset[str]

    def read(self, storage: Storage, time: str) -> HashRing:
        """Read the ring of an instant. Raise `CorruptTableError` if it is damaged."""
        path = _path(self.partition_path, time)
        ring = decode_ring(storage.read(path), name=f"{storage.location}/{path}")
        if (ring.partition_path, ring.instant) != (self.partition_path, time):
            raise CorruptTableError(
                f"{storage.location}/{path} is of partition {ring.partition_path!r} and instant {ring.instant}; "
                "restore it from a copy"
            )
        return ring

    def valid_times(self, timeline: Timeline) -> list[str]:
        """Return the instants of the rings whose commits have completed, newest first."""
        return [time for time in reversed(self.times) if time == FIRST_INSTANT or timeline.is_committed(time)]


def list_stored_rings(storage: Storage, partition_path: str) -> StoredRings:
    """List the hashing metadata of a partition."""
    names = [info.name for info in storage.list(ring_folder(partition_path)) if not info.is_folder]
    return StoredRings(partition_path, _times(names, RING_SUFFIX), frozenset(_times(names, MARKER_SUFFIX)))


def stored_paths(stored: StoredRings, time: str) -> tuple[str, str]:
    """Return the paths of the commit marker and of the ring of an instant."""
    marker, ring = (_path(stored.partition_path, time, suffix) for suffix in (MARKER_SUFFIX, RING_SUFFIX))
    return marker, ring


def _times(names: Iterable[str], suffix: str) -> tuple[str, ...]:
    times = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return tuple(sorted(time for time in times if time.isdigit()))


def load_ring(storage: Storage, timeline: Timeline, stored: StoredRings, live_ids: Collection[str]) -> HashRing | None:
    """Return the ring in force of a partition; None if the partition has no ring yet.

    That is the newest ring whose commit has completed and that has a bucket for each live file group. A ring without
    one of them was made by a commit that was undone.

    Args:
        live_ids: file ids of the partition's live slices.

    Raises:
        CorruptTableError: a file group belongs to no bucket.
    """
    ids = {*live_ids}
    valid = stored.valid_times(timeline)
    for time in valid:
        ring = stored.read(storage, time)
        if ids.issubset(ring.file_ids):
            return ring
    if not ids:
        return None
    lost = min(ids if not valid else ids.difference(stored.read(storage, valid[0]).file_ids))
    raise CorruptTableError(
        f"file group {lost} of {storage.location}/{stored.partition_path} belongs to no bucket of its consistent "
        f"hashing ({ring_folder(stored.partition_path)}), so its keys may be in two file groups; an insert_overwrite "
        "of Apache Hudi writes such file groups. Write the partition again with insert_overwrite"
    )


def load_rings(
    storage: Storage, snapshot: Snapshot, partitions: Iterable[str], replaced_by: str = ""
) -> Mapping[str, HashRing]:
    """Return the rings in force of partitions. Partitions without a ring are left out.

    Args:
        replaced_by: id of the write if it replaces all file groups of the partitions, so that they need no bucket;
            else "".

    Raises:
        CorruptTableError: hashing metadata is damaged, or a file group belongs to no bucket.
    """

    def load(path: str) -> HashRing | None:
        slices = () if replaced_by else snapshot.slices.get(path, ())
        live_ids = [piece.group.file_id for piece in slices]
        return load_ring(storage, snapshot.timeline, list_stored_rings(storage, path), live_ids)

    paths = sorted({*partitions})
    rings = run_all(load, paths, threads=_THREADS)
    return {path: ring for path, ring in zip(paths, rings, strict=True) if ring is not None}


def find_first_buckets(storage: Storage) -> int | None:
    """Return the number of buckets with which a partition of the table began; None if no partition has a ring.

    Raises:
        CorruptTableError: no partition can have this number of buckets.
    """
    paths = [""]
    while paths:
        path = paths.pop()
        infos = storage.list(ring_folder(path))
        times = _times((info.name for info in infos if not info.is_folder), RING_SUFFIX)
        if times:
            first = StoredRings(path, times, frozenset()).read(storage, times[0]).first_buckets
            if not 1 <= first <= MOST_BUCKETS:
                raise CorruptTableError(
                    f"the oldest hashing metadata in {storage.location}/{ring_folder(path)} says {first} buckets, but "
                    f"a partition has 1 to {MOST_BUCKETS}; set hoodie.bucket.index.num.buckets for new partitions"
                )
            return first
        paths += (join_path(path, info.name) for info in reversed(infos) if info.is_folder)
    return None


def list_ring_folders(storage: Storage) -> list[str]:
    """Return the paths of all partitions that have hashing metadata, even if they have no files."""
    folders: list[str] = []
    paths = [""]
    while paths:
        listings = run_all(lambda path: storage.list(ring_folder(path)), paths, threads=_THREADS)
        folders += [
            path
            for path, infos in zip(paths, listings, strict=True)
            if any(info.name.endswith(RING_SUFFIX) and not info.is_folder for info in infos)
        ]
        paths = [
            join_path(path, info.name)
            for path, infos in zip(paths, listings, strict=True)
            for info in infos
            if info.is_folder
        ]
    return sorted(folders)
