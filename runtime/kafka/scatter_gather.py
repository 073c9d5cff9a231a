"""Requests that name several groups: one message to each, one response when all have replied."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...actors.engine_ports import ReplyTo
from ...actors.error_reply import error_reply
from ...actors.errors import ErrorCode
from ...actors.messages import GroupRequest
from ...actors.steps import Steps
from ...actors.transactions.messages import TransactionRequest
from ..common.shared_bytes import SharedBytes
from .call import Body, Call

Message = GroupRequest | TransactionRequest

MESSAGES_PER_BATCH = 100
"""Messages in flight at a time: about two milliseconds of work, with the encoding of the replies."""

CHARS_PER_BATCH = 16_384
"""Characters of the ids of groups in a batch: a millisecond."""

log = logging.getLogger("callboard.kafka")


class ReplySlot:
    """Receives the reply of one group."""

    __slots__ = ("_gather", "_index", "_message")

    def __init__(self, gather: ScatterGather, index: int, message: Message) -> None:
        self._gather = gather
        self._index = index
        self._message = message

    def set(self, value: Any = None) -> None:
        self._gather.set_reply(self._index, value)

    def set_exception(self, exc_info: Any = None) -> None:
        self.set(error_reply(self._message, ErrorCode.UNKNOWN_SERVER_ERROR))


class ScatterGather:
    """Collects the replies in the order of the messages, then answers the call.

    One frame can name many groups. Therefore the messages are sent in batches of ``MESSAGES_PER_BATCH``. The
    next batch is sent when all replies to the previous one have arrived, and in a later iteration of the event loop, so
    other clients are served in between.
    """

    def __init__(
        self,
        call: Call,
        messages: Iterable[Message],
        encode: Callable[[list[Any]], Body],
        post: Callable[[Any, ReplyTo], None] | None = None,
        convert: Callable[[int, Any], Steps[Any]] | None = None,
    ) -> None:
        """``messages`` are made when their batch is sent. ``post`` sends one; None: to its group.

        ``convert`` makes the result from the number of a message and its reply: bytes, if replies can be large. None:
        the reply is the result. ``encode`` gets all the results and returns the body.
        """
        self._call = call
        self._post: Callable[[Any, ReplyTo], None] = post or call.services.groups.post
        self._messages = iter(messages)
        self._encode = encode
        self._convert = convert
        self._results: list[Any] = []
        self._replies: list[Any] = []  # to the current batch
        self._bytes = 0  # total size of the results that are bytes
        self._sent_count = 0
        self._missing_replies = 0
        self._is_last_batch = False

    def send_next_batch(self) -> None:
        """Send the next batch."""
        batch = list(self._take_batch())
        self._sent_count += len(batch)
        self._missing_replies = len(batch)
        self._replies = [None] * len(batch)
        for index, message in enumerate(batch):
            self._post(message, ReplySlot(self, index, message))
        if not batch:
            self._finish()

    def _take_batch(self) -> Iterator[Message]:
        """Long ids end a batch early, because the partition of an id is computed from all its characters."""
        chars = 0
        for count, message in enumerate(self._messages, 1):
            chars += len(getattr(message, "group_id", "") or getattr(message, "transactional_id", ""))
            yield message
            if count == MESSAGES_PER_BATCH or chars >= CHARS_PER_BATCH:
                return
        self._is_last_batch = True

    def set_reply(self, index: int, answer: Any) -> None:
        self._replies[index] = answer
        self._missing_replies -= 1
        if not self._missing_replies:
            self._on_batch_complete()

    def _on_batch_complete(self) -> None:
        if self._convert is None:
            self.add_results(self._replies)
        else:
            self._call.services.slices.run_in_turn(ConversionJob(self, self._call, self._converted(self._convert)))

    def _converted(self, convert: Callable[[int, Any], Steps[Any]]) -> Steps[list[Any]]:
        converted = []
        for index, reply in enumerate(self._replies, self._sent_count - len(self._replies)):
            converted.append((yield from convert(index, reply)))
            yield
        return converted

    def add_results(self, results: list[Any]) -> None:
        """Add the results of a batch. A response above ``queued_max_response_bytes`` is not made."""
        self._results += results
        self._bytes += sum(len(item) for item in results if isinstance(item, bytes | SharedBytes))
        if self._bytes > self._call.services.settings.queued_max_response_bytes:
            log.error(
                "the response to %s is too large, expected fewer groups in one request", self._call.connection.peer
            )
            self._call.respond_with_error()
            return
        if self._is_last_batch:
            self._finish()
        else:
            self._call.services.later(0, self.send_next_batch)

    def _finish(self) -> None:
        self._call.encode_and_respond(lambda: self._encode(self._results))


class ConversionJob:
    """Converts the replies of one batch in slices. Implements ``slices.Job``."""

    __slots__ = ("_call", "_gather", "steps")

    def __init__(self, gather: ScatterGather, call: Call, steps: Steps[list[Any]]) -> None:
        self._gather = gather
        self._call = call
        self.steps = steps

    @property
    def is_wanted(self) -> bool:
        return self._call.connection.is_open

    def finish(self, result: list[Any]) -> None:
        self._gather.add_results(result)

    def fail(self, error: Exception) -> None:
        self._call.fail()

    def drop(self) -> None:
        self._call.respond_with_nothing()
