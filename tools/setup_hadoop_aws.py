"""Download Hadoop's file system of S3 for the tests: ``python tools/setup_hadoop_aws.py``.

The jars go to ``.cache/jars/s3a-<version>``, where the version is that of Hadoop in this environment's PySpark. If they
are there, nothing is done. Spark downloads them, as for ``--packages``. If that fails, the reason is printed to
standard error, and the tests that need the jars are skipped. Therefore the exit code is 0.
"""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import interop_setup

#: The release of AWS's SDK that each release of Hadoop is built for.
SDK: Final = {"3.4.1": "2.24.6", "3.4.2": "2.29.52", "3.4.3": "2.35.4", "3.5.0": "2.35.4"}
#: The parts of the SDK that S3A needs. Its bundle, which has all of AWS, is 600 MB.
PARTS: Final = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
EXCLUDED: Final = ("software.amazon.awssdk:bundle", "org.slf4j:slf4j-api", "commons-logging:commons-logging")


def spark_home() -> Path:
    """Return the folder of this environment's PySpark."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise interop_setup.SetupError("there is no pyspark in this environment")
    return Path(spec.origin).parent


def hadoop_version() -> str:
    """Return the version of Hadoop in this environment's PySpark."""
    jar = next((spark_home() / "jars").glob("hadoop-client-api-*.jar"))
    found = re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name)
    return found[1] if found else ""


def jars_folder() -> Path:
    """Return the folder of the jars. It exists after `setup`."""
    return interop_setup.JARS / f"s3a-{hadoop_version()}"


def setup() -> None:
    """Download the jars, first to another folder, so that no incomplete set is used.

    Raises:
        interop_setup.SetupError: the download failed.
    """
    folder, version = jars_folder(), hadoop_version()
    if folder.exists():
        return
    if version not in SDK:
        raise interop_setup.SetupError(f"setup_hadoop_aws does not know the SDK of Hadoop {version}; add it to SDK")
    packages = [f"org.apache.hadoop:hadoop-aws:{version}"]
    packages += [f"software.amazon.awssdk:{part}:{SDK[version]}" for part in PARTS]
    ivy = interop_setup.IVY.with_name(f"ivy-s3a-{version}")
    step = f"downloading hadoop-aws {version} with Spark"
    interop_setup.submit_nothing(step, packages, ivy, EXCLUDED, home=spark_home(), python=sys.executable)
    interop_setup.JARS.mkdir(parents=True, exist_ok=True)
    (ivy / "jars").replace(folder)


def main() -> int:
    """Download the jars, and print where they are, or why there are none."""
    try:
        setup()
    except (interop_setup.SetupError, OSError) as failure:
        print(f"no S3 file system for Spark: {failure}", file=sys.stderr)
        return 0
    print(f"S3 file system of Hadoop {hadoop_version()}: {jars_folder()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
