"""The changes of one commit in an order in which a replica can apply them.

File groups are read one after the other, so the insert of a key may come before the delete of its old row in another
group. Here a commit's deletes come first. A key that is deleted in one group and inserted into another becomes one
update, also where its partition changes: pairs in one partition are made before others. Of a key that is there several
times each row counts, in the order of the rows.

Memory: the rows that the commit changed in these groups, before and after, up to `_HELD_BYTES`. More of them go into a
temporary folder, split by key, and one part at a time is in memory; a key's deletes still come first.
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
from lakeformat.storage.mapped import temporary_storage
from lakeformat.storage.port import Storage

__all__ = ["KEY", "PARTITION", "in_order"]

Ints = npt.NDArray[np.int64]

#: Columns beside those of an image: record key and partition path of the row.
KEY: Final = "key"
PARTITION: Final = "partition"
_HELD_BYTES: Final = 64 << 20
_PARTS: Final = 64


def in_order(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield a commit's images: deletes, then updates, then inserts; key by key where they are many bytes.

    Args:
        batches: images with `KEY` and `PARTITION`, which the results have, too.
        schema: theirs.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    with ExitStack() as stack:
        aside: _Aside | None = None
        for batch in batches:
            held.append(batch)
            size += batch.nbytes
            if size >= _HELD_BYTES:
                aside = aside or _Aside(schema, stack)
                aside.put(pa.Table.from_batches(held, schema))
                held, size = [], 0
        rest = pa.Table.from_batches(held, schema)
        if aside is None:
            yield from _arranged(rest)
            return
        aside.put(rest)
        for part in aside.parts():
            yield from _arranged(part)


class _Aside:
    """Images in files of a temporary folder; all images of a key are in one file."""

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
        """Write images to the file of their key."""
        of = _parts_of(images.column(KEY))
        order = np.argsort(of, kind="stable")
        ends = np.cumsum(np.bincount(of, minlength=_PARTS))
        for part, (start, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if start < end:
                self._writers[part].write_table(images.take(pa.array(order[start:end])))

    def parts(self) -> Iterator[pa.Table]:
        """Read each file back."""
        self._files.close()
        for part in range(_PARTS):
            with self._storage.open_input(f"{part}.arrow") as source, pa.ipc.open_stream(source) as reader:
                yield reader.read_all()


def _parts_of(keys: pa.ChunkedArray) -> Ints:
    """Return the number of a part for each key, the same for equal keys."""
    hashes: Ints = hash_chain(pc.fill_null(keys, ""), 1)[0].astype(np.int64)
    return hashes % _PARTS


def _arranged(images: pa.Table) -> Iterator[pa.RecordBatch]:
    ops = images.column("op").combine_chunks()
    deletes, updates, inserts = (np.flatnonzero(np.asarray(pc.equal(ops, op))) for op in "dui")
    moved_from, moved_to = _pairs(images, deletes, inserts)
    yield from _taken(images, np.setdiff1d(deletes, moved_from))
    yield from _taken(images, updates)
    if len(moved_to):
        after = images.take(pa.array(moved_to))
        before = images.column("before").take(pa.array(moved_from))
        names = images.schema.names
        paired = after.set_column(names.index("op"), "op", pa.array(["u"] * len(moved_to), pa.string()))
        paired = paired.set_column(names.index("before"), images.schema.field("before"), before)
        yield from paired.cast(images.schema).combine_chunks().to_batches()
    yield from _taken(images, np.setdiff1d(inserts, moved_to))


def _taken(images: pa.Table, rows: Ints) -> Iterator[pa.RecordBatch]:
    return iter(images.take(pa.array(rows)).combine_chunks().to_batches()) if len(rows) else iter(())


def _pairs(images: pa.Table, deletes: Ints, inserts: Ints) -> tuple[Ints, Ints]:
    """Return the deletes and the inserts that make an update: of one key, if possible within one partition."""
    if not len(deletes) or not len(inserts):
        return deletes[:0], inserts[:0]
    keys = _codes(images.column(KEY))
    both = keys * (images.num_rows + 1) + _codes(images.column(PARTITION))
    known = np.asarray(images.column(KEY).is_valid())
    deletes, inserts = deletes[known[deletes]], inserts[known[inserts]]
    near = pair_rows(both[deletes], both[inserts])
    left, right = (np.setdiff1d(np.arange(len(of)), at) for of, at in zip((deletes, inserts), near, strict=True))
    far = pair_rows(keys[deletes[left]], keys[inserts[right]])
    before = np.concatenate([deletes[near[0]], deletes[left[far[0]]]])
    return before, np.concatenate([inserts[near[1]], inserts[right[far[1]]]])


def _codes(texts: pa.ChunkedArray) -> Ints:
    """Return a number for each text, from 0, equal where texts are."""
    found = key_codes(pc.fill_null(texts, ""))
    return np.arange(len(texts)) if found is None else found.astype(np.int64)
