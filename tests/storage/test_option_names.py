"""``storage_options`` with the names of delta-rs, polars, pyarrow, pyiceberg, Hadoop and fsspec open the same table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.local import LocalFileSystem

import lakeformat
from lakeformat import InvalidOptionError
from lakeformat.storage import RemoteStorage, open_storage
from lakeformat.storage.option_names import translate_names
from tests.helpers.s3_server import new_folder, s3_server

SECRET = "very-secret-canary"
S3, GS, AZURE = "s3://lake/t", "gs://lake/t", "abfss://lake@mine.dfs.core.windows.net/t"
KEYS = {"key": "k", "secret": "s", "token": "t"}

#: Name -> URL, options as a library spells them, options of fsspec.
SPELLINGS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "s3fs": (
        S3,
        {**KEYS, "anon": False, "endpoint_url": "http://h:1", "client_kwargs": {"region_name": "r", "verify": False}},
        {**KEYS, "anon": False, "endpoint_url": "http://h:1", "client_kwargs": {"region_name": "r", "verify": False}},
    ),
    "s3fs in dictionaries": (
        S3,
        {"username": "k", "client_kwargs": {"aws_secret_access_key": "s", "endpoint_url": "http://h:1/"}},
        {"key": "k", "secret": "s", "endpoint_url": "http://h:1"},
    ),
    "boto3 in config_kwargs": (
        S3,
        {"config_kwargs": {"retries": {"max_attempts": 2, "mode": "standard"}, "s3": {"addressing_style": "auto"}}},
        {"config_kwargs": {"retries": {"max_attempts": 2, "mode": "standard"}, "s3": {"addressing_style": "auto"}}},
    ),
    "delta-rs, as variables": (
        "s3a://lake/t",
        {
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_SESSION_TOKEN": "t",
            "AWS_REGION": "r",
            "AWS_ENDPOINT_URL": "http://h:1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
            "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
            "AWS_S3_LOCKING_PROVIDER": "dynamodb",
        },
        {
            **KEYS,
            "client_kwargs": {"region_name": "r"},
            "endpoint_url": "http://h:1",
            "config_kwargs": {"s3": {"addressing_style": "path"}},
        },
    ),
    "delta-rs, in lower case": (
        S3,
        {
            "aws_access_key_id": "k",
            "aws_secret_access_key": "s",
            "aws_endpoint": "http://h:1",
            "aws_skip_signature": "false",
            "timeout": "30s",
            "connect_timeout": "500ms",
            "max_retries": "3",
        },
        {
            "key": "k",
            "secret": "s",
            "endpoint_url": "http://h:1",
            "anon": False,
            "config_kwargs": {"read_timeout": 30.0, "connect_timeout": 0.5, "retries": {"max_attempts": 3}},
        },
    ),
    "polars": (
        S3,
        {"access_key_id": "k", "secret_access_key": "s", "session_token": "t", "region": "r", "skip_signature": None},
        {**KEYS, "client_kwargs": {"region_name": "r"}},
    ),
    "object_store with a virtual host": (
        S3,
        {"endpoint": "https://lake.h", "virtual_hosted_style_request": "true", "aws_sse_kms_key_id": "id"},
        {
            "endpoint_url": "https://h",
            "config_kwargs": {"s3": {"addressing_style": "virtual"}},
            "s3_additional_kwargs": {"SSEKMSKeyId": "id"},
        },
    ),
    "pyarrow": (
        S3,
        {"access_key": "k", "secret_key": "s", "endpoint_override": "h:1", "scheme": "http", "anonymous": True},
        {"key": "k", "secret": "s", "endpoint_url": "h:1", "use_ssl": False, "anon": True},
    ),
    "pyiceberg": (
        S3,
        {"s3.access-key-id": "k", "s3.secret-access-key": "s", "s3.endpoint": "http://h:1", "s3.region": "r"},
        {"key": "k", "secret": "s", "endpoint_url": "http://h:1", "client_kwargs": {"region_name": "r"}},
    ),
    "Hadoop": (
        S3,
        {"fs.s3a.access.key": "k", "fs.s3a.secret.key": "s", "fs.s3a.endpoint": "http://h:1"},
        {"key": "k", "secret": "s", "endpoint_url": "http://h:1"},
    ),
    "a self-signed server": (S3, {"allow_invalid_certificates": "true"}, {"client_kwargs": {"verify": False}}),
    "the same twice": (
        S3,
        {"region": "r", "AWS_REGION": "r", "KEY": "k", "key": "k"},
        {"client_kwargs": {"region_name": "r"}, "key": "k"},
    ),
    "gcsfs": (GS, {"token": "key.json", "project": "p"}, {"token": "key.json", "project": "p"}),
    "delta-rs on GCS": (GS, {"GOOGLE_SERVICE_ACCOUNT": "key.json"}, {"token": "key.json"}),
    "a key on GCS": (GS, {"google_service_account_key": '{"type": "x"}'}, {"token": {"type": "x"}}),
    "public data on GCS": (GS, {"google_skip_signature": "true"}, {"token": "anon"}),
    "adlfs": (AZURE, {"account_name": "a", "account_key": "k"}, {"account_name": "a", "account_key": "k"}),
    "delta-rs on Azure": (
        AZURE,
        {"AZURE_STORAGE_ACCOUNT_NAME": "a", "AZURE_STORAGE_ACCOUNT_KEY": "k", "azure_storage_sas_token": "?sig"},
        {"account_name": "a", "account_key": "k", "sas_token": "?sig"},
    ),
    "a principal on Azure": (
        AZURE,
        {"azure_client_id": "i", "azure_client_secret": "s", "azure_storage_authority_id": "t"},
        {"client_id": "i", "client_secret": "s", "tenant_id": "t"},
    ),
    "Fabric": (
        AZURE,
        {"bearer_token": "b", "use_fabric_endpoint": "true"},
        {"bearer_token": "b", "use_fabric_endpoint": True},
    ),
    "the emulator of Azure": (
        AZURE,
        {"use_emulator": "true", "azure_storage_account_name": "devstoreaccount1"},
        {"connection_string": "UseDevelopmentStorage=true", "account_name": "devstoreaccount1"},
    ),
    "another file system": ("sftp://h/t", {"username": "u", "region": "x"}, {"username": "u", "region": "x"}),
}


@pytest.fixture(scope="module")
def s3() -> Iterator[Mapping[str, Any]]:
    with s3_server() as options:
        yield options


@pytest.mark.parametrize("case", SPELLINGS)
def test_names_of_other_libraries_become_those_of_fsspec(case: str) -> None:
    url, given, wanted = SPELLINGS[case]
    assert translate_names(url, given) == wanted
    assert translate_names(url, wanted) == wanted
    storage = open_storage(url, **given)
    assert isinstance(storage, RemoteStorage)
    assert storage.options == wanted


#: Name -> URL, options, parts of the message.
REFUSED: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "two contradictions": (
        S3,
        {"key": SECRET, "AWS_ACCESS_KEY_ID": "other", "region": "r", "client_kwargs": {"region_name": "q"}},
        ["'key' and 'AWS_ACCESS_KEY_ID' mean the same and differ", "'region' and 'client_kwargs.region_name' mean"],
    ),
    "a secret twice": (S3, {"secret": SECRET, "fs.s3a.secret.key": "x"}, ["'secret' and 'fs.s3a.secret.key' mean"]),
    "two flags": (S3, {"anon": True, "aws_skip_signature": "false"}, ["'anon' and 'aws_skip_signature' mean"]),
    "http": (
        S3,
        {"aws_endpoint_url": f"http://{SECRET}", "allow_http": "false"},
        ["'allow_http' is false, and 'aws_endpoint_url' begins with http://"],
    ),
    "no flag": (S3, {"AWS_SKIP_SIGNATURE": SECRET}, ["'AWS_SKIP_SIGNATURE' is neither true nor false"]),
    "no number": (S3, {"max_retries": SECRET}, ["'max_retries' is not a whole number"]),
    "no time": (S3, {"timeout": SECRET}, ["'timeout' is not a time"]),
    "no scheme": (S3, {"scheme": SECRET}, ["'scheme' is neither http nor https"]),
    "no dictionary": (S3, {"client_kwargs": SECRET, "region": "r"}, ["'client_kwargs' must be a dictionary"]),
    "no JSON": (GS, {"google_service_account_key": SECRET}, ["is not the JSON text of a service account"]),
    "a misspelling": (S3, {"AWS_SECRET_ACCES_KEY": SECRET}, ["did you mean 'aws_secret_access_key'"]),
    "another misspelling": (S3, {"sceret": SECRET}, ["'sceret'; did you mean 'secret'"]),
    "inside a dictionary": (S3, {"client_kwargs": {"regoin": SECRET}}, ["did you mean 'client_kwargs.region_name'"]),
    "on Azure": (AZURE, {"azure_storage_acount_key": SECRET}, ["did you mean 'azure_storage_account_key'"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_names_are_one_line_without_values(case: str) -> None:
    url, given, parts = REFUSED[case]
    with pytest.raises(InvalidOptionError) as caught:
        lakeformat.open(url, storage_options=given)
    text = str(caught.value)
    assert all(part in text for part in [*parts, f"storage_options for {url}"])
    assert "\n" not in text
    assert SECRET not in text


def test_option_of_the_table_that_differs_from_a_storage_option_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"fs.secret and storage_options\['secret'\] mean the same") as caught:
        lakeformat.open(S3, storage_options={"secret": SECRET}, **{"fs.secret": "other"})
    assert SECRET not in str(caught.value)
    with pytest.raises(InvalidOptionError, match=r"'fs\.s3a\.secret\.key' and 'AWS_SECRET_ACCESS_KEY' mean the same"):
        lakeformat.open(S3, storage_options={"AWS_SECRET_ACCESS_KEY": SECRET}, **{"fs.s3a.secret.key": "other"})
    with pytest.raises(InvalidOptionError, match="storage_options is of type str"):
        lakeformat.open(S3, storage_options="key=x")


class _Strict(LocalFileSystem):  # type: ignore[misc]
    """A file system that refuses unknown options. Those of fsspec itself ignore them."""

    protocol = "strict"

    def __init__(self, use_listings_cache: bool, username: str = "") -> None:
        super().__init__(use_listings_cache=use_listings_cache)


def test_unknown_name_of_another_file_system_suggests_the_nearest() -> None:
    fsspec.register_implementation("strict", _Strict, clobber=True)
    with pytest.raises(InvalidOptionError, match="'usrname'; did you mean 'username'") as caught:
        open_storage("strict:///t", usrname=SECRET).read("x")
    assert SECRET not in str(caught.value)


def test_table_on_s3_opens_with_the_names_of_delta_rs(s3: Mapping[str, Any]) -> None:
    url, endpoint = new_folder(s3).url, s3["client_kwargs"]["endpoint_url"]
    given = {
        "AWS_ACCESS_KEY_ID": s3["key"],
        "AWS_SECRET_ACCESS_KEY": s3["secret"],
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
    }
    rows = pa.table({"id": [1, 2]})
    lakeformat.create(url, rows, record_key="id", insert=True, storage_options=given)
    fs = {f"fs.{name}": value for name, value in given.items()}
    lower = {name.lower(): value for name, value in given.items()}
    arrow = {"access_key": s3["key"], "secret_key": s3["secret"], "scheme": "http", "region": "us-east-1"}
    opened = {
        "open": lakeformat.open(url, storage_options=given),
        "lower case": lakeformat.open(url, storage_options=lower),
        "options of the table": lakeformat.open(url, **fs),
        "pyarrow": lakeformat.open(
            url, storage_options={**arrow, "endpoint_override": endpoint.removeprefix("http://")}
        ),
        "scan": lakeformat.scan(url, storage_options=given),
    }
    assert {name: each.count() for name, each in opened.items()} == dict.fromkeys(opened, 2)
    assert lakeformat.open(url, storage_options=given).to_pyarrow_dataset().count_rows() == 2
    assert lakeformat.exists(url, storage_options=given)
    assert s3["secret"] not in repr(opened)
