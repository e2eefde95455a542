"""Names in ``storage_options``: those of s3fs, gcsfs and adlfs. Errors give the right name for another library's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from lakeformat.errors import InvalidOptionError

__all__ = ["check_names", "make_unknown_name_error"]

_REGION: Final = "client_kwargs={'region_name': ...}"
#: Maps option names of other libraries, in lower case, to the option names of s3fs.
_S3: Final[Mapping[str, str]] = {
    "aws_endpoint_url": "endpoint_url",
    "aws_endpoint_url_s3": "endpoint_url",
    "aws_endpoint": "endpoint_url",
    "endpoint": "endpoint_url",
    "s3.endpoint": "endpoint_url",
    "fs.s3a.endpoint": "endpoint_url",
    "aws_access_key_id": "key",
    "access_key_id": "key",
    "access_key": "key",
    "s3.access-key-id": "key",
    "fs.s3a.access.key": "key",
    "aws_secret_access_key": "secret",
    "secret_access_key": "secret",
    "secret_key": "secret",
    "s3.secret-access-key": "secret",
    "fs.s3a.secret.key": "secret",
    "aws_session_token": "token",
    "session_token": "token",
    "s3.session-token": "token",
    "fs.s3a.session.token": "token",
    "aws_region": _REGION,
    "aws_default_region": _REGION,
    "region": _REGION,
    "region_name": _REGION,
    "s3.region": _REGION,
    "aws_profile": "profile",
    "profile_name": "profile",
    "aws_skip_signature": "anon",
    "skip_signature": "anon",
    "anonymous": "anon",
    "aws_allow_http": "endpoint_url with http://",
    "allow_http": "endpoint_url with http://",
}
#: Maps option names of other libraries, in lower case, to the option names of gcsfs.
_GS: Final[Mapping[str, str]] = {
    "google_application_credentials": "token",
    "google_service_account": "token",
    "google_service_account_path": "token",
    "google_service_account_key": "token",
    "service_account": "token",
    "service_account_path": "token",
    "service_account_key": "token",
}
#: Maps option names of other libraries, in lower case, to the option names of adlfs.
_AZURE: Final[Mapping[str, str]] = {
    "azure_storage_account_name": "account_name",
    "azure_storage_account_key": "account_key",
    "azure_storage_access_key": "account_key",
    "access_key": "account_key",
    "azure_storage_sas_token": "sas_token",
    "azure_storage_sas_key": "sas_token",
    "sas_key": "sas_token",
    "azure_client_id": "client_id",
    "azure_storage_client_id": "client_id",
    "azure_client_secret": "client_secret",
    "azure_storage_client_secret": "client_secret",
    "azure_tenant_id": "tenant_id",
    "azure_storage_tenant_id": "tenant_id",
    "azure_storage_connection_string": "connection_string",
}
_OTHER_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    **dict.fromkeys(("gs", "gcs"), _GS),
    **dict.fromkeys(("abfs", "abfss", "az", "adl"), _AZURE),
}


def check_names(location: str, names: Iterable[str]) -> None:
    """Raise an error if storage options have names of other libraries instead of fsspec's.

    Raises:
        InvalidOptionError: An option has such a name. The message gives the right name for each such option.
    """
    known = _OTHER_NAMES.get(location.partition("://")[0], {})
    wrong = {name: known[name.lower()] for name in names if name.lower() in known}
    if wrong:
        cures = ", ".join(f"{right} instead of {name!r}" for name, right in wrong.items())
        raise InvalidOptionError(
            f"storage_options for {location} have names that its file system does not know; write {cures}"
        )


def make_unknown_name_error(location: str, names: Iterable[str]) -> InvalidOptionError:
    """Make the error for names that no table of this module knows."""
    return InvalidOptionError(
        f"storage_options for {location} have a name that its file system does not know: "
        f"{', '.join(repr(name) for name in sorted(names))}; docs/storage.md names the usual ones (key, secret, token, "
        "endpoint_url for S3)"
    )
