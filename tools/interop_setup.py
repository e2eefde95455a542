"""Install Apache Hudi itself for the interop tests: ``python tools/interop_setup.py [nightly]``.

The program creates two folders in the project's root: ``.venv-interop``, a virtual environment with pyspark 3.5 for the
Python that runs this program, and ``.cache/jars``, with one Hudi bundle per version. With ``nightly`` it adds the
versions of the nightly tests. A stamp file records the finished environment, so that a second run does nothing.

``.cache/jars/s3`` gets what Spark and Hudi's file lock need on S3. ``.cache/jars/tests.jar`` gets the Java classes of
the tests (``tests/helpers/java``). Compiling them needs ``javac``; without it the tests that use them are skipped.

Spark's own resolver downloads the jars from Maven Central. If it fails, Maven does, if ``mvn`` exists. ``http_proxy``,
``https_proxy`` and ``no_proxy`` are passed to the JVM. For other JVM settings, such as a trust store, set
``JAVA_TOOL_OPTIONS``.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
VENV: Final = ROOT / ".venv-interop"
JARS: Final = ROOT / ".cache" / "jars"
IVY: Final = ROOT / ".cache" / "ivy"
STAMP: Final = VENV / "interop-stamp.json"

#: Hudi versions of the interop tests: the last that writes table version 6 by default, and a 1.x version that can write
#: table version 6 if an option says so.
HUDI_VERSIONS: Final = ("0.15.0", "1.2.0")
#: Hudi versions with which only the nightly tests create tables.
NIGHTLY_VERSIONS: Final = ("1.1.1",)
GROUP: Final = "org.apache.hudi"
BUNDLE: Final = "hudi-spark3.5-bundle_2.12"
#: The S3 file system of Spark's Hadoop, and the S3 client of Hudi's file lock.
S3_PACKAGES: Final = (
    "org.apache.hadoop:hadoop-aws:3.3.4",
    *(f"com.amazonaws:aws-java-sdk-{name}:1.12.262" for name in ("s3", "sts", "dynamodb")),
    *(f"software.amazon.awssdk:{name}:2.25.69" for name in ("s3", "apache-client")),
)
#: Not downloaded with them: a bundle of all of AWS (280 MB), an unused client, and jars that Spark has.
S3_EXCLUDED: Final = (
    "com.amazonaws:aws-java-sdk-bundle",
    "software.amazon.awssdk:netty-nio-client",
    *(f"com.fasterxml.jackson.core:jackson-{name}" for name in ("core", "databind", "annotations")),
    *(f"org.apache.httpcomponents:{name}" for name in ("httpclient", "httpcore")),
    "joda-time:joda-time",
    "org.slf4j:slf4j-api",
    "commons-codec:commons-codec",
    "commons-logging:commons-logging",
)
S3_JARS: Final = JARS / "s3"
TESTS_JAR: Final = JARS / "tests.jar"
TESTS_SOURCES: Final = ROOT / "tests" / "helpers" / "java"
#: The version that the Java classes of the tests are compiled against.
TESTS_HUDI: Final = "1.2.0"
REQUIREMENTS: Final = ("pyspark==3.5.7", 'setuptools<81; python_version >= "3.12"')

#: Matches lines of pip's, Spark's or Maven's output that name the cause of a failure.
CAUSE: Final = re.compile(r"\berror:|\[error\]|exception in thread", re.IGNORECASE)


class SetupError(Exception):
    """The failure of a setup step. The text is one line that names the step and the cause."""


def jar_path(hudi_version: str) -> Path:
    """Return the path at which the setup stores the bundle of a Hudi version."""
    return JARS / f"{BUNDLE}-{hudi_version}.jar"


def jvm_proxy_options(proxies: Mapping[str, str]) -> tuple[str, ...]:
    """Convert the result of ``urllib.request.getproxies()`` to JVM options; the JVM ignores the environment."""
    options: list[str] = []
    for scheme in ("http", "https"):
        proxy = urllib.parse.urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            port = proxy.port or (443 if proxy.scheme == "https" else 80)
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={port}"]
    hosts = [host.strip() for host in proxies.get("no", "").split(",") if host.strip()]
    if options and hosts:
        # A suffix of host names is ".example" in the environment, but "*.example" for the JVM.
        options.append("-Dhttp.nonProxyHosts=" + "|".join("*" + h if h.startswith(".") else h for h in hosts))
    return tuple(options)


def jvm_options(variable: str) -> str:
    """Return the JVM options in an environment variable, followed by options for the environment's proxies."""
    return " ".join((os.environ.get(variable, ""), *jvm_proxy_options(urllib.request.getproxies()))).strip()


def run(step: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> None:
    """Run one command.

    Args:
        step: name of the step, for the error's text.
        environment: variables to add to those of this process.

    Raises:
        SetupError: the command failed. The text has the first line of its output that names a cause.
    """
    done = subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
        causes = [line for line in lines if CAUSE.search(line)]
        raise SetupError(f"{step}: {[*causes, *lines[-1:], 'no output'][0]} (exit code {done.returncode})")


def make_venv() -> None:
    """Create the virtual environment with pyspark 3.5. An incomplete one of an earlier run is removed first."""
    run("making .venv-interop", [sys.executable, "-m", "venv", "--clear", VENV])
    run("installing pyspark 3.5", [VENV / "bin" / "python", "-m", "pip", "install", "--quiet", *REQUIREMENTS])


def spark_home() -> Path:
    """Return the folder of the pyspark that `make_venv` installed."""
    return next(VENV.glob("lib/python*/site-packages/pyspark"))


def submit_nothing(
    step: str,
    packages: Sequence[str],
    ivy: Path,
    excluded: Sequence[str] = (),
    *,
    home: Path | None = None,
    python: str | Path = VENV / "bin" / "python",
) -> None:
    """Download packages and what they need to ``ivy/jars`` by running an empty ``spark-submit --packages`` job.

    Args:
        home: folder of the pyspark that runs; by default the one that `make_venv` installed.
        python: the interpreter of that pyspark.
    """
    home = home or spark_home()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "nothing.py"
        program.write_text("")
        run(
            step,
            [
                home / "bin" / "spark-submit",
                "--master=local[1]",
                f"--packages={','.join(packages)}",
                *([f"--exclude-packages={','.join(excluded)}"] if excluded else []),
                f"--conf=spark.jars.ivy={ivy}",
                program,
            ],
            {
                "SPARK_SUBMIT_OPTS": jvm_options("SPARK_SUBMIT_OPTS"),
                "SPARK_HOME": str(home),  # So the user's own Spark does not run.
                "PYSPARK_PYTHON": str(python),
            },
        )


def resolve_with_spark(hudi_version: str, into: Path) -> None:
    """Download the bundle of a Hudi version to ``into`` with Spark."""
    submit_nothing(f"resolving Hudi {hudi_version} with Spark", [f"{GROUP}:{BUNDLE}:{hudi_version}"], IVY)
    shutil.copyfile(IVY / "jars" / f"{GROUP}_{BUNDLE}-{hudi_version}.jar", into)


def resolve_with_maven(hudi_version: str, into: Path) -> None:
    """Download the bundle of a Hudi version to ``into`` with Maven, which uses the mirrors in its settings."""
    maven = shutil.which("mvn")
    if maven is None:
        raise SetupError("there is no mvn to try instead")
    artifact = f"{GROUP}:{BUNDLE}:{hudi_version}"
    with tempfile.TemporaryDirectory() as folder:
        run(
            f"resolving Hudi {hudi_version} with Maven",
            [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"],
            {"MAVEN_OPTS": jvm_options("MAVEN_OPTS")},
        )
        shutil.copyfile(Path(folder) / f"{BUNDLE}-{hudi_version}.jar", into)


def failure_of(way: Callable[[str, Path], None], hudi_version: str, into: Path) -> str | None:
    """Call one of the download functions. Return the text of its error, or None if it succeeded."""
    try:
        way(hudi_version, into)
    except (SetupError, OSError) as failure:
        return str(failure)
    return None


def fetch_jar(hudi_version: str) -> None:
    """Download one bundle to ``.cache/jars``, first under a temporary name, so that no incomplete jar is used.

    Raises:
        SetupError: Spark and Maven both failed; the text has both reasons.
    """
    JARS.mkdir(parents=True, exist_ok=True)
    partial = jar_path(hudi_version).with_suffix(".part")
    failures: list[str] = []
    for way in (resolve_with_spark, resolve_with_maven):
        failure = failure_of(way, hudi_version, partial)
        if failure is None:
            partial.replace(jar_path(hudi_version))
            return
        failures.append(failure)
    raise SetupError("; ".join(failures))


def fetch_s3_jars() -> None:
    """Download `S3_PACKAGES` to ``.cache/jars/s3``, first to another folder, so that no incomplete set is used."""
    ivy = IVY.with_name("ivy-s3")
    submit_nothing("resolving the S3 clients with Spark", S3_PACKAGES, ivy, S3_EXCLUDED)
    (ivy / "jars").replace(S3_JARS)


def compile_tests_jar() -> None:
    """Compile the Java classes of the tests into ``.cache/jars/tests.jar``. Without ``javac`` do nothing."""
    home = os.environ.get("JAVA_HOME")
    javac = shutil.which("javac", path=str(Path(home) / "bin") if home else None)
    sources = sorted(TESTS_SOURCES.glob("*.java"))
    is_new = TESTS_JAR.exists() and all(s.stat().st_mtime < TESTS_JAR.stat().st_mtime for s in sources)
    if javac is None or is_new:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join((str(jar_path(TESTS_HUDI)), f"{S3_JARS}/*", f"{spark_home()}/jars/*"))
        run("compiling tests/helpers/java", [javac, "-nowarn", "-cp", path, "-d", folder, *sources])
        shutil.make_archive(str(TESTS_JAR.with_suffix("")), "zip", folder)
    TESTS_JAR.with_suffix(".zip").replace(TESTS_JAR)


def wanted_stamp() -> str:
    """Return the content of the stamp file of a finished environment: its Python version and requirements."""
    return json.dumps({"python": sys.version, "requirements": REQUIREMENTS}, indent=2)


def main(*arguments: str) -> int:
    """Create the environment and download the bundles, unless they exist.

    Return 1, after one line on stderr, if a step failed.
    """
    versions = HUDI_VERSIONS + (NIGHTLY_VERSIONS if "nightly" in arguments else ())
    try:
        if not STAMP.exists() or STAMP.read_text() != wanted_stamp():
            make_venv()
            STAMP.write_text(wanted_stamp())
        for hudi_version in versions:
            if not jar_path(hudi_version).exists():
                fetch_jar(hudi_version)
        if not S3_JARS.exists():
            fetch_s3_jars()
        compile_tests_jar()
    except (SetupError, OSError) as failure:
        print(f"interop setup failed: {failure}", file=sys.stderr)
        return 1
    print(f"interop is ready: {VENV.name} and Hudi {' and '.join(versions)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
