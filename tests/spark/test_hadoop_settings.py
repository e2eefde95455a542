"""``storage_options`` of S3 as settings of Hadoop's S3A."""

from __future__ import annotations

from typing import Any

import pytest

from lakeformat.spark.reads.hadoop_access import HadoopAccess, s3a_settings
from lakeformat.storage.object_options import make_s3_settings

pytestmark = pytest.mark.spark

KEYS = {"key": "k", "secret": "s"}
SIMPLE = {
    "access.key": "k",
    "secret.key": "s",
    "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
}
OPTIONS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {}),
    (KEYS, SIMPLE),
    (
        {**KEYS, "token": "t"},
        {
            **SIMPLE,
            "session.token": "t",
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
        },
    ),
    (
        {"anon": True},
        {"aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
    ),
    (
        {"client_kwargs": {"endpoint_url": "http://host:9000", "region_name": "eu-west-1"}, "requester_pays": True},
        {
            "endpoint": "http://host:9000",
            "endpoint.region": "eu-west-1",
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "requester.pays.enabled": "true",
        },
    ),
    (
        {"endpoint_url": "https://host", "config_kwargs": {"s3": {"addressing_style": "virtual"}}},
        {"endpoint": "https://host", "path.style.access": "false", "connection.ssl.enabled": "true"},
    ),
]
UNTRANSLATED: list[tuple[dict[str, Any], str]] = [
    ({"profile": "nightly"}, "give key and secret"),
    ({**KEYS, "client_kwargs": {"verify": False}}, "trust store"),
]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


def translated(options: dict[str, Any]) -> dict[str, str] | str:
    return s3a_settings(make_s3_settings("s3://lake/t", "s3://lake/t", options))


@pytest.mark.parametrize(("options", "wanted"), OPTIONS)
def test_options_become_settings_of_s3a(options: dict[str, Any], wanted: dict[str, str]) -> None:
    assert translated(options) == wanted


@pytest.mark.parametrize(("options", "cure"), UNTRANSLATED)
def test_options_without_a_setting_of_s3a_give_the_reason_and_the_cure(options: dict[str, Any], cure: str) -> None:
    assert cure in str(translated(options))


def test_region_of_the_environment_is_used_if_the_options_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    assert translated(KEYS) == {**SIMPLE, "endpoint.region": "eu-central-1"}


def test_text_of_an_access_has_no_settings() -> None:
    assert "canary" not in repr(HadoopAccess("s3a://lake/t", {"fs.s3a.bucket.lake.secret.key": "canary"}))
