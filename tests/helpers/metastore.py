"""A Hive metastore on this machine, from the jars of the interop set-up's Spark, and its entries as dictionaries."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pymetastore.hive_metastore import ThriftHiveMetastore
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport

from tests.helpers.hudi_spark import ROOT
from tests.helpers.ports import reserve_port
from tests.helpers.shared_hudi import find_java

__all__ = ["Metastore", "start_metastore"]

START_SECONDS: Final = 120.0
_MODULES: Final = ("java.lang", "java.net", "java.util", "java.util.concurrent")


@dataclass(frozen=True)
class Metastore:
    """A running metastore.

    Attributes:
        client: the client that Thrift has generated.
    """

    port: int
    client: Any

    @property
    def uri(self) -> str:
        """Return the address of the metastore."""
        return f"thrift://127.0.0.1:{self.port}"

    def read_all(self, database: str) -> dict[str, Any]:
        """Return all that the metastore has of a database: its own entry, its tables, and their partitions."""
        client = self.client
        tables = client.get_all_tables(database)
        return {
            "database": _as_dict(client.get_database(database)),
            "tables": {name: _as_dict(client.get_table(database, name)) for name in tables},
            "partitions": {name: list(map(_as_dict, client.get_partitions(database, name, -1))) for name in tables},
        }


def _as_dict(value: Any) -> Any:
    """Turn Thrift's structs into dictionaries."""
    if isinstance(value, list):
        return [_as_dict(each) for each in value]
    return {key: _as_dict(each) for key, each in vars(value).items()} if hasattr(value, "thrift_spec") else value


@contextmanager
def start_metastore(folder: Path) -> Iterator[Metastore]:
    """Run a metastore while the block runs; its database is in memory."""
    with reserve_port() as port, _run_metastore(folder, port) as metastore:
        yield metastore


@contextmanager
def _run_metastore(folder: Path, port: int) -> Iterator[Metastore]:
    settings = {
        "derby.stream.error.file": "/dev/null",
        "hive.async.log.enabled": "false",
        "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(folder / "warehouse"),
    }
    command = [
        find_java(),
        *("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _MODULES),
        *(f"-D{name}={value}" for name, value in settings.items()),
        *("-cp", f"{next(ROOT.glob('.venv-interop/lib/python*/site-packages/pyspark/jars'))}/*"),
        *("org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HIVE_", "HADOOP_"))}
    with (folder / "metastore.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder, env=environment)
    try:
        transport = _connect(port, server)
        yield Metastore(port, ThriftHiveMetastore.Client(TBinaryProtocol(transport)))
        transport.close()
    finally:
        server.terminate()
        server.wait(timeout=30)


def _connect(port: int, server: subprocess.Popen[bytes]) -> TBufferedTransport:
    """Wait until the metastore accepts connections, and return one."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        transport = TBufferedTransport(TSocket("127.0.0.1", port))
        try:
            transport.open()
        except Exception:
            assert server.poll() is None, "the metastore has ended; see metastore.log"
            assert time.monotonic() < deadline, "the metastore does not listen"
            time.sleep(0.1)
        else:
            return transport
