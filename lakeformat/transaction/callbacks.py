"""Callbacks that run after a commit is visible (Hudi: ``HoodieWriteCommitCallback``). Their errors are only logged."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from lakeformat.config.callables import callable_name
from lakeformat.config.resolve import Options
from lakeformat.errors import InvalidOptionError
from lakeformat.model.commit import WriteStat
from lakeformat.transaction.validators import load_callable

__all__ = ["Callback", "CommitMessage", "HttpCallback", "callbacks_of", "notify"]

_LOG: Final = logging.getLogger("lakeformat.write")
_ON: Final = "hoodie.write.commit.callback."
_HTTP_CLASS: Final = "org.apache.hudi.callback.impl.HoodieWriteCommitHttpCallback"


@dataclass(frozen=True)
class CommitMessage:
    """The argument of a callback (Hudi: ``HoodieWriteCommitCallbackMessage``).

    Attributes:
        commit_time: the instant time.
        base_path: the table's folder or URL.
        action: ``commit`` or ``replacecommit``.
        operation: ``upsert``, ``insert`` ...
        stats: statistics of the files written, with their counts.
        extra_metadata: the commit's extra metadata, without schema and report.
    """

    commit_time: str
    table_name: str
    base_path: str
    action: str
    operation: str
    stats: tuple[WriteStat, ...]
    extra_metadata: Mapping[str, str]

    def as_json(self) -> bytes:
        """Encode the message as JSON, under Hudi's names."""
        document = {
            "commitTime": self.commit_time,
            "tableName": self.table_name,
            "basePath": self.base_path,
            "commitActionType": self.action,
            "operationType": self.operation,
            "hoodieWriteStat": [asdict(stat) for stat in self.stats],
            "extraMetadata": dict(self.extra_metadata),
        }
        return json.dumps(document).encode()


@dataclass(frozen=True)
class HttpCallback:
    """A callback that POSTs the message as JSON (Hudi: ``HoodieWriteCommitHttpCallbackClient``)."""

    url: str
    timeout_seconds: int
    headers: Mapping[str, str]

    def __call__(self, message: CommitMessage) -> None:
        """Send the message. Raise ``OSError`` if the server does not answer with success."""
        from urllib.request import Request, urlopen  # At the top it would double the import time of this module.

        headers = {"Content-Type": "application/json", **self.headers}
        request = Request(self.url, message.as_json(), headers, method="POST")  # noqa: S310  Checked: http or https.
        with urlopen(request, timeout=self.timeout_seconds):  # noqa: S310
            pass


Callback = Callable[[CommitMessage], Any]


def callbacks_of(options: Options, functions: Sequence[Callback] = ()) -> tuple[Callback, ...]:
    """Return the callbacks that the options and the caller name.

    Raises:
        InvalidOptionError: a class, URL, header or function cannot be used.
    """
    found: list[Callback] = []
    if options[_ON + "on"]:
        kind = options[_ON + "class"]
        if kind != _HTTP_CLASS:
            raise InvalidOptionError(
                f"option {_ON}class={kind} is not known; leave it out for HTTP, or use lakeformat.transaction.callbacks"
            )
        url = options[_ON + "http.url"] or ""
        if urlsplit(url).scheme not in {"http", "https"}:
            raise InvalidOptionError(f"option {_ON}http.url={url!r} is not an http or https address; give one")
        headers = {"HUDI-CALLBACK-KEY": options[_ON + "http.api.key"]}
        headers.update(_headers(options[_ON + "http.custom.headers"] or ""))
        found.append(HttpCallback(url, options[_ON + "http.timeout.seconds"], headers))
    option = "lakeformat.transaction.callbacks"
    found += [load_callable(place, option=option) for place in options[option]]
    return (*found, *functions)


def _headers(text: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, mark, value = part.partition(":")
        if not mark or not name.strip():
            raise InvalidOptionError(
                f"option {_ON}http.custom.headers: {part!r} is not a header; write name:value;..."
            )
        headers[name.strip()] = value.strip()
    return headers


def notify(callbacks: Sequence[Callback], message: CommitMessage) -> None:
    """Call all callbacks. Log their errors; the commit stays visible."""
    for callback in callbacks:
        try:
            callback(message)
        except Exception as error:
            name = callback.url if isinstance(callback, HttpCallback) else callable_name(callback)
            _LOG.warning("callback %s failed after commit %s: %s", name, message.commit_time, error)
