"""Generate the lists of Apache Hudi's options: ``python tools/hudi_options.py [list] [pages]``.

``list`` writes ``lakeformat/config/hudi_options.tsv``: every ``ConfigProperty`` of Hudi's newest release, and those
that only an older release has. Missing bundles of Hudi are downloaded as by ``tools/interop_setup.py``.
``pages`` generates ``docs/reference/hudi-options.md`` and the table in ``docs/options.md`` from that list and
lakeformat's own options. Without an argument, both commands run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import interop_setup

ROOT: Final = interop_setup.ROOT
LIST: Final = ROOT / "lakeformat" / "config" / "hudi_options.tsv"
HUDI_PAGE: Final = ROOT / "docs" / "reference" / "hudi-options.md"
#: Releases of Hudi whose options are listed, newest first. An option of several releases is listed as in the newest.
RELEASES: Final = ("1.2.0", "0.15.0")
#: Hudi's class of option definitions.
PROPERTY: Final = "org.apache.hudi.common.config.ConfigProperty"
#: First line of ``hudi_options.tsv``: the names of its columns.
HEADER: Final = "option\tdefault\tother names\tlast release"


def properties_of(jar: Path, classpath: str) -> dict[str, tuple[str, list[str]]]:
    """Load the classes of a Hudi bundle in a JVM, and read every ``ConfigProperty`` that a field of a class has.

    Args:
        jar: the bundle.
        classpath: the bundle, and the jars that its classes and py4j need, separated by colons.

    Returns:
        a mapping of option name to its default, "" for none, and its alternative names.
    """
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]

    port = launch_gateway(
        jarpath=next(part for part in classpath.split(":") if "py4j" in part), classpath=classpath, die_on_exit=True
    )
    jvm = JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm
    found: dict[str, tuple[str, list[str]]] = {}
    for field in _fields(jvm, jar):
        value = field.get(_holder(jvm, field))
        if value is not None:
            default = value.defaultValue() if value.hasDefaultValue() else ""
            found.setdefault(value.key(), (_text(default), list(value.getAlternatives())))
    return found


def _text(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return str(default) if isinstance(default, (str, int, float)) else str(default.toString())


def _fields(jvm: Any, jar: Path) -> Iterator[Any]:
    descriptor = f"L{PROPERTY.replace('.', '/')};".encode()
    loader = jvm.java.lang.ClassLoader.getSystemClassLoader()
    with zipfile.ZipFile(jar) as bundle:
        classes = [n for n in bundle.namelist() if n.startswith("org/apache/hudi/") and n.endswith(".class")]
        holders = [name for name in classes if descriptor in bundle.read(name)]
    for name in holders:
        try:
            fields = jvm.java.lang.Class.forName(name[:-6].replace("/", "."), False, loader).getDeclaredFields()
        except Exception as error:  # E.g. the class needs a library that is not on the class path.
            print(f"skipped {name}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        for field in fields:
            if field.getType().getName() == PROPERTY and (_static(jvm, field) or name.endswith("$.class")):
                field.setAccessible(True)
                yield field


def _static(jvm: Any, field: Any) -> bool:
    return bool(jvm.java.lang.reflect.Modifier.isStatic(field.getModifiers()))


def _holder(jvm: Any, field: Any) -> Any:
    """Return the Scala object that has this field; None for a static field, which is read without an object."""
    return None if _static(jvm, field) else field.getDeclaringClass().getField("MODULE$").get(None)


def options_of_release(release: str) -> dict[str, tuple[str, list[str]]]:
    """Return the options of a Hudi release, as `properties_of` does.

    A subprocess reads them with the Python of the interop tests, whose Spark version fits the bundle.
    """
    jar = interop_setup.jar_path(release)
    if not interop_setup.STAMP.exists():
        raise interop_setup.SetupError(f"there is no {interop_setup.VENV.name}; run tools/interop_setup.py first")
    if not jar.exists():
        interop_setup.fetch_jar(release)
    command = [interop_setup.VENV / "bin" / "python", __file__, "bundle", jar]
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
    return {key: (default, others) for key, (default, others) in json.loads(done.stdout).items()}


def write_list() -> None:
    """Write ``lakeformat/config/hudi_options.tsv``, replacing the old list."""
    rows: dict[str, str] = {}
    named: set[str] = set()
    for release in RELEASES:
        options = options_of_release(release)
        for key, (default, others) in options.items():
            if key not in named:
                rows[key] = f"{key}\t{default}\t{','.join(others)}\t{release}"
        named.update(options, *(others for _, others in options.values()))
    LIST.write_text("\n".join([HEADER, *(rows[key] for key in sorted(rows))]) + "\n", encoding="utf-8")


def write_pages() -> None:
    """Write ``docs/reference/hudi-options.md``, and replace the generated table in ``docs/options.md``."""
    sys.path.insert(0, str(ROOT))
    from lakeformat.config.hudi_support import OPTIONS_BEGIN, OPTIONS_END, hudi_page
    from lakeformat.config.registry import options_table

    HUDI_PAGE.write_text(hudi_page(), encoding="utf-8")
    page = ROOT / "docs" / "options.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(OPTIONS_BEGIN)
    after = rest.partition(OPTIONS_END)[2]
    page.write_text(f"{before}{OPTIONS_BEGIN}\n{options_table()}{OPTIONS_END}{after}", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Run the commands in ``arguments``. If the list cannot be made, print one line on stderr and return 1.

    The command ``bundle JAR`` is for the subprocess of `options_of_release`: it prints the options of a jar as JSON.
    """
    if arguments[:1] == ["bundle"]:
        import pyspark

        jars = (Path(pyspark.__file__).parent / "jars").glob("*.jar")
        jar = Path(arguments[1])
        json.dump(properties_of(jar, ":".join(map(str, (jar, *jars)))), sys.stdout)
        return 0
    try:
        if not arguments or "list" in arguments:
            write_list()
    except (interop_setup.SetupError, OSError, subprocess.CalledProcessError) as failure:
        print(f"listing Hudi's options failed: {failure}", file=sys.stderr)
        return 1
    if not arguments or "pages" in arguments:
        write_pages()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
