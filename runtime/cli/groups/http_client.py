"""HttpApi: asks the HTTP API of a Callboard server. It blocks."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from ...client.errors import ClientError
from ...common.errors import StartError

API: Final = "/api/v1"
BYTES_MAX: Final = 64 * 1024 * 1024
EXPECTED: Final = "expected the address of serve --web, as in http://127.0.0.1:9095"


class HttpApi:
    """The API at a URL. A user and a password in it are for the proxy in front of the server."""

    def __init__(self, url: str, timeout_s: float) -> None:
        """Raises StartError for an invalid URL."""
        try:
            parts = urlsplit(url)
            self._port = parts.port
        except ValueError as error:
            raise StartError(f"--http-api '{url}': {EXPECTED}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise StartError(f"--http-api '{url}': {EXPECTED}")
        self._is_encrypted = parts.scheme == "https"
        self._host = parts.hostname
        self._timeout_s = timeout_s
        path = parts.path.rstrip("/")
        self._base = path if path.endswith(API) else path + API
        self._headers = {"Content-Type": "application/json"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
        self._name = f"{parts.scheme}://{parts.hostname}" + ("" if self._port is None else f":{self._port}")

    def get(self, *path: str) -> Any:
        """The answer at a path, whose parts may have any characters. Raises ClientError."""
        return self._ask("GET", path, None)

    def post(self, *path: str, body: dict[str, Any]) -> Any:
        """The same for a change."""
        return self._ask("POST", path, json.dumps(body).encode())

    def _ask(self, method: str, path: tuple[str, ...], body: bytes | None) -> Any:
        target = "/".join((self._base, *(quote(part, safe="") for part in path)))
        try:
            status, data = self._exchange(method, target, body)
        except (OSError, HTTPException) as error:
            raise ClientError(
                f"no HTTP API at {self._name}: {str(error) or type(error).__name__}; {EXPECTED}"
            ) from error
        answer = _parse(data)
        if status != 200 or answer is None:
            raise ClientError(_refusal(self._name, status, answer))
        return answer

    def _exchange(self, method: str, target: str, body: bytes | None) -> tuple[int, bytes]:
        connection = self._connection()
        try:
            connection.request(method, target, body, self._headers)
            response = connection.getresponse()
            return response.status, response.read(BYTES_MAX)
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        if self._is_encrypted:
            context = ssl.create_default_context()
            return HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=context)
        return HTTPConnection(self._host, self._port, timeout=self._timeout_s)


def _parse(data: bytes) -> dict[str, Any] | None:
    """None for anything but an object."""
    try:
        answer: Any = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _refusal(name: str, status: int, answer: dict[str, Any] | None) -> str:
    """The server's own words, if it is one of Callboard's."""
    if answer is not None and isinstance(answer.get("detail"), str):
        return str(answer["detail"])
    return f"{name} answers with status {status}, and not as Callboard's HTTP API: {EXPECTED}"
