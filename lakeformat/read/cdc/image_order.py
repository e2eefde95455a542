"""The order of the changes of a commit: deletes, then updates, then inserts; a key that moves is one update.

Memory: `_HELD_BYTES` (64 MB) of changes; more are written to a temporary folder, split by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc

from lakeformat.codec.bloom import hash_chain
from lakeformat.merge.order import key_codes, pair_rows
from lakeformat.storage.port import Storage
from lakeformat.storage.scratch import temporary_storage

__all__ = ["KEY", "PARTITION", "order_images"]

Ints = npt.NDArray[np.int64]

#: Name of the added column with the record key of a changed row.
KEY: Final = "key"
#: Name of the added column with the partition path of a changed row.
PARTITION: Final = "partition"
_HELD_BYTES: Final = 64 << 20
_PARTS: Final = 64


def order_images(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the changes of a commit: deletes, then updates, then inserts.

    If the changes take more than `_HELD_BYTES`, they are split by key into parts. Then the order holds only within each
    part. This is enough for a replica that applies changes by key, because all changes of a key are in the same part.

    Args:
        batches: changes with the columns `KEY` and `PARTITION`. The results have these columns too.
        schema: schema of the batches.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    with ExitStack() as stack:
        aside: _SpilledImages | None = None
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size >= _HELD_BYTES:
                aside = aside or _SpilledImages(schema, stack)
                aside.put(pa.Table.from_batches(held, schema))
                held, size = [], 0
        rest = pa.Table.from_batches(held, schema)
        if aside is None:
            yield from _order_changes(rest)
            return
        aside.put(rest)
        for part in aside.parts():
            yield from _order_changes(part)


class _SpilledImages:
    """Changes that are stored in files of a temporary folder; all changes of a key are in one file."""

    def __init__(self, schema: pa.Schema, stack: ExitStack) -> None:
        self._schema = schema
        self._storage: Storage = stack.enter_context(temporary_storage())
        self._files = ExitStack()
        stack.callback(self._files.close)
        self._writers: list[Any] = []
        for part in range(_PARTS):
            sink = self._files.enter_context(self._storage.open_output(f"{part}.arrow"))
            self._writers.append(self._files.enter_context(pa.ipc.new_stream(sink, schema)))

    def put(self, images: pa.Table) -> None:
        """Append each change to the temporary file for its key. Changes of one key always go to the same file."""
        of = _choose_parts(images.column(KEY))
        order = np.argsort(of, kind="stable")
        ends = np.cumsum(np.bincount(of, minlength=_PARTS))
        for part, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if start < end:
                self._writers[part].write_table(images.take(pa.array(order[start:end])))

    def parts(self) -> Iterator[pa.Table]:
        """Yield the contents of each file as a table."""
        self._files.close()
        for part in range(_PARTS):
            with self._storage.open_input(f"{part}.arrow") as source, pa.ipc.open_stream(source) as reader:
                yield reader.read_all()


def _choose_parts(keys: pa.ChunkedArray) -> Ints:
    """Return for each key the number of its file, from a hash of the key."""
    hashes: Ints = hash_chain(pc.fill_null(keys, ""), 1)[0].astype(np.int64)
    return hashes % _PARTS


def _order_changes(images: pa.Table) -> Iterator[pa.RecordBatch]:
    ops = images.column("op").combine_chunks()
    deletes, updates, inserts = (np.flatnonzero(np.asarray(pc.equal(ops, op))) for op in "dui")
    moved_from, moved_to = _find_pairs(images, deletes, inserts)
    yield from _take_rows(images, np.setdiff1d(deletes, moved_from))
    yield from _take_rows(images, updates)
    if len(moved_to):
        after = images.take(pa.array(moved_to))
        before = images.column("before").take(pa.array(moved_from))
        names = images.schema.names
        paired = after.set_column(names.index("op"), "op", pa.array(["u"] * len(moved_to), pa.string()))
        paired = paired.set_column(names.index("before"), images.schema.field("before"), before)
        yield from paired.cast(images.schema).combine_chunks().to_batches()
    yield from _take_rows(images, np.setdiff1d(inserts, moved_to))


def _take_rows(images: pa.Table, rows: Ints) -> Iterator[pa.RecordBatch]:
    return iter(images.take(pa.array(rows)).combine_chunks().to_batches()) if len(rows) else iter(())


def _find_pairs(images: pa.Table, deletes: Ints, inserts: Ints) -> tuple[Ints, Ints]:
    """Pair deletes and inserts of the same key, first within a partition.

    Return two arrays of equal length: the row numbers of the paired deletes, and those of their inserts.
    """
    if not len(deletes) or not len(inserts):
        return deletes[:0], inserts[:0]
    keys = _number_texts(images.column(KEY))
    both = keys * (images.num_rows + 1) + _number_texts(images.column(PARTITION))
    has_key = np.asarray(images.column(KEY).is_valid())
    deletes, inserts = deletes[has_key[deletes]], inserts[has_key[inserts]]
    near = pair_rows(both[deletes], both[inserts])
    left, right = (
        np.setdiff1d(np.arange(len(of)), positions) for of, positions in zip((deletes, inserts), near, strict=True)
    )
    far = pair_rows(keys[deletes[left]], keys[inserts[right]])
    before = np.concatenate([deletes[near[0]], deletes[left[far[0]]]])
    return before, np.concatenate([inserts[near[1]], inserts[right[far[1]]]])


def _number_texts(texts: pa.ChunkedArray) -> Ints:
    """Return an integer code for each string, from 0 on; equal strings get equal codes."""
    codes = key_codes(pc.fill_null(texts, ""))
    return np.arange(len(texts)) if codes is None else codes.astype(np.int64)
