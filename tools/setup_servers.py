"""Install the storage servers of the tests: ``python tools/setup_servers.py [ci|nightly] [NAME...]``.

The servers are versitygw (S3, a Go module), azurite (Azure Blob Storage, an npm package) and fake-gcs-server (Google
Cloud Storage, a Go module). They go to ``.cache/servers``. ``ci`` names those whose installation takes less than three
minutes, ``nightly`` names all. moto, the S3 server of ``make test``, is a Python package and needs no setup.

The path of each server is printed to standard output. If a server cannot be installed, because ``go`` or ``npm`` is
missing or the build does not end in time, the reason is printed to standard error, and the tests on that server are
skipped. Therefore the exit code is 0. A second run does nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["SERVERS", "ServerSetup", "SkippedError", "install", "main", "program"]

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / ".cache" / "servers"
#: Limits of one installation in seconds. Go's build of versitygw takes 100 s on two cores without a cache.
CI_SECONDS: Final = 180
OTHER_SECONDS: Final = 1800


class SkippedError(Exception):
    """The reason for which a server is not installed, in one line."""


@dataclass(frozen=True, slots=True)
class ServerSetup:
    """The installation of one server.

    Attributes:
        program: path of the program in `FOLDER`.
        tool: the installer, which must be on PATH.
        package: name and version of the package.
        in_ci: whether CI installs the server.
    """

    program: str
    tool: str
    package: str
    in_ci: bool


SERVERS: Final[Mapping[str, ServerSetup]] = {
    "azurite": ServerSetup("node_modules/.bin/azurite-blob", "npm", "azurite@3.35.0", True),
    "versitygw": ServerSetup("bin/versitygw", "go", "github.com/versity/versitygw/cmd/versitygw@v1.8.0", True),
    "fake-gcs-server": ServerSetup("bin/fake-gcs-server", "go", "github.com/fsouza/fake-gcs-server@v1.56.1", False),
}


def program(name: str) -> Path:
    """Return the path at which a server is installed."""
    return FOLDER / SERVERS[name].program


def _command_of(setup: ServerSetup, tool: str) -> tuple[Sequence[str], Mapping[str, str]]:
    """Return the command that installs a server, and the environment variables to add."""
    if setup.tool == "npm":
        return [tool, "install", "--no-audit", "--no-fund", "--prefix", str(FOLDER), setup.package], {}
    # Two compilers at once leave a small machine some memory.
    return [tool, "install", "-p=2", "-buildvcs=false", setup.package], {"GOBIN": str(FOLDER / "bin")}


def _run(command: Sequence[str], environment: Mapping[str, str], limit_seconds: int) -> None:
    """Run a command in a process group of its own, which is killed after the limit.

    Raises:
        SkippedError: the command failed or did not end in time.
    """
    with subprocess.Popen(
        command,
        env={**os.environ, **environment},
        cwd=FOLDER,  # Not in the project, whose files npm and go could take for a package of theirs.
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise SkippedError(f"the installation did not end within {limit_seconds} s") from None
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        raise SkippedError(f"{Path(command[0]).name}: {[*lines[-1:], 'no output'][0]} (exit code {process.returncode})")


def install(name: str, limit_seconds: int) -> Path:
    """Install a server unless it is there, and return its path.

    Args:
        name: the server's name.
        limit_seconds: time after which the installation is given up.

    Raises:
        SkippedError: the server cannot be installed here.
    """
    setup, path = SERVERS[name], program(name)
    if path.exists():
        return path
    tool = shutil.which(setup.tool)
    if tool is None:
        raise SkippedError(f"there is no {setup.tool} on PATH")
    FOLDER.mkdir(parents=True, exist_ok=True)
    _run(*_command_of(setup, tool), limit_seconds)
    if not path.exists():
        raise SkippedError(f"{setup.tool} did not make {path.relative_to(ROOT)}")
    return path


def _chosen_names(arguments: Sequence[str]) -> list[str]:
    """Return the servers that the arguments name; without arguments those of CI.

    >>> _chosen_names([]), _chosen_names(["versitygw"])
    (['azurite'], ['versitygw'])
    """
    names: list[str] = []
    for each in arguments or ("ci",):
        if each in {"ci", "nightly"}:
            names += [name for name, setup in SERVERS.items() if setup.in_ci or each == "nightly"]
        elif each in SERVERS:
            names.append(each)
        else:
            raise ValueError(f"no such server: {each}; servers are {', '.join(SERVERS)}")
    return list(dict.fromkeys(names))


def main(*arguments: str) -> int:
    """Install servers and print their paths. Return 2 if an argument is wrong."""
    try:
        names = _chosen_names(arguments)
    except ValueError as mistake:
        print(mistake, file=sys.stderr)
        return 2
    for name in names:
        try:
            print(install(name, CI_SECONDS if "ci" in arguments else OTHER_SECONDS))
        except (SkippedError, OSError) as reason:
            print(f"{name} is not installed, its tests are skipped: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
