"""ConsumerSession: the session timeout of a member of the consumer protocol. The coordinator may change it.

No answer to a heartbeat tells it, so the member asks. A heartbeat extends the lease only if the timeout is read after
its answer: then it was not lowered before the coordinator handled the heartbeat. A heartbeat whose answer is lost, or
that is not followed by a question, does not shorten the session, because the coordinator lets no heartbeat do that.

A timeout that is lowered and raised between two questions is not noticed.
"""

from __future__ import annotations

import asyncio

from ...actors.errors import CoordinatorError
from .channel import ChannelLost, Connector
from .errors import MemberError
from .lease import NEVER, SILENT_SESSION_PART, Lease, LeaseTimeouts
from .member_log import MemberLog
from .options import MemberOptions

QUESTIONS_PER_SESSION = 3
"""Between two questions the lease is not extended."""


class ConsumerSession:
    """Asks for the session timeout, and sets the timeouts of the lease."""

    __slots__ = ("_asked_s", "_connector", "_group_id", "_lease", "_log", "_options", "_told_ms")

    def __init__(
        self, connector: Connector, group_id: str, options: MemberOptions, lease: Lease, member_log: MemberLog
    ) -> None:
        self._connector = connector
        self._group_id = group_id
        self._options = options
        self._lease = lease
        self._log = member_log
        self._asked_s = NEVER
        self._told_ms = 0

    async def begin(self) -> bool:
        """Learn the timeout before the member joins. False if it cannot be learnt now. Raises MemberError."""
        session_ms = await self.ask()
        if session_ms is None:
            return False
        self._asked_s, self._told_ms = NEVER, session_ms  # the first heartbeat is followed by a question
        self._lease.timeouts = self._timeouts(session_ms)
        return True

    @property
    def is_question_due(self) -> bool:
        return self._lease.now_s() >= self._asked_s + self._lease.timeouts.session_s / QUESTIONS_PER_SESSION

    async def ask(self) -> int | None:
        """The timeout in milliseconds; None if no coordinator can be reached. Raises MemberError if it is refused."""
        asked_s = self._lease.now_s()
        try:
            async with asyncio.timeout(self._lease.timeouts.session_s * SILENT_SESSION_PART):
                session_ms = await self._connector.consumer_session_timeout_ms(self._group_id)
        except (ChannelLost, TimeoutError) as error:
            self._log.no_answer("a request for the session timeout", error)
            return None
        except CoordinatorError as error:
            raise MemberError(
                f"the session timeout of group {self._group_id!r} cannot be read: {error}; allow DescribeConfigs for "
                f"it",
                error.code,
            ) from error
        self._asked_s = asked_s
        return session_ms

    def use(self, session_ms: int) -> None:
        """A heartbeat has extended the lease, and after its answer the timeout is this. Raises MemberError.

        It may have been raised only after the coordinator had handled the heartbeat.
        """
        known_ms, self._told_ms = min(session_ms, self._told_ms), session_ms
        timeouts, before = self._timeouts(known_ms), self._lease.timeouts
        if timeouts.session_s != before.session_s:
            self._lease.timeouts = timeouts._replace(interval_s=min(timeouts.interval_s, before.interval_s))

    def _timeouts(self, session_ms: int) -> LeaseTimeouts:
        try:
            return self._options.timeouts(session_ms)
        except ValueError as error:
            text = f"the session timeout of group {self._group_id!r} is {session_ms} ms: {error}"
            raise MemberError(text) from error
