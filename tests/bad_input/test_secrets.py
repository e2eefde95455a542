"""Secrets among the options reach only the storage: no error, log, commit or text of an object shows them."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import pytest

import lakeformat
from lakeformat import InvalidOptionError, LakeformatError
from lakeformat.config.resolve import resolve, spark_storage_options, storage_options_of
from lakeformat.storage import RemoteStorage, open_storage
from tests.helpers.refusal import ROWS, SCHEMA, check_message, new_table

SECRET = "hunter2"


def everything_written(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.mark.parametrize(
    "name",
    [
        "fs.s3a.secret.key",
        "hoodie.write.lock.zookeeper.password",
        "_password",
        "_api_token",
        "_aws_secret_access_key",
        "_db_credentials",
        "_sas",
    ],
)
def test_secret_options_appear_in_no_message_log_or_history(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    table = new_table(tmp_path, **{name: SECRET})
    table.bulk_insert(ROWS)
    with pytest.raises(LakeformatError) as caught:
        table.upsert(ROWS.drop_columns(["id"]))
    seen = [str(caught.value), repr(table), caplog.text, str(table.history())]
    assert not any(SECRET in text for text in seen)
    assert SECRET.encode() not in everything_written(tmp_path)


def test_commit_metadata_masks_a_secret_option(tmp_path: Path) -> None:
    table = new_table(tmp_path, **{"_password": SECRET, "_job": "nightly"})
    store = table.context.store
    extra = store.read_commit(store.load().commits[-1]).extra
    assert (extra["_job"], extra["_password"]) == ("nightly", "***")


def test_unknown_option_error_omits_the_value(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(LakeformatError) as caught:
        resolve({"aws_secret_access_key": SECRET})
    assert SECRET not in check_message(caught, InvalidOptionError, "'aws_secret_access_key'")
    resolve({"hoodie.my.password": SECRET})
    assert "hoodie.my.password is not known" in caplog.text
    assert SECRET not in caplog.text


def test_user_and_password_of_a_url_are_masked() -> None:
    storage = open_storage(f"s3://user:{SECRET}@bucket/table", secret=SECRET)
    assert storage.location == "s3://bucket/table"
    assert SECRET not in f"{storage.location}"


@pytest.mark.parametrize("name", ["fs.secret", "FS.S3A.SECRET.KEY"])
def test_file_system_options_reach_the_file_system_and_are_masked(name: str, tmp_path: Path) -> None:
    assert storage_options_of(f"{tmp_path}/t", {name: SECRET}) == {}
    given = storage_options_of("s3a://bucket/t", {name: SECRET, "fs.anon": "True"})
    storage = open_storage("s3a://bucket/t", **given)
    assert isinstance(storage, RemoteStorage)
    assert storage.options == {"secret": SECRET, "anon": True}
    assert SECRET not in repr(storage)
    assert storage_options_of("gs://bucket/t", {"fs.s3a.secret.key": SECRET, "fs.gs.auth.type": SECRET}) == {}
    given = {"key": "k", "anon": False, "client_kwargs": {"region_name": "eu"}}
    assert storage_options_of("s3://bucket/t", spark_storage_options(given)) == given
    assert spark_storage_options({}) == spark_storage_options(None) == {}


def test_storage_options_are_masked_and_not_stored(tmp_path: Path) -> None:
    storage = open_storage("memory://table", password=SECRET)
    assert SECRET not in repr(storage)
    assert SECRET.encode() in pickle.dumps(storage)  # Tasks need them.
    with pytest.raises(LakeformatError) as caught:
        lakeformat.create("nowhere://table", SCHEMA, record_key="id", storage_options={"password": SECRET})
    message = check_message(caught, type(caught.value), "nowhere://")
    assert SECRET not in message
