"""A program that asks for everything that an extra installs, in an environment without the extras.

Usage: ``python without_extras.py FOLDER [PACKAGE ...]``. It prints one line for each extra: the extra, the class of the
error, and its message. The packages are hidden from imports, as if they were not installed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ZOOKEEPER = {
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
    "hoodie.write.lock.zookeeper.url": "127.0.0.1",
    "hoodie.write.lock.zookeeper.port": "2181",
    "hoodie.write.lock.zookeeper.base_path": "/locks",
    "hoodie.write.lock.zookeeper.lock_key": "t",
}
DYNAMODB = {
    "hoodie.write.lock.provider": "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider",
    "hoodie.write.lock.dynamodb.table": "locks",
    "hoodie.write.lock.dynamodb.partition_key": "t",
    "hoodie.write.lock.dynamodb.region": "eu-west-1",
}
METASTORE = {"hoodie.datasource.hive_sync.metastore.uris": "thrift://127.0.0.1:9083"}


class Hiding:
    """A finder of modules that does not find these packages."""

    def __init__(self, finder: Any, packages: frozenset[str]) -> None:
        self.finder, self.packages = finder, packages

    def __getattr__(self, name: str) -> Any:
        return getattr(self.finder, name)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in self.packages else self.finder.find_spec(name, path, target)


def cases(folder: str) -> Mapping[str, Callable[[], Any]]:
    """Return a call for each extra that must fail, because the extra is not installed."""
    import lakeformat

    table = lakeformat.create(f"{folder}/t", {"id": "int64", "v": "string"}, record_key="id")
    table.upsert([{"id": 1, "v": "a"}])
    result = table.upsert([{"id": 1, "v": "b"}])
    for file in ("delta/_delta_log/0.json", "iceberg/metadata/version-hint.text"):
        Path(folder, file).parent.mkdir(parents=True)
        Path(folder, file).touch()

    def locked(options: Mapping[str, str]) -> Callable[[], Any]:
        return lambda: lakeformat.open(f"{folder}/t", **options).upsert([{"id": 2, "v": "b"}])

    return {
        "s3": lambda: lakeformat.open("s3://bucket/t"),
        "azure": lambda: lakeformat.open("az://container/t"),
        "gcs": lambda: lakeformat.open("gs://bucket/t"),
        "zookeeper": locked(ZOOKEEPER),
        "dynamodb": locked(DYNAMODB),
        "glue": lambda: table.register(catalog="glue", database="db"),
        "hive": lambda: table.register(catalog="hive", database="db", **METASTORE),
        "delta": lambda: lakeformat.convert(f"{folder}/delta", f"{folder}/new"),
        "iceberg": lambda: lakeformat.convert(f"{folder}/iceberg", f"{folder}/new"),
        "iceberg ": lambda: table.sync("iceberg"),
        "plot": result.figure,
        "sql": lambda: lakeformat.sql("select 1"),
        "sql ": table.to_duckdb,
        "polars": table.to_polars,
        "polars ": lambda: table.to_polars(lazy=True),
        "pandas": table.to_pandas,
        "ray": lambda: importlib.import_module("lakeformat.integrations.ray"),
        "dask": lambda: importlib.import_module("lakeformat.integrations.dask"),
        "daft": lambda: importlib.import_module("lakeformat.integrations.daft"),
        "spark": lambda: importlib.import_module("lakeformat.spark").read,
    }


def main() -> None:
    folder, *packages = sys.argv[1:]
    sys.meta_path[:] = [Hiding(finder, frozenset(packages)) for finder in sys.meta_path]
    for extra, call in cases(folder).items():
        try:
            call()
        except Exception as error:
            print(extra.strip(), type(error).__name__, error, sep="\t")
        else:
            print(extra.strip(), "no error", "", sep="\t")
    from lakeformat.cli.main import main as command

    sys.stderr = sys.stdout
    print("cli", command(["describe", f"{folder}/t"]), sep="\t")


if __name__ == "__main__":
    main()
