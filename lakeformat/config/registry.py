"""The list of all options, with key, aliases, parser, default and help text. ``docs/options.md`` is made from it."""

from __future__ import annotations

from typing import Final

from lakeformat.config.beside_options import BESIDE_OPTIONS
from lakeformat.config.catalog_options import CATALOG_OPTIONS
from lakeformat.config.clustering_options import CLUSTERING_OPTIONS
from lakeformat.config.compaction_options import COMPACTION_OPTIONS
from lakeformat.config.lock_options import LOCK_OPTIONS
from lakeformat.config.metadata_options import METADATA_OPTIONS
from lakeformat.config.option import Option
from lakeformat.config.read_options import READ_OPTIONS
from lakeformat.config.retention_options import LIFE_OPTIONS, TTL_OPTIONS
from lakeformat.config.stream_options import STREAM_OPTIONS
from lakeformat.config.table_options import TABLE_OPTIONS
from lakeformat.config.write_options import FILE_INDEX_OPTIONS, WRITE_OPTIONS

__all__ = ["OPTIONS", "options_table"]

OPTIONS: Final[tuple[Option, ...]] = (
    *TABLE_OPTIONS,
    *WRITE_OPTIONS,
    *LOCK_OPTIONS,
    *FILE_INDEX_OPTIONS,
    *METADATA_OPTIONS,
    *CLUSTERING_OPTIONS,
    *COMPACTION_OPTIONS,
    *LIFE_OPTIONS,
    *TTL_OPTIONS,
    *CATALOG_OPTIONS,
    *BESIDE_OPTIONS,
    *READ_OPTIONS,
    *STREAM_OPTIONS,
)


def options_table() -> str:
    """Return a Markdown table of all options, which `docs/options.md` contains."""
    rows = ["| option | short names | default | what it does |", "|---|---|---|---|"]
    for option in OPTIONS:
        default = option.default
        text = ",".join(default) if isinstance(default, tuple) else "" if default is None else str(default)
        text = text.lower() if isinstance(default, bool) else text
        aliases = ", ".join(f"`{alias}`" for alias in option.aliases)
        rows.append(f"| `{option.key}` | {aliases} | {text} | {option.doc} |")
    return "\n".join(rows) + "\n"
