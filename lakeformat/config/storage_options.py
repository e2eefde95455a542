"""Options of a file system among those of a table: Spark hands a source nothing but texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

__all__ = ["spark_storage_options", "storage_options_of"]

#: All of fsspec's ``storage_options`` as JSON. Spark redacts options whose names hold "secret".
_WHOLE: Final = "fs.secret_storage_options"
#: Names of Hadoop's S3A file system (``org.apache.hadoop.fs.s3a.Constants``) -> those of s3fs.
_S3A: Final[Mapping[str, str]] = {
    "fs.s3a.access.key": "key",
    "fs.s3a.secret.key": "secret",
    "fs.s3a.session.token": "token",
    "fs.s3a.endpoint": "endpoint_url",
}


def storage_options_of(path: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """What options say to the file system of a table; of local paths nothing.

    ``fs.key`` is fsspec's ``key``; ``fs.s3a.access.key``, ``.secret.key``, ``.session.token`` and ``.endpoint`` are
    taken for S3. Other names of Hadoop's are for Hadoop alone.

    >>> storage_options_of("s3://b/t", {"fs.s3a.access.key": "k", "fs.anon": "false", "fs.gs.project.id": "p"})
    {'key': 'k', 'anon': False}
    """
    scheme = urlsplit(path).scheme
    if len(scheme) < 2 or scheme == "file":
        return {}
    found: dict[str, Any] = {}
    for name, value in options.items():
        key = name.lower()
        if key == _WHOLE:
            found |= json.loads(value)
        elif key in _S3A:
            if scheme in {"s3", "s3a"}:
                found[_S3A[key]] = value
        elif key.startswith("fs.") and key.count(".") == 1:
            text = str(value).lower()
            found[key[3:]] = text == "true" if text in {"true", "false"} else value
    return found


def spark_storage_options(storage_options: Mapping[str, Any] | None) -> dict[str, str]:
    """The inverse for Spark: one option that holds all, or none."""
    return {_WHOLE: json.dumps(dict(storage_options))} if storage_options else {}
