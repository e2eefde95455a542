"""Storage on local disks: put-if-absent by hard link, locks by ``flock``.

The kernel frees a ``flock`` if its holder dies. But a ``flock`` belongs to an open file, which a forked child shares,
so the file would stay locked until the child has ended too. Therefore a child closes the files that its parent had
locked. And a lock is released before its file is closed, because a library may have forked children without Python's
knowledge.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import socket
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from lakeformat.errors import LockTimeoutError, StorageError
from lakeformat.storage.port import FileInfo, check_folder, check_path, own_path

__all__ = ["EXCLUDES", "LocalStorage", "hold_lock", "is_held"]

try:
    import fcntl
except ImportError:  # Not a POSIX system: the locks then exclude no process.
    fcntl = None  # type: ignore[assignment]


#: Whether the locks exclude other processes.
EXCLUDES: Final = fcntl is not None
_POLL_SECONDS: Final = 0.02
_OWNER_BYTES: Final = 512
#: Handles of the files that this process has opened to lock them. While `_GUARD` is held, the process does not fork, so
#: a handle cannot be inherited before it is in this set.
_OPEN_HANDLES: Final[set[int]] = set()
_GUARD: Final = threading.RLock()


@contextmanager
def hold_lock(real: str, timeout_seconds: float, what: str, *, make: bool) -> Iterator[None]:
    """Hold a file's lock while the block runs.

    Args:
        real: Absolute path of the file.
        timeout_seconds: How long to wait if another process holds the lock.
        what: Name of the locked table or file, for the message.
        make: Whether to make a missing file, and to write the process and host of the holder into the file.

    Raises:
        FileNotFoundError: The file is missing and ``make`` is false.
        LockTimeoutError: Another process still holds the lock after the timeout.
    """
    process = os.getpid()
    with _GUARD:
        handle = os.open(real, os.O_RDWR | (os.O_CREAT if make else 0), 0o644)
        _OPEN_HANDLES.add(handle)
    try:
        _wait_for_lock(handle, timeout_seconds, what)
        if make and EXCLUDES:
            _write_owner(handle)
        yield
    finally:
        if os.getpid() == process:  # In a forked child, the number may already belong to another file.
            _release(handle)


def is_held(real: str) -> bool:
    """Tell whether a process, including this one, holds the file's lock; False if there is no such file."""
    if fcntl is None:
        return False
    try:
        handle = os.open(real, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(handle)


def _wait_for_lock(handle: int, timeout_seconds: float, what: str) -> None:
    if fcntl is None:
        return
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise LockTimeoutError(
                    f"another writer held the lock of {what} for {timeout_seconds:g} s{_read_owner(handle)}; run the "
                    "write again, or raise hoodie.write.lock.wait_time_ms"
                ) from None
            time.sleep(_POLL_SECONDS)
        else:
            return


def _write_owner(handle: int) -> None:
    with suppress(OSError):  # On a full disk, the timeout messages of other processes do not name the holder.
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)


def _read_owner(handle: int) -> str:
    name = os.pread(handle, _OWNER_BYTES, 0).decode(errors="replace")
    return f" ({name})" if name else ""


def _release(handle: int) -> None:
    with _GUARD:
        _OPEN_HANDLES.discard(handle)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_UN)
        finally:
            os.close(handle)


def _close_in_child() -> None:
    for handle in _OPEN_HANDLES:
        with suppress(OSError):
            os.close(handle)
    _OPEN_HANDLES.clear()
    _GUARD.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_GUARD.acquire, after_in_parent=_GUARD.release, after_in_child=_close_in_child)


_COUNTER: Final = itertools.count()
#: Errors of file systems that have no hard links.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV})

#: Timeout of `LocalStorage.hold`. It is longer than the moment for which `is_held` locks a file.
_GLANCE_SECONDS: Final = 0.2


@dataclass(frozen=True)
class LocalStorage:
    """A folder of a local (or mounted POSIX) file system.

    Args:
        root: Absolute path of the table's folder, which need not exist yet.
        sync: Whether to flush data files to the disk before they are committed, so that a power cut loses nothing.
            Timeline files are always flushed.
    """

    root: str
    sync: bool = False
    has_lock: bool = field(default=EXCLUDES, init=False)

    @property
    def location(self) -> str:
        """Return the path of the table's folder."""
        return self.root

    def _resolve(self, path: str) -> str:
        return os.path.join(self.root, check_path(path)) if path else self.root

    def _resolve_inside(self, path: str) -> str:
        """Return the absolute path, for changes. Raise `StorageError` if a symbolic link leads it out of the table."""
        real = self._resolve(path)
        root = os.path.realpath(self.root)
        if os.path.commonpath([root, os.path.realpath(os.path.dirname(real))]) != root:
            raise StorageError(
                f"refusing to change {path}: a symbolic link leads it out of {self.root}; remove the link"
            )
        return real

    def create(self, path: str, data: bytes) -> None:
        """Write to a temporary file, flush it, then hard-link it into place. The link succeeds for only one caller."""
        target = self._resolve_inside(path)
        with self._explain_errors("create", path):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if not data:  # An empty file cannot be partly written, so the open call decides which caller wins.
                os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
                return
            aside = self._write_aside(data)
            try:
                self._link(aside, target)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(aside)
                raise
            _flush_folder(os.path.dirname(target))
            _drop_checksum(target)

    def _write_aside(self, data: bytes) -> str:
        folder = self._resolve(own_path("tmp"))
        os.makedirs(folder, exist_ok=True)
        aside = os.path.join(folder, f"{socket.gethostname()}-{os.getpid()}-{next(_COUNTER)}-{time.time_ns()}")
        handle = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                os.unlink(aside)
            raise
        return aside

    @staticmethod
    def _link(aside: str, target: str) -> None:
        """Give the temporary file its final name.

        If the file system has no hard links, the file is empty for a moment, but never partly written.
        """
        try:
            os.link(aside, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        else:
            os.unlink(aside)
            return
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        try:
            os.replace(aside, target)
        except BaseException:
            os.unlink(target)
            raise

    def replace(self, path: str, data: bytes) -> None:
        """Write to a temporary file, flush it, then rename it over the old one."""
        target = self._resolve_inside(path)
        with self._explain_errors("write", path):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            aside = self._write_aside(data)
            _drop_checksum(target)
            os.replace(aside, target)
            _flush_folder(os.path.dirname(target))

    def read(self, path: str) -> bytes:
        """Read a whole file."""
        with self._explain_errors("read", path):
            try:
                with open(self._resolve(path), "rb") as file:
                    return file.read()
            except NotADirectoryError as error:  # The table's path is a file.
                raise FileNotFoundError(*error.args) from None

    def info(self, path: str) -> FileInfo | None:
        """Return the entry at the path now, or None."""
        with self._explain_errors("look at", path):
            try:
                status = os.stat(self._resolve(path))
            except (FileNotFoundError, NotADirectoryError):
                return None
            return _make_info(path, status)

    def list(self, path: str) -> Sequence[FileInfo]:
        """List the direct children by name, without dangling links."""
        entries: list[FileInfo] = []
        with self._explain_errors("list", path):
            try:
                with os.scandir(self._resolve(path)) as scan:
                    for entry in scan:
                        try:
                            status = entry.stat()
                        except FileNotFoundError:
                            continue
                        entries.append(_make_info(f"{path}/{entry.name}" if path else entry.name, status))
            except (FileNotFoundError, NotADirectoryError):
                return ()
        return sorted(entries, key=lambda entry: entry.path)

    def open_input(self, path: str) -> Any:
        """Open a memory map, from which Parquet and Arrow readers read without a copy."""
        real = self._resolve(path)
        with self._explain_errors("read", path):
            if os.stat(real).st_size == 0:
                return pa.BufferReader(b"")
            return pa.memory_map(real)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Write the file in place. If the block raises, remove the file."""
        real = self._resolve_inside(path)
        with self._explain_errors("write", path):
            os.makedirs(os.path.dirname(real), exist_ok=True)
            try:
                with pa.OSFile(real, "wb") as sink:
                    yield sink
                if self.sync:
                    _flush(real)
            except BaseException:
                with suppress(OSError):
                    os.unlink(real)
                raise

    def move(self, source: str, target: str) -> None:
        """Rename within the file system."""
        real, source_real = self._resolve_inside(target), self._resolve_inside(source)
        with self._explain_errors("move", source):
            os.makedirs(os.path.dirname(real), exist_ok=True)
            os.rename(source_real, real)

    def touch(self, path: str) -> None:
        """Make an empty file, or renew the modification time of the file."""
        real = self._resolve_inside(path)
        with self._explain_errors("touch", path):
            os.makedirs(os.path.dirname(real), exist_ok=True)
            with open(real, "ab") as file:
                os.utime(file.fileno())

    def delete(self, path: str) -> bool:
        """Remove a regular file or a link, and the checksum file that Hadoop may have written beside it."""
        real = self._resolve_inside(path)
        with self._explain_errors("delete", path):
            try:
                os.unlink(real)
            except (FileNotFoundError, NotADirectoryError):
                return False
            finally:
                _drop_checksum(real)
        return True

    def delete_folder(self, path: str) -> None:
        """Remove a folder of ``.hoodie``."""
        real = self._resolve_inside(check_folder(path))
        with self._explain_errors("delete", path):
            if os.path.islink(real):
                os.unlink(real)
                return
            with suppress(FileNotFoundError):
                shutil.rmtree(real)

    def remove_empty(self, path: str) -> bool:
        """Remove a folder by ``rmdir``, which fails if the folder is not empty."""
        real = self._resolve_inside(path)
        with self._explain_errors("remove", path):
            try:
                os.rmdir(real)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR}:
                    raise
                return error.errno == errno.ENOENT
        return True

    @contextmanager
    def lock(self, timeout_seconds: float) -> Iterator[None]:
        """Hold the table's lock: a ``flock`` on a file of lakeformat, which the kernel frees if its holder dies."""
        path = own_path("lock")
        real = self._resolve(path)
        with self._explain_errors("lock", path):
            os.makedirs(os.path.dirname(real), exist_ok=True)
        with ExitStack() as stack:
            with self._explain_errors("lock", path):
                stack.enter_context(hold_lock(real, timeout_seconds, self.root, make=True))
            yield

    @contextmanager
    def hold(self, path: str) -> Iterator[None]:
        """Hold a file by a ``flock`` on it; hold nothing if there is no such file."""
        real = self._resolve(path)
        with ExitStack() as stack:
            with self._explain_errors("hold", path), suppress(FileNotFoundError):
                stack.enter_context(hold_lock(real, _GLANCE_SECONDS, real, make=False))
            yield

    def is_held(self, path: str) -> bool:
        """Tell whether a file is held, by trying a shared lock and releasing it at once."""
        real = self._resolve(path)
        with self._explain_errors("look at", path):
            return is_held(real)

    @contextmanager
    def _explain_errors(self, verb: str, path: str) -> Iterator[None]:
        """Turn an error of the system into one line that names the table, except errors that the port promises."""
        try:
            yield
        except (StorageError, LockTimeoutError):
            raise
        except OSError as error:
            if isinstance(error, _EXPECTED_ERRORS.get(verb, FileNotFoundError)):
                raise
            what = f"{path} in {self.root}" if path else f"the table folder {self.root}"
            raise StorageError(f"cannot {verb} {what}: {_advise(error)}") from error


#: Errors that a call may raise unchanged; by default ``FileNotFoundError``.
_EXPECTED_ERRORS: Final[Mapping[str, tuple[type[OSError], ...]]] = {
    "create": (FileExistsError,),
    "write": (),
    "touch": (),
    "lock": (),
}
_ADVICE: Final = {
    errno.ENOSPC: "no space left on the disk; free some and run the write again",
    errno.EDQUOT: "the disk quota is used up; free some space and run the write again",
    errno.EACCES: "permission denied; give this user the right to it",
    errno.EPERM: "operation not permitted; give this user the right to it",
    errno.EROFS: "the file system is read-only; mount it writable",
    errno.EFBIG: "the file would be larger than this process may write; raise the limit",
}


def _advise(error: OSError) -> str:
    if error.errno in _ADVICE:
        return _ADVICE[error.errno]
    return f"{error.strerror or error}; check the path and the disk"


def _make_info(path: str, status: os.stat_result) -> FileInfo:
    folder = stat.S_ISDIR(status.st_mode)
    return FileInfo(path, 0 if folder else status.st_size, status.st_mtime_ns // 1_000_000, folder)


def _flush(real: str) -> None:
    handle = os.open(real, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _flush_folder(real: str) -> None:
    with suppress(OSError):  # Some mounts refuse to flush a folder; the file itself is flushed.
        _flush(real)


def _drop_checksum(real: str) -> None:
    """Remove the ``.crc`` file beside a file.

    Hadoop refuses a file whose ``.crc`` file does not match it (table-version-6, section 0).
    """
    folder, name = os.path.split(real)
    with suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(os.path.join(folder, f".{name}.crc"))
