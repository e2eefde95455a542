"""The client of AWS Glue's catalog (Hudi: ``AWSGlueCatalogSyncClient``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, Final, TypeVar

from lakeformat.catalog.entry import CatalogColumn, CatalogEntry, CatalogPartition
from lakeformat.config.catalog_options import GlueOptions
from lakeformat.errors import CatalogError
from lakeformat.extras import install_line

__all__ = ["GlueCatalog", "connect_glue"]

_Item = TypeVar("_Item")
#: Numbers of partitions in one request that Glue accepts.
_CHANGED: Final = 100
_DELETED: Final = 25
_READ: Final = 1000
_CONNECT_SECONDS: Final = 10
#: Number of times that a request is sent if Glue is busy.
_ATTEMPTS: Final = 8
#: The attributes of a stored table that an update sends back.
_KEPT: Final = (
    "Name", "Description", "Owner", "Retention", "StorageDescriptor", "PartitionKeys", "ViewOriginalText",
    "ViewExpandedText", "TableType", "Parameters", "TargetTable",
)  # fmt: skip


def connect_glue(options: GlueOptions) -> GlueCatalog:
    """Return a client of Glue. Nothing is sent yet, unless a role is assumed.

    Raises:
        CatalogError: boto3 is missing, there is no region, or the role cannot be assumed.
    """
    try:
        import boto3
        from botocore.config import Config
    except ImportError:
        raise CatalogError(f"AWS Glue needs boto3; {install_line('glue')}") from None
    keys = {
        "aws_access_key_id": options.access_key,
        "aws_secret_access_key": options.secret_key,
        "aws_session_token": options.session_token,
    }
    with _errors("connect to AWS Glue"):
        session = boto3.Session(region_name=options.region, **keys)
        if options.role_arn:
            external = {"ExternalId": options.role_external_id} if options.role_external_id else {}
            role = {"RoleArn": options.role_arn, "RoleSessionName": options.role_session, **external}
            given = session.client("sts").assume_role(**role)["Credentials"]
            session = boto3.Session(
                given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"], options.region
            )
        config = Config(connect_timeout=_CONNECT_SECONDS, retries={"mode": "standard", "max_attempts": _ATTEMPTS})
        return GlueCatalog(session.client("glue", endpoint_url=options.endpoint, config=config), options)


@contextmanager
def _errors(what: str) -> Iterator[None]:
    """Turn boto3's errors into `CatalogError`."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError, ValueError) as error:
        raise CatalogError(f"AWS Glue: cannot {what}: {error}") from None


class GlueCatalog:
    """A client of Glue; see `lakeformat.catalog.port.Catalog`."""

    def __init__(self, client: Any, options: GlueOptions) -> None:
        self._client, self._options = client, options
        self._catalog = {"CatalogId": options.catalog_id} if options.catalog_id else {}

    def has_database(self, database: str) -> bool:
        """Tell whether a database exists."""
        with _errors(f"read database {database}"):
            try:
                self._client.get_database(Name=database, **self._catalog)
            except self._client.exceptions.EntityNotFoundException:
                return False
        return True

    def create_database(self, database: str) -> None:
        """Create a database. If it exists meanwhile, do nothing."""
        given = {"Name": database, "Description": "Automatically created by lakeformat"}
        with _errors(f"create database {database}"):
            try:
                self._client.create_database(DatabaseInput=given, **self._catalog)
            except self._client.exceptions.AlreadyExistsException:
                return

    def _get_table(self, database: str, name: str) -> dict[str, Any] | None:
        with _errors(f"read table {database}.{name}"):
            try:
                table: dict[str, Any] = self._client.get_table(DatabaseName=database, Name=name, **self._catalog)
            except self._client.exceptions.EntityNotFoundException:
                return None
        entry_table: dict[str, Any] = table["Table"]
        return entry_table

    def find_table(self, database: str, name: str) -> CatalogEntry | None:
        """Return a table; None if there is none."""
        table = self._get_table(database, name)
        if table is None:
            return None
        storage = table.get("StorageDescriptor", {})
        serde = storage.get("SerdeInfo", {})
        return CatalogEntry(
            database=database,
            name=name,
            columns=_read_columns(storage.get("Columns", ())),
            partition_keys=_read_columns(table.get("PartitionKeys", ())),
            location=storage.get("Location", ""),
            input_format=storage.get("InputFormat", ""),
            output_format=storage.get("OutputFormat", ""),
            serde=serde.get("SerializationLibrary", ""),
            serde_properties=serde.get("Parameters", {}),
            properties=table.get("Parameters", {}),
            is_managed=table.get("TableType") == "MANAGED_TABLE",
        )

    def create_table(self, entry: CatalogEntry) -> bool:
        """Create a table. Return False if it exists meanwhile."""
        given = _overlay({"Name": entry.name, "TableType": "EXTERNAL_TABLE"}, entry)
        with _errors(f"create table {entry.full_name}"):
            try:
                self._client.create_table(DatabaseName=entry.database, TableInput=given, **self._catalog)
            except self._client.exceptions.AlreadyExistsException:
                return False
        return True

    def alter_table(self, entry: CatalogEntry, *, cascade: bool) -> None:
        """Change a table. Keep properties and attributes that the entry does not have."""
        table = self._need_table(entry)
        given = _overlay({name: table[name] for name in _KEPT if name in table}, entry)
        with _errors(f"alter table {entry.full_name}"):
            self._client.update_table(
                DatabaseName=entry.database,
                TableInput=given,
                SkipArchive=self._options.skips_archive,
                **self._catalog,
            )
        if cascade:
            self.change_partitions(entry, self.list_partitions(entry))

    def _need_table(self, entry: CatalogEntry) -> dict[str, Any]:
        table = self._get_table(entry.database, entry.name)
        if table is None:
            raise CatalogError(f"AWS Glue: table {entry.full_name} was dropped meanwhile; register it again")
        return table

    def drop_table(self, entry: CatalogEntry) -> None:
        """Drop a table from the catalog. Its files stay."""
        with _errors(f"drop table {entry.full_name}"):
            self._client.delete_table(DatabaseName=entry.database, Name=entry.name, **self._catalog)

    def list_partitions(self, entry: CatalogEntry) -> Sequence[CatalogPartition]:
        """Return all partitions of a table."""
        with _errors(f"list the partitions of {entry.full_name}"):
            pages = self._client.get_paginator("get_partitions").paginate(
                DatabaseName=entry.database, TableName=entry.name, ExcludeColumnSchema=True, **self._catalog
            )
            return [_read_partition(partition) for page in pages for partition in page["Partitions"]]

    def find_partitions(self, entry: CatalogEntry, values: Sequence[tuple[str, ...]]) -> Sequence[CatalogPartition]:
        """Return those of the partitions with these values that the table has."""
        partitions: list[CatalogPartition] = []
        for batch in _batches(values, _READ):
            remaining = [{"Values": list(key)} for key in batch]
            while remaining:
                answer = self._call("batch_get_partition", entry, PartitionsToGet=remaining)
                partitions += map(_read_partition, answer["Partitions"])
                remaining = answer.get("UnprocessedKeys", [])
        return partitions

    def add_partitions(self, entry: CatalogEntry, partitions: Sequence[CatalogPartition]) -> None:
        """Add partitions. Pass over those that exist."""
        storage = self._need_table(entry)["StorageDescriptor"]
        for batch in _batches(partitions, _CHANGED):
            given = [_partition_input(key, storage) for key in batch]
            answer = self._call("batch_create_partition", entry, PartitionInputList=given)
            _check_answers(answer, entry, "add partitions to", "AlreadyExistsException")

    def change_partitions(self, entry: CatalogEntry, partitions: Sequence[CatalogPartition]) -> None:
        """Change the locations of partitions, and give them the columns of the table."""
        storage = self._need_table(entry)["StorageDescriptor"]
        for batch in _batches(partitions, _CHANGED):
            given = [
                {"PartitionValueList": list(partition.values), "PartitionInput": _partition_input(partition, storage)}
                for partition in batch
            ]
            answer = self._call("batch_update_partition", entry, Entries=given)
            _check_answers(answer, entry, "change partitions of")

    def drop_partitions(self, entry: CatalogEntry, partitions: Sequence[CatalogPartition]) -> None:
        """Drop partitions from the catalog. Their files stay. Pass over those that do not exist."""
        for batch in _batches(partitions, _DELETED):
            gone = [{"Values": list(key.values)} for key in batch]
            answer = self._call("batch_delete_partition", entry, PartitionsToDelete=gone)
            _check_answers(answer, entry, "drop partitions of", "EntityNotFoundException")

    def _call(self, name: str, entry: CatalogEntry, **arguments: Any) -> dict[str, Any]:
        with _errors(f"{name.replace('_', ' ')} of {entry.full_name}"):
            call = getattr(self._client, name)
            answer: dict[str, Any] = call(
                DatabaseName=entry.database, TableName=entry.name, **arguments, **self._catalog
            )
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _read_columns(columns: Sequence[Mapping[str, Any]]) -> tuple[CatalogColumn, ...]:
    return tuple(CatalogColumn(column["Name"], column.get("Type", ""), column.get("Comment", "")) for column in columns)


def _read_partition(partition: Mapping[str, Any]) -> CatalogPartition:
    location = partition.get("StorageDescriptor", {}).get("Location", "")
    return CatalogPartition(tuple(partition["Values"]), location)


def _columns_of(columns: Sequence[CatalogColumn]) -> list[dict[str, str]]:
    return [{"Name": column.name, "Type": column.type, "Comment": column.comment} for column in columns]


def _overlay(table: Mapping[str, Any], entry: CatalogEntry) -> dict[str, Any]:
    """Return Glue's form of an entry. What only ``table`` has is kept."""
    now = datetime.now(timezone.utc)
    storage = table.get("StorageDescriptor", {})
    parameters = storage.get("SerdeInfo", {}).get("Parameters", {})
    serde = {"SerializationLibrary": entry.serde, "Parameters": {**parameters, **entry.serde_properties}}
    return {
        **table,
        "Parameters": {**table.get("Parameters", {}), **entry.properties},
        "PartitionKeys": _columns_of(entry.partition_keys),
        "StorageDescriptor": {
            **storage,
            "Columns": _columns_of(entry.columns),
            "Location": entry.location,
            "InputFormat": entry.input_format,
            "OutputFormat": entry.output_format,
            "SerdeInfo": serde,
        },
        "LastAccessTime": now,
        "LastAnalyzedTime": now,
    }


def _partition_input(partition: CatalogPartition, storage: Mapping[str, Any]) -> dict[str, Any]:
    return {"Values": list(partition.values), "StorageDescriptor": {**storage, "Location": partition.location}}


def _check_answers(answer: Mapping[str, Any], entry: CatalogEntry, what: str, accepted: str = "") -> None:
    """Raise `CatalogError` if a batch has an error other than the accepted one."""
    for error in answer.get("Errors", ()):
        detail = error.get("ErrorDetail", {})
        if detail.get("ErrorCode") != accepted:
            values = "/".join(error.get("PartitionValues") or error.get("PartitionValueList") or ())
            raise CatalogError(
                f"AWS Glue: cannot {what} {entry.full_name}: {values}: {detail.get('ErrorCode')}: "
                f"{detail.get('ErrorMessage')}"
            )


def _batches(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
