"""``fdatasync`` without a thread: Linux's asynchronous I/O, see io_submit(2), with an eventfd that a loop watches.

A thread that syncs needs the GIL again after each system call, while the event loop holds it. The kernel does not.

The system calls have no functions in the standard library. ``ctypes.PyDLL`` keeps the GIL during them: each only queues
or takes something, in about a microsecond. caio has the same calls, but needs 0.1 s to be imported.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import select
import sys
from struct import Struct
from typing import NamedTuple

from .disk import with_path


class _CallNumbers(NamedTuple):
    setup: int
    getevents: int
    submit: int


_GENERIC = _CallNumbers(0, 4, 2)
_CALL_NUMBERS = {"x86_64": _CallNumbers(206, 208, 209), "aarch64": _GENERIC, "riscv64": _GENERIC}
"""By machine; all of them are little-endian and have pointers of 8 bytes."""

_FDSYNC = 3  # IOCB_CMD_FDSYNC, since Linux 4.18
_REPORTS_TO_EVENTFD = 1  # IOCB_FLAG_RESFD
_REQUEST = Struct("<QIIHhIQQqQII")  # struct iocb; its last field is the eventfd
_EVENT = Struct("<QQqq")  # struct io_event; its third field is the result
_SIGNAL_BYTES = 8


class KernelSync:
    """One sync at a time, of any file. ``fileno`` becomes readable when it has finished."""

    _unused: list[KernelSync] = []

    def __init__(self) -> None:
        """Raises OSError where the system has no such calls, or does not permit them."""
        numbers = _CALL_NUMBERS.get(platform.machine())
        if sys.platform != "linux" or numbers is None or ctypes.sizeof(ctypes.c_void_p) != _SIGNAL_BYTES:
            raise OSError(errno.ENOSYS, f"no asynchronous I/O on {sys.platform} {platform.machine()}")
        self._call = ctypes.PyDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        context = ctypes.c_ulong(0)
        if self._call(ctypes.c_long(numbers.setup), ctypes.c_uint(1), ctypes.byref(context)) != 0:
            raise _error("io_setup")
        self._eventfd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._request = ctypes.create_string_buffer(_REQUEST.size)
        self._event = ctypes.create_string_buffer(_EVENT.size)
        requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        one = ctypes.c_long(1)
        self._submit_arguments = ctypes.c_long(numbers.submit), context, one, requests
        self._getevents_arguments = ctypes.c_long(numbers.getevents), context, one, one, self._event, None

    @classmethod
    def take(cls) -> KernelSync:
        """One that was given back before, or a new one. Raises OSError as the constructor."""
        try:
            return cls._unused.pop()
        except IndexError:
            return cls()

    def release(self) -> None:
        """Keep it for the next ``take``: io_destroy(2) would block for 30 ms. No sync is in progress."""
        self._unused.append(self)

    def fileno(self) -> int:
        return self._eventfd

    def start(self, fd: int) -> None:
        """Begin a sync. Raises OSError if the kernel or the file system cannot sync this file in the background."""
        _REQUEST.pack_into(self._request, 0, 0, 0, 0, _FDSYNC, 0, fd, 0, 0, 0, 0, _REPORTS_TO_EVENTFD, self._eventfd)
        if self._call(*self._submit_arguments) != 1:
            raise _error("io_submit")

    def wait(self) -> None:
        """Block until the sync has finished."""
        poll = select.poll()
        poll.register(self._eventfd, select.POLLIN)
        poll.poll()

    def take_error_number(self) -> int | None:
        """The ``errno`` of the sync, 0 for a success; None if it has not finished."""
        try:
            os.read(self._eventfd, _SIGNAL_BYTES)
        except BlockingIOError:
            return None
        if self._call(*self._getevents_arguments) != 1:
            raise _error("io_getevents")
        result: int = _EVENT.unpack(self._event)[2]
        return -result


def error_of_sync(number: int, fd: int) -> OSError | None:
    """The error of ``disk.sync`` for an ``errno``; None for 0."""
    return with_path(OSError(number, os.strerror(number)), fd) if number else None


def _forget_unused() -> None:
    """The child of a fork has none of the parent's contexts, and must not take the signals of its eventfds."""
    while KernelSync._unused:
        os.close(KernelSync._unused.pop().fileno())


os.register_at_fork(after_in_child=_forget_unused)


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")
