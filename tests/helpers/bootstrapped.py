"""Tables that Apache Hudi bootstrapped, beside their source files."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.fixture_tables import unpack

__all__ = ["make_bootstrapped", "set_bootstrap_base"]


def make_bootstrapped(name: str, folder: Path) -> tuple[Path, Path]:
    """Unpack a table and its source. Return both folders.

    The bootstrap index has the source at another place, so the table's properties name this one.
    """
    path = unpack(f"hudi_rest/{name}", folder)
    source = unpack("hudi_rest/bootstrap_source", folder).with_name("bootsrc")
    set_bootstrap_base(path, str(source))
    return path, source


def set_bootstrap_base(path: Path, base: str) -> None:
    """Change the folder of the source in a table's properties."""
    properties = path / ".hoodie" / "hoodie.properties"
    lines = [line for line in properties.read_text().splitlines() if not line.startswith("hoodie.bootstrap.base.path")]
    properties.write_text("\n".join([*lines, f"hoodie.bootstrap.base.path={base}"]))
