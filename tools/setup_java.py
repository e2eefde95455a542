"""Find the Java that Spark 4 needs (17 or newer) and print its home. Install it if that is possible.

Usage: ``python tools/setup_java.py [--find]``. The home goes to standard output, everything else to standard error.
With ``--find`` nothing is installed. The exit code is 1 if there is no Java, after one line that says what to do. The
script searches JAVA_HOME, then ``java`` on PATH, then the usual places.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

OLDEST: Final = 17
#: In order of preference: 17 also runs Spark 3.5, which the interop tests need.
APT_PACKAGES: Final = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
#: Java homes of Debian, Red Hat, macOS and Homebrew.
USUAL_PLACES: Final = (
    "/usr/lib/jvm/*",
    "/opt/java/*",
    "/opt/jdk*",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "/opt/homebrew/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
)
ADVICE: Final = (
    "no Java 17 found: install it (Debian/Ubuntu: sudo apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) or set JAVA_HOME"
)


def major_version(version_text: str) -> int | None:
    """Parse the major version in the output of ``java -version``.

    >>> major_version('openjdk version "17.0.15" 2025-04-15'), major_version('java version "1.8.0_402"')
    (17, 8)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return int(match.group(1)) if match else None


def version_of(home: Path) -> int | None:
    """Return the major version of the Java at ``home``; None if no Java starts there."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return major_version(answer.stderr) if answer.returncode == 0 else None


def chosen_homes(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the homes that the user's environment names."""
    if named := environ.get("JAVA_HOME"):
        yield Path(named)
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(on_path).resolve().parent.parent


def usual_homes(places: Iterable[str]) -> Iterator[Path]:
    """Yield every directory that matches one of the absolute glob patterns ``places``."""
    for place in places:
        yield from sorted(Path("/").glob(place.lstrip("/")))


def find_java_home(environ: Mapping[str, str], places: Iterable[str] = USUAL_PLACES) -> Path | None:
    """Return the first suitable home that the environment names, else the oldest suitable one in ``places``."""
    for home in chosen_homes(environ):
        if (version_of(home) or 0) >= OLDEST:
            return home
    suitable = [(version, home) for home in usual_homes(places) if (version := version_of(home) or 0) >= OLDEST]
    return min(suitable)[1] if suitable else None


def install_with_apt() -> bool:
    """Install OpenJDK headless on Debian or Ubuntu. Return whether that succeeded."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return False
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}

    def apt_get(*arguments: str) -> bool:
        command = ["apt-get", "--quiet", "--yes", *arguments]
        # Standard output is reserved for the home that this script prints.
        finished = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
        return finished.returncode == 0

    print(f"no Java {OLDEST} found, installing OpenJDK with apt-get", file=sys.stderr)
    Path("/usr/share/man/man1").mkdir(parents=True, exist_ok=True)  # Slim images lack it; the package links there.
    apt_get("update")  # A failure is ignored: an old package list may suffice for the install.
    return any(apt_get("install", "--no-install-recommends", package) for package in APT_PACKAGES)


def main() -> int:
    """Print the home. If there is none, install Java first. Return 1 if that is not possible."""
    parser = argparse.ArgumentParser(description="Find Java 17 or newer, or install it.")
    parser.add_argument("--find", action="store_true", help="only look, install nothing")
    only_find: bool = parser.parse_args().find
    home = find_java_home(os.environ)
    if home is None and not only_find and install_with_apt():
        home = find_java_home(os.environ)
    if home is None:
        print(ADVICE, file=sys.stderr)
        return 1
    print(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
