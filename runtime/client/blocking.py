"""BlockingConnection: one connection to a broker for commands, with one request at a time."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ...actors.text import printable
from ..kafka.codec.frames import BadResponse
from ..settings.address import Address
from .errors import ClientError
from .exchange import Exchange, UnsupportedApi
from .frame_socket import FrameSocket
from .login_session import CredentialsUnavailable, LoginSession
from .security import NO_SECURITY, ClientSecurity, advice_for, describe_connection_error
from .versions import API_VERSIONS

CLIENT_ID = "callboard"


class BlockingConnection:
    """Connects and exchanges API versions. Raises ClientError if no Kafka server answers in time."""

    def __init__(self, address: Address, timeout_s: float, security: ClientSecurity = NO_SECURITY) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._exchange = Exchange(CLIENT_ID)
        self._security = security
        self._session = security.new_session()
        try:
            self._socket = FrameSocket(address.host or "localhost", address.port, timeout_s, security.tls_context())
        except (OSError, UnicodeError) as error:
            advice = advice_for(error, security) if isinstance(error, OSError) else ""
            raise ClientError(
                f"cannot reach {address}: {_reason(error, timeout_s)}{advice} (--bootstrap-server HOST:PORT says"
                " where to look)"
            ) from error
        try:
            self._exchange.use_versions(self._ask_now(API_VERSIONS, {}))
            self._log_in_if_due()
        except BaseException:
            self.close()
            raise

    def ask(self, name: str, **values: Any) -> Any:
        """Send a request and return kio's entity of the response. ``name``: kio's name of the API.

        Fields that the request's version does not have are left out. Raises ClientError if the server does not serve
        the API, closes the connection, does not answer in time, or does not let the user in again, and for a text that
        cannot be encoded.
        """
        self._log_in_if_due()
        return self._ask_now(name, values)

    def _ask_now(self, name: str, values: Mapping[str, Any]) -> Any:
        try:
            self._socket.send(self._exchange.request(name, values))
            return self._receive()
        except UnsupportedApi as error:
            raise ClientError(f"{self.address} {error}, which this command needs") from error
        except BadResponse as error:
            raise ClientError(f"{self.address} {error}") from error
        except UnicodeEncodeError as error:
            raise ClientError(
                f"bad text '{printable(error.object)}': found bytes that are not UTF-8, expected UTF-8; correct it"
            ) from None
        except OSError as error:
            is_first = name == API_VERSIONS and isinstance(error, ConnectionError)
            advice = advice_for(error, self._security) if is_first else ""
            raise ClientError(
                f"{self.address} did not answer {name}: {_reason(error, self._timeout_s)}{advice}"
            ) from error

    def _log_in_if_due(self) -> None:
        """Authenticate by SASL: at the beginning, and before the session ends (KIP-368)."""
        if self._session is not None and self._session.is_due:
            self._log_in(self._session)

    def _log_in(self, session: LoginSession) -> None:
        from .login import LoginFailed

        try:
            login = session.credentials.login()
        except CredentialsUnavailable as error:
            raise ClientError(f"cannot authenticate to {self.address}: {error}") from None
        steps = session.log_in(login)
        try:
            name, values = next(steps)
            while True:
                name, values = steps.send(self._ask_now(name, values))
        except StopIteration:
            return
        except LoginFailed as error:
            raise ClientError(f"{self.address} does not let {login.subject} in: {error}") from None

    def version_of(self, name: str) -> int:
        """The version in which ``ask`` sends a request. Raises ClientError if there is none."""
        try:
            return self._exchange.version_of(name)
        except UnsupportedApi as error:
            raise ClientError(f"{self.address} {error}, which this command needs") from error

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _receive(self) -> Any:
        return self._exchange.response(self._socket.receive())


def _reason(error: Exception, timeout_s: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    return describe_connection_error(error).lower() if isinstance(error, OSError) else str(error).lower()
