"""Where log lines go.

Of a command: to standard error, for a person on a terminal and as JSON lines anywhere else. The lines of libraries that
use ``logging`` (pykka, asyncio) take the same way, so that whoever reads the stream reads one format.

In somebody else's program: where that program says. One that has configured structlog gets them there, with their
fields, any other by ``logging``; nothing is configured for it, and structlog is not even imported.
"""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from .printing import printable, printable_lines

if TYPE_CHECKING:
    from structlog.typing import Processor


class Logger:
    """Says what happened, with fields, as structlog's loggers do."""

    def __init__(self, name: str) -> None:
        self._name = name

    def info(self, event: str, **fields: object) -> None:
        self._say("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._say("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._say("error", event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """From within an ``except``: with the traceback."""
        self._say("exception", event, fields)

    def _say(self, method: str, event: str, fields: Mapping[str, object]) -> None:
        structlog = sys.modules.get("structlog")
        if structlog is not None and structlog.is_configured():
            getattr(structlog.get_logger(), method)(event, **fields)
            return
        text = " ".join([event, *(f"{name}={value!r}" for name, value in fields.items())])
        getattr(logging.getLogger(self._name), method)("%s", text)


def get_logger(name: str) -> Logger:
    """``name`` is that of the logger of ``logging``: "callboard.runtime"."""
    return Logger(name)


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


def _make_printable(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Values that do nothing to a terminal: many are names that clients have chosen. JSON escapes them anyway."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = printable(value)
        elif name != "exc_info" and not isinstance(value, int | float | None):
            event[name] = printable(repr(value))
    return event


def _print_traceback(stream: TextIO, exc_info: Any) -> None:
    stream.write("\n" + printable_lines("".join(traceback.format_exception(*exc_info)).rstrip("\n")))


def configure(stream: TextIO, level: int = logging.INFO) -> None:
    """Send everything of ours from ``level`` on, and warnings of the libraries, to ``stream``."""
    structlog = import_structlog()
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Processor] = (
        [_make_printable, structlog.dev.ConsoleRenderer(exception_formatter=_print_traceback)]
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
