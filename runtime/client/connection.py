"""Connection: an asyncio connection to a server, for members and for nodes of a cluster."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, cast

from ...actors.callboard_error import CallboardError
from ..kafka.codec.frames import BadResponse
from ..settings.address import Address
from ..settings.client_settings import Login
from .exchange import Exchange, UnsupportedApi
from .login_session import Credentials, CredentialsUnavailable, LoginSession
from .security import NO_SECURITY, ClientSecurity, advice_for, describe_connection_error
from .versions import API_VERSIONS

TIMEOUT_S = 10.0
"""For connecting and for requests that are answered at once. JoinGroup and SyncGroup have the member's timeout."""


class ChannelLost(CallboardError, ConnectionError):
    """The connection to the coordinator is lost. Unanswered requests may or may not have been handled."""


class LoginRefused(ChannelLost):
    """The server has refused the user, the password or the token, or there is no token."""


class Connection(asyncio.Protocol):
    """One connection. Requests are pipelined; responses come in the same order.

    With SASL it authenticates again before its session ends (KIP-368). Requests wait meanwhile.
    """

    def __init__(self, address: Address, client_id: str, security: ClientSecurity = NO_SECURITY) -> None:
        self.address = address
        self.security = security
        self.exchange = Exchange(client_id)
        self._responses: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport | None = None
        self._session = security.new_session()
        self._logging_in: asyncio.Task[None] | None = None
        self.is_lost = False

    async def ask(self, name: str, values: Mapping[str, Any]) -> Any:
        """The response as kio's entity. Raises ChannelLost, also if the server does not serve the API."""
        if self._session is not None and self._session.is_due:
            await self._log_in(self._session)
        return await self._ask_now(name, values)

    async def exchange_versions(self) -> None:
        """The first request of the connection, which needs no authentication. Raises ChannelLost."""
        self.exchange.use_versions(await self._ask_now(API_VERSIONS, {}))

    async def log_in(self) -> None:
        """Authenticate if the server is one with SASL. Raises ChannelLost."""
        if self._session is not None:
            await self._log_in(self._session)

    async def _ask_now(self, name: str, values: Mapping[str, Any]) -> Any:
        if self.is_lost or self._transport is None:
            raise ChannelLost(f"the connection to {self.address} is closed")
        try:
            frame = self.exchange.request(name, values)
        except UnsupportedApi as error:
            raise ChannelLost(f"{self.address} {error}") from error
        response = asyncio.get_running_loop().create_future()
        self._responses.append(response)
        self._transport.write(frame)
        return await response

    async def ask_in_time(self, name: str, values: Mapping[str, Any]) -> Any:
        """The same with a timeout, for requests that are answered at once."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self.ask(name, values)
        except TimeoutError as error:
            self.close()
            raise ChannelLost(f"{self.address} did not answer {name} within {TIMEOUT_S:g} s") from error

    async def _log_in(self, session: LoginSession) -> None:
        """Once for all requests that wait for it. If one of them is cancelled it goes on for the others."""
        logging_in = self._logging_in
        if logging_in is None or logging_in.done():
            logging_in = asyncio.get_running_loop().create_task(self._run_login(session))
            logging_in.add_done_callback(_retrieve_exception)
            self._logging_in = logging_in
        await asyncio.wait({logging_in})
        while (current := self._logging_in) is not None and current is not logging_in:
            logging_in = current  # the login has ended, and another request has begun the next one
            await asyncio.wait({logging_in})
        logging_in.result()

    async def _run_login(self, session: LoginSession) -> None:
        from .login import LoginFailed

        login = await self._read_login(session.credentials)
        steps = session.log_in(login)
        try:
            name, values = next(steps)
            while True:
                name, values = steps.send(await self._ask_now(name, values))
        except StopIteration:
            return
        except LoginFailed as error:
            self.close()
            raise LoginRefused(f"{self.address} does not let {login.subject} in: {error}") from None

    async def _read_login(self, credentials: Credentials) -> Login:
        """Raises LoginRefused."""
        try:
            return await asyncio.to_thread(credentials.login) if credentials.blocks else credentials.login()
        except CredentialsUnavailable as error:
            self.close()
            raise LoginRefused(f"cannot authenticate to {self.address}: {error}") from None

    def close(self) -> None:
        self._fail_pending("closed the connection")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self._fail_pending("closed the connection")
        else:
            self._fail_pending(f"is disconnected: {_reason(exc)}")

    def data_received(self, data: bytes) -> None:
        try:
            for entity in self.exchange.receive(data):
                response = self._responses.popleft()
                if not response.done():
                    response.set_result(entity)
        except BadResponse as error:
            self._fail_pending(str(error))

    def _fail_pending(self, reason: str) -> None:
        if not self.is_lost:
            self.is_lost = True
            if self._transport is not None:
                self._transport.abort()
        while self._responses:
            response = self._responses.popleft()
            if not response.done():
                response.set_exception(ChannelLost(f"{self.address} {reason}"))


def _reason(error: Exception) -> str:
    return describe_connection_error(error) if isinstance(error, OSError) else str(error)


async def connect_to(address: Address, client_id: str, security: ClientSecurity = NO_SECURITY) -> Connection:
    """Connect and exchange API versions. Raises ChannelLost."""
    tls = security.tls_context()
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            host = address.host or "localhost"
            _, connection = await loop.create_connection(
                lambda: Connection(address, client_id, security), host, address.port, ssl=tls
            )
            try:
                await connection.exchange_versions()
                await connection.log_in()
            except BaseException:
                connection.close()
                raise
    except LoginRefused:
        raise
    except TimeoutError as error:
        raise ChannelLost(f"cannot reach {address}: no answer within {TIMEOUT_S:g} s") from error
    except OSError as error:
        reason = describe_connection_error(error)
        raise ChannelLost(f"cannot reach {address}: {reason}{advice_for(error, security)}") from error
    except UnicodeError as error:
        raise ChannelLost(f"cannot reach {address}: {address.host!r} is not a host name: {error}") from error
    return connection


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """The request that has begun it may be cancelled, and asyncio logs an exception that is never retrieved."""
    if not task.cancelled():
        task.exception()
