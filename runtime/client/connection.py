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
from .security import NO_SECURITY, ClientSecurity, describe_connection_error
from .versions import API_VERSIONS

TIMEOUT_S = 10.0
"""For connecting and for requests that are answered at once. JoinGroup and SyncGroup have the member's timeout."""


class ChannelLost(CallboardError, ConnectionError):
    """The connection to the coordinator is lost. Unanswered requests may or may not have been handled."""


class LoginRefused(ChannelLost):
    """The server has refused the user or the password."""


class Connection(asyncio.Protocol):
    """One connection. Requests are pipelined; responses come in the same order."""

    def __init__(self, address: Address, client_id: str, security: ClientSecurity = NO_SECURITY) -> None:
        self.address = address
        self.security = security
        self.exchange = Exchange(client_id)
        self._responses: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport | None = None
        self.is_lost = False

    async def ask(self, name: str, values: Mapping[str, Any]) -> Any:
        """The response as kio's entity. Raises ChannelLost, also if the server does not serve the API."""
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

    def close(self) -> None:
        self._fail_pending("closed the connection")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail_pending(f"is disconnected: {exc}" if exc else "closed the connection")

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
                connection.exchange.use_versions(await connection.ask(API_VERSIONS, {}))
                if security.login is not None:
                    await _log_in(connection, security.login)
            except BaseException:
                connection.close()
                raise
    except LoginRefused:
        raise
    except TimeoutError as error:
        raise ChannelLost(f"cannot reach {address}: no answer within {TIMEOUT_S:g} s") from error
    except OSError as error:
        reason = describe_connection_error(error)
        raise ChannelLost(f"cannot reach {address}: {reason}; is a server running there?") from error
    except UnicodeError as error:
        raise ChannelLost(f"cannot reach {address}: {address.host!r} is not a host name: {error}") from error
    return connection


async def _log_in(connection: Connection, login: Login) -> None:
    """Authenticate by SASL. Raises ChannelLost."""
    from .login import LoginFailed, log_in

    steps = log_in(login)
    try:
        name, values = next(steps)
        while True:
            name, values = steps.send(await connection.ask(name, values))
    except StopIteration:
        return
    except LoginFailed as error:
        raise LoginRefused(f"{connection.address} does not let user '{login.user}' in: {error}") from None
