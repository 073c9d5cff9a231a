"""Where log lines go: standard error, for a person on a terminal and as JSON lines anywhere else.

The lines of libraries that use ``logging`` (pykka, asyncio) take the same way, so that whoever reads the stream reads
one format.
"""

from __future__ import annotations

import importlib
import logging
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from structlog.typing import Processor


def import_structlog() -> Any:
    """Import structlog without rich, which it loads for coloured tracebacks: 60 ms of every start, for nothing.

    With rich hidden its plain tracebacks are the default. Who has rich loaded already keeps it.
    """
    hidden: Any = None
    sys.modules.setdefault("rich", hidden)
    try:
        return importlib.import_module("structlog")
    finally:
        if sys.modules["rich"] is None:
            del sys.modules["rich"]


class Lossy:
    """A stream that loses what it cannot write: whoever logs must not fail because the disk is full that the log is on.

    The disk of the log lines is often the one that the lines are about.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def configure(stream: TextIO, level: int = logging.INFO) -> None:
    """Send everything of ours from ``level`` on, and warnings of the libraries, to ``stream``."""
    structlog = import_structlog()
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Processor] = (
        [structlog.dev.ConsoleRenderer()]
        if stream.isatty()
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(Lossy(stream)),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    formatter = structlog.stdlib.ProcessorFormatter
    handler.setFormatter(formatter(foreign_pre_chain=shared, processors=[formatter.remove_processors_meta, *last]))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
