"""Commits that are read once per process: as many as fit into a number of bytes of their files."""

from __future__ import annotations

from lakeformat.model.commit import CommitMetadata
from lakeformat.timeline.commit_cache import CommitCache, CommitKey

COMMIT = CommitMetadata("UPSERT", {})


def key(name: str, size: int, modified: int = 0) -> CommitKey:
    return CommitKey("here", name, size, modified)


def test_cache_keeps_many_small_and_few_large_commits() -> None:
    cache = CommitCache(10_000)
    small, large = [key(f"s{n}", 1) for n in range(10_000)], [key(f"l{n}", 4_000) for n in range(2)]
    for one in small:
        cache.put(one, COMMIT)
    assert all(cache.get(one) for one in small)
    for one in large:
        cache.put(one, COMMIT)
    assert all(cache.get(one) for one in large)
    assert sum(cache.get(one) is COMMIT for one in small) == 2_000


def test_least_recently_used_commit_is_evicted_first() -> None:
    cache = CommitCache(2)
    for name in "ab":
        cache.put(key(name, 1), COMMIT)
    cache.put(key("a", 1), COMMIT)  # Another thread adds it again: it counts once.
    assert cache.get(key("a", 1))
    cache.put(key("c", 1), COMMIT)
    assert [bool(cache.get(key(name, 1))) for name in "abc"] == [True, False, True]


def test_oversized_commit_evicts_nothing() -> None:
    cache = CommitCache(2)
    cache.put(key("a", 1), COMMIT)
    cache.put(key("large", 3), COMMIT)
    assert cache.get(key("a", 1))
    assert cache.get(key("large", 3)) is None


def test_rewritten_file_is_another_cache_entry() -> None:
    cache = CommitCache(2)
    cache.put(key("a", 1), COMMIT)
    assert cache.get(key("a", 1, modified=1)) is None


def test_forgotten_commit_leaves_its_room_to_others() -> None:
    cache = CommitCache(2)
    cache.put(key("a", 2), COMMIT)
    assert cache.get(key("a", 2))  # As large as the whole cache.
    for name in ("none", "a"):
        cache.forget(key(name, 2))
    assert cache.get(key("a", 2)) is None
    for name in "bc":
        cache.put(key(name, 1), COMMIT)
    assert [bool(cache.get(key(name, 1))) for name in "bc"] == [True, True]


def test_unknown_commit_that_is_forgotten_makes_no_room() -> None:
    cache = CommitCache(2)
    cache.forget(key("unknown", 1))
    for name in "abc":
        cache.put(key(name, 1), COMMIT)
    assert [bool(cache.get(key(name, 1))) for name in "abc"] == [False, True, True]
