"""What a job of Apache Hudi needs in order to write beside lakeformat: a common lock, S3, and a way to hold it up.

Both sides get the same lock options.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, Final

import pyarrow as pa
from kazoo.client import KazooClient

from tests.helpers.hudi_spark import ROOT, Hudi
from tests.helpers.ports import reserve_port

__all__ = [
    "SHARED",
    "STORAGE_LOCK",
    "find_java",
    "find_missing_jars",
    "held_up",
    "s3_settings",
    "wait_until",
    "zookeeper",
    "zookeeper_lock",
]

_JARS: Final = ROOT / ".cache" / "jars"
_S3_JARS: Final = _JARS / "s3"
_TESTS_JAR: Final = _JARS / "tests.jar"

#: Options of every job on a table with many writers, of Hudi and of lakeformat.
SHARED: Final[Mapping[str, str]] = {"hoodie.write.concurrency.mode": "optimistic_concurrency_control"}
#: The options of the lock that is a file in the table (RFC-91).
STORAGE_LOCK: Final[Mapping[str, str]] = {
    **SHARED,
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.StorageBasedLockProvider",
}


def zookeeper_lock(server: str, key: str) -> dict[str, str]:
    """Return the options of a ZooKeeper lock.

    Args:
        server: host and port.
        key: name of the lock's node.
    """
    return {
        **SHARED,
        "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
        "hoodie.write.lock.zookeeper.url": server,
        "hoodie.write.lock.zookeeper.base_path": "/hudi",
        "hoodie.write.lock.zookeeper.lock_key": key,
    }


def find_missing_jars() -> list[str]:
    """Return the jars that the set-up did not make, as paths below the root of the project."""
    return [str(part.relative_to(ROOT)) for part in (_S3_JARS, _TESTS_JAR) if not part.exists()]


def s3_settings(endpoint: str) -> dict[str, str]:
    """Return the Spark settings with which Hudi reaches an S3 server on this machine, also for its lock file."""
    jars = [str(jar) for jar in (*sorted(_S3_JARS.glob("*.jar")), _TESTS_JAR)]
    s3a = {
        "endpoint": endpoint,
        "access.key": "key",
        "secret.key": "secret",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "change.detection.mode": "none",
        "attempts.maximum": "2",
    }
    return {
        "spark.jars": ",".join(jars),
        "spark.driver.extraJavaOptions": f"-Dlock.endpoint={endpoint}",
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
    }


@contextmanager
def zookeeper(folder: Path) -> Iterator[str]:
    """Start a ZooKeeper server from the jars of the interop set-up's Spark. Yield its host and port."""
    with reserve_port() as port:
        settings = {
            "tickTime": 2000,
            "dataDir": folder / "data",
            "clientPort": port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
        }
        config = folder / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        jars = next(ROOT.glob(".venv-interop/lib/python*/site-packages/pyspark/jars"))
        with (folder / "zookeeper.log").open("wb") as log:
            server = subprocess.Popen(
                [
                    find_java(),
                    "-Xmx128m",
                    "-XX:TieredStopAtLevel=1",
                    "-cp",
                    f"{jars}/*",
                    "org.apache.zookeeper.server.ZooKeeperServerMain",
                    str(config),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            client = KazooClient(f"127.0.0.1:{port}")
            client.start(timeout=30)
            client.stop()
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(timeout=30)


def find_java() -> str:
    """Return the path of the program ``java``."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    assert found is not None, "no java"
    return found


def wait_until(condition: Callable[[], Any], *, seconds: float = 300) -> None:
    """Wait until another process has done something. Fail if it does not do it in time.

    The first write of a Spark session takes a minute on a busy machine.
    """
    pause = Event()
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        pause.wait(0.02)
    raise AssertionError(f"nothing happened for {seconds} seconds")


@contextmanager
def held_up(
    hudi: Hudi, gate: Path, table: Path | str, rows: pa.Table, operation: str, **options: str
) -> Iterator[Future[None]]:
    """Start a write of Hudi, and run the block while it has written its files but has not begun to publish them.

    Hudi holds no lock meanwhile. After the block it goes on.

    Args:
        gate: a path of a folder that does not exist.

    Yields:
        the write, done some time after the block.
    """
    stop = {"hoodie.precommit.validators": "lakeformat.tests.GateValidator", "lakeformat.tests.gate": str(gate)}
    with ThreadPoolExecutor(1) as pool:
        write = pool.submit(hudi.write, table, rows, operation, **stop, **options)
        try:
            wait_until(lambda: gate.exists() or write.done())
            if write.done():
                write.result()
            yield write
        finally:  # Hudi may reach the gate after a failure, too. If it waited there, so would all its later writes.
            Path(f"{gate}.open").touch()
