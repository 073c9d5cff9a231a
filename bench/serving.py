"""``callboard serve`` as a child process, for benchmarks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from callboard.bench.harness import Server


@contextmanager
def callboard_server(
    parent: Path | None = None,
    settings: Sequence[str] = (),
    keystore: Path | None = None,
    program: str = "callboard",
) -> Iterator[Server]:
    """A server on an empty folder in ``parent``, by default the current folder.

    The system's folder for temporary files is not used, since it may be in memory, where a sync costs nothing.

    Args:
        keystore: for TLS.
        program: the module that is run: ``callboard``, or one that measures it.
    """
    with tempfile.TemporaryDirectory(prefix="bench-server-", dir=parent or Path.cwd()) as folder:
        protocol = "PLAINTEXT" if keystore is None else "SSL"
        tls = () if keystore is None else (f"ssl_keystore_location={keystore}",)
        arguments = ["serve", "--listen", f"{protocol}://127.0.0.1:0", "--data", folder, "--sync", "always"]
        for setting in ("group_initial_rebalance_delay_ms=0", *tls, *settings):
            arguments += ["--set", setting]
        with Server(["-m", program, *arguments], "callboard serve") as server:
            yield server
