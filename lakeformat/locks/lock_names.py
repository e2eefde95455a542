"""The name of a table's lock that Hudi's implicit lock providers derive from the table's path."""

from __future__ import annotations

from typing import Final

from lakeformat.errors import StorageError
from lakeformat.extras import install_line

__all__ = ["hash_location"]

#: Hudi's seed 0xdabadaba, which Java extends to 64 bits with its sign.
_SEED: Final = 0xFFFFFFFF_DABADABA


def hash_location(location: str) -> str:
    """Return Hudi's xxHash64 of a table's path as 16 hexadecimal digits; ``s3a://`` counts as ``s3://``.

    Source: Hudi's ``HashID.generateXXHashAsString``.

    Raises:
        StorageError: the package xxhash is not installed.
    """
    try:
        import xxhash
    except ImportError:
        raise StorageError(
            f"Hudi's implicit lock providers need xxhash; {install_line('zookeeper')} (or [dynamodb])"
        ) from None
    path = location.rstrip("/")
    if path.startswith("s3a://"):
        path = path.replace("s3a://", "s3://", 1)
    return str(xxhash.xxh64(path.encode(), seed=_SEED).hexdigest()).upper()
