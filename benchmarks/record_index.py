"""``python -m benchmarks.record_index``: finding random keys by the record index, by filters and by key columns.

A small table that Hudi wrote gets many rows in small files, with random keys, and its record index base files that name
them. The step ``tag`` of a planned upsert is timed, the fastest of three. Then the record index alone is asked for ten
times as many keys. ``--rows``, ``--files`` and ``--keys`` change the size. ``--hudi`` measures the whole upsert too, by
lakeformat and by Hudi 1.2.0 in a running Spark session (``make interop`` installs it), each into a copy of the table
and after a first small upsert. Returns 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakeformat
from benchmarks.peers_setup import ROOT
from lakeformat.codec.hfile_writer import encode_hfile
from lakeformat.metadata_table.encode import encode_parts
from lakeformat.metadata_table.metadata_table import MetadataTable, open_metadata_table
from lakeformat.metadata_table.names import MetadataPartition, base_name, file_groups_of, file_id
from lakeformat.storage import open_storage
from lakeformat.timeline.store import TimelineStore
from tests.helpers.fixture_tables import unpack
from tests.helpers.hudi_spark import Hudi

WORK: Final = ROOT / ".work" / "record_index"
NAME: Final = "v9_cow_overwrite_flat"
#: The limit of tagging by the record index, as a multiple of the better of the others.
LIMIT: Final = 0.25
#: How many times as long Hudi's whole upsert must take at least.
HUDI_LIMIT: Final = 10
#: Hudi's default number of file groups of a record index.
GROUPS: Final = 10
_PARTITION: Final = MetadataPartition.RECORD_INDEX
_RUNS: Final = 3
_STEP: Final = 1_000_000
#: Bytes of a row in a base file, about: few columns, all but the key equal in all rows.
_ROW_BYTES: Final = 13


def make(rows: int, files: int) -> Path:
    """Make the table and return its folder."""
    shutil.rmtree(WORK, ignore_errors=True)
    folder = unpack(f"hudi_metadata/{NAME}", WORK)
    table = lakeformat.open(folder, **{"hoodie.parquet.max.file.size": rows // files * _ROW_BYTES})
    first = table.to_arrow().slice(0, 1)
    order = np.random.default_rng(1).permutation(rows)

    def batches() -> Any:
        for start in range(0, rows, _STEP):
            numbers = pa.array(order[start : start + _STEP])
            batch = first.take(pa.array(np.zeros(len(numbers), np.int64)))
            at = batch.schema.get_field_index("id")
            yield from batch.set_column(at, "id", keys_of(numbers)).combine_chunks().to_batches()

    table.bulk_insert(pa.RecordBatchReader.from_batches(first.schema, batches()))
    write_index(folder, table)
    return folder


def keys_of(numbers: pa.Array) -> pa.Array:
    """Return a key of 20 characters for each number."""
    return pc.utf8_lpad(numbers.cast(pa.string()), 20, "0")


def open_index(folder: Path) -> MetadataTable:
    """Open the metadata table."""
    store = TimelineStore(open_storage(str(folder)))
    table = open_metadata_table(store.storage, store.config(), store.load())
    if table is None:
        raise SystemExit(f"{NAME} has no metadata table")
    return table


def write_index(folder: Path, table: lakeformat.Table) -> None:
    """Replace the files of the record index by base files, as a compaction would write them."""
    metadata = open_index(folder)
    schema, instant = metadata.read_schema(), max(metadata.instants.completions)
    stored = table.to_arrow(["_hoodie_record_key", "_hoodie_file_name"])
    ids = pc.extract_regex(stored["_hoodie_file_name"], "^(?P<id>[^_]+)_").combine_chunks().field("id")
    keys = stored["_hoodie_record_key"].combine_chunks()
    places = pa.table({"key": keys, "partition_path": pa.repeat("", len(keys)), "file_id": ids})
    places = places.append_column("instant_ms", pa.repeat(1_700_000_000_000, len(keys)))
    shutil.rmtree(folder / _PARTITION.folder)
    (folder / _PARTITION.folder).mkdir()
    groups = file_groups_of(keys, GROUPS)
    for number in range(GROUPS):
        cells = encode_parts(_PARTITION, places.filter(pa.array(groups == number)), schema)
        data = encode_hfile(
            cells["key"].combine_chunks(),
            cells["value"].combine_chunks(),
            info={"schema": schema.encode()},
            block_bytes=_PARTITION.block_bytes,
        )
        (folder / _PARTITION.folder / base_name(file_id(_PARTITION, number), instant)).write_bytes(data)


def tag_seconds(folder: Path, kind: str, incoming: pa.Table) -> tuple[float, dict[str, Any]]:
    """Return the seconds of the fastest tagging, and its counts."""
    found: list[dict[str, Any]] = []
    for _ in range(_RUNS):
        plan = lakeformat.open(folder, **{"hoodie.index.type": kind}).plan_upsert(incoming)
        if plan.updates < incoming.num_rows or plan.inserts:
            raise SystemExit(f"{kind} has not found every key")
        found.append(dict(plan.tagging))
    best = min(found, key=lambda step: step["seconds"])
    return best["seconds"], best


def upsert_seconds(folder: Path, incoming: pa.Table) -> float:
    """Return the seconds of an upsert by lakeformat."""
    first, rest = incoming.slice(0, 10), incoming.slice(10)
    table = lakeformat.open(folder, **{"hoodie.index.type": "RECORD_INDEX"})
    table.upsert(first)
    began = time.perf_counter()
    table.upsert(rest)
    return time.perf_counter() - began


def hudi_upsert_seconds(folder: Path, incoming: pa.Table) -> float:
    """Return the seconds of an upsert by Hudi."""
    options = {
        "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
        "hoodie.write.table.version": "9",
        "hoodie.metadata.enable": "true",
        "hoodie.metadata.global.record.level.index.enable": "true",
    }
    with tempfile.TemporaryDirectory() as transit, Hudi("1.2.0", Path(transit)) as hudi:
        hudi.write(folder, incoming.slice(0, 10), "upsert", **options)
        began = time.perf_counter()
        hudi.write(folder, incoming.slice(10), "upsert", **options)
        return time.perf_counter() - began


def compare_upserts(folder: Path, incoming: pa.Table) -> float:
    """Print the seconds of both upserts, each into a copy of the table. Return Hudi's as a multiple of ours."""
    found = {}
    for name, upsert in (("lakeformat", upsert_seconds), ("Hudi 1.2.0", hudi_upsert_seconds)):
        copy = folder.with_name(f"{folder.name}-copy")
        shutil.copytree(folder, copy)
        found[name] = upsert(copy, incoming)
        shutil.rmtree(copy)
        print(f"whole upsert, {name}: {found[name]:.1f} s", flush=True)
    return found["Hudi 1.2.0"] / found["lakeformat"]


def main() -> int:
    """Measure and print a Markdown table. Return 1 if the target is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record_index", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--keep", action="store_true", help="measure the table of the last run")
    parser.add_argument("--hudi", action="store_true", help="compare the whole upsert with Hudi's")
    arguments = parser.parse_args()
    folder = WORK / NAME if arguments.keep else make(arguments.rows, arguments.files)
    rng = np.random.default_rng(2)
    many = keys_of(pa.array(rng.choice(arguments.rows, 10 * arguments.keys, replace=False)))
    first = lakeformat.open(folder).to_arrow(where="id = '" + many[0].as_py() + "'")
    incoming = first.take(pa.array(np.zeros(arguments.keys, np.int64)))
    incoming = incoming.set_column(incoming.schema.get_field_index("id"), "id", many.slice(0, arguments.keys))
    seconds = {}
    files = lakeformat.open(folder).snapshot().live.count
    print(f"{arguments.keys:,} random keys of {arguments.rows:,} in {files:,} files\n")
    print("| index | seconds | MB read |\n| --- | ---: | ---: |")
    for kind in ("RECORD_INDEX", "BLOOM", "SIMPLE"):
        seconds[kind], counts = tag_seconds(folder, kind, incoming)
        read = sum(counts[name] for name in ("index_bytes", "bytes_read", "footer_bytes")) / 1e6
        print(f"| {kind} | {seconds[kind]:.2f} | {read:.1f} |", flush=True)
    began = time.perf_counter()
    places = open_index(folder).look_up(many)
    print(f"\n{len(many):,} keys looked up in the record index: {time.perf_counter() - began:.2f} s")
    ratio = seconds["RECORD_INDEX"] / min(seconds["BLOOM"], seconds["SIMPLE"])
    print(f"{ratio:.2f} times the better one; the limit is {LIMIT}")
    is_missed = ratio > LIMIT or len(places.rows) != len(many)
    if arguments.hudi:
        times = compare_upserts(folder, incoming)
        print(f"Hudi takes {times:.1f} times as long; the limit is {HUDI_LIMIT}")
        is_missed |= times < HUDI_LIMIT
    return int(is_missed)


if __name__ == "__main__":
    raise SystemExit(main())
