"""Local disks: put-if-absent by hard link, locks by ``flock``.

Locks on local files by ``flock``: the kernel frees them when their holder dies.

``flock`` belongs to an open file, which a forked child shares: it would stay locked until the child has ended, too.
So a child closes the files its parent had locked, and a lock is taken off before its file is closed, for children
that a library has forked without Python's knowledge.
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

__all__ = ["EXCLUDES", "LocalStorage", "held", "is_held"]

try:
    import fcntl
except ImportError:  # Not a POSIX system: these locks then exclude nobody.
    fcntl = None  # type: ignore[assignment]


#: Whether the locks exclude anybody.
EXCLUDES: Final = fcntl is not None
_POLL_SECONDS: Final = 0.02
_OWNER_BYTES: Final = 512
#: Files that this process has open to lock them; guarded, so that no fork comes between opening and noting one.
_OPEN: Final[set[int]] = set()
_GUARD: Final = threading.RLock()


@contextmanager
def held(real: str, timeout_seconds: float, what: str, *, make: bool) -> Iterator[None]:
    """Hold a file's lock while the block runs.

    Args:
        what: the locked thing, for the message.
        make: make the file if it is not there, and write into it who holds the lock.

    Raises:
        FileNotFoundError: there is no such file, and it is not to be made.
        LockTimeoutError: another holds it.
    """
    process = os.getpid()
    with _GUARD:
        handle = os.open(real, os.O_RDWR | (os.O_CREAT if make else 0), 0o644)
        _OPEN.add(handle)
    try:
        _wait(handle, timeout_seconds, what)
        if make and EXCLUDES:
            _sign(handle)
        yield
    finally:
        if os.getpid() == process:  # In a child that leaves the block, the number may be another file's by now.
            _let_go(handle)


def is_held(real: str) -> bool:
    """Whether anybody holds the file's lock now, this process included; False for a file that is not there."""
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


def _wait(handle: int, timeout_seconds: float, what: str) -> None:
    if fcntl is None:
        return
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise LockTimeoutError(
                    f"another writer held the lock of {what} for {timeout_seconds:g} s{_owner(handle)}; run the write "
                    "again, or raise hoodie.write.lock.wait_time_ms"
                ) from None
            time.sleep(_POLL_SECONDS)
        else:
            return


def _sign(handle: int) -> None:
    with suppress(OSError):  # A full disk: the message of another's timeout then names nobody.
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)


def _owner(handle: int) -> str:
    name = os.pread(handle, _OWNER_BYTES, 0).decode(errors="replace")
    return f" ({name})" if name else ""


def _let_go(handle: int) -> None:
    with _GUARD:
        _OPEN.discard(handle)
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_UN)
        finally:
            os.close(handle)


def _drop_in_child() -> None:
    for handle in _OPEN:
        with suppress(OSError):
            os.close(handle)
    _OPEN.clear()
    _GUARD.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_GUARD.acquire, after_in_parent=_GUARD.release, after_in_child=_drop_in_child)


_COUNTER: Final = itertools.count()
#: File systems without hard links answer a link with one of these.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV})

#: Whoever asks whether a file is held locks it for less than that.
_GLANCE_SECONDS: Final = 0.2


@dataclass(frozen=True)
class LocalStorage:
    """A folder of a local (or mounted POSIX) file system.

    Args:
        root: absolute path of the table's folder; it need not exist yet.
        sync: flush data files to the disk before they are committed, so that a power cut loses nothing;
            timeline files always are.
    """

    root: str
    sync: bool = False
    has_lock: bool = field(default=EXCLUDES, init=False)

    @property
    def location(self) -> str:
        """The folder."""
        return self.root

    def _real(self, path: str) -> str:
        return os.path.join(self.root, check_path(path)) if path else self.root

    def _inside(self, path: str) -> str:
        """As `_real`, for calls that change what stands there: no link may lead them out of the table."""
        real = self._real(path)
        root = os.path.realpath(self.root)
        if os.path.commonpath([root, os.path.realpath(os.path.dirname(real))]) != root:
            raise StorageError(
                f"refusing to change {path}: a symbolic link leads it out of {self.root}; remove the link"
            )
        return real

    def create(self, path: str, data: bytes) -> None:
        """Write aside, flush, then hard-link into place: the link is the point at which one caller wins."""
        target = self._inside(path)
        with self._explained("create", path):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if not data:  # Nothing can be half written: the open call alone decides.
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
        folder = self._real(own_path("tmp"))
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
        """Give the file its name; without hard links it is empty for a moment, never in part."""
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
        """Write aside, flush, rename over."""
        target = self._inside(path)
        with self._explained("write", path):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            aside = self._write_aside(data)
            _drop_checksum(target)
            os.replace(aside, target)
            _flush_folder(os.path.dirname(target))

    def read(self, path: str) -> bytes:
        """A whole file."""
        with self._explained("read", path):
            try:
                with open(self._real(path), "rb") as file:
                    return file.read()
            except NotADirectoryError as error:  # The table's path is a file's.
                raise FileNotFoundError(*error.args) from None

    def info(self, path: str) -> FileInfo | None:
        """What stands there now."""
        with self._explained("look at", path):
            try:
                found = os.stat(self._real(path))
            except (FileNotFoundError, NotADirectoryError):
                return None
            return _info(path, found)

    def list(self, path: str) -> Sequence[FileInfo]:
        """The direct children, by name; dangling links are left out."""
        entries: list[FileInfo] = []
        with self._explained("list", path):
            try:
                with os.scandir(self._real(path)) as scan:
                    for entry in scan:
                        try:
                            found = entry.stat()
                        except FileNotFoundError:
                            continue
                        entries.append(_info(f"{path}/{entry.name}" if path else entry.name, found))
            except (FileNotFoundError, NotADirectoryError):
                return ()
        return sorted(entries, key=lambda entry: entry.path)

    def open_input(self, path: str) -> Any:
        """A memory map: Parquet and Arrow readers take what they need, without a copy."""
        real = self._real(path)
        with self._explained("read", path):
            if os.stat(real).st_size == 0:
                return pa.BufferReader(b"")
            return pa.memory_map(real)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Stream into place; a failed block leaves nothing."""
        real = self._inside(path)
        with self._explained("write", path):
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
        real, stood = self._inside(target), self._inside(source)
        with self._explained("move", source):
            os.makedirs(os.path.dirname(real), exist_ok=True)
            os.rename(stood, real)

    def touch(self, path: str) -> None:
        """Make or renew an empty file."""
        real = self._inside(path)
        with self._explained("touch", path):
            os.makedirs(os.path.dirname(real), exist_ok=True)
            with open(real, "ab") as file:
                os.utime(file.fileno())

    def delete(self, path: str) -> bool:
        """Remove a regular file or a link, and the checksum file Hadoop may keep beside it."""
        real = self._inside(path)
        with self._explained("delete", path):
            try:
                os.unlink(real)
            except (FileNotFoundError, NotADirectoryError):
                return False
            finally:
                _drop_checksum(real)
        return True

    def delete_folder(self, path: str) -> None:
        """Remove a folder of ``.hoodie``."""
        real = self._inside(check_folder(path))
        with self._explained("delete", path):
            if os.path.islink(real):
                os.unlink(real)
                return
            with suppress(FileNotFoundError):
                shutil.rmtree(real)

    def remove_empty(self, path: str) -> bool:
        """``rmdir``, which removes no folder that holds anything."""
        real = self._inside(path)
        with self._explained("remove", path):
            try:
                os.rmdir(real)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR}:
                    raise
                return error.errno == errno.ENOENT
        return True

    @contextmanager
    def lock(self, timeout_seconds: float) -> Iterator[None]:
        """``flock`` on a file of ours: freed by the kernel when its holder dies, whatever it has forked."""
        path = own_path("lock")
        real = self._real(path)
        with self._explained("lock", path):
            os.makedirs(os.path.dirname(real), exist_ok=True)
        with ExitStack() as stack:
            with self._explained("lock", path):
                stack.enter_context(held(real, timeout_seconds, self.root, make=True))
            yield

    @contextmanager
    def hold(self, path: str) -> Iterator[None]:
        """``flock`` on the file itself."""
        real = self._real(path)
        with ExitStack() as stack:
            with self._explained("hold", path), suppress(FileNotFoundError):
                stack.enter_context(held(real, _GLANCE_SECONDS, real, make=False))
            yield

    def is_held(self, path: str) -> bool:
        """Tried, and let go at once."""
        real = self._real(path)
        with self._explained("look at", path):
            return is_held(real)

    @contextmanager
    def _explained(self, verb: str, path: str) -> Iterator[None]:
        """Turn what the system says into one line that names the table; let answers of the port pass through."""
        try:
            yield
        except (StorageError, LockTimeoutError):
            raise
        except OSError as error:
            if isinstance(error, _ANSWERS.get(verb, FileNotFoundError)):
                raise
            what = f"{path} in {self.root}" if path else f"the table folder {self.root}"
            raise StorageError(f"cannot {verb} {what}: {_advice(error)}") from error


#: What a call may answer, where that is not "there is no such file".
_ANSWERS: Final[Mapping[str, tuple[type[OSError], ...]]] = {
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


def _advice(error: OSError) -> str:
    if error.errno in _ADVICE:
        return _ADVICE[error.errno]
    return f"{error.strerror or error}; check the path and the disk"


def _info(path: str, found: os.stat_result) -> FileInfo:
    folder = stat.S_ISDIR(found.st_mode)
    return FileInfo(path, 0 if folder else found.st_size, found.st_mtime_ns // 1_000_000, folder)


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
    """Hadoop refuses a file whose ``.crc`` neighbour tells of other bytes (table-version-6, section 0)."""
    folder, name = os.path.split(real)
    with suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(os.path.join(folder, f".{name}.crc"))
