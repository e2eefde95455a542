"""The name of a table's lock that Hudi's implicit lock providers derive from the table's path."""

from __future__ import annotations

from lakeformat.errors import StorageError

__all__ = ["hash_location"]


def hash_location(location: str) -> str:
    """Return xxHash64 of a table's path as 16 hexadecimal digits; ``s3a://`` counts as ``s3://``.

    Source: Hudi's ``HashID.generateXXHashAsString``.

    Raises:
        StorageError: the package xxhash is not installed.
    """
    try:
        import xxhash
    except ImportError:
        raise StorageError(
            "Hudi's implicit lock providers need xxhash; run: pip install 'lakeformat[zookeeper]' (or [dynamodb])"
        ) from None
    return str(xxhash.xxh64(location.replace("s3a://", "s3://", 1).encode()).hexdigest()).upper()
