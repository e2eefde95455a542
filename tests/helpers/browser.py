"""A headless Chromium that opens a page, by the DevTools protocol over a pipe: sizes, light and dark, errors, pictures.

Debian's package is enough (``apt-get install chromium``); without a browser the tests skip.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["Browser", "open_browser"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe")


class Browser:
    """One tab of a browser."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._out, self._in = os.fdopen(to_browser, "wb"), os.fdopen(from_browser, "rb")
        self._buffer, self._number, self._session = b"", 0, None
        self.errors: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def show(self, page: Path, *, width: int, dark: bool = False) -> None:
        """Open a page at a width of the screen, and wait until it is loaded."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        phone = {"deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=900, **phone)
        self.requests: list[str] = []
        self._call("Page.navigate", url=page.as_uri())
        while self._receive().get("method") != "Page.loadEventFired":
            pass

    def ask(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript in the page."""
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """Save a picture of the whole page."""
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, **params: Any) -> Any:
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": self._number, "method": method, "params": params, **session}
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while (answer := self._receive()).get("id") != self._number:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            some = self._in.read1(1 << 16)
            assert some, "the browser ended"
            self._buffer += some
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        method, params = message.get("method"), message.get("params", {})
        if method in {"Log.entryAdded", "Runtime.exceptionThrown"}:
            self.errors.append(json.dumps(params))
        elif method == "Runtime.consoleAPICalled" and params["type"] in {"error", "warning", "assert"}:
            self.errors.append(json.dumps(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        return message


@contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """Start a browser whose profile is in a folder; skip the test if there is none."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("no browser: apt-get install chromium")
    ours, theirs = os.pipe(), os.pipe()  # The browser reads from descriptor 3 and writes to 4.
    script = f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}'
    command = ["bash", "-c", script, "bash", program, *_FLAGS, f"--user-data-dir={folder / 'profile'}"]
    process = subprocess.Popen(command, pass_fds=(ours[0], theirs[1]), stderr=subprocess.DEVNULL)
    os.close(ours[0])
    os.close(theirs[1])
    try:
        yield Browser(ours[1], theirs[0])
    finally:
        process.terminate()
        process.wait(30)
