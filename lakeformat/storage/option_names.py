"""Names in ``storage_options``: those of other libraries become those of fsspec's file systems.

The tables list the names of object_store (delta-rs, polars), pyarrow, pyiceberg and Hadoop. The meaning of a name
depends on the URL's protocol. An option inside a dictionary is written with a dot: ``client_kwargs.region_name``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from lakeformat.errors import InvalidOptionError, nearest

__all__ = ["is_true", "make_unknown_name_error", "translate_names"]

_ALLOW_HTTP: Final = "allow_http"
_NO_EFFECT: Final = "no effect"
#: Names that need no option here: writers need no lock of delta-rs, because they use conditional writes.
_LOCKING: Final = """
    aws_s3_allow_unsafe_rename allow_unsafe_rename aws_s3_locking_provider s3_locking_provider aws_conditional_put
    conditional_put aws_copy_if_not_exists copy_if_not_exists dynamo_lock_table_name delta_dynamo_table_name
    delta_dynamo_lock_table_name
"""
#: Maps options of s3fs to the names of the same option in other libraries, in lower case.
_S3: Final[Mapping[str, str]] = {
    "endpoint_url": """
        aws_endpoint_url aws_endpoint_url_s3 aws_endpoint endpoint endpoint_override client_kwargs.endpoint_url
        s3.endpoint fs.s3a.endpoint
    """,
    "key": """
        aws_access_key_id access_key_id access_key username client_kwargs.aws_access_key_id s3.access-key-id
        client.access-key-id fs.s3a.access.key
    """,
    "secret": """
        aws_secret_access_key secret_access_key secret_key password client_kwargs.aws_secret_access_key
        s3.secret-access-key client.secret-access-key fs.s3a.secret.key
    """,
    "token": """
        aws_session_token aws_token session_token client_kwargs.aws_session_token s3.session-token client.session-token
        fs.s3a.session.token
    """,
    "client_kwargs.region_name": """
        aws_region aws_default_region default_region region region_name s3.region client.region
    """,
    "client_kwargs.verify": "allow_invalid_certificates aws_allow_invalid_certificates",
    "profile": "aws_profile profile_name s3.profile-name client.profile-name",
    "anon": "aws_skip_signature skip_signature anonymous no_sign_request aws_no_sign_request s3.anonymous",
    "use_ssl": "scheme client_kwargs.use_ssl",
    "requester_pays": "aws_request_payer request_payer aws_requester_pays",
    "config_kwargs.s3.addressing_style": """
        aws_virtual_hosted_style_request virtual_hosted_style_request force_virtual_addressing
        aws_s3_force_virtual_addressing s3.force-virtual-addressing
    """,
    "config_kwargs.read_timeout": "timeout aws_timeout request_timeout s3.request-timeout",
    "config_kwargs.connect_timeout": "connect_timeout aws_connect_timeout s3.connect-timeout",
    "config_kwargs.retries.max_attempts": "max_retries",
    "s3_additional_kwargs.ServerSideEncryption": "aws_server_side_encryption server_side_encryption",
    "s3_additional_kwargs.SSEKMSKeyId": "aws_sse_kms_key_id sse_kms_key_id",
    _ALLOW_HTTP: "aws_allow_http",
    _NO_EFFECT: _LOCKING,
}
#: Maps options of gcsfs to the names of the same option in other libraries, in lower case.
_GS: Final[Mapping[str, str]] = {
    "token": """
        google_application_credentials application_credentials google_service_account google_service_account_path
        google_service_account_key service_account service_account_path service_account_key google_skip_signature
        skip_signature anonymous anon
    """,
    "project": "google_project google_cloud_project project_id gcs.project-id",
    "endpoint_url": "google_base_url base_url endpoint endpoint_override gcs.endpoint gcs.service.host",
    _ALLOW_HTTP: "google_allow_http",
    _NO_EFFECT: _LOCKING,
}
#: Maps options of adlfs to the names of the same option in other libraries, in lower case.
_AZURE: Final[Mapping[str, str]] = {
    "account_name": "azure_storage_account_name adls.account-name",
    "account_key": """
        azure_storage_account_key azure_storage_access_key azure_storage_master_key access_key master_key
        adls.account-key
    """,
    "sas_token": "azure_storage_sas_token azure_storage_sas_key sas_key adls.sas-token",
    "client_id": "azure_client_id azure_storage_client_id adls.client-id",
    "client_secret": "azure_client_secret azure_storage_client_secret adls.client-secret",
    "tenant_id": """
        azure_tenant_id azure_storage_tenant_id azure_authority_id azure_storage_authority_id authority_id
        adls.tenant-id
    """,
    "bearer_token": "azure_storage_token token",
    "connection_string": """
        azure_storage_connection_string adls.connection-string azure_storage_use_emulator object_store_use_emulator
        use_emulator
    """,
    "endpoint_url": "azure_endpoint azure_storage_endpoint endpoint",
    "anon": "azure_skip_signature skip_signature anonymous",
    "use_fabric_endpoint": "azure_use_fabric_endpoint",
    "read_timeout": "azure_timeout",
    "connection_timeout": "connect_timeout azure_connect_timeout",
    _ALLOW_HTTP: "azure_allow_http azure_storage_allow_http",
    _NO_EFFECT: _LOCKING,
}
_BY_PROTOCOL: Final[Mapping[str, Mapping[str, str]]] = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    **dict.fromkeys(("gs", "gcs"), _GS),
    **dict.fromkeys(("abfs", "abfss", "az", "adl"), _AZURE),
}
#: Maps protocols to (name in lower case -> option of fsspec).
_OPTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    protocol: {name: option for option, names in table.items() for name in (option.lower(), *names.split())}
    for protocol, table in _BY_PROTOCOL.items()
}
_DICTIONARIES: Final = frozenset({"client_kwargs", "config_kwargs", "s3_additional_kwargs"})
_UNITS: Final[Mapping[str, float]] = {"": 1, "ms": 0.001, "s": 1, "sec": 1, "m": 60, "min": 60}


def translate_names(location: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return storage options under the names of fsspec's file system for a URL.

    Names may have any letter case. Options whose value is None are left out. Unknown names stay.

    >>> translate_names("s3://b/t", {"AWS_ACCESS_KEY_ID": "k", "aws_region": "eu-north-1"})
    {'key': 'k', 'client_kwargs': {'region_name': 'eu-north-1'}}

    Args:
        location: URL of the table, without user and password, for messages too.

    Raises:
        InvalidOptionError: a value is not valid, or two names mean the same option and their values differ. The message
            has all such names, and no value.
    """
    names_here = _OPTIONS.get(location.partition("://")[0])
    if names_here is None:
        return dict(options)
    values: dict[str, Any] = {}
    first: dict[str, str] = {}
    errors = []
    for name, given in _flatten(options):
        option = names_here.get(name.lower(), name if "." in name else name.lower())
        try:
            value = _convert(option, name.lower(), given)
        except ValueError as error:
            errors.append(f"{name!r} {error}")
            continue
        if value is None or option == _NO_EFFECT:
            continue
        if option in values and str(values[option]) != str(value):
            errors.append(f"{first[option]!r} and {name!r} mean the same and differ; give one of them")
        values.setdefault(option, value)
        first.setdefault(option, name)
    endpoint = str(values.get("endpoint_url", ""))
    if values.pop(_ALLOW_HTTP, True) is False and endpoint.startswith("http://"):
        errors.append(f"{first[_ALLOW_HTTP]!r} is false, and {first['endpoint_url']!r} begins with http://")
    if errors:
        raise InvalidOptionError(f"storage_options for {location}: {'; '.join(errors)}")
    if values.get("config_kwargs.s3.addressing_style") == "virtual":
        values |= {"endpoint_url": _without_bucket(endpoint, location)} if endpoint else {}
    return _nest(values)


def make_unknown_name_error(location: str, names: Iterable[str], known: Iterable[str] = ()) -> InvalidOptionError:
    """Make the error for names that neither this module nor the file system knows.

    Args:
        known: names that the file system has, for the hint.
    """
    table = _OPTIONS.get(location.partition("://")[0], {})
    candidates = [name for name in (*known, *table) if name not in {_NO_EFFECT, _ALLOW_HTTP}]
    unknown = [f"{name!r}{nearest(name.lower(), candidates)}" for name in sorted(names)]
    return InvalidOptionError(
        f"storage_options for {location} have a name that its file system does not know: {', '.join(unknown)}; "
        "docs/storage.md names the usual ones (key, secret, token, endpoint_url for S3)"
    )


def is_true(value: Any) -> bool:
    """Tell whether an option, given as a flag or as text, is true."""
    return str(value).strip().lower() in {"true", "1", "yes", "on"}


def _flatten(options: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Yield the options, those inside `_DICTIONARIES` by their dotted names."""
    for name, value in options.items():
        if isinstance(value, Mapping) and (prefix or name.lower() in _DICTIONARIES):
            yield from _flatten(value, f"{prefix}{name if prefix else name.lower()}.")
        else:
            yield f"{prefix}{name}", value


def _nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Put the options with dotted names back into dictionaries."""
    nested: dict[str, Any] = {}
    for name, value in values.items():
        folder, parts = nested, name.split(".") if name.partition(".")[0] in _DICTIONARIES else [name]
        for part in parts[:-1]:
            folder = folder.setdefault(part, {})
        folder[parts[-1]] = value
    return nested


def _convert(option: str, name: str, value: Any) -> Any:
    """Return the value as fsspec's option takes it; None if the value requests nothing.

    Args:
        name: name of the option as it was given, in lower case.

    Raises:
        ValueError: the value is not valid. The error is the end of a message that begins with the name.
    """
    if name in _DICTIONARIES and value is not None:
        raise ValueError("must be a dictionary")
    convert = _CONVERTED.get((option, name)) or _CONVERTERS.get(option)
    return value if value is None or convert is None else convert(value)


def _flag(value: Any) -> bool:
    if not is_true(value) and str(value).strip().lower() not in {"false", "0", "no", "off"}:
        raise ValueError("is neither true nor false")
    return is_true(value)


def _count(value: Any) -> int:
    if not str(value).strip().isdecimal():
        raise ValueError("is not a whole number")
    return int(value)


def _addressing(value: Any) -> str:
    if value in {"virtual", "path", "auto"}:
        return str(value)
    return "virtual" if _flag(value) else "path"


def _seconds(value: Any) -> float:
    """Convert a number of seconds, or a time such as ``30s``."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", str(value).strip().lower())
    if match is None or match[2] not in _UNITS:
        raise ValueError("is not a time; write a number of seconds, such as 30 or 30s")
    return float(match[1]) * _UNITS[match[2]]


def _key_file(value: Any) -> Any:
    """Convert the JSON text of a Google service account."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError("is not the JSON text of a service account") from None


def _scheme(value: Any) -> bool:
    if str(value).lower() not in {"http", "https"}:
        raise ValueError("is neither http nor https")
    return str(value).lower() == "https"


def _without_bucket(endpoint: str, location: str) -> str:
    """Remove the bucket from the host. With virtual hosts, object_store expects it there, and s3fs does not."""
    return endpoint.replace(f"://{location.partition('://')[2].partition('/')[0]}.", "://", 1)


#: Converters for options whose values may be texts in other libraries.
_CONVERTERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("anon", "requester_pays", "use_fabric_endpoint", "use_ssl", _ALLOW_HTTP), _flag),
    **dict.fromkeys(
        (
            "config_kwargs.read_timeout", "config_kwargs.connect_timeout", "read_timeout", "connection_timeout",
            "timeout",
        ),
        _seconds,
    ),
    "config_kwargs.retries.max_attempts": _count,
    "config_kwargs.s3.addressing_style": _addressing,
    "endpoint_url": lambda value: str(value).rstrip("/"),
}  # fmt: skip
#: Converters for (option, name) pairs: values of the name mean something else than values of fsspec's option.
_CONVERTED: Final[Mapping[tuple[str, str], Callable[[Any], Any]]] = {
    ("use_ssl", "scheme"): _scheme,
    **{
        ("client_kwargs.verify", name): lambda value: False if _flag(value) else None
        for name in ("allow_invalid_certificates", "aws_allow_invalid_certificates")
    },
    **{("token", name): _key_file for name in ("google_service_account_key", "service_account_key")},
    **{
        ("token", name): lambda value: "anon" if _flag(value) else None
        for name in ("google_skip_signature", "skip_signature", "anonymous", "anon")
    },
    **{
        ("connection_string", name): lambda value: "UseDevelopmentStorage=true" if _flag(value) else None
        for name in ("azure_storage_use_emulator", "object_store_use_emulator", "use_emulator")
    },
}
