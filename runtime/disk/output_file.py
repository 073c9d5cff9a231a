"""A file that a command writes for its user, which has its name only when it is complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex


@contextmanager
def new_output_file(output: Path) -> Iterator[Path]:
    """The path to write to. After the block the file is there under the name ``output``, durably.

    A file of that name is replaced; of a link the file that it leads to. A device or a FIFO, such as /dev/null, is
    written to. If the block fails nothing is left. An OSError about the path that is written to names ``output``.
    """
    if output.exists() and not output.is_file():
        yield output
        return
    real = Path(os.path.realpath(output))
    # A name that is in use belongs to the user, or to another run.
    temporary = real.with_name(f".callboard-{token_hex(8)}.new")
    try:
        yield temporary
        _sync(temporary)
        temporary.replace(real)
        _sync(real.parent)
    except BaseException as error:
        with suppress(OSError):  # the disk may be read-only: the first error says so
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            error.filename = str(output)
        raise


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
