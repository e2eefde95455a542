"""Build the jar that ``spark-submit --packages io.lakeformat:lakeformat-spark:<version>`` loads.

Usage: ``python tools/build_jar.py [OUTDIR]`` (default ``build/m2``). The program writes a Maven repository to OUTDIR.
Pass it to Spark as ``--repositories file:///…/OUTDIR``, or use ``~/.m2/repository`` as OUTDIR, which Spark searches by
default. The jar contains only Python sources, so the same jar works with every Scala and Spark 4 version. Builds of the
same sources are byte-identical on all machines.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import tomllib

ROOT: Final = Path(__file__).resolve().parent.parent
GROUP: Final = "io.lakeformat"
ARTIFACT: Final = "lakeformat-spark"
PACKAGES: Final = ("lakeformat", "pyspark_lakehouse")
#: Names of directories that the jar does not contain.
NOT_SOURCES: Final = frozenset({"__pycache__", "tests"})
#: Time of every zip entry: the earliest that the format allows. A fixed time makes builds reproducible.
ENTRY_TIME: Final = (1980, 1, 1, 0, 0, 0)
#: Unix file type and permissions of every zip entry: a regular file, rw-r--r--.
FILE_MODE: Final = 0o100644

POM: Final = """\
<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>{group}</groupId>
  <artifactId>{artifact}</artifactId>
  <version>{version}</version>
  <packaging>jar</packaging>
  <name>{artifact}</name>
  <description>{description}</description>
  <licenses>
    <license>
      <name>Apache-2.0</name>
    </license>
  </licenses>
</project>
"""

MANIFEST: Final = """\
Manifest-Version: 1.0
Implementation-Title: {artifact}
Implementation-Version: {version}

"""


def source_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of the packages under ``root``, sorted, as pairs of the name in the jar and the path."""
    for package in sorted(PACKAGES):
        for file in sorted((root / package).rglob("*")):
            name = file.relative_to(root)
            if file.is_file() and file.suffix not in {".pyc", ".md"} and NOT_SOURCES.isdisjoint(name.parts):
                yield name.as_posix(), file


def write_jar(jar: Path, entries: Iterator[tuple[str, bytes]]) -> None:
    """Write a zip whose content depends only on ``entries``, not on the clock, file modes or the host system."""
    with zipfile.ZipFile(jar, "w") as archive:
        for name, content in entries:
            entry = zipfile.ZipInfo(name, ENTRY_TIME)
            entry.create_system = 3  # 3 is Unix. The default depends on the machine, so builds would differ.
            entry.external_attr = FILE_MODE << 16
            # Not compressed, because compressed bytes differ between zlib versions, so builds would differ.
            archive.writestr(entry, content, zipfile.ZIP_STORED)


def version_of(root: Path) -> str:
    """Read ``lakeformat.__version__`` from the sources under ``root``, without importing them.

    Raises:
        ValueError: ``lakeformat/__init__.py`` assigns no text to ``__version__``.
    """
    package = root / "lakeformat" / "__init__.py"
    match = re.search(r'^__version__\b[^"]*"([^"]+)"', package.read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise ValueError(f"{package} assigns no text to __version__")
    return match[1]


def build(root: Path, out: Path) -> Path:
    """Write the jar, its pom and their ``.sha1`` files to the Maven repository ``out``. Return the jar's path."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = version_of(root)
    fields = {
        "group": GROUP,
        "artifact": ARTIFACT,
        "version": version,
        "description": project["description"],
    }
    folder = out.joinpath(*GROUP.split("."), ARTIFACT, version)
    folder.mkdir(parents=True, exist_ok=True)
    jar, pom = folder / f"{ARTIFACT}-{version}.jar", folder / f"{ARTIFACT}-{version}.pom"

    def entries() -> Iterator[tuple[str, bytes]]:
        # The manifest must be first, because java.util.jar reads it only there. Its lines must end in CR LF.
        yield "META-INF/MANIFEST.MF", MANIFEST.format(**fields).replace("\n", "\r\n").encode()
        yield "META-INF/LICENSE", (root / "LICENSE").read_bytes()
        yield from ((name, file.read_bytes()) for name, file in source_files(root))

    write_jar(jar, entries())
    pom.write_text(POM.format(**fields), encoding="utf-8")
    for file in (jar, pom):
        checksum = hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()
        file.with_name(f"{file.name}.sha1").write_text(checksum, encoding="ascii")
    return jar


def main() -> None:
    """Build the jar, then print its path and the spark-submit options for it."""
    parser = argparse.ArgumentParser(description="Build the jar for spark-submit --packages.")
    parser.add_argument("out", metavar="OUTDIR", nargs="?", type=Path, default=ROOT / "build" / "m2")
    out: Path = parser.parse_args().out.resolve()
    jar = build(ROOT, out)
    version = jar.parent.name
    print(jar)
    print(f"spark-submit --repositories {out.as_uri()} --packages {GROUP}:{ARTIFACT}:{version} app.py")


if __name__ == "__main__":
    main()
