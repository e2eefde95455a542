"""The locks in ZooKeeper and in a file, against Hudi 1.2.0's own lock providers: each side excludes the other."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from kazoo.client import KazooClient

from lakeformat.config.resolve import resolve
from lakeformat.errors import LockLostError, LockTimeoutError, StorageError
from lakeformat.locks import lock_table
from lakeformat.locks.file_lock import LOCK_PATH
from lakeformat.storage import LocalStorage
from tests.helpers.hudi_spark import ROOT, bundle_path, missing_parts
from tests.helpers.s3_server import new_folder, s3_server
from tests.helpers.shared_hudi import STORAGE_LOCK, find_java, find_missing_jars, zookeeper

pytestmark = pytest.mark.interop

VERSION: Final = "1.2.0"
PACKAGE: Final = "org.apache.hudi.client.transaction.lock"
LOCK: Final = "hoodie.write.lock."
EXPLICIT: Final = {f"{LOCK}zookeeper.base_path": "/locks", f"{LOCK}zookeeper.lock_key": "orders"}
PROVIDERS: Final = {
    f"{PACKAGE}.ZookeeperBasedLockProvider": EXPLICIT,
    f"{PACKAGE}.ZookeeperBasedImplicitBasePathLockProvider": {},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if missing := missing_parts(VERSION):
        pytest.fail(f"{' and '.join(missing)} missing: run `make interop`", pytrace=False)
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as address:
        yield address


def options_of(server: str, provider: str, wait_ms: int = 0) -> dict[str, str]:
    return {
        f"{LOCK}provider": provider,
        f"{LOCK}zookeeper.url": server,
        f"{LOCK}wait_time_ms": str(wait_ms),
        f"{LOCK}client.num_retries": "0",
        **PROVIDERS[provider],
    }


def own_lock(server: str, folder: Path, provider: str, wait_ms: int = 0) -> Any:
    return lock_table(LocalStorage(str(folder)), resolve(options_of(server, provider, wait_ms)).lock)


@contextmanager
def hudi_lock(
    provider: str, options: Mapping[str, str], base_path: object, s3_endpoint: str = ""
) -> Iterator[Callable[[str], str]]:
    """Start a JVM with Hudi's lock provider. Yield a function that sends a command and returns the answer."""
    spark_jars = next(ROOT.glob(".venv-interop/lib/python*/site-packages/pyspark/jars"))
    jars = bundle_path(VERSION).parent
    given = {"hoodie.base.path": str(base_path), **options}
    command = [
        find_java(),
        "-cp",
        f"{bundle_path(VERSION)}:{jars}/tests.jar:{jars}/s3/*:{spark_jars}/*",
        f"-Dlock.endpoint={s3_endpoint}",
        str(ROOT / "tests" / "helpers" / "java" / "LockDrive.java"),
        provider,
        *(f"{name}={value}" for name, value in given.items()),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers = process.stdout

        def ask(text: str) -> str:
            assert process.stdin is not None
            process.stdin.write(f"{text}\n")
            process.stdin.flush()
            lines = iter(answers.readline, "")  # Hudi logs to the same stream.
            return next(line for line in lines if line.startswith("answer: ")).removeprefix("answer: ").strip()

        try:
            yield ask
        finally:
            process.stdin.close()
            process.wait(timeout=60)


@pytest.mark.parametrize("provider", PROVIDERS, ids=["named", "implicit"])
def test_lock_and_that_of_hudi_exclude_each_other(provider: str, server: str, tmp_path: Path) -> None:
    with hudi_lock(provider, options_of(server, provider), tmp_path) as ask:
        assert ask("lock 5") == "true"
        with pytest.raises(LockTimeoutError, match=r"the lock /\w+/.* in ZooKeeper"):
            own_lock(server, tmp_path, provider, 500).__enter__()
        assert ask("unlock") == "done"
        with own_lock(server, tmp_path, provider, 5_000) as lease:
            assert ask("lock 1") == "false"
            lease.check(5)
        assert ask("lock 5") == "true"
        assert ask("unlock") == "done"


def test_second_holder_of_ours_names_the_first(server: str, tmp_path: Path) -> None:
    provider = f"{PACKAGE}.ZookeeperBasedLockProvider"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with (
        own_lock(server, tmp_path / "a", provider),
        pytest.raises(LockTimeoutError, match=r"the lock /locks/orders in ZooKeeper of lakeformat-\w+; waited 0 s"),
    ):
        own_lock(server, tmp_path / "b", provider).__enter__()


def test_holder_whose_node_is_gone_learns_that_its_lease_is_over(server: str, tmp_path: Path) -> None:
    """ZooKeeper removes the node when the session of a holder that slept has ended."""
    other = KazooClient(server)
    other.start(timeout=30)
    try:
        with own_lock(server, tmp_path, f"{PACKAGE}.ZookeeperBasedLockProvider") as lease:
            lease.check(5)
            (node,) = other.get_children("/locks/orders")
            other.delete(f"/locks/orders/{node}")
            with pytest.raises(LockLostError, match="run the write again"):
                lease.check(5)
            assert lease.remaining() == 0
    finally:
        other.stop()
        other.close()


def test_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    options = {
        **options_of("127.0.0.1:9", f"{PACKAGE}.ZookeeperBasedLockProvider"),
        f"{LOCK}zookeeper.connection_timeout_ms": "300",
    }
    with (
        pytest.raises(StorageError, match=r"cannot reach ZooKeeper at 127.0.0.1:9; check hoodie.write.lock.zookeeper"),
        lock_table(LocalStorage(str(tmp_path)), resolve(options).lock),
    ):
        pytest.fail("no lock")


@pytest.fixture
def s3() -> Iterator[dict[str, Any]]:
    if missing := [*missing_parts(VERSION), *find_missing_jars()]:
        pytest.fail(f"{' and '.join(missing)} missing: run `make interop`", pytrace=False)
    with s3_server() as options:
        yield dict(options)


def test_lock_file_and_that_of_hudi_exclude_each_other(s3: dict[str, Any]) -> None:
    storage = new_folder(s3)
    wait = {f"{LOCK}wait_time_ms": "500", f"{LOCK}client.num_retries": "0"}
    settings = resolve({**STORAGE_LOCK, **wait}).lock
    base_path = storage.location.replace("s3://", "s3a://")
    endpoint = s3["client_kwargs"]["endpoint_url"]
    with hudi_lock(STORAGE_LOCK[f"{LOCK}provider"], STORAGE_LOCK, base_path, endpoint) as ask:
        assert ask("lock 5") == "true"
        theirs = json.loads(storage.read(LOCK_PATH))
        with pytest.raises(LockTimeoutError, match=f"of {theirs['owner']}, valid until 20"):
            lock_table(storage, settings).__enter__()
        assert ask("unlock") == "done"
        with lock_table(storage, settings) as lease:
            ours = json.loads(storage.read(LOCK_PATH))
            assert ours.keys() == theirs.keys()
            assert {name: type(value) for name, value in ours.items()} == {
                name: type(value) for name, value in theirs.items()
            }
            assert ask("lock 2") == "false"
            lease.check(100)
        assert ask("lock 5") == "true"
        assert ask("unlock") == "done"
