"""A request that asks several groups: its parts go out together, its answer waits for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...actors.errors import ErrorCode
from ...actors.messages import GroupRequest
from ...actors.ports import ReplyTo
from ...actors.refusal import refusal
from ...actors.transaction_messages import TransactionRequest
from .call import Call

Message = GroupRequest | TransactionRequest


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
        self.set(refusal(self._message, ErrorCode.UNKNOWN_SERVER_ERROR))


class Gather:
    """Collects the answers in the order of the messages, then answers the call."""

    def __init__(
        self,
        call: Call,
        messages: Sequence[Message],
        encode: Callable[[list[Any]], bytes],
        post: Callable[[Any, ReplyTo], None] | None = None,
    ) -> None:
        """``post`` sends a part; None: to its group."""
        self._call = call
        self._post: Callable[[Any, ReplyTo], None] = post or call.node.groups.post
        self._messages = messages
        self._encode = encode
        self._answers: list[Any] = [None] * len(messages)
        self._missing = len(messages)

    def send(self) -> None:
        if not self._messages:
            self._call.reply_bytes(self._encode([]))
        for index, message in enumerate(self._messages):
            self._post(message, Part(self, index, message))

    def got(self, index: int, answer: Any) -> None:
        self._answers[index] = answer
        self._missing -= 1
        if not self._missing:
            self._call.finish(lambda: self._encode(self._answers))
