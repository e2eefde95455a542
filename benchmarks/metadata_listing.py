"""``python -m benchmarks.metadata_listing``: planning a read with Hudi's metadata table, and by listing the folders.

A small table that Hudi wrote gets empty files in many partitions, as of a commit that is archived, and its metadata
table a base file that names them. The fastest of three plans counts. ``--files`` and ``--partitions`` change the size.
``--s3`` plans on S3: versitygw on this machine (``tools/setup_servers.py``), with 20 ms of latency.
"""

from __future__ import annotations

import argparse
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import lakeformat
from benchmarks.peers_setup import ROOT
from lakeformat.codec.hfile import HFile
from lakeformat.codec.hfile_writer import encode_hfile
from lakeformat.metadata_table.encode import encode_parts
from lakeformat.metadata_table.metadata_table import open_metadata_table
from lakeformat.metadata_table.names import ALL_PARTITIONS, MetadataPartition
from lakeformat.model.files import PARTITION_MARKER
from lakeformat.storage import open_storage
from lakeformat.timeline.store import TimelineStore
from tests.helpers.fault_proxy import fault_proxy
from tests.helpers.fixture_tables import unpack
from tests.helpers.servers import start_server

WORK: Final = ROOT / ".work" / "metadata_listing"
NAME: Final = "v6_cow_overwrite_clean"
ARCHIVED: Final = "20200101000000000"
#: The limits of planning with the metadata table, as a multiple of planning by listing the folders.
LIMIT, S3_LIMIT = 0.5, 0.05
LATENCY_SECONDS: Final = 0.02
_RUNS: Final = 3


def make(files: int, partitions: int) -> Path:
    """Make the table and return its folder."""
    shutil.rmtree(WORK, ignore_errors=True)
    folder = unpack(f"hudi_metadata/{NAME}", WORK)
    store = TimelineStore(open_storage(str(folder)))
    table = open_metadata_table(store.storage, store.config(), store.load())
    if table is None:
        raise SystemExit(f"{NAME} has no metadata table")
    kept = table.files()
    rows = list(zip(*(kept[name].to_pylist() for name in kept.column_names), strict=True))
    for number in range(partitions):
        path = folder / f"region={number:06}"
        path.mkdir()
        (path / PARTITION_MARKER).write_text(f"commitTime={ARCHIVED}\npartitionDepth=1\n")
        for _ in range(files // partitions):
            name = f"{uuid.uuid4()}-0_0-0-0_{ARCHIVED}.parquet"
            (path / name).touch()
            rows.append((path.name, name, 0))
    rows += [(ALL_PARTITIONS, path, 0) for path in {*table.list_partitions(), *(path for path, _, _ in rows)}]
    base = max(folder.glob(".hoodie/metadata/files/*.hfile"), key=lambda path: path.name.rpartition("_")[2])
    schema = HFile(base.read_bytes(), base.name).info["schema"]
    columns = dict(zip(("key", "file_name", "size_bytes"), map(list, zip(*rows, strict=True)), strict=True))
    cells = encode_parts(
        MetadataPartition.FILES,
        pa.table({**columns, "is_deleted": pa.array([False] * len(rows))}).sort_by("key"),
        schema.decode(),
    )
    keys, values = (cells[name].combine_chunks() for name in ("key", "value"))
    base.write_bytes(encode_hfile(keys, values, info={"schema": schema}, block_bytes=64 << 10))
    return folder


def fastest(plan: Callable[[], Any]) -> tuple[float, float]:
    """Return the seconds and the processor seconds of the fastest of `_RUNS` plans."""
    found = []
    for _ in range(_RUNS):
        started, worked = time.perf_counter(), time.process_time()
        plan()
        found.append((time.perf_counter() - started, time.process_time() - worked))
    return min(found)


def measure(location: str, limit: float, **options: Any) -> None:
    """Plan both ways, and print a line for each and the ratio."""
    found = {}
    for source, used in (("folders", "false"), ("metadata table", "true")):
        table = lakeformat.open(location, **options, **{"hoodie.metadata.enable": used})
        plan = table.read().plan()
        if not plan.source.startswith(source):
            raise SystemExit(f"the files come from the {plan.source}, not from the {source}")
        found[source] = fastest(lambda table=table: table.read().plan())
        seconds, worked = found[source]
        print(f"{source:16}{plan.files:>10,} files{seconds:>8.2f} s{worked:>8.2f} s of processor time")
    ratios = [new / old for new, old in zip(found["metadata table"], found["folders"], strict=True)]
    print(f"ratio: {ratios[0]:.3f}, of processor time {ratios[1]:.3f}; the limit is {limit}")


def main() -> None:
    """Make the table, measure, and print a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--s3", action="store_true", help="plan on S3")
    given = parser.parse_args()
    folder = make(given.files, given.partitions)
    if not given.s3:
        measure(str(folder), LIMIT)
        return
    with start_server("versitygw") as server, fault_proxy(server.endpoint, latency_seconds=LATENCY_SECONDS) as proxy:
        if server.folder is None:
            raise SystemExit("the server's files are not on this machine")
        shutil.move(folder, server.folder / NAME)
        measure(f"s3://{server.folder.name}/{NAME}", S3_LIMIT, storage_options=server.through(proxy.url).options)


if __name__ == "__main__":
    main()
