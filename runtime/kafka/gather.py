"""A request that asks several groups: its parts go out together, its answer waits for all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ...actors.engine_ports import ReplyTo
from ...actors.error_reply import error_reply
from ...actors.errors import ErrorCode
from ...actors.messages import GroupRequest
from ...actors.transactions.messages import TransactionRequest
from .call import Call

Message = GroupRequest | TransactionRequest

SLICE = 100
"""Messages that are on their way together: two milliseconds of work, with the encoding of what they are answered."""

ANSWER_BYTES_MAX = 2**30
"""One request can name the same large group very many times."""

log = logging.getLogger("callboard.kafka")


class Part:
    """The place for one group's answer."""

    __slots__ = ("_gather", "_index", "_message")

    def __init__(self, gather: Gather, index: int, message: Message) -> None:
        self._gather = gather
        self._index = index
        self._message = message

    def set(self, value: Any = None) -> None:
        self._gather.got(self._index, value)

    def set_exception(self, exc_info: Any = None) -> None:
        self.set(error_reply(self._message, ErrorCode.UNKNOWN_SERVER_ERROR))


class Gather:
    """Collects the answers in the order of the messages, then answers the call.

    One frame can name half a million groups. So the messages go out a slice at a time, the next when all of the one
    before are answered, and everybody else has a turn in between; a request with one slice has no such pause.
    """

    def __init__(
        self,
        call: Call,
        messages: Sequence[Message],
        encode: Callable[[list[Any]], bytes],
        post: Callable[[Any, ReplyTo], None] | None = None,
        digest: Callable[[list[Any]], list[Any]] = list,
    ) -> None:
        """``post`` sends a part; None: to its group.

        ``digest`` does with each slice's answers what need not wait for the others; ``encode`` gets what it returns.
        """
        self._call = call
        self._post: Callable[[Any, ReplyTo], None] = post or call.node.groups.post
        self._messages = messages
        self._encode = encode
        self._digest = digest
        self._digested: list[Any] = []
        self._answers: list[Any] = []  # of the slice
        self._bytes = 0  # of ``_digested``, where it is bytes
        self._sent = 0
        self._missing = 0

    def send(self) -> None:
        """The first slice, or the next."""
        start = self._sent
        self._sent = min(start + SLICE, len(self._messages))
        self._missing = self._sent - start
        self._answers = [None] * self._missing
        for index in range(self._missing):
            message = self._messages[start + index]
            self._post(message, Part(self, index, message))
        if not self._messages:
            self._call.finish(lambda: self._encode([]))

    def got(self, index: int, answer: Any) -> None:
        self._answers[index] = answer
        self._missing -= 1
        if not self._missing:
            self._slice_is_answered()

    def _slice_is_answered(self) -> None:
        try:
            digested = self._digest(self._answers)
        except Exception:
            self._call.fail()
            return
        self._digested += digested
        self._bytes += sum(len(item) for item in digested if isinstance(item, bytes))
        if self._bytes > ANSWER_BYTES_MAX:
            log.error("an answer to %s is too large, expected fewer groups in one request", self._call.connection.peer)
            self._call.answer_with_error()
            return
        if self._sent < len(self._messages):
            self._call.node.later(0, self.send)
        else:
            self._call.finish(lambda: self._encode(self._digested))
