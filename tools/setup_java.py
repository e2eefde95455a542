"""Find the Java that Spark 4 needs (17 or newer) and print its home. If there is none, try to install it.

Usage: ``python tools/setup_java.py [--find]``. The home is printed to standard output, everything else to standard
error. The program searches JAVA_HOME, then ``java`` on PATH, then the usual folders. With ``--find`` nothing is
installed. If there is no Java in the end, the program prints what to do, and the exit code is 1.
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

#: Minimum major version of Java.
OLDEST: Final = 17
#: Debian packages to install, in order of preference. Java 17 is first because the interop tests run Spark 3.5 on it.
APT_PACKAGES: Final = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
#: Glob patterns of Java homes on Debian, Red Hat, macOS and Homebrew.
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
    """Run the Java at ``home`` and return its major version; None if it does not exist or does not start."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return major_version(answer.stderr) if answer.returncode == 0 else None


def chosen_homes(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the Java homes that the user has chosen: JAVA_HOME, then that of ``java`` on PATH."""
    if named := environ.get("JAVA_HOME"):
        yield Path(named)
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(on_path).resolve().parent.parent


def usual_homes(places: Iterable[str]) -> Iterator[Path]:
    """Yield the directories that match these absolute glob patterns, in the order of the patterns, sorted in each."""
    for place in places:
        yield from sorted(Path("/").glob(place.lstrip("/")))


def find_java_home(environ: Mapping[str, str], places: Iterable[str] = USUAL_PLACES) -> Path | None:
    """Return a Java home of at least the minimum version; None if there is none.

    A home that the user has chosen comes first, else the home of the lowest suitable version in ``places``.
    """
    for home in chosen_homes(environ):
        if (version_of(home) or 0) >= OLDEST:
            return home
    suitable = [(version, home) for home in usual_homes(places) if (version := version_of(home) or 0) >= OLDEST]
    return min(suitable)[1] if suitable else None


def install_with_apt() -> bool:
    """Install OpenJDK by apt-get, as root on Debian or Ubuntu. Return whether that succeeded."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return False
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}

    def apt_get(*arguments: str) -> bool:
        command = ["apt-get", "--quiet", "--yes", *arguments]
        # The output goes to standard error, because standard output must contain only the home.
        finished = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
        return finished.returncode == 0

    print(f"no Java {OLDEST} found, installing OpenJDK with apt-get", file=sys.stderr)
    # The OpenJDK package cannot be installed without this folder, which slim images lack.
    Path("/usr/share/man/man1").mkdir(parents=True, exist_ok=True)
    apt_get("update")  # A failure is ignored: an old package list may suffice for the install.
    return any(apt_get("install", "--no-install-recommends", package) for package in APT_PACKAGES)


def main() -> int:
    """Print the home of a suitable Java, which is installed if necessary. Return 1 if there is none in the end."""
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
