"""Where log lines go.

A command writes them to standard error: as text on a terminal, as JSON lines otherwise. Lines of libraries that use
``logging`` (pykka, asyncio) get the same format.

In a host program the host decides. If it has configured structlog, it gets the lines there, with their fields; else by
``logging``. Callboard configures neither of them, and does not import structlog.
"""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TextIO

from ...actors.text import LogLine, printable
from .printing import printable_lines

if TYPE_CHECKING:
    from structlog.typing import Processor


ROOT = "callboard"
"""The parent of all loggers of Callboard."""

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]


class Logger:
    """Logs events with fields, like structlog's loggers."""

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, event: str, **fields: object) -> None:
        self._log("debug", event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._log("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._log("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._log("error", event, fields)

    def exception(self, event: str, **fields: object) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        self._log("exception", event, fields)

    def _log(self, method: str, event: str, fields: Mapping[str, object]) -> None:
        structlog = sys.modules.get("structlog")
        if structlog is not None and structlog.is_configured():
            getattr(structlog.get_logger(), method)(event, **fields, logger=self._name)
            return
        getattr(logging.getLogger(self._name), method)(LogLine(event, fields))


def get_logger(name: str) -> Logger:
    """``name`` is the name of the ``logging`` logger, for example "callboard.runtime"."""
    return Logger(name)


def import_structlog() -> Any:
    """Import structlog without rich, which it would load for coloured tracebacks: this saves 60 ms of every start.

    While rich is hidden, structlog selects its plain tracebacks. If rich is loaded already, it stays.
    """
    hidden: Any = None
    sys.modules.setdefault("rich", hidden)
    try:
        return importlib.import_module("structlog")
    finally:
        if sys.modules["rich"] is None:
            del sys.modules["rich"]


class LossyStream:
    """A stream that drops text that it cannot write, so that a full disk below the log file does not stop the program.

    Log lines are often written to the disk that they report about.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def _add_fields(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the fields of a ``LogLine`` that was logged by ``logging``."""
    line = event["_record"].msg
    if isinstance(line, LogLine):
        event["event"] = line.event
        event.update(line.fields)
    return event


def _make_printable(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape terminal control sequences in values, since many are names chosen by clients. JSON escapes them anyway."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = printable(value)
        elif name != "exc_info" and not isinstance(value, int | float | None):
            event[name] = printable(repr(value))
    return event


FIRST_FIELDS = ("timestamp", "level", "logger", "event")


def _put_first(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """What all lines have comes first, so that a person can read the JSON of several lines."""
    return {**{name: event[name] for name in FIRST_FIELDS if name in event}, **event}


def _print_traceback(stream: TextIO, exc_info: Any) -> None:
    stream.write("\n" + printable_lines("".join(traceback.format_exception(*exc_info)).rstrip("\n")))


def configure(stream: TextIO, level: Level = "info", form: Format | None = None) -> None:
    """Send Callboard's log lines from ``level`` on, and warnings of libraries, to ``stream``.

    ``form``: if None, text if the stream is a terminal, else JSON.
    """
    structlog = import_structlog()
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Processor] = (
        [_make_printable, structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=_print_traceback)]
        if form == "text" or (form is None and stream.isatty())
        else [structlog.processors.format_exc_info, _put_first, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(LossyStream(stream)),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    formatter = structlog.stdlib.ProcessorFormatter
    processors = [formatter.remove_processors_meta, *last]
    before = [*shared, structlog.stdlib.add_logger_name, _add_fields]
    handler.setFormatter(formatter(foreign_pre_chain=before, processors=processors))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger(ROOT).setLevel(level.upper())
