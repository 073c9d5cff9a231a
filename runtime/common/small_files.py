"""Reading small files that users name. No path takes for ever, or all memory."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import NamedTuple


class SmallFile(NamedTuple):
    """``mode``: the permissions that the file had when it was opened."""

    data: bytes
    mode: int


def read_small_file(path: Path, bytes_max: int) -> SmallFile:
    """The content of a file.

    Raises OSError also for more than ``bytes_max`` bytes, and for a FIFO, a socket or a device: to open or to read one
    may take for ever.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a FIFO, a socket or a device", str(path))
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"it has more than {bytes_max} bytes", str(path))
    return SmallFile(data, stat.S_IMODE(mode))


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
