"""Registration of tables in AWS Glue and in Hive metastores, without a JVM.

Examples:
    >>> from lakeformat import catalog
    >>> catalog.register("s3://bucket/flights", "glue", database="air")
    Registration(glue: air.flights (created air.flights); partitions 31 added, 0 changed, 0 dropped)
"""

from lakeformat.catalog.session import Registration
from lakeformat.catalog.verbs import Registering, register

__all__ = ["Registering", "Registration", "register"]
