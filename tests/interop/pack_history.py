"""Pack a table that Hudi made by a random history as a fixture: ``python -m tests.interop.pack_history KIND ...``.

Run it from the project's root after ``make interop`` has set Hudi up. Each kind of ``test_histories.py`` becomes
``tests/fixtures/own_histories/KIND.zip``, the table after its last step, and beside it ``KIND.json``, what Hudi read.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tests.helpers.history_player import READ_OPTIMIZED, Played, Player
from tests.helpers.hudi_spark import Hudi
from tests.interop.test_histories import KINDS

OWN: Final = Path(__file__).resolve().parents[1] / "fixtures" / "own_histories"
#: Columns that the JSON leaves out, as in the other fixtures, because they differ between runs.
LEFT_OUT: Final = frozenset({"_hoodie_commit_seqno", "_hoodie_file_name"})


def encode_value(value: Any) -> Any:
    """Encode a value that JSON cannot represent."""
    match value:
        case decimal.Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dt.datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%S.%f")
        case dt.date():
            return value.isoformat()
    raise TypeError(f"no JSON for {value!r}")


def as_rows(table: pa.Table | str) -> list[dict[str, Any]] | str:
    if isinstance(table, str):
        return f"ERROR {table.splitlines()[0]}"
    kept = table.select([name for name in table.schema.names if name not in LEFT_OUT])
    rows = kept.to_pylist(maps_as_pydicts="strict")
    return sorted(rows, key=lambda row: (row["_hoodie_partition_path"], row["_hoodie_record_key"]))


def pack(played: Played, into: Path) -> None:
    """Write the table and the answers as two files with the name of the kind."""
    kind, looks = played.kind, played.looks
    now = [look for look in looks if look.as_of is None]
    document = {
        "name": kind.name,
        "made_by": f"Hudi {kind.hudi}, table version {kind.version}",
        "history": kind.happens,
        "snapshot": as_rows(next(look.rows for look in reversed(now) if not look.options)),
        "read_optimized": as_rows(next(look.rows for look in reversed(now) if look.options == READ_OPTIMIZED)),
        "as_of": {look.as_of: as_rows(look.rows) for look in looks if look.as_of is not None},
    }
    into.mkdir(parents=True, exist_ok=True)
    (into / f"{kind.name}.json").write_text(json.dumps(document, default=encode_value, ensure_ascii=False) + "\n")
    with zipfile.ZipFile(into / f"{kind.name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(played.table.rglob("*")):
            if file.is_file() and file.suffix != ".crc":
                archive.write(file, file.relative_to(played.table.parent))


def main(*names: str) -> None:
    """Make and pack these kinds, with a session for each."""
    for kind in KINDS:
        if kind.name in names:
            with tempfile.TemporaryDirectory() as folder, Hudi(kind.hudi, Path(folder)) as hudi:
                pack(Player(kind, hudi, Path(folder)).play(), OWN)


if __name__ == "__main__":
    main(*sys.argv[1:])
