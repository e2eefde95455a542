"""Storage on local disks: files are created by hard link, which fails if the file exists; locks use ``flock``.

The kernel frees a ``flock`` when its holder dies. But a ``flock`` belongs to the open file, and a forked child shares
its parent's open files. So a dead parent's file would stay locked until the child ends, too. Two rules prevent this:

- A forked child closes the files that its parent had locked.
- A process releases a lock before it closes the file. Closing alone would not free the lock if a library had forked a
  child without Python's knowledge, because such a child keeps the file open.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import shutil
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeVar

import pyarrow as pa

from lakeformat.concurrency import poll, sleep
from lakeformat.errors import LockTimeoutError, StorageError
from lakeformat.storage.local_listing import ListedFile, make_info, make_infos, scan_folder
from lakeformat.storage.port import (
    EndlessLease,
    FileInfo,
    Lease,
    Version,
    check_folder,
    check_path,
    check_version,
    list_until_none_goes,
    own_path,
)

__all__ = ["EXCLUDES", "LocalStorage", "hold_lock", "is_held"]

try:
    import fcntl
except ImportError:  # Not a POSIX system: the locks then do not exclude other processes.
    fcntl = None  # type: ignore[assignment]


#: Whether the locks exclude other processes.
EXCLUDES: Final = fcntl is not None
_POLL_SECONDS: Final = 0.02
_OWNER_BYTES: Final = 512
#: Flags that open a new file to write it.
_NEW: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY
_Made = TypeVar("_Made")
#: Number of names that every C library gets by one call of the system. So they are those of one moment.
_READ_AT_ONCE: Final = 30
#: Handles of the files that this process has opened to lock them. A forked child closes them. Use it only under
#: `_GUARD`: a fork waits for `_GUARD`, so a child cannot inherit a handle that is not in the set yet.
_OPEN_HANDLES: Final[set[int]] = set()
_GUARD: Final = threading.RLock()


@contextmanager
def hold_lock(real: str, timeout_seconds: float, what: str, *, make: bool) -> Iterator[None]:
    """Hold a file's lock while the block runs.

    Args:
        real: Absolute path of the file.
        timeout_seconds: Maximum time to wait if another process holds the lock.
        what: Name of the locked table or file, for the error message.
        make: Whether to create a missing file, and to write this process's id and host into the file.

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
        if os.getpid() == process:  # A forked child has closed the handle; its number may now be another file's.
            _release(handle)


def is_held(real: str) -> bool:
    """Tell whether any process, including this one, holds the file's lock; False if there is no such file."""
    if fcntl is None:
        return False
    try:
        handle = os.open(real, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _wait_for_lock(handle: int, timeout_seconds: float, what: str) -> None:
    if fcntl is None:
        return
    if not poll(partial(_try_lock, handle, fcntl.LOCK_EX), timeout_seconds, partial(sleep, _POLL_SECONDS)):
        raise LockTimeoutError(
            f"another writer held the lock of {what} for {timeout_seconds:g} s{_read_owner(handle)}; run the "
            "write again, or raise hoodie.write.lock.wait_time_ms"
        )


def _try_lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_owner(handle: int) -> None:
    with suppress(OSError):  # Not essential: the owner is only for other processes' timeout messages.
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
#: Error numbers that ``os.link`` raises on file systems without hard links.
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV})

#: Timeout of `LocalStorage.hold` in seconds. It must exceed the moment for which a process in `is_held` locks a file.
_GLANCE_SECONDS: Final = 0.2
#: Maximum time in seconds to wait for another process in `LocalStorage.replace_if`.
_VERSION_SECONDS: Final = 30.0


@dataclass(frozen=True)
class LocalStorage:
    """A folder of a local (or mounted POSIX) file system.

    Args:
        root: Absolute path of the table's folder, which need not exist yet.
        sync: Whether to flush data files and their folders to the disk before they are committed, so that a power cut
            loses nothing. Timeline files are always flushed.
    """

    root: str
    sync: bool = False
    has_lock: bool = field(default=EXCLUDES, init=False)
    has_versions: bool = field(default=EXCLUDES, init=False)
    has_folders: bool = field(default=True, init=False)

    @property
    def location(self) -> str:
        """Return the path of the table's folder."""
        return self.root

    def subfolder(self, path: str) -> LocalStorage:
        """Return the storage of a folder inside this one."""
        return replace(self, root=self._resolve(path))

    def _resolve(self, path: str) -> str:
        return f"{self.root}/{check_path(path)}" if path else self.root

    def _resolve_inside(self, path: str) -> str:
        """Return the absolute path of a file to change.

        Raises:
            StorageError: a symbolic link leads out of the table.
        """
        real = self._resolve(path)
        if not _has_link(self.root, path):
            return real
        root = os.path.realpath(self.root)
        if os.path.commonpath([root, os.path.realpath(os.path.dirname(real))]) != root:
            raise StorageError(
                f"refusing to change {path}: a symbolic link leads it out of {self.root}; remove the link"
            )
        return real

    def create(self, path: str, data: bytes) -> None:
        """Write to a temporary file, flush it, then hard-link it to its final name, which only one caller can do."""
        target = self._resolve_inside(path)
        with self._explain_errors("create", path):
            if not data:  # An empty file cannot be partly written, so no temporary file is needed.
                os.close(_in_folder(target, lambda: os.open(target, _NEW, 0o644)))
                return
            aside = self._write_aside(data)
            try:
                _in_folder(target, lambda: self._link(aside, target))
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(aside)
                raise
            _flush_folder(os.path.dirname(target))
            _drop_checksum(target)

    def _write_aside(self, data: bytes) -> str:
        folder = self._resolve(own_path("tmp"))
        aside = f"{folder}/{socket.gethostname()}-{os.getpid()}-{next(_COUNTER)}-{time.time_ns()}"
        handle = _in_folder(aside, lambda: os.open(aside, _NEW, 0o644))
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
        """Give the temporary file its final name; raise ``FileExistsError`` if the name is in use.

        If the file system has no hard links, readers may see an empty file for a moment, but no partly written one.
        """
        try:
            os.link(aside, target)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        else:
            os.unlink(aside)
            return
        os.close(os.open(target, _NEW, 0o644))
        try:
            os.replace(aside, target)
        except BaseException:
            os.unlink(target)
            raise

    def replace(self, path: str, data: bytes) -> None:
        """Write to a temporary file, flush it, then rename it over the old file."""
        target = self._resolve_inside(path)
        with self._explain_errors("write", path):
            aside = self._write_aside(data)
            _drop_checksum(target)
            _in_folder(target, lambda: os.replace(aside, target))
            _flush_folder(os.path.dirname(target))

    def read_versioned(self, path: str) -> tuple[bytes, Version]:
        """Read a whole file. Its version is its inode, its modification time and a digest of its content."""
        with self._explain_errors("read", path), open(self._resolve(path), "rb") as file:
            status = os.fstat(file.fileno())
            data = file.read()
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        return data, Version(f"{status.st_ino}-{status.st_mtime_ns}-{digest}")

    def replace_if(self, path: str, data: bytes, version: Version | None) -> Version:
        """Replace a file if its version has not changed. A ``flock`` on a file beside it excludes other processes."""
        guard = self._resolve(own_path("versions"))
        os.makedirs(os.path.dirname(guard), exist_ok=True)
        with hold_lock(guard, _VERSION_SECONDS, f"{path} of {self.root}", make=True):
            try:
                present = self.read_versioned(path)[1]
            except FileNotFoundError:
                present = None
            check_version(path, self.root, present, version)
            self.replace(path, data)
            return self.read_versioned(path)[1]

    def read(self, path: str) -> bytes:
        """Read a whole file."""
        with self._explain_errors("read", path):
            try:
                with open(self._resolve(path), "rb") as file:
                    return file.read()
            except NotADirectoryError as error:  # A parent folder in the path is a file, so nothing is there.
                raise FileNotFoundError(*error.args) from None

    def info(self, path: str) -> FileInfo | None:
        """Return the path's kind, size and modification time; None if nothing is there."""
        with self._explain_errors("look at", path):
            try:
                status = os.stat(self._resolve(path))
            except (FileNotFoundError, NotADirectoryError):
                return None
            return make_info(path, status)

    def list(self, path: str) -> Sequence[FileInfo]:
        """List the direct children, sorted by name. Links whose target is missing are left out."""
        with self._explain_errors("list", path):
            return make_infos(path, scan_folder(self._resolve(path)))

    def list_at_once(self, path: str) -> Sequence[FileInfo]:
        """List the direct children as they were at one moment, sorted by name.

        A child that was deleted after that moment has 0 bytes and the present time.
        """
        scan = partial(scan_folder, self._resolve(path))
        with self._explain_errors("list", path):
            children = scan()
            if len(children) > _READ_AT_ONCE:
                children = list_until_none_goes(children, scan, path, self.root)
            children = sorted(children, key=attrgetter("name"))
            start = f"{path}/" if path else ""
            return [ListedFile(start, child) for child in children]

    def open_input(self, path: str) -> Any:
        """Open the file as a memory map, from which Parquet and Arrow readers read without a copy."""
        real = self._resolve(path)
        with self._explain_errors("read", path):
            if os.stat(real).st_size == 0:
                return pa.BufferReader(b"")
            return pa.memory_map(real)

    @contextmanager
    def open_output(self, path: str) -> Iterator[Any]:
        """Open the file at its final path for writing. If the block raises, remove the file."""
        real = self._resolve_inside(path)
        with self._explain_errors("write", path):
            try:
                with _in_folder(real, lambda: pa.OSFile(real, "wb")) as sink:
                    yield sink
                if self.sync:
                    _flush(real)
                    self._flush_folders(real)
            except BaseException:
                with suppress(OSError):
                    os.unlink(real)
                raise

    def move(self, source: str, target: str) -> None:
        """Rename the file."""
        real, source_real = self._resolve_inside(target), self._resolve_inside(source)
        with self._explain_errors("move", source):
            os.makedirs(os.path.dirname(real), exist_ok=True)
            os.rename(source_real, real)
            if self.sync:
                self._flush_folders(real)

    def _flush_folders(self, real: str) -> None:
        """Flush the folder of a file, and the folders above it inside the table, each of which may be new."""
        folder = os.path.dirname(real)
        while len(folder) >= len(self.root):
            _flush_folder(folder)
            folder = os.path.dirname(folder)

    def touch(self, path: str) -> None:
        """Create an empty file, or set the modification time of an existing file to now."""
        real = self._resolve_inside(path)
        with self._explain_errors("touch", path), _in_folder(real, lambda: open(real, "ab")) as file:
            os.utime(file.fileno())

    def make_folder(self, path: str) -> None:
        """Make a folder and those that it lies in, if they are missing."""
        real = self._resolve_inside(path)
        with self._explain_errors("make folder", path):
            os.makedirs(real, exist_ok=True)

    def delete(self, path: str) -> None:
        """Remove a regular file or a link, and the checksum file that Hadoop may have written beside it."""
        real = self._resolve_inside(path)
        with self._explain_errors("delete", path):
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(real)
            _drop_checksum(real)

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove files, if they are there."""
        for path in paths:
            self.delete(path)

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
    def lock(self, timeout_seconds: float) -> Iterator[Lease]:
        """Hold the table's lock: a ``flock`` on a file of lakeformat, which the kernel frees if its holder dies."""
        path = own_path("lock")
        real = self._resolve(path)
        with self._explain_errors("lock", path):
            os.makedirs(os.path.dirname(real), exist_ok=True)
        with ExitStack() as stack:
            with self._explain_errors("lock", path):
                stack.enter_context(hold_lock(real, timeout_seconds, self.root, make=True))
            yield EndlessLease()

    @contextmanager
    def hold(self, path: str) -> Iterator[None]:
        """Lock a file by ``flock`` while the block runs; lock nothing if there is no such file."""
        real = self._resolve(path)
        with ExitStack() as stack:
            with self._explain_errors("hold", path), suppress(FileNotFoundError):
                stack.enter_context(hold_lock(real, _GLANCE_SECONDS, real, make=False))
            yield

    def is_held(self, path: str) -> bool:
        """Tell whether a process has locked the file, by trying a shared lock and releasing it at once."""
        real = self._resolve(path)
        with self._explain_errors("look at", path):
            return is_held(real)

    def _explain_errors(self, verb: str, path: str) -> _ErrorsExplained:
        return _ErrorsExplained(verb, path, self.root)


class _ErrorsExplained:
    """A context manager that turns an ``OSError`` into a one-line `StorageError`.

    It lets the errors pass that the call is expected to raise. It is a class, because a commit enters it a hundred
    times, and a generator takes three times as long.
    """

    __slots__ = ("_path", "_root", "_verb")

    def __init__(self, verb: str, path: str, root: str) -> None:
        self._verb, self._path, self._root = verb, path, root

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, OSError) or isinstance(error, (StorageError, LockTimeoutError)):
            return
        if isinstance(error, _EXPECTED_ERRORS.get(self._verb, FileNotFoundError)):
            return
        what = f"{self._path} in {self._root}" if self._path else f"the table folder {self._root}"
        raise StorageError(f"cannot {self._verb} {what}: {_advise(error)}") from error


#: Maps each call to the errors that it may raise unchanged. A call that is not listed may raise ``FileNotFoundError``.
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


def _has_link(root: str, path: str) -> bool:
    """Tell whether one of the folders below the root that lead to a path is a symbolic link."""
    folder = root
    for name in path.split("/")[:-1]:
        folder = f"{folder}/{name}"
        try:
            status = os.lstat(folder)
        except FileNotFoundError:
            return False
        if not stat.S_ISDIR(status.st_mode):
            return True
    return False


def _in_folder(real: str, act: Callable[[], _Made]) -> _Made:
    """Make a file. If that fails because its folder is missing, make the folder, and try again."""
    try:
        return act()
    except FileNotFoundError:
        os.makedirs(os.path.dirname(real), exist_ok=True)
        return act()


def _flush(real: str) -> None:
    handle = os.open(real, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _flush_folder(real: str) -> None:
    with suppress(OSError):  # Some mounts cannot flush a folder. That is ignored: the file is flushed.
        _flush(real)


def _drop_checksum(real: str) -> None:
    """Remove the checksum file ``.<name>.crc`` that Hadoop may have written beside a file.

    Hadoop refuses a file whose ``.crc`` file does not match it (table-version-6, section 0).
    """
    folder, name = os.path.split(real)
    with suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(os.path.join(folder, f".{name}.crc"))
