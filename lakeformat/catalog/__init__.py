"""Registration of tables in AWS Glue and in Hive metastores, without a JVM.

``lakeformat.catalog.register("s3://bucket/flights", "glue", database="air")`` registers the table at a path;
``table.register("glue", database="air")`` does the same for an open table.
"""

from lakeformat.catalog.session import Registration
from lakeformat.catalog.verbs import Registering, register

__all__ = ["Registering", "Registration", "register"]
