"""All file operations of the log and the other stores in one class, so that tests can replace the disk.

All methods raise OSError like the system calls. Only ``write_all`` handles short writes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

FILE_MODE = 0o600
"""Default permissions of new files. Only the owner may read them, because they hold data of clients."""

PRIVATE = 1 << 30
"""A flag for ``Disk.open``: only the owner may read a file that it creates, whatever the mode of new files."""

Kind = Literal["file", "folder", "broken link", "nothing"]
"""The type of the file at a path."""


def _sync_data_call() -> Callable[[int], object]:
    """The cheapest call after which a file's content survives a power loss."""
    if sys.platform == "linux":
        return os.fdatasync
    full_sync = getattr(fcntl, "F_FULLFSYNC", None)
    if full_sync is not None:  # on macOS fsync does not flush the drive's cache
        return lambda fd: fcntl.fcntl(fd, full_sync)
    return os.fsync


_sync_data = _sync_data_call()


def folder_mode(file_mode: int) -> int:
    """The permissions of a folder for files of this mode: whoever may read the files may search the folder."""
    return file_mode | (file_mode & 0o444) >> 2


class Disk:
    """The real disk. New files get ``file_mode`` and new folders the same with search permission, whatever the umask.

    A symbolic link under the name of a file is refused with ELOOP, unless ``follows_links``. Folders may be links.
    FIFOs, sockets, devices and folders are refused: to open or to read one may take for ever, or fail later.
    """

    is_real = True
    """Whether other processes can open the files."""

    simulates_power_loss = False
    """Whether ``Coordinator.restart`` may lose the changes that are not synced."""

    file_mode = FILE_MODE
    follows_links = False

    def __init__(self, file_mode: int = FILE_MODE, *, follows_links: bool = False) -> None:
        self.file_mode = file_mode
        self.follows_links = follows_links

    ahead_bytes = 1024 * 1024
    """By how much the journal is allocated ahead of its content. Larger steps are no faster."""

    def open(self, path: Path, flags: int) -> int:
        """A file descriptor; ``flags`` are those of ``os.open``, and ``PRIVATE``. NotAFile for a FIFO and the like."""
        flags |= os.O_CLOEXEC | os.O_NONBLOCK | (0 if self.follows_links else os.O_NOFOLLOW)
        try:
            fd = _open_or_create(self, path, flags) if flags & os.O_CREAT else os.open(path, flags)
        except OSError as error:
            if error.errno == errno.ELOOP and path.is_symlink():
                raise _symlink_error(path) from None
            if error.errno == errno.ENXIO:
                raise NotAFile(path, os.stat(path).st_mode) from None
            raise
        mode = os.fstat(fd).st_mode
        if not stat.S_ISREG(mode):
            os.close(fd)
            raise FolderFound(path, mode) if stat.S_ISDIR(mode) else NotAFile(path, mode)
        return fd

    def set_mode(self, fd: int, mode: int | None = None) -> None:
        """Give an open file a mode; None: that of new files.

        No error on a file system without permissions, or for a file of another owner.
        """
        expected = self.file_mode if mode is None else mode
        try:
            if stat.S_IMODE(os.fstat(fd).st_mode) != expected:
                with suppress(PermissionError):
                    os.fchmod(fd, expected)
        except OSError as error:
            raise with_path(error, fd) from None

    def open_folder(self, path: Path) -> int:
        """A descriptor of a folder, to lock it and to check whether it still exists."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def duplicate(self, fd: int) -> int:
        """A second descriptor of the same open file, so that one may be closed while the other syncs."""
        return os.dup(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def read(self, fd: int, size: int, position: int) -> bytes:
        """At most ``size`` bytes; none at the end of the file."""
        try:
            return os.pread(fd, size, position)
        except OSError as error:
            raise with_path(error, fd) from None

    def write(self, fd: int, data: bytes | memoryview, position: int) -> int:
        """Returns how many bytes were written, which may be fewer than given."""
        try:
            return os.pwrite(fd, data, position)
        except OSError as error:
            raise with_path(error, fd) from None

    def truncate(self, fd: int, size: int) -> None:
        try:
            os.ftruncate(fd, size)
        except OSError as error:
            raise with_path(error, fd) from None

    def sync(self, fd: int) -> None:
        """Make the file's content durable. Its name is durable after ``sync_folder``."""
        try:
            _sync_data(fd)
        except OSError as error:
            raise with_path(error, fd) from None

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            raise with_path(error, fd) from None
        finally:
            os.close(fd)

    def make_folder(self, path: Path) -> None:
        """Create a folder and its missing parents. No error if it exists."""
        missing = [path] if not path.is_dir() else []
        while missing and not os.path.lexists(missing[-1].parent):
            missing.append(missing[-1].parent)
        for folder in reversed(missing):
            _make_one_folder(folder, folder_mode(self.file_mode))

    def names(self, path: Path) -> list[str]:
        """The names in a folder, sorted; empty if there is no such folder."""
        return sorted(os.listdir(path)) if path.is_dir() else []

    def kind(self, path: Path) -> Kind:
        if path.is_dir():
            return "folder"
        if path.exists():
            return "file"
        return "broken link" if path.is_symlink() else "nothing"

    def lock(self, fd: int, *, hold: bool = True) -> None:
        """Lock an open file for this process until it is closed. BlockingIOError if another process has locked it.

        ``hold`` False: release the lock before that.
        """
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB if hold else fcntl.LOCK_UN)
        except OSError as error:
            raise with_path(error, fd) from None

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name. FileExistsError if it exists, so only one of several attempts succeeds.

        PermissionError on a file system without hard links, such as FAT.
        """
        try:
            os.link(source, target)
        except PermissionError as error:
            text = f"{error.strerror}: a hard link, which file systems such as FAT do not have"
            raise PermissionError(error.errno, text, str(source), None, str(target)) from None

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def is_named(self, fd: int, path: Path) -> bool:
        """Whether the path still refers to the open file, which was neither removed, nor moved, nor replaced."""
        try:
            return os.path.samestat(os.fstat(fd), os.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def drop_cached(self, fd: int) -> None:
        """Drop the clean pages of a file from the page cache, so that the next read comes from the disk.

        After a failed sync Linux marks the pages that it could not write as clean: they can still be read, and are lost
        in a power loss. Does nothing on other systems.
        """
        if sys.platform == "linux":
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _open_or_create(disk: Disk, path: Path, flags: int) -> int:
    """Create a new file exclusively, so that the mode of an existing file is never changed."""
    if flags & os.O_EXCL:
        return _create_file(disk, path, flags)
    existing_flags = flags & ~(os.O_CREAT | PRIVATE)
    with suppress(FileNotFoundError):
        return os.open(path, existing_flags)
    with suppress(FileExistsError):  # another process has created it
        return _create_file(disk, path, flags)
    return os.open(path, existing_flags)


def _create_file(disk: Disk, path: Path, flags: int) -> int:
    mode = FILE_MODE if flags & PRIVATE else disk.file_mode
    fd = os.open(path, flags & ~PRIVATE | os.O_EXCL, mode)
    disk.set_mode(fd, mode)
    return fd


def _make_one_folder(path: Path, mode: int) -> None:
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not path.is_dir():
            raise
        return
    actual = stat.S_IMODE(os.stat(path).st_mode)
    if actual & 0o777 != mode:
        with suppress(PermissionError):
            os.chmod(path, mode | actual & ~0o777)  # keeps setgid, which is inherited from the parent


class NotAFile(OSError):
    """Something was found where a file was expected. ``found``: "a FIFO", "a socket", "a device" or "a folder"."""

    def __init__(self, path: Path, mode: int) -> None:
        """``mode``: of its status."""
        self.found = next((name for is_kind, name in NOT_FILES if is_kind(mode)), "no file")
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO
        super().__init__(number, f"{path}: found {self.found}, expected a file; remove it, then try again")


class FolderFound(NotAFile, IsADirectoryError):
    """A folder was found where a file was expected."""


NOT_FILES: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


class NoSpace(OSError):
    """The disk is full, and a partial write was undone: the file is unchanged, and the write can be retried."""


NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)


def is_full(error: OSError) -> bool:
    """Whether the error is temporary: no space on the disk or in the user's quota, or no free file descriptor.

    Not for the error of a failed sync, after which the system may have dropped data.
    """
    return error.errno in NO_SPACE or is_out_of_descriptors(error)


def is_out_of_descriptors(error: OSError) -> bool:
    """Whether a file could not be opened because this process or the system has too many open files."""
    return error.errno in NO_DESCRIPTOR


def no_space_reason(error: OSError) -> str:
    """The text of an error for which ``is_full`` holds, for log lines."""
    if is_out_of_descriptors(error):
        return f"no file descriptor is free ({error}); raise the limit of open files (ulimit -n)"
    return str(error)


def write_all(disk: Disk, fd: int, data: bytes, position: int) -> None:
    """Write all of ``data`` at ``position``, in as many calls as needed."""
    written = disk.write(fd, data, position)
    while written < len(data):
        more = disk.write(fd, memoryview(data)[written:], position + written)
        if more == 0:
            raise OSError(errno.EIO, f"a write of {len(data) - written} bytes wrote none of them")
        written += more


def _symlink_error(path: Path) -> OSError:
    return OSError(errno.ELOOP, f"{path}: found a symbolic link, expected a file; remove the link, then try again")


def is_no_file_error(error: OSError) -> bool:
    """Whether a symbolic link, or a ``NotAFile``, was found where a file was expected.

    ``strerror`` is then the whole message.
    """
    return error.errno == errno.ELOOP or isinstance(error, NotAFile)


def with_path(error: OSError, fd: int) -> OSError:
    """The error with the path of the open file, which the system call does not know."""
    if error.filename is None:
        with suppress(OSError):
            error.filename = os.readlink(f"/proc/self/fd/{fd}")
    return error


ADVICE = {
    errno.ENOSPC: "free some space, then try again",
    errno.EDQUOT: "free some space, or raise the quota, then try again",
    errno.EROFS: "choose another folder, or mount this one to write",
    errno.EACCES: "change its owner or its permissions",
    errno.EPERM: "change its owner or its permissions",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.EOPNOTSUPP: "use a file system that supports this, such as ext4 or xfs",
    errno.ENOSYS: "use a file system that supports this, such as ext4 or xfs",
    errno.ENOLCK: "use a file system that can lock files; for NFS 3 the services for locks must run",
}


def advice_for(error: OSError) -> str:
    """What the user of a command can do about a failed operation on a file."""
    if error.errno == errno.ENOENT and error.filename is None:  # that of the module tempfile
        return "free some space there, or set TMPDIR to a folder that can be written to"
    return ADVICE.get(error.errno or 0, "check the disk and the folder's owner")


def describe_failure(error: OSError) -> str:
    """For the user of a command that works on files: which file, what is wrong with it, and what to do."""
    if is_no_file_error(error) or error.errno is None:
        return str(error.strerror or error)
    prefix = f"{error.filename}: " if error.filename else ""
    return f"{prefix}{error.strerror or error}; {advice_for(error)}"


def open_new_file(disk: Disk, path: Path, flags: int = os.O_WRONLY) -> int:
    """Create a new file. An existing file of that name, for example one that a crash left, is removed. OSError."""
    flags |= os.O_CREAT | os.O_EXCL
    try:
        return disk.open(path, flags)
    except FileExistsError:
        disk.remove(path)
    return disk.open(path, flags)


def replace_file(disk: Disk, path: Path, data: bytes, *, is_private: bool = False) -> None:
    """Replace a small file atomically and durably: write to a temporary file, sync, rename. OSError.

    ``is_private``: only its owner may read it, whatever the mode of new files.
    """
    temporary = path.with_name(path.name + ".new")
    fd = open_new_file(disk, temporary, os.O_WRONLY | (PRIVATE if is_private else 0))
    try:
        write_all(disk, fd, data, 0)
        disk.sync(fd)
    finally:
        disk.close(fd)
    disk.rename(temporary, path)
    disk.sync_folder(path.parent)


def read_at(disk: Disk, fd: int, size: int, position: int) -> bytes:
    """``size`` bytes at ``position``; fewer only at the end of the file."""
    data = disk.read(fd, size, position)
    while len(data) < size and (more := disk.read(fd, size - len(data), position + len(data))):
        data += more
    return data


def read_file(disk: Disk, path: Path) -> bytes:
    """The whole content of a file."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        return read_at(disk, fd, disk.size(fd), 0)
    finally:
        disk.close(fd)


def file_size(disk: Disk, path: Path) -> int:
    """The current size of a file in bytes."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        return disk.size(fd)
    finally:
        disk.close(fd)
