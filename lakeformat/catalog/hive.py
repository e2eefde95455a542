"""The client of a Hive metastore, which is called over Thrift (Hudi: ``HMSDDLExecutor``)."""

from __future__ import annotations

import copy
import getpass
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from lakeformat.catalog.entry import CatalogColumn, CatalogEntry, CatalogPartition
from lakeformat.catalog.metastore_address import NO_ADDRESS, find_address
from lakeformat.config.catalog_options import CatalogOptions
from lakeformat.errors import CatalogError
from lakeformat.extras import install_line

__all__ = ["HiveCatalog", "connect_hive"]

#: Maximum time for a connection, and for an answer, which is long for thousands of partitions.
_CONNECT_MS: Final = 10_000
_ANSWER_MS: Final = 600_000
#: Characters of partition values that Hive escapes in the names of partitions (``FileUtils.escapePathName``).
_ESCAPED: Final = {code: f"%{code:02X}" for code in [*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{[]^")]}


def connect_hive(options: CatalogOptions) -> HiveCatalog:
    """Connect to the first metastore that answers.

    Raises:
        CatalogError: pymetastore is missing, no metastore answers, or nothing says where one is.
    """
    try:
        from pymetastore.hive_metastore import ThriftHiveMetastore
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.Thrift import TException
        from thrift.transport.TSocket import TSocket
        from thrift.transport.TTransport import TBufferedTransport
    except ImportError:
        raise CatalogError(f"a Hive metastore needs pymetastore; {install_line('hive')}") from None
    problems = []
    for host, port in options.uris or _find_uris():
        socket = TSocket(host, port)
        socket.setTimeout(_CONNECT_MS)
        transport = TBufferedTransport(socket)
        client = ThriftHiveMetastore.Client(TBinaryProtocol(transport))
        try:
            transport.open()
        except (TException, OSError) as error:
            problems.append(f"thrift://{host}:{port}: {error}")
            continue
        socket.setTimeout(_ANSWER_MS)
        user = _user()
        with suppress(TException):  # A metastore that does not act as its callers refuses this.
            client.set_ugi(user, [])
        return HiveCatalog(client, transport, user, options.batch)
    raise CatalogError(f"no Hive metastore answers: {'; '.join(problems)}")


def _find_uris() -> tuple[tuple[str, int], ...]:
    """Return host and port of each metastore that this machine's settings name."""
    address = find_address()
    if address is None:
        raise CatalogError(NO_ADDRESS)
    return address.parse()


def _user() -> str:
    """Return the name of the user, as Hadoop finds it without Kerberos."""
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


@contextmanager
def _errors(what: str) -> Iterator[None]:
    """Turn errors of Thrift and of the metastore into `CatalogError`."""
    from thrift.Thrift import TException

    try:
        yield
    except (TException, OSError) as error:
        text = getattr(error, "message", "") or str(error)
        raise CatalogError(f"Hive metastore: cannot {what}: {type(error).__name__}: {text}") from None


class HiveCatalog:
    """A client of a Hive metastore; see `lakeformat.catalog.port.Catalog`.

    Args:
        client: the client that Thrift has generated.
        user: the owner of new tables.
        batch: number of partitions in one request.
    """

    def __init__(self, client: Any, transport: Any, user: str, batch: int) -> None:
        from pymetastore.hive_metastore import ttypes

        self._client, self._transport, self._user, self._batch, self._types = client, transport, user, batch, ttypes

    def has_database(self, database: str) -> bool:
        """Tell whether a database exists."""
        with _errors(f"read database {database}"):
            try:
                self._client.get_database(database)
            except self._types.NoSuchObjectException:
                return False
        return True

    def create_database(self, database: str) -> None:
        """Create a database. If it exists meanwhile, do nothing."""
        given = self._types.Database(name=database, description="automatically created by hoodie")
        with _errors(f"create database {database}"), suppress(self._types.AlreadyExistsException):
            self._client.create_database(given)

    def _get_table(self, database: str, name: str) -> Any:
        with _errors(f"read table {database}.{name}"):
            try:
                return self._client.get_table(database, name)
            except self._types.NoSuchObjectException:
                return None

    def find_table(self, database: str, name: str) -> CatalogEntry | None:
        """Return a table; None if there is none."""
        table = self._get_table(database, name)
        if table is None:
            return None
        serde = table.sd.serdeInfo
        return CatalogEntry(
            database=database,
            name=name,
            columns=_read_columns(table.sd.cols),
            partition_keys=_read_columns(table.partitionKeys),
            location=table.sd.location or "",
            input_format=table.sd.inputFormat or "",
            output_format=table.sd.outputFormat or "",
            serde=serde.serializationLib or "",
            serde_properties=dict(serde.parameters or {}),
            properties=dict(table.parameters or {}),
            is_managed=table.tableType == "MANAGED_TABLE",
        )

    def create_table(self, entry: CatalogEntry) -> bool:
        """Create a table. Return False if it exists meanwhile."""
        types = self._types
        table = types.Table(
            tableName=entry.name,
            dbName=entry.database,
            owner=self._user,
            createTime=int(time.time()),
            sd=types.StorageDescriptor(serdeInfo=types.SerDeInfo()),
            partitionKeys=self._columns(entry.partition_keys),
            tableType=None if entry.is_managed else "EXTERNAL_TABLE",
        )
        with _errors(f"create table {entry.full_name}"):
            try:
                self._client.create_table(self._overlay(table, entry))
            except types.AlreadyExistsException:
                return False
        return True

    def _overlay(self, table: Any, entry: CatalogEntry) -> Any:
        """Put what an entry has into a stored table, and return the table."""
        table.parameters = {**(table.parameters or {}), **entry.properties}
        storage = table.sd
        storage.cols, storage.location = self._columns(entry.columns), entry.location
        storage.inputFormat, storage.outputFormat = entry.input_format, entry.output_format
        storage.serdeInfo.serializationLib = entry.serde
        storage.serdeInfo.parameters = {**(storage.serdeInfo.parameters or {}), **entry.serde_properties}
        return table

    def _columns(self, columns: Sequence[CatalogColumn]) -> list[Any]:
        return [self._types.FieldSchema(column.name, column.type, column.comment) for column in columns]

    def alter_table(self, entry: CatalogEntry, *, cascade: bool) -> None:
        """Change a table. Keep properties and attributes that the entry does not have."""
        table = self._overlay(self._need_table(entry), entry)
        context = self._types.EnvironmentContext(properties={"CASCADE": "true"} if cascade else {})
        with _errors(f"alter table {entry.full_name}"):
            self._client.alter_table_with_environment_context(entry.database, entry.name, table, context)

    def _need_table(self, entry: CatalogEntry) -> Any:
        table = self._get_table(entry.database, entry.name)
        if table is None:
            raise CatalogError(f"Hive metastore: table {entry.full_name} was dropped meanwhile; register it again")
        return table

    def drop_table(self, entry: CatalogEntry) -> None:
        """Drop a table from the catalog. Its files stay."""
        with _errors(f"drop table {entry.full_name}"):
            self._client.drop_table(entry.database, entry.name, False)

    def list_partitions(self, entry: CatalogEntry) -> Sequence[CatalogPartition]:
        """Return all partitions of a table."""
        with _errors(f"list the partitions of {entry.full_name}"):
            names = self._client.get_partition_names(entry.database, entry.name, -1)
        return self._read_named(entry, names)

    def find_partitions(self, entry: CatalogEntry, values: Sequence[tuple[str, ...]]) -> Sequence[CatalogPartition]:
        """Return those of the partitions with these values that the table has."""
        keys = [key.name.lower() for key in entry.partition_keys]
        pairs = (zip(keys, key, strict=True) for key in values)
        return self._read_named(entry, ["/".join(f"{k.translate(_ESCAPED)}={v.translate(_ESCAPED)}" for k, v in names)
                                        for names in pairs])  # fmt: skip

    def _read_named(self, entry: CatalogEntry, names: Sequence[str]) -> list[CatalogPartition]:
        """Read partitions by their names, in batches."""
        partitions_read: list[CatalogPartition] = []
        for start in range(0, len(names), self._batch):
            with _errors(f"read partitions of {entry.full_name}"):
                batch = self._client.get_partitions_by_names(
                    entry.database, entry.name, names[start : start + self._batch]
                )
            partitions_read += [
                CatalogPartition(tuple(partition.values), partition.sd.location or "") for partition in batch
            ]
        return partitions_read

    def add_partitions(self, entry: CatalogEntry, partitions: Sequence[CatalogPartition]) -> None:
        """Add partitions. Pass over those that exist."""
        for batch in self._batches_of(entry, partitions):
            request = self._types.AddPartitionsRequest(entry.database, entry.name, batch, True, False)
            with _errors(f"add partitions to {entry.full_name}"):
                self._client.add_partitions_req(request)

    def change_partitions(self, entry: CatalogEntry, partitions: Sequence[CatalogPartition]) -> None:
        """Change the locations of partitions, and give them the columns of the table."""
        for batch in self._batches_of(entry, partitions):
            with _errors(f"change partitions of {entry.full_name}"):
                self._client.alter_partitions(entry.database, entry.name, batch)

    def _batches_of(self, entry: CatalogEntry, partitions: Sequence[CatalogPartition]) -> Iterator[list[Any]]:
        """Yield partitions in the metastore's form, some at once. All but the location is that of the table."""
        storage = self._need_table(entry).sd
        for start in range(0, len(partitions), self._batch):
            batch = []
            for partition in partitions[start : start + self._batch]:
                own = copy.copy(storage)
                own.location = partition.location
                batch.append(self._types.Partition(list(partition.values), entry.database, entry.name, 0, 0, own))
            yield batch

    def drop_partitions(self, entry: CatalogEntry, partitions: Sequence[CatalogPartition]) -> None:
        """Drop partitions from the catalog. Their files stay. Pass over those that do not exist."""
        for partition in partitions:
            with _errors(f"drop a partition of {entry.full_name}"), suppress(self._types.NoSuchObjectException):
                self._client.drop_partition(entry.database, entry.name, list(partition.values), False)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


def _read_columns(columns: Sequence[Any] | None) -> tuple[CatalogColumn, ...]:
    return tuple(CatalogColumn(column.name, column.type, column.comment or "") for column in columns or ())
