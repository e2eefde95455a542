"""The stores of obstore for ``storage_options``, which have the names of s3fs (S3) and adlfs (Azure).

What the options leave open comes from the environment, as with s3fs: from boto3 if it is installed, otherwise from
obstore, which knows the usual variables and the roles of machines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Final
from urllib.parse import urlsplit

from lakeformat.errors import InvalidOptionError, StorageError
from lakeformat.extras import install_line
from lakeformat.storage.option_names import is_true, make_unknown_name_error

__all__ = [
    "AZURE",
    "S3",
    "StoreSettings",
    "check_process",
    "load_obstore",
    "make_azure_settings",
    "make_s3_settings",
    "open_store",
]

S3: Final = frozenset({"s3", "s3a"})
AZURE: Final = frozenset({"az", "abfs", "abfss", "adl"})

CONNECT_SECONDS: Final = 5.0
#: Longest time of one request of a small file. The protocol of many writers relies on it.
REQUEST_SECONDS: Final = 30.0
#: Longest time of one request of a data file: a part of an upload, a range of a download, or a copy.
DATA_SECONDS: Final = 300.0
#: After this time in seconds a request is not repeated any more. With `REQUEST_SECONDS` and `_BACKOFF_SECONDS`, a call
#: ends within a minute.
_RETRY_SECONDS: Final = 20.0
_BACKOFF_SECONDS: Final = 5.0
_RETRIES: Final = 6
#: Lifetime of credentials that boto3 has found, in seconds. boto3 itself renews them before they end.
_CREDENTIAL_SECONDS: Final = 300.0

#: Options of fsspec that have no meaning here, because nothing is cached, and reads choose their block sizes.
_WITHOUT_EFFECT: Final = frozenset(
    {
        "use_listings_cache", "skip_instance_cache", "listings_expiry_time", "max_paths", "asynchronous", "loop",
        "batch_size", "default_block_size", "default_fill_cache", "default_cache_type", "max_concurrency",
        "version_aware",
    }
)  # fmt: skip
_S3_NAMES: Final = _WITHOUT_EFFECT | {
    "anon", "endpoint_url", "key", "username", "secret", "password", "token", "use_ssl", "client_kwargs",
    "config_kwargs", "s3_additional_kwargs", "requester_pays", "profile", "cache_regions", "fixed_upload_size",
}  # fmt: skip
_AZURE_NAMES: Final = _WITHOUT_EFFECT | {
    "account_name", "account_key", "account_host", "connection_string", "sas_token", "client_id", "client_secret",
    "tenant_id", "anon", "endpoint_url", "location_mode", "blocksize", "assume_container_exists", "socket_timeout",
    "timeout", "connection_timeout", "read_timeout", "bearer_token", "use_fabric_endpoint",
}  # fmt: skip
_CLIENT_NAMES: Final = frozenset(
    {
        "endpoint_url", "region_name", "verify", "use_ssl", "aws_access_key_id", "aws_secret_access_key",
        "aws_session_token", "api_version",
    }
)  # fmt: skip
_ENCRYPTION: Final[Mapping[str, str]] = {
    "ServerSideEncryption": "server_side_encryption",
    "SSEKMSKeyId": "sse_kms_key_id",
}
_ENDPOINT_VARIABLES: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The arguments of one of obstore's stores.

    Attributes:
        bucket: the bucket, on Azure the container.
        base: path of the table in the bucket.
        endpoint: URL of the server; "" for the cloud's own.
        config: settings of the store.
        client: settings of the HTTP client.
        seconds: longest time of a request, if the options say so.
        retries: number of repetitions.
        keys: key, secret and session token for S3; None if they come from elsewhere.
        profile: name of a profile of boto3; "" if none is given.
        finds_credentials: whether credentials are looked for.
    """

    bucket: str
    base: str
    endpoint: str = ""
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)
    seconds: float | None = None
    retries: int = _RETRIES
    keys: tuple[str, str, str | None] | None = field(default=None, repr=False)
    profile: str = ""
    finds_credentials: bool = False


def _split(url: str) -> tuple[str, str, str]:
    """Return a URL's bucket, host and path. The host is what follows ``@``: on Azure the account's server."""
    authority, _, path = url.partition("://")[2].partition("/")
    before, _, after = authority.rpartition("@")
    return (before if before and ":" not in before else after), after, path.strip("/")


def _check(location: str, options: Mapping[str, Any], names: frozenset[str]) -> None:
    unknown = set(options) - names
    if unknown:
        raise make_unknown_name_error(location, unknown, names)


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _read_retries(given: Any) -> int:
    retries = dict(given or {})
    if "total_max_attempts" in retries:
        return max(int(retries["total_max_attempts"]) - 1, 0)
    return int(retries.get("max_attempts", _RETRIES))


def _inner(location: str, options: Mapping[str, Any], name: str, names: frozenset[str] | None = None) -> dict[str, Any]:
    """Return an option that is a dictionary itself."""
    given = options.get(name) or {}
    if not isinstance(given, Mapping):
        raise InvalidOptionError(f"storage_options for {location}: {name} must be a dictionary")
    unknown = set(given) - names if names is not None else set()
    if unknown:
        raise make_unknown_name_error(
            location, [f"{name}.{option}" for option in unknown], [f"{name}.{option}" for option in names or ()]
        )
    return dict(given)


# --- S3 ---------------------------------------------------------------------------------------------------


def make_s3_settings(url: str, location: str, options: Mapping[str, Any]) -> StoreSettings:
    """Translate the options of s3fs.

    Raises:
        InvalidOptionError: an option is not known.
    """
    _check(location, options, _S3_NAMES)
    client = _inner(location, options, "client_kwargs", _CLIENT_NAMES)
    config = _inner(location, options, "config_kwargs")
    extra = _inner(location, options, "s3_additional_kwargs", frozenset(_ENCRYPTION))
    _, host, base = _split(url)
    bucket = host
    uses_tls = str(options.get("use_ssl", client.get("use_ssl", True))).lower() not in {"false", "0", "no"}
    endpoint = _find_endpoint(options.get("endpoint_url") or client.get("endpoint_url"), uses_tls)
    made: dict[str, Any] = {_ENCRYPTION[name]: value for name, value in extra.items()}
    if _text(client.get("region_name")):
        made["region"] = str(client["region_name"])
    if is_true(options.get("requester_pays")):
        made["request_payer"] = True
    is_virtual = dict(config.get("s3") or {}).get("addressing_style") == "virtual"
    if endpoint:
        parts = urlsplit(endpoint)
        made["endpoint"] = f"{parts.scheme}://{bucket}.{parts.netloc}{parts.path}" if is_virtual else endpoint
    made["virtual_hosted_style_request"] = is_virtual
    is_anonymous = is_true(options.get("anon"))
    if is_anonymous:
        made["skip_signature"] = True
    keys = _read_keys(options, client)
    return StoreSettings(
        bucket=bucket,
        base=base,
        endpoint=endpoint,
        config=made,
        client=_make_client(config.get("connect_timeout"), client.get("verify"), endpoint, uses_tls),
        seconds=None if config.get("read_timeout") is None else float(config["read_timeout"]),
        retries=_read_retries(config.get("retries")),
        keys=keys,
        profile=_text(options.get("profile")),
        finds_credentials=keys is None and not is_anonymous,
    )


def _find_endpoint(given: Any, uses_tls: bool) -> str:
    endpoint = _text(given) or next((os.environ[name] for name in _ENDPOINT_VARIABLES if os.environ.get(name)), "")
    if endpoint and "://" not in endpoint:
        endpoint = f"{'https' if uses_tls else 'http'}://{endpoint}"
    return endpoint.rstrip("/")


def _read_keys(options: Mapping[str, Any], client: Mapping[str, Any]) -> tuple[str, str, str | None] | None:
    key = options.get("key") or options.get("username") or client.get("aws_access_key_id")
    secret = options.get("secret") or options.get("password") or client.get("aws_secret_access_key")
    token = options.get("token") or client.get("aws_session_token")
    return (str(key), str(secret), _text(token) or None) if key and secret else None


def _make_client(connect_seconds: Any, verify: Any, endpoint: str, uses_tls: bool = True) -> dict[str, Any]:
    made: dict[str, Any] = {"connect_timeout": timedelta(seconds=float(connect_seconds or CONNECT_SECONDS))}
    if endpoint.startswith("http://") or not uses_tls:
        made["allow_http"] = True
    if verify is False:
        made["allow_invalid_certificates"] = True
    elif isinstance(verify, str):
        with open(verify, "rb") as file:
            made["root_certificate"] = file.read()
    return made


def _make_provider(settings: StoreSettings) -> tuple[Callable[[], dict[str, Any]] | None, str]:
    """Return a function that gives S3 credentials, and the region of boto3's configuration.

    Return None if obstore shall look for credentials itself.
    """
    if settings.keys is not None:
        key, secret, token = settings.keys
        fixed = {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": None}
        return (lambda: fixed), ""
    if not settings.finds_credentials:
        return None, ""
    try:
        import boto3
    except ImportError:
        if settings.profile:
            raise StorageError(f"the option profile needs boto3; {install_line('glue')}") from None
        return None, ""
    session = boto3.Session(profile_name=settings.profile or None)
    credentials = session.get_credentials()
    if credentials is None:
        return None, session.region_name or ""

    def provide() -> dict[str, Any]:
        now = credentials.get_frozen_credentials()
        return {
            "access_key_id": now.access_key,
            "secret_access_key": now.secret_key,
            "token": now.token,
            "expires_at": datetime.now(timezone.utc) + timedelta(seconds=_CREDENTIAL_SECONDS),
        }

    return provide, session.region_name or ""


# --- Azure ------------------------------------------------------------------------------------------------

_EMULATOR: Final = (
    "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;"
    "AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;"
    "BlobEndpoint=http://127.0.0.1:10000/devstoreaccount1"
)


def make_azure_settings(url: str, location: str, options: Mapping[str, Any]) -> StoreSettings:
    """Translate the options of adlfs.

    Raises:
        InvalidOptionError: an option is not known.
    """
    _check(location, options, _AZURE_NAMES)
    container, host, base = _split(url)
    text = _text(options.get("connection_string")) or os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "")
    parts = _parse_connection(location, text)
    endpoint = _text(options.get("endpoint_url")) or parts.get("blobendpoint", "")
    account = _text(options.get("account_name")) or parts.get("accountname", "")
    made: dict[str, Any] = {}
    if host != container:
        account = account or host.partition(".")[0]
        if host.endswith(".fabric.microsoft.com"):
            made["use_fabric_endpoint"] = True
        elif not host.endswith(".core.windows.net"):
            endpoint = endpoint or f"https://{host.replace('.dfs.', '.blob.', 1)}"
    server = _text(options.get("account_host")) or (
        f"{account}.blob.{parts['endpointsuffix']}" if parts.get("endpointsuffix") else ""
    )
    if server and not server.endswith(".core.windows.net"):
        endpoint = endpoint or f"{parts.get('defaultendpointsprotocol', 'https')}://{server}"
    given = {
        "account_name": account,
        "account_key": _text(options.get("account_key")) or parts.get("accountkey", ""),
        "sas_key": (_text(options.get("sas_token")) or parts.get("sharedaccesssignature", "")).lstrip("?"),
        "client_id": _text(options.get("client_id")),
        "client_secret": _text(options.get("client_secret")),
        "tenant_id": _text(options.get("tenant_id")),
        "token": _text(options.get("bearer_token")),
        "endpoint": endpoint.rstrip("/"),
    }
    made |= {name: value for name, value in given.items() if value}
    if is_true(options.get("anon")):
        made["skip_signature"] = True
    if is_true(options.get("use_fabric_endpoint")):
        made["use_fabric_endpoint"] = True
    seconds = options.get("read_timeout") or options.get("timeout")
    return StoreSettings(
        bucket=container,
        base=base,
        endpoint=endpoint.rstrip("/"),
        config=made,
        client=_make_client(options.get("connection_timeout"), None, endpoint),
        seconds=None if seconds is None else float(seconds),
    )


def _parse_connection(location: str, text: str) -> dict[str, str]:
    """Return the parts of a connection string, with names in lower case."""
    parts: dict[str, str] = {}
    for piece in filter(None, text.split(";")):
        name, equals, value = piece.partition("=")
        if not equals:
            raise InvalidOptionError(f"storage_options for {location}: connection_string is not a list of name=value")
        parts[name.strip().lower()] = value.strip()
    if is_true(parts.get("usedevelopmentstorage")):
        return _parse_connection(location, _EMULATOR)
    return parts


# --- obstore ----------------------------------------------------------------------------------------------

#: The process that first opened a store, if there is one. obstore's threads do not survive a fork.
_owner: int | None = None


def check_process() -> None:
    """Raise an error if this process was forked from one that has used obstore: its calls would wait forever.

    Raises:
        StorageError: this process must not use obstore.
    """
    if _owner not in {None, os.getpid()}:
        raise StorageError(
            "this process was forked from one that had opened object storage, whose connections do not survive a fork; "
            "start processes with multiprocessing.get_context('spawn') or 'forkserver'"
        )


def load_obstore(protocol: str) -> Any:
    """Return the library obstore. Raise `StorageError` if it is not installed."""
    try:
        import obstore
    except ImportError:
        extra = "s3" if protocol in S3 else "azure"
        raise StorageError(f"{protocol}:// needs obstore; {install_line(extra)}") from None
    return obstore


def open_store(protocol: str, settings: StoreSettings, *, for_data: bool) -> Any:
    """Open a store of obstore.

    Args:
        for_data: whether requests may take `DATA_SECONDS`.
    """
    global _owner  # noqa: PLW0603
    check_process()
    load_obstore(protocol)
    from obstore.store import AzureStore, S3Store

    _owner = os.getpid()
    seconds = settings.seconds or REQUEST_SECONDS
    arguments: dict[str, Any] = {
        "client_options": {
            **settings.client,
            "timeout": timedelta(seconds=max(seconds, DATA_SECONDS) if for_data else seconds),
        },
        "retry_config": {
            "max_retries": settings.retries,
            "retry_timeout": timedelta(seconds=DATA_SECONDS if for_data else _RETRY_SECONDS),
            "backoff": {
                "init_backoff": timedelta(seconds=0.1),
                "max_backoff": timedelta(seconds=_BACKOFF_SECONDS),
                "base": 2,
            },
        },
    }
    config = dict(settings.config)
    if protocol in AZURE:
        return AzureStore(settings.bucket, config=config, **arguments)
    provider, region = _make_provider(settings)
    if provider is not None:
        arguments["credential_provider"] = provider
    if region and not any(os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION")):
        config.setdefault("region", region)
    if os.environ.get("AWS_ENDPOINT_URL_S3") and "endpoint" in config:
        config["aws_endpoint_url_s3"] = config["endpoint"]  # Otherwise the variable would win.
    return S3Store(settings.bucket, config=config, **arguments)
