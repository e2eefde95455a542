"""The storage contract for object stores, on several servers; lost answers, probes, secrets and options."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

import lakeformat
from lakeformat.concurrency import run_all
from lakeformat.errors import InvalidOptionError, StorageError
from lakeformat.storage import ObjectStorage, Storage, open_storage
from lakeformat.storage.object_options import make_azure_settings, make_s3_settings
from lakeformat.storage.port import OutcomeUnknownError, VersionChangedError
from tests.helpers.fault_proxy import Fault, FaultProxy, Request, fault_proxy
from tests.helpers.s3_server import SECRET, Network, new_folder, s3_server
from tests.helpers.servers import Server, start_server
from tests.helpers.storage_contract import SharedStorageContract, stream

#: Options that make a client give up at the first failure.
AT_ONCE = {"config_kwargs": {"retries": {"max_attempts": 0}}}
STRICT = pytest.mark.slow
OURS, THEIRS = b'{"lakeformat.token": "ours"}', b'{"lakeformat.token": "theirs"}'


@pytest.fixture(scope="module")
def network() -> Network:
    return Network()


@pytest.fixture(scope="module")
def s3(network: Network) -> Iterator[Mapping[str, Any]]:
    with s3_server(network) as options:
        yield options


class TestMoto(SharedStorageContract):
    raced_names, row_length = 10, 80  # A call to S3 takes milliseconds.

    @pytest.fixture
    def storage(self, s3: Mapping[str, Any]) -> ObjectStorage:
        return new_folder(s3)

    def test_files_of_other_writers_are_visible(self, storage: ObjectStorage) -> None:
        other = pickle.loads(pickle.dumps(storage))  # noqa: S301  Our own bytes.
        assert list(storage.list("a")) == []
        assert storage.info("a/x") is None
        other.create("a/x", b"theirs")
        assert [entry.name for entry in storage.list("a")] == ["x"]
        assert storage.read("a/x") == b"theirs"
        other.delete("a/x")
        assert list(storage.list("a")) == []

    def test_lost_answer_is_distinguished_from_a_lost_race(self, storage: ObjectStorage) -> None:
        """A client repeats a request that was applied but not answered, and then finds its own object."""
        storage.replace("claim", OURS)
        storage.create("claim", OURS)
        with pytest.raises(FileExistsError):
            storage.create("claim", THEIRS)

    def test_table_on_s3_is_written_and_read(self, s3: Mapping[str, Any]) -> None:
        storage = new_folder(s3)
        columns = {"id": pa.int64(), "region": pa.string(), "ts": pa.int64(), "v": pa.string()}
        lakeformat.create(
            storage.url,
            pa.schema(columns),
            record_key="id",
            partition_by="region",
            ordering="ts",
            storage_options=dict(s3),
        )
        table = lakeformat.open(storage.url, storage_options=dict(s3))
        rows = {n: {"id": n, "region": f"r {n % 3}*", "ts": 1, "v": "a"} for n in range(30)}
        table.bulk_insert(pa.Table.from_pylist(list(rows.values()), pa.schema(columns)))
        changed = {n: {"id": n, "region": f"r {n % 3}*", "ts": 2, "v": "b"} for n in range(20, 40)}
        table.upsert(pa.Table.from_pylist(list(changed.values()), pa.schema(columns)))
        gone = {n: (rows | changed)[n] for n in (0, 25, 39)}
        table.delete(pa.Table.from_pylist(list(gone.values()), pa.schema(columns)).select(["id", "region"]))
        expected = {n: row for n, row in (rows | changed).items() if n not in gone}
        found = table.to_arrow(meta_columns=False).to_pylist()
        assert sorted(found, key=lambda row: row["id"]) == [expected[n] for n in sorted(expected)]
        assert [entry.name for entry in storage.list(".hoodie/.lakeformat/pending")] == []
        assert [entry.name for entry in storage.list(".hoodie/.temp")] == []


class OnServer(SharedStorageContract):
    """The contract on a server that runs in a process of its own."""

    raced_names, row_length = 10, 120
    server_name: str

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls) -> Iterator[Server]:
        if cls.server_name == "fake-gcs-server":
            pytest.importorskip("gcsfs")
        with start_server(cls.server_name) as server:
            yield server

    @pytest.fixture
    def storage(self, server: Server) -> Storage:
        return server.new_storage()

    def test_several_writers_are_safe(self, storage: Storage) -> None:
        assert storage.has_versions

    def test_large_files_are_read_in_ranges(self, storage: Storage) -> None:
        data = os.urandom(20_000_000)
        stream(storage, "p/large", data)
        assert storage.read("p/large") == data
        with storage.open_input("p/large") as source:
            assert source.size() == len(data)
            assert source.read() == data
            for start, size in (
                (0, 10),
                (5, 20),
                (100_000, 9_000_000),
                (19_999_990, 100),
                (19_999_992, 8),
                (1, 70_000),
            ):
                source.seek(start)
                assert source.read(size) == data[start : start + size]


@STRICT
class TestVersityGw(OnServer):
    server_name = "versitygw"


@STRICT
class TestAzurite(OnServer):
    server_name = "azurite"


@pytest.mark.nightly
class TestFakeGcsServer(OnServer):
    server_name = "fake-gcs-server"


# --- lost answers -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def moto() -> Iterator[Server]:
    with start_server("moto") as server:
        yield server


@pytest.fixture
def proxy(moto: Server) -> Iterator[FaultProxy]:
    with fault_proxy(moto.endpoint) as proxy:
        yield proxy


@pytest.fixture
def spoilt(moto: Server, proxy: FaultProxy) -> ObjectStorage:
    """Return a storage behind the proxy, which has been probed already."""
    storage = moto.through(proxy.url).new_storage()
    assert isinstance(storage, ObjectStorage)
    assert storage.has_versions
    return storage


@STRICT
def test_listing_takes_one_request_per_thousand_objects(spoilt: ObjectStorage, proxy: FaultProxy) -> None:
    names = [f"many/{number:05}" for number in range(1001)]
    run_all(lambda name: spoilt.replace(name, b""), names, threads=16)
    proxy.log.clear()
    assert [entry.path for entry in spoilt.list("many")] == names
    assert [request.method for request, _ in proxy.log] == ["GET", "GET"]


def test_server_with_an_own_address_is_listed_until_no_name_goes(moto: Server, proxy: FaultProxy) -> None:
    """A server that keeps its objects in a file system passes over a name that is deleted while it lists."""
    url = moto.new_url()
    through_proxy, direct = (ObjectStorage(url, dict(each.options)) for each in (moto.through(proxy.url), moto))
    for number in range(3):
        direct.replace(f"row/{number}", b"")
    listings = itertools.count(1)

    def delete_a_file(request: Request) -> None:
        if request.method == "GET" and next(listings) == 2:
            direct.delete("row/0")

    proxy.plan.choose = delete_a_file
    assert [entry.name for entry in through_proxy.list_at_once("row")] == ["1", "2"]
    assert next(listings) == 4


def spoil_first(proxy: FaultProxy, name: str, *faults: Fault) -> None:
    """Spoil the first PUTs of a file by these faults."""
    left = list(faults)

    def choose(request: Request) -> Fault | None:
        return left.pop(0) if left and request.method == "PUT" and request.path.endswith(name) else None

    proxy.plan.choose = choose


def test_write_without_an_answer_is_recognised_by_its_bytes(spoilt: ObjectStorage, proxy: FaultProxy) -> None:
    for number, fault in enumerate((Fault.DROP_AFTER, Fault.BUSY_AFTER)):
        spoil_first(proxy, f"state-{number}", fault, fault)
        first = spoilt.replace_if(f"state-{number}", OURS, None)
        spoil_first(proxy, f"state-{number}", fault)
        second = spoilt.replace_if(f"state-{number}", THEIRS, first)
        assert spoilt.read_versioned(f"state-{number}") == (THEIRS, second)
        spoil_first(proxy, f"claim-{number}", fault)
        spoilt.create(f"claim-{number}", OURS)
        assert spoilt.read(f"claim-{number}") == OURS


def test_conflict_with_nothing_written_is_sent_again(spoilt: ObjectStorage, proxy: FaultProxy) -> None:
    spoil_first(proxy, "claim", Fault.CONFLICT)
    spoilt.create("claim", OURS)
    spoil_first(proxy, "state", Fault.CONFLICT, Fault.CONFLICT)
    version = spoilt.replace_if("state", b"1", None)
    spoil_first(proxy, "state", Fault.CONFLICT)
    spoilt.replace_if("state", b"2", version)
    assert (spoilt.read("claim"), spoilt.read("state")) == (OURS, b"2")


def test_write_after_another_writers_is_a_definite_no(spoilt: ObjectStorage, proxy: FaultProxy) -> None:
    first = spoilt.replace_if("state", b"1", None)
    spoilt.replace_if("state", b"2", first)
    spoil_first(proxy, "state", Fault.BUSY_BEFORE)
    with pytest.raises(VersionChangedError) as refused:
        spoilt.replace_if("state", b"3", first)
    assert refused.value.found == spoilt.read_versioned("state")
    spoil_first(proxy, "state", Fault.BUSY_BEFORE)
    with pytest.raises(FileExistsError):
        spoilt.replace_if("state", b"4", None)
    assert spoilt.read("state") == b"2"


def test_silence_is_an_unknown_outcome(moto: Server, proxy: FaultProxy) -> None:
    options = {**moto.through(proxy.url).options, **AT_ONCE}
    storage = ObjectStorage(moto.new_url(), options)
    assert storage.has_versions
    version = storage.replace_if("state", b"1", None)
    calls: dict[str, Callable[[], object]] = {
        "state": lambda: storage.replace_if("state", b"2", version),
        "new": lambda: storage.replace_if("new", b"2", None),
        "claim": lambda: storage.create("claim", OURS),
    }
    for name, call in calls.items():
        spoil_first(proxy, name, Fault.BUSY_BEFORE)
        with pytest.raises(OutcomeUnknownError) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert storage.read("state") == b"1"


# --- stores without conditional writes --------------------------------------------------------------------


class IgnorantNetwork(Network):
    """A server that ignores conditions, or refuses requests that have one."""

    def __init__(self, refuses: bool) -> None:
        super().__init__()
        self.refuses = refuses

    def __call__(self, environ: Any, start_response: Any) -> Any:
        names = [name for name in ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH") if environ.get(name)]
        if names and self.refuses:
            start_response("501 Not Implemented", [("Content-Type", "application/xml")])
            return [b"<Error><Code>NotImplemented</Code><Message>a header is not implemented</Message></Error>"]
        return super().__call__({key: value for key, value in environ.items() if key not in names}, start_response)


@pytest.mark.parametrize("refuses", [False, True], ids=["ignores conditions", "refuses conditions"])
def test_store_without_conditions_is_for_one_writer(refuses: bool, caplog: pytest.LogCaptureFixture) -> None:
    with s3_server(IgnorantNetwork(refuses)) as options:
        url = new_folder(options).url
        given = {**options, **AT_ONCE}
        table = lakeformat.create(url, pa.schema({"id": pa.int64()}), record_key="id", storage_options=given)
        for number in range(2):
            table.upsert(pa.table({"id": [number]}))
        assert sorted(table.to_arrow(columns=["id"])["id"].to_pylist()) == [0, 1]
        storage = ObjectStorage(url, given)
        assert not storage.has_versions
        storage.create("claim", OURS)
        with pytest.raises(FileExistsError):
            storage.create("claim", THEIRS)
        assert storage.list(".hoodie/.lakeformat/probe") == []
    assert sum("write to it from one process only" in text for text in caplog.messages) == 1


# --- secrets and errors -----------------------------------------------------------------------------------

NOWHERE = {
    "s3://lake/t": {
        "key": "key",
        "secret": SECRET,
        "token": f"{SECRET}-token",
        "endpoint_url": "http://127.0.0.1:9",
        **AT_ONCE,
    },
    "az://lake/t": {
        "account_name": "account",
        "sas_token": f"?sv=2021-08-06&sig={SECRET}",
        "endpoint_url": "http://127.0.0.1:9/account",
        "read_timeout": 5,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("url", NOWHERE)
def test_a_network_that_is_down_is_an_error_of_one_line_without_secrets(url: str) -> None:
    options = NOWHERE[url]
    storage = ObjectStorage(url.replace("lake/", f"user:{SECRET}@lake/") if url.startswith("s3") else url, options)
    calls: dict[str, Callable[[], object]] = {
        "read": lambda: storage.read("x"),
        "info": lambda: storage.info("x"),
        "list": lambda: storage.list("x"),
        "create": lambda: storage.create("x", b"1"),
        "replace": lambda: storage.replace("x", b"1"),
        "delete": lambda: storage.delete("x"),
        "open_input": lambda: storage.open_input("x"),
        "open_output": lambda: stream(storage, "x", b"1" * 9_000_000),
        "delete_folder": lambda: storage.delete_folder(".hoodie/x"),
    }
    texts = [repr(storage), str(storage), storage.location, repr(lakeformat.Table(storage)), repr(storage._settings)]
    for call in calls.values():
        with pytest.raises(StorageError, match=r"cannot .*check the address, the credentials") as caught:
            call()
        texts += [str(caught.value), repr(caught.value)]
    assert not [text for text in texts if SECRET in text]
    assert not [text for text in texts if "\n" in text or len(text) > 600]


def test_a_wrong_bucket_is_one_line(s3: Mapping[str, Any]) -> None:
    storage = ObjectStorage("s3://no-such-bucket/t", dict(s3))
    for call in (lambda: storage.create("x", b"1"), lambda: storage.read("x"), lambda: storage.list("")):
        with pytest.raises(
            StorageError, match=r"cannot reach bucket 'no-such-bucket' of s3://no-such-bucket/t"
        ) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_secrets_stay_in_the_pickle(s3: Mapping[str, Any]) -> None:
    storage = new_folder(s3)
    storage.create("x", b"1")
    data = pickle.dumps(storage)
    assert SECRET.encode() in data  # Tasks need them.
    assert pickle.loads(data).read("x") == b"1"  # noqa: S301  Our own bytes.


def read_in_child(storage: Storage, answers: Any) -> None:
    try:
        answers.put(storage.read("x"))
    except StorageError as error:
        answers.put(str(error))


@pytest.mark.parametrize(
    ("method", "answer"),
    [pytest.param("spawn", b"1", marks=pytest.mark.slow), ("fork", "this process was forked from one that had opened")],
)
def test_a_forked_process_is_told_to_be_spawned(method: Any, answer: Any, moto: Server) -> None:
    storage = moto.new_storage()
    storage.create("x", b"1")
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    child = context.Process(target=read_in_child, args=(storage, answers))
    child.start()
    try:
        assert answers.get(timeout=30)[: len(answer)] == answer
    finally:
        child.kill()
        child.join()


# --- options ----------------------------------------------------------------------------------------------


def s3_settings(**options: Any) -> Any:
    return make_s3_settings("s3://lake/in/table/", "s3://lake/in/table/", options)


def azure_settings(url: str = "az://lake/table", **options: Any) -> Any:
    return make_azure_settings(url, url, options)


def test_options_of_s3fs_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    plain = s3_settings()
    assert (plain.bucket, plain.base, plain.endpoint, plain.finds_credentials) == ("lake", "in/table", "", True)
    given = s3_settings(
        key="k",
        secret="s",  # noqa: S106
        token="t",  # noqa: S106
        client_kwargs={"endpoint_url": "http://host:1/", "region_name": "eu-north-1"},
        config_kwargs={"retries": {"max_attempts": 2}, "read_timeout": 3, "s3": {"addressing_style": "path"}},
        s3_additional_kwargs={"ServerSideEncryption": "AES256"},
        default_block_size=1,
    )
    assert given.keys == ("k", "s", "t")
    assert (given.endpoint, given.config["region"], given.retries, given.seconds) == (
        "http://host:1",
        "eu-north-1",
        2,
        3,
    )
    assert given.client["allow_http"] is True
    assert given.config["server_side_encryption"] == "AES256"
    assert not given.finds_credentials
    assert s3_settings(endpoint_url="host:1", use_ssl="false").endpoint == "http://host:1"
    assert s3_settings(anon="true").config["skip_signature"] is True
    virtual = s3_settings(endpoint_url="https://host", config_kwargs={"s3": {"addressing_style": "virtual"}})
    assert virtual.config["endpoint"] == "https://lake.host"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://from.env")
    assert s3_settings().endpoint == "http://from.env"


def test_options_of_adlfs_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    url = "abfss://lake@mine.dfs.core.windows.net/table"
    assert (azure_settings(url).bucket, azure_settings(url).base) == ("lake", "table")
    assert azure_settings(url).config == {"account_name": "mine"}
    emulator = azure_settings(connection_string="UseDevelopmentStorage=true")
    assert emulator.endpoint == "http://127.0.0.1:10000/devstoreaccount1"
    assert emulator.config["account_name"] == "devstoreaccount1"
    text = "DefaultEndpointsProtocol=https;AccountName=mine;AccountKey=a==;EndpointSuffix=core.windows.net"
    assert azure_settings(connection_string=text).config == {"account_name": "mine", "account_key": "a=="}
    china = azure_settings("abfs://lake@mine.dfs.core.chinacloudapi.cn/t", sas_token="?sig=x")  # noqa: S106
    assert china.config == {
        "account_name": "mine",
        "sas_key": "sig=x",
        "endpoint": "https://mine.blob.core.chinacloudapi.cn",
    }


@pytest.mark.parametrize(
    ("url", "options", "named"),
    [
        ("s3://lake/t", {"colour": "red"}, "'colour'"),
        ("s3://lake/t", {"client_kwargs": {"colour": "red"}}, "'client_kwargs.colour'"),
        ("az://lake/t", {"colour": SECRET}, "'colour'"),
    ],
)
def test_unknown_options_are_refused(url: str, options: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidOptionError, match=named) as caught:
        open_storage(url, **options)
    assert SECRET not in str(caught.value)


def test_credentials_come_from_the_environment_as_for_boto3(
    s3: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    file = tmp_path / "credentials"
    file.write_text(f"[nightly]\naws_access_key_id = key\naws_secret_access_key = {SECRET}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    url = new_folder(s3).url
    by_profile = ObjectStorage(url, {"profile": "nightly", "client_kwargs": s3["client_kwargs"]})
    by_profile.create("x", b"1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert ObjectStorage(url, {"client_kwargs": s3["client_kwargs"]}).read("x") == b"1"
