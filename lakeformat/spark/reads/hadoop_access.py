"""How Spark's own scan opens a table's files: ``storage_options`` as settings of Hadoop's file system of S3.

The settings belong to the scan alone: Spark adds the options of a relation to the Hadoop configuration of its tasks,
and prints them nowhere. The configuration of the session stays as it is.

Hadoop keeps one open file system for each scheme and bucket in a process, with the settings of its first user. Under
the schemes ``s3`` and ``s3a`` later keys would have no effect, and other users of the process would reach the bucket
with these keys. So each set of settings has a scheme of its own, such as ``s3a-5f0c3b1a9d27``. It shows in the names of
files that Spark returns (``input_file_name()``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from lakeformat.model.table_config import PROPERTIES_PATH
from lakeformat.spark.jobs import context_of
from lakeformat.storage import RemoteStorage
from lakeformat.storage.object_options import S3, StoreSettings, make_s3_settings
from lakeformat.storage.port import Storage

__all__ = ["HadoopAccess", "find_access", "s3a_settings"]

_S3A: Final = "org.apache.hadoop.fs.s3a."
_FILE_SYSTEM: Final = f"{_S3A}S3AFileSystem"
#: Endings of the names of settings whose values are secret.
_SECRETS: Final = (".secret.key", ".session.token")
#: Makes the schemes differ from process to process, so that no one can test guesses of a secret on a scheme.
_SALT: Final = os.urandom(16)


@dataclass(frozen=True, slots=True)
class HadoopAccess:
    """How Spark's JVM reaches the files of a table.

    Attributes:
        location: folder or URL of the table, as the scan must spell it.
        options: settings for the Hadoop configuration of the scan. They may have secrets.
    """

    location: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


def find_access(spark: Any, storage: Storage) -> HadoopAccess | str:
    """Find out how Spark's own scan opens a table; if it cannot, return the reason and what to do, as text for the log.

    The JVM of this process looks for the table, so the result is a fact. Executors must have the same file systems.
    """
    location = storage.location
    if location.startswith("/"):
        return HadoopAccess(location)
    context = context_of(spark)
    if context is None:
        return "nothing is known of the storage of a Spark Connect server"
    options = storage.options if isinstance(storage, RemoteStorage) else {}
    protocol = location.partition("://")[0]
    if protocol in S3 and isinstance(storage, RemoteStorage):
        access = _s3_access(spark, context._jvm, storage)
    elif options:
        return (
            f"storage options of {protocol}:// are not passed to Hadoop; set its spark.hadoop.fs.* instead of "
            "storage_options to have Spark's own scan"
        )
    else:
        access = HadoopAccess(location)
    return access if isinstance(access, str) else _probe(spark, context._jvm, access)


def _s3_access(spark: Any, jvm: Any, storage: RemoteStorage) -> HadoopAccess | str:
    location, options = storage.location, storage.options
    protocol, _, place = location.partition("://")
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    said = make_s3_settings(storage.url, location, options)
    from_environment = said.endpoint and not _names_endpoint(conf, said.bucket)
    settings = s3a_settings(said) if options or from_environment else {}
    if isinstance(settings, str):
        return settings
    if not settings and _has_file_system(jvm, protocol, conf):
        return HadoopAccess(location)
    if conf.getClassByNameOrNull(_FILE_SYSTEM) is None:
        version = jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        return f"its JVM has no {_FILE_SYSTEM}; start Spark with --packages org.apache.hadoop:hadoop-aws:{version}"
    if not settings:
        return HadoopAccess(location, {f"fs.{protocol}.impl": _FILE_SYSTEM})
    text = "\n".join((said.bucket, *(f"{name}={settings[name]}" for name in sorted(settings))))
    scheme = f"s3a-{blake2b(text.encode(), digest_size=6, key=_SALT).hexdigest()}"
    given = {f"fs.s3a.bucket.{said.bucket}.{name}": value for name, value in settings.items()}
    return HadoopAccess(f"{scheme}://{place}", {f"fs.{scheme}.impl": _FILE_SYSTEM, **given})


def s3a_settings(said: StoreSettings) -> dict[str, str] | str:
    """Translate settings of a bucket to those of S3A, without their prefix; return the reason if S3A has none for them.

    What the options leave open stays as in the session: credentials come from there, too, if the options have none.
    """
    if said.profile:
        return "Hadoop does not know profiles; give key and secret instead of profile to have Spark's own scan"
    if {"allow_invalid_certificates", "root_certificate"} & said.client.keys():
        return "Hadoop does not know verify; put the certificate into Java's trust store and leave verify out"
    settings: dict[str, str] = {}
    if said.config.get("skip_signature"):
        settings["aws.credentials.provider"] = f"{_S3A}AnonymousAWSCredentialsProvider"
    elif said.keys is not None:
        key, secret, token = said.keys
        kind = "Temporary" if token else "Simple"
        settings |= {"access.key": key, "secret.key": secret, **({"session.token": token} if token else {})}
        settings["aws.credentials.provider"] = f"{_S3A}{kind}AWSCredentialsProvider"
    region = said.config.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region:
        settings["endpoint.region"] = str(region)
    if said.endpoint:
        is_path_style = not said.config.get("virtual_hosted_style_request")
        settings["endpoint"] = said.endpoint
        settings["path.style.access"] = str(is_path_style).lower()
        settings["connection.ssl.enabled"] = str(said.endpoint.startswith("https:")).lower()
    if said.config.get("request_payer"):
        settings["requester.pays.enabled"] = "true"
    return settings


def _names_endpoint(conf: Any, bucket: str) -> bool:
    """Tell whether the session has an endpoint for the bucket, other than Hadoop's default."""
    given = {conf.get(f"fs.s3a.bucket.{bucket}.endpoint"), conf.get("fs.s3a.endpoint")}
    return not given <= {None, "", "s3.amazonaws.com"}


def _has_file_system(jvm: Any, protocol: str, conf: Any) -> bool:
    try:
        return jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(protocol, conf) is not None
    except Exception:  # UnsupportedFileSystemException, or a class that the JVM does not have.
        return False


def _probe(spark: Any, jvm: Any, access: HadoopAccess) -> HadoopAccess | str:
    """Return the access if the JVM finds the table by it, else the reason."""
    try:
        path = jvm.org.apache.hadoop.fs.Path(f"{access.location}/{PROPERTIES_PATH}")
        conf = spark._jsparkSession.sessionState().newHadoopConf()
        for name, value in access.options.items():
            conf.set(name, value)
        if path.getFileSystem(conf).exists(path):
            return access
        return "Spark finds no table there; check the settings spark.hadoop.fs.*"
    except Exception as error:
        message = getattr(getattr(error, "java_exception", None), "getMessage", lambda: None)()
        reason = str(message or error).strip().partition("\n")[0]
        for name, value in access.options.items():
            reason = reason.replace(value, "***") if name.endswith(_SECRETS) else reason
        return f"{reason}; check the settings spark.hadoop.fs.*"
