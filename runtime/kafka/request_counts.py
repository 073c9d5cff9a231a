"""RequestCounts: how often each API is requested, with which errors and how long it takes, for metrics.

It is switched on by an option, because it costs each request two or three microseconds. Without it nothing is measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from ...actors.durations import Durations
from ...actors.errors import ErrorCode
from ...actors.steps import Steps
from .call import Call, ResponseChannel, message_of, watch
from .codec.schemas import Schema
from .lease import AtOnce, Handler

BOUNDS_S: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""Upper bounds of the histogram buckets of requests. A JoinGroup may wait for minutes."""

NS_PER_S: Final = 1e9

NO_REPLY: Final = ""
"""In place of the error, of requests that no actor has answered."""

FIRST_ERROR, LATER_ERROR = slice(0, 2), slice(4, 6)
"""The position of the error in a response to a heartbeat of version 0, and behind the throttle time in others."""


class ApiCounts:
    """The requests of one API. ``errors``: their numbers by the name of the error."""

    __slots__ = ("_clock_ns", "durations", "errors")

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self.errors: Counter[str] = Counter()
        self.durations = Durations(BOUNDS_S)
        self._clock_ns = clock_ns

    def add(self, begun_ns: int, error: str) -> None:
        self.errors[error] += 1
        self.durations.add((self._clock_ns() - begun_ns) / NS_PER_S)


class RequestCounts:
    """``apis``: by kio's name, those that were requested."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self.apis: dict[str, ApiCounts] = {}
        self._clock_ns = clock_ns

    def counted(self, name: str, handle: Handler) -> Handler:
        """Return a handler whose calls are counted when an actor has replied, or else when they have been handled.

        Those that are not answered then have no duration.
        """
        counts, clock_ns = self._counts_of(name), self._clock_ns

        def handle_counted(call: Call) -> Steps[None] | None:
            begun_ns = clock_ns()
            steps = handle(call)
            if steps is not None:
                return in_steps(call, begun_ns, steps)
            count(call, begun_ns)
            return None

        def in_steps(call: Call, begun_ns: int, steps: Steps[None]) -> Steps[None]:
            yield from steps
            count(call, begun_ns)

        def count(call: Call, begun_ns: int) -> None:
            if call.payload is not None:
                counts.add(begun_ns, NO_REPLY)
            elif message_of(call) is not None:
                watch(call, lambda reply: counts.add(begun_ns, error_of(reply)))
            else:
                counts.errors[NO_REPLY] += 1  # it waits for several groups, or for records

        return handle_counted

    def counted_at_once(self, name: str, answer_at_once: AtOnce) -> AtOnce:
        """Return a function that counts the heartbeats that it answers."""
        counts, clock_ns = self._counts_of(name), self._clock_ns

        def answer_counted(channel: ResponseChannel, schema: Schema, request: Any) -> bytes | None:
            begun_ns = clock_ns()
            body = answer_at_once(channel, schema, request)
            if body is not None:
                place = LATER_ERROR if schema.version or name != "heartbeat" else FIRST_ERROR
                counts.add(begun_ns, error_name(int.from_bytes(body[place], signed=True)))
            return body

        return answer_counted

    def _counts_of(self, name: str) -> ApiCounts:
        return self.apis.setdefault(name, ApiCounts(self._clock_ns))


def error_of(reply: Any) -> str:
    """The name of the error of a reply as a whole, or of the first refused item of a commit; NONE if there is none."""
    if isinstance(reply, ErrorCode):
        return reply.name
    error = getattr(reply, "error", None)
    if error is None:
        errors = getattr(reply, "errors", ())
        error = next((each for each in errors if each is not ErrorCode.NONE), ErrorCode.NONE)
    return error_name(error)


def error_name(code: int) -> str:
    """Of a code that this server sends."""
    return ErrorCode(code).name
