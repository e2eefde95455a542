"""The files in the jar's Maven folder. ``test_jar.py`` tests that Spark accepts the jar."""

from __future__ import annotations

import hashlib
import re
import zipfile
from pathlib import Path

import pytest

import lakeformat
from tools.build_jar import ROOT, build

VERSION = lakeformat.__version__


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("m2"))


def project(folder: Path) -> Path:
    """Make a project of two packages, with one file of every kind that must or must not be in the jar."""
    for name in (
        "lakeformat/__init__.py",
        "lakeformat/py.typed",
        "lakeformat/write/session.py",
        "lakeformat/__pycache__/session.cpython-311.pyc",
        "lakeformat/tests/test_x.py",
        "lakeformat/stale.pyc",
        "pyspark_lakehouse/__init__.py",
        "tests/test_y.py",
        "tools/z.py",
        "LICENSE",
    ):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    (folder / "lakeformat" / "__init__.py").write_text('__version__ = "9.8.7"\n')
    (folder / "pyproject.toml").write_text('[project]\ndescription = "d"\n')
    return folder


def checksum_fits(file: Path) -> bool:
    digest = hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()
    return file.with_name(f"{file.name}.sha1").read_text() == digest


def test_files_lie_where_maven_looks(jar: Path) -> None:
    assert jar.parts[-5:-1] == ("io", "lakeformat", "lakeformat-spark", VERSION)
    assert {file.name for file in jar.parent.iterdir()} == {
        f"lakeformat-spark-{VERSION}{suffix}" for suffix in (".jar", ".jar.sha1", ".pom", ".pom.sha1")
    }


def test_jar_holds_the_sources_only(tmp_path: Path) -> None:
    jar = build(project(tmp_path / "project"), tmp_path / "m2")
    with zipfile.ZipFile(jar) as archive:
        assert archive.namelist() == [
            "META-INF/MANIFEST.MF",
            "META-INF/LICENSE",
            "lakeformat/__init__.py",
            "lakeformat/py.typed",
            "lakeformat/write/session.py",
            "pyspark_lakehouse/__init__.py",
        ]
        assert archive.read("lakeformat/write/session.py") == b"lakeformat/write/session.py"
        assert b"Implementation-Version: 9.8.7\r\n" in archive.read("META-INF/MANIFEST.MF")


def test_both_packages_of_the_checkout_are_delivered(jar: Path) -> None:
    with zipfile.ZipFile(jar) as archive:
        assert {"lakeformat/__init__.py", "pyspark_lakehouse/__init__.py"} <= set(archive.namelist())
        assert archive.testzip() is None


def test_same_sources_give_the_same_jar_bytes(tmp_path: Path) -> None:
    first = build(project(tmp_path / "one"), tmp_path / "m2")
    second_project = project(tmp_path / "two")
    source = second_project / "lakeformat" / "__init__.py"
    source.touch()
    source.chmod(0o600)
    second = build(second_project, tmp_path / "other")
    assert first.read_bytes() == second.read_bytes()
    assert first.with_suffix(".pom").read_bytes() == second.with_suffix(".pom").read_bytes()


def test_building_again_replaces_the_jar(tmp_path: Path) -> None:
    checkout, out = project(tmp_path / "project"), tmp_path / "m2"
    before = build(checkout, out).read_bytes()
    (checkout / "lakeformat" / "py.typed").write_text("changed")
    jar = build(checkout, out)
    assert jar.read_bytes() != before
    assert checksum_fits(jar)


@pytest.mark.parametrize("suffix", [".jar", ".pom"])
def test_checksums_match_the_files(jar: Path, suffix: str) -> None:
    assert checksum_fits(jar.with_suffix(suffix))


def test_pom_names_the_coordinates(jar: Path) -> None:
    pom = jar.with_suffix(".pom").read_text()
    found = dict(re.findall(r"<(groupId|artifactId|version|packaging)>(.*)</\1>", pom))
    assert found == {
        "groupId": "io.lakeformat",
        "artifactId": "lakeformat-spark",
        "version": VERSION,
        "packaging": "jar",
    }


def test_the_version_is_written_in_one_place() -> None:
    page = (ROOT / "docs" / "spark-cluster.md").read_text(encoding="utf-8")
    assert set(re.findall(r"lakeformat-spark:([\d.]+\w*)", page)) == {VERSION}
    assert not re.search(r'^version = "', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(VERSION)}\b", changelog, re.MULTILINE)
