"""``<instant>.compaction.requested`` and ``<instant>.logcompaction.requested``: the slices to compact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lakeformat.codec.avro_container import decode_record
from lakeformat.codec.avro_fields import TEXT, TEXTS, array_of, file_of, optional, record_of
from lakeformat.errors import CorruptTableError
from lakeformat.model.compaction import CompactionOperation, CompactionPlan

__all__ = ["decode_compaction_plan"]

#: The fields that readers need.
_PLAN: Final = file_of(
    "HoodieCompactionPlan",
    optional(
        "operations",
        array_of(
            record_of(
                "HoodieCompactionOperation",
                optional("baseInstantTime", TEXT),
                optional("deltaFilePaths", TEXTS),
                optional("dataFilePath", TEXT),
                optional("fileId", TEXT),
                optional("partitionPath", TEXT),
            )
        ),
    ),
)


def decode_compaction_plan(data: bytes, *, name: str) -> CompactionPlan:
    """The plan. Plans of the first version name files by absolute paths: the bare names are kept.

    Raises:
        CorruptTableError: the bytes are no such file, or a slice is named by nothing.
    """
    record = decode_record(data, _PLAN, name=name)
    return CompactionPlan(tuple(_operation(one, name) for one in record["operations"] or ()))


def _operation(record: Mapping[str, Any], name: str) -> CompactionOperation:
    file_id, base_instant = record["fileId"], record["baseInstantTime"]
    if not file_id or not base_instant:
        raise CorruptTableError(f"the compaction plan {name} has a file slice without file id or instant; restore it")
    return CompactionOperation(
        record["partitionPath"] or "",
        file_id,
        base_instant,
        _bare(record["dataFilePath"] or ""),
        tuple(map(_bare, record["deltaFilePaths"] or ())),
    )


def _bare(path: str) -> str:
    return path.rpartition("/")[2]
