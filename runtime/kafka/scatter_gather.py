"""Requests that name several groups: one message to each, one response when all have replied."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...actors.engine_ports import ReplyTo
from ...actors.error_reply import error_reply
from ...actors.errors import ErrorCode
from ...actors.messages import GroupRequest
from ...actors.steps import Steps, run_steps
from ...actors.transactions.messages import TransactionRequest
from ..common.shared_bytes import SharedBytes
from .batch_gate import ITEMS_WAITING_MAX
from .call import Body, Call, LargeCall

Message = GroupRequest | TransactionRequest

MESSAGES_PER_BATCH = 32
"""Messages in flight at a time: about half a millisecond of work, with the encoding of the replies."""

SMALL_BATCH = 8
"""A batch up to this size does not wait for others."""

MESSAGES_PER_STEP = 8
"""About a tenth of a millisecond."""

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

    One frame can name many groups. Therefore the messages are sent in batches of ``MESSAGES_PER_BATCH``. The next batch
    is sent when all replies to the previous one have arrived, in a later iteration of the event loop, and in turns with
    the requests of other clients. Only ``max_sliced_requests`` batches are in flight at a time.
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
        self._batch: list[Message] = []
        self._sent_count = 0
        self._missing_replies = 0
        self._is_last_batch = False

    def send_next_batch(self) -> None:
        """Send the next batch: a small one now, a larger one in slices when it may be in flight."""
        if not self._sent_count and not self._is_admitted():
            return
        batch = self._batch = list(self._take_batch())
        self._missing_replies = len(batch)
        self._sent_count += len(batch)
        self._replies = [None] * len(batch)
        if not batch:
            self._finish()
        elif len(batch) <= SMALL_BATCH:
            run_steps(self._send())
        else:
            slices = self._call.services.slices
            slices.batches.enter(lambda: slices.run_later(SendingJob(self, self._send())))

    def _is_admitted(self) -> bool:
        """Close the connection if too many large requests wait for their batches: an answer is as long as a request."""
        call = self._call
        if not isinstance(call, LargeCall) or call.services.slices.batches.admit(call, call.items):
            return True
        too_many = f"its {call.items} items and those of the requests that wait are more than {ITEMS_WAITING_MAX}"
        reason = f"{too_many}; the connection is closed"
        call.services.over_limit.name_refused(call.connection, f"a request ({call.schema.name})", reason)
        call.connection.close()
        call.respond_with_nothing()
        return False

    def _send(self) -> Steps[None]:
        for index, message in enumerate(self._batch, 1):
            self._post(message, ReplySlot(self, index - 1, message))
            if index % MESSAGES_PER_STEP == 0:
                yield

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
            if len(self._batch) > SMALL_BATCH:
                self._call.services.slices.batches.leave()
            self._on_batch_complete()

    def fail_batch(self) -> None:
        """Answer with an error: a message could not be sent, because of the exception that is being handled."""
        self._call.services.slices.batches.leave()
        self._call.fail()

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


class SendingJob:
    """Sends one batch in slices, also if the client is gone: it may change something. Implements ``slices.Job``."""

    __slots__ = ("_gather", "steps")

    is_wanted = True
    is_answer = False

    def __init__(self, gather: ScatterGather, steps: Steps[None]) -> None:
        self._gather = gather
        self.steps = steps

    def finish(self, result: None) -> None:
        """The replies end the batch."""

    def fail(self, error: Exception) -> None:
        self._gather.fail_batch()

    def drop(self) -> None:
        """The server stops. The connection is closed without an answer."""


class ConversionJob:
    """Converts the replies of one batch in slices. Implements ``slices.Job``."""

    __slots__ = ("_call", "_gather", "steps")

    is_answer = True

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
