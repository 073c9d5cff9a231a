"""The kernel syncs files in the background."""

from __future__ import annotations

import errno
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.runtime.disk.kernel_sync import KernelSync


@pytest.fixture
def kernel_sync() -> Iterator[KernelSync]:
    try:
        sync = KernelSync.take()
    except OSError as error:
        pytest.skip(f"this system has no asynchronous I/O: {error}")
    yield sync
    sync.release()


def test_each_sync_is_reported_once(kernel_sync: KernelSync, tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    for number in range(20):
        os.pwrite(fd, b"x" * 5000, number * 5000)
        kernel_sync.start(fd)
        kernel_sync.wait()
        assert kernel_sync.take_error_number() == 0
        assert kernel_sync.take_error_number() is None
    os.close(fd)


def test_file_may_be_closed_during_its_sync(kernel_sync: KernelSync, tmp_path: Path) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * 5000)
    kernel_sync.start(fd)
    os.close(fd)
    kernel_sync.wait()
    assert kernel_sync.take_error_number() == 0


def test_what_cannot_be_synced_is_refused(kernel_sync: KernelSync, tmp_path: Path) -> None:
    pipe = os.pipe()
    with pytest.raises(OSError, match="io_submit") as refusal:
        kernel_sync.start(pipe[0])
    assert refusal.value.errno == errno.EINVAL
    for fd in pipe:
        os.close(fd)
    with pytest.raises(OSError, match="io_submit") as refusal:
        kernel_sync.start(pipe[0])
    assert refusal.value.errno == errno.EBADF
    assert kernel_sync.take_error_number() is None


FORK = """
import os, sys
from callboard.runtime.disk.kernel_sync import KernelSync

def sync():
    kernel_sync = KernelSync.take()
    fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * 5000)
    kernel_sync.start(fd)
    kernel_sync.wait()
    assert kernel_sync.take_error_number() == 0
    return kernel_sync

sync().release()
child = os.fork()
sync()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_child_of_a_fork_does_not_take_what_the_parent_has_left(kernel_sync: KernelSync, tmp_path: Path) -> None:
    """A context belongs to the process that made it: the child's call with it fails with EINVAL."""
    subprocess.run([sys.executable, "-c", FORK, str(tmp_path / "file")], check=True, timeout=60)


def test_unused_one_is_taken_again(kernel_sync: KernelSync) -> None:
    other = KernelSync.take()
    assert other is not kernel_sync
    other.release()
    assert KernelSync.take() is other
    other.release()


def test_unknown_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "vax")
    with pytest.raises(OSError, match=r"no asynchronous I/O on .* vax"):
        KernelSync()
