"""The choice of a Java. Homes are folders with a ``java`` that answers like a real one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.setup_java import find_java_home, major_version


def java_home(folder: Path, version: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "22-ea" 2024-03-19', 22),
        ('java version "1.8.0_402"', 8),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_major_version_is_parsed(text: str, major: int | None) -> None:
    assert major_version(text) == major


@pytest.mark.parametrize(
    ("named", "on_path", "usual", "expected"),
    [
        pytest.param("17.0.1", "21.0.2", "17.0.9", "named", id="JAVA_HOME comes first"),
        pytest.param("21.0.2", None, "17.0.9", "named", id="even where an older one fits"),
        pytest.param("1.8.0_402", "21.0.2", "17.0.9", "on_path", id="unless it is too old"),
        pytest.param(None, "11.0.22", "17.0.9", "usual", id="then the usual places"),
        pytest.param(None, "17.0.1", None, "on_path", id="PATH alone is enough"),
        pytest.param("11.0.22", None, "1.8.0_402", None, id="no Java that fits"),
        pytest.param(None, None, None, None, id="no Java at all"),
    ],
)
def test_first_suitable_java_is_taken(
    tmp_path: Path, named: str | None, on_path: str | None, usual: str | None, expected: str | None
) -> None:
    environ = {"PATH": str(tmp_path / "on_path" / "bin")}
    for place, version in (("named", named), ("on_path", on_path), ("usual", usual)):
        if version is not None:
            java_home(tmp_path / place, version)
    if named is not None:
        environ["JAVA_HOME"] = str(tmp_path / "named")
    # The fake java is a shell script: it needs nothing except /bin/sh.
    found = find_java_home(environ, [str(tmp_path / "usual*")])
    assert found == (tmp_path / expected if expected else None)


def test_of_several_usual_homes_the_oldest_that_fits(tmp_path: Path) -> None:
    for version in ("8.0.1", "21.0.2", "17.0.9", "11.0.1"):
        java_home(tmp_path / f"jdk-{version}", version)
    assert find_java_home({}, [str(tmp_path / "*")]) == tmp_path / "jdk-17.0.9"


def test_java_on_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home = java_home(tmp_path / "jvm" / "jdk", "17.0.9")
    links = tmp_path / "bin"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    assert find_java_home({"PATH": str(links)}, []) == home


def test_a_java_that_does_not_start_is_passed_over(tmp_path: Path) -> None:
    broken = java_home(tmp_path / "broken", "17.0.9")
    (broken / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "empty" / "bin").mkdir(parents=True)
    for home in ("broken", "empty", "missing"):
        assert find_java_home({"JAVA_HOME": str(tmp_path / home)}, []) is None
