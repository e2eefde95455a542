"""What options of other libraries are called here. A name that has nothing like it here is answered with nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["foreign_hint"]

#: Our name -> names of delta-rs, Delta's Spark source, pyiceberg, polars, pandas and databases, in lower case and
#: without ``_``, ``-`` and ``.``.
_NAMES: Final[Mapping[str, str]] = {
    "record_key": """
        columnkey businesskey id idcolumn idcolumns identifierfields indexcolumn key keycolumn keycolumns keyfield
        keyfields keys mergekey mergekeys on pk primarykey primarykeys recordid recordkeyfield
        recordkeyfields rowkey uniquekey
    """,
    "partition_by": """
        partition partitioncol partitioncolumn partitioncolumns partitioncols partitionedby partitionfield
        partitionfields partitioning partitionkey partitionkeys partitions partitionspec
    """,
    "ordering": """
        eventtime eventtimecolumn orderby ordercolumn orderingcolumn orderingfield orderingkey precombinefield
        precombinekey sequenceby sequencecolumn updatedat versioncolumn
    """,
    "name": "tablename",
    "table_type": "kind storagetype tablekind type",
    "operation": "savemode writemode writeoperation",
    "hoodie.write.table.version": "formatversion hudiversion protocol tableversion version",
    "hive_style": "hivestylepartitioning hive",
    "merge_mode": "mergerule mergestrategy recordmergemode",
    "hoodie.table.cdc.enabled": "cdc changedatafeed changelog deltaenablechangedatafeed enablechangedatafeed",
    "as.of.instant": """
        asof asofinstant asoftimestamp asofversion date datetime snapshot snapshotid time timestamp timestampasof
        timetravel versionasof
    """,
    "where": "condition expr filter filters predicate query rowfilter",
    "columns": "column fields projection select selectedfields usecols",
    "hoodie.datasource.read.begin.instanttime": """
        begininstanttime fromversion since startingtimestamp startingversion startsnapshotid starttimestamp
    """,
    "hoodie.datasource.read.end.instanttime": """
        endinginstant endingtimestamp endingversion endinstanttime endsnapshotid endtimestamp endversion until
    """,
    "hoodie.datasource.query.type": "incremental querytype readchangefeed readchangedata",
    "hoodie.datasource.overwrite.mode": "overwritemode partitionoverwritemode",
    "hoodie.parquet.compression.codec": "codec compression compressioncodec",
    "hoodie.parquet.max.file.size": "filesize maxfilesize targetfilesize",
    "hoodie.parquet.block.size": "rowgroupsize maxrowgroupsize",
    "hoodie.index.type": "index indextype",
    "hoodie.bucket.index.num.buckets": "bucket buckets numbuckets",
    "hoodie.clustering.plan.strategy.sort.columns": "clusterby clusteringcolumns sortby sortcolumns zorderby",
    "lakeformat.batch.app": "txnappid",
    "lakeformat.batch.id": "txnversion",
    "storage_options": "s3options storage storageoptions fsoptions properties",
}
#: Names for which no option stands -> what to do instead.
_OTHERWISE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("uri", "url", "location", "tablepath", "tableuri", "root", "basepath"), "the path is given first"),
    **dict.fromkeys(("data", "df", "rows", "records"), "write rows by insert, upsert or overwrite of the table"),
    "mode": "the verb of the table says it (insert, upsert, overwrite), or the option 'operation'",
    "schemamode": "columns that are new in the rows are added by themselves",
    "replacewhere": "overwrite the partitions by insert_overwrite, or delete(where=...) before",
    "overwriteschema": "columns that are new in the rows are added by themselves",
}
_MEANT: Final[Mapping[str, str]] = {name: ours for ours, names in _NAMES.items() for name in names.split()}


def foreign_hint(name: str) -> tuple[str, str]:
    """Return our name for an option of another library, and the hint that names it; two empty texts if it is unknown.

    >>> foreign_hint("timestampAsOf")
    ('as.of.instant', "; did you mean 'as.of.instant'?")
    >>> foreign_hint("colour")
    ('', '')
    """
    squeezed = name.lower().replace("_", "").replace("-", "").replace(".", "")
    meant = _MEANT.get(squeezed, "")
    if meant:
        return meant, f"; did you mean {meant!r}?"
    otherwise = _OTHERWISE.get(squeezed, "")
    return "", f"; {otherwise}" if otherwise else ""
