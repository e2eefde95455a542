"""The address of the Hive metastore that this machine is set up for: ``hive-site.xml`` and Spark's own defaults.

Hudi's sync finds it in the same files, because Hive's configuration reads them from the class path.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from lakeformat.config.catalog_options import METASTORE_URIS, parse_uris
from lakeformat.errors import CatalogError

__all__ = ["NO_ADDRESS", "MetastoreAddress", "find_address"]

_NAME: Final = "hive.metastore.uris"
#: Names of the environment's variables that name a folder of settings, and of those that name a program's folder.
_FOLDERS: Final = ("HIVE_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
_HOMES: Final = ("HIVE_HOME", "SPARK_HOME")
#: Where distributions have the settings.
_USUAL: Final = ("/etc/hive/conf", "/etc/spark/conf")
#: Text of the error that nothing says where the metastore is.
NO_ADDRESS: Final = (
    f"nothing says where the Hive metastore is; set {METASTORE_URIS} (such as thrift://host:9083), "
    "spark.hadoop.hive.metastore.uris, or HIVE_CONF_DIR to the folder of hive-site.xml"
)


@dataclass(frozen=True, slots=True)
class MetastoreAddress:
    """The address of a Hive metastore, and the file that says it.

    Attributes:
        text: addresses of the form ``thrift://host:9083``, separated by commas.
        source: path of the file.
    """

    text: str
    source: str

    def parse(self) -> tuple[tuple[str, int], ...]:
        """Return host and port of each address.

        Raises:
            CatalogError: an address is not of the form ``thrift://host:port``.
        """
        try:
            return tuple(parse_uris(self.text))
        except ValueError:
            raise CatalogError(
                f"{_NAME}={self.text} in {self.source} is not of the form thrift://host:9083; correct it"
            ) from None


def find_address(environment: Mapping[str, str] | None = None) -> MetastoreAddress | None:
    """Return the first address that a file of settings says; None if there is none.

    Args:
        environment: variables that name the folders of settings; by default those of this process.
    """
    for folder in _folders(os.environ if environment is None else environment):
        for name, read in (("hive-site.xml", _read_xml), ("spark-defaults.conf", _read_defaults)):
            path = folder / name
            if path.is_file() and (text := read(path)):
                return MetastoreAddress(text, str(path))
    return None


def _folders(environment: Mapping[str, str]) -> Iterator[Path]:
    named = [environment.get(name, "") for name in _FOLDERS]
    homes = [os.path.join(home, "conf") for name in _HOMES if (home := environment.get(name))]
    classes = [part for part in environment.get("CLASSPATH", "").split(os.pathsep) if os.path.isdir(part)]
    yield from map(Path, dict.fromkeys(filter(None, (*named, *homes, *classes, *_USUAL))))


def _read_xml(path: Path) -> str:
    """Return the address in a file of Hadoop's form; "" if it has none or cannot be read. The last value counts."""
    try:
        root = ElementTree.parse(path).getroot()  # noqa: S314  The settings of this machine.
    except (OSError, ElementTree.ParseError):
        return ""
    values = [element.findtext("value") or "" for element in root.iter("property") if _named(element.findtext("name"))]
    return values[-1].strip() if values else ""


def _named(name: str | None) -> bool:
    return (name or "").strip() == _NAME


def _read_defaults(path: Path) -> str:
    """Return the address in Spark's file of defaults; "" if it has none or cannot be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    addresses = re.findall(rf"^\s*spark\.(?:hadoop\.)?{re.escape(_NAME)}[\s=:]+(\S+)", text, re.MULTILINE)
    return str(addresses[-1]) if addresses else ""
