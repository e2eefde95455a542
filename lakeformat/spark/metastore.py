"""The address of the Hive metastore that a Spark session is set up for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lakeformat.config.catalog_options import METASTORE_URIS
from lakeformat.config.hudi_support import BY_NAME
from lakeformat.config.resolve import Options
from lakeformat.config.verdicts import judge
from lakeformat.spark.jobs import context_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["metastore_uris", "with_metastore", "with_metastore_option"]

_NAME: Final = "hive.metastore.uris"
_CONFS: Final = (_NAME, f"spark.hadoop.{_NAME}", f"spark.{_NAME}")
_NAMES: Final = frozenset({METASTORE_URIS, *BY_NAME[METASTORE_URIS].aliases})


def metastore_uris(spark: SparkSession) -> str:
    """Return the address that the session's settings or a ``hive-site.xml`` on Spark's class path say; "" for none."""
    session: Any = spark
    if context_of(spark) is not None:
        return str(session._jsparkSession.sessionState().newHadoopConf().get(_NAME) or "").strip()
    return next((str(text) for name in _CONFS if (text := session.conf.get(name, None))), "")


def with_metastore(spark: SparkSession, options: Options) -> Options:
    """Return the options with the session's metastore, if a write registers the table in Hive and names no other."""
    uris = metastore_uris(spark) if options.lacks_metastore else ""
    return options.with_values(**{METASTORE_URIS: uris}) if uris else options


def with_metastore_option(spark: SparkSession, given: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a data source with the session's metastore, as `with_metastore` does."""
    if any(name.lower() in _NAMES for name in given):
        return dict(given)
    judged = judge(given)
    uris = with_metastore(spark, Options(judged.values, {}, {})).metastore_uris
    return {**given, METASTORE_URIS: uris} if uris else dict(given)
