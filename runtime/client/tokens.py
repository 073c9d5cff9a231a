"""Tokens of a client for OAUTHBEARER: from a file, or from an endpoint (OAuth 2.0, client credentials). Blocks."""

from __future__ import annotations

import json
import math
import re
import time
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus, urlencode

from ...actors.text import printable
from ..security.oauthbearer import TOKEN
from ..security.web import WebAnswer, fetch, path_of, read_local
from ..settings.client_settings import OAUTHBEARER, Login, TokenSource
from .login_session import CredentialsUnavailable

USED_PART: Final = 0.8
"""A token of an endpoint is used for this part of its lifetime, as in Kafka's clients."""
RETRY_S: Final = 1.0
"""A failure of the endpoint counts for all connections that need a token within this time."""
REASON_CHARS_MAX: Final = 200
_NUMBER: Final = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?")  # float() also takes 1_0, and digits of other scripts


class Fetched(NamedTuple):
    """From an endpoint. ``failure``: why there is no token; "" if there is one."""

    token: str
    failure: str
    used_until_s: float


class Tokens:
    """``Credentials``: the tokens of one client. May be used by several threads."""

    blocks = True

    def __init__(self, source: TokenSource, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._path = path_of(source.url)
        self._clock_s = clock_s
        self._lock = Lock()
        self._fetched: Fetched | None = None

    def login(self) -> Login:
        """With a token: a file is read each time, an endpoint asked when most of the last token's lifetime is over.

        Raises CredentialsUnavailable.
        """
        token = self._fetch() if self._path is None else self._read(self._path)
        if TOKEN.fullmatch(token) is None:
            raise self._unavailable("it has other characters than letters, digits, and -._~+/=")
        return Login(OAUTHBEARER, "", token)

    def refused(self) -> None:
        """The next login asks the endpoint."""
        self._fetched = None

    def _unavailable(self, reason: str) -> CredentialsUnavailable:
        return CredentialsUnavailable(f"no token from {self._source.url}: {reason}")

    def _read(self, path: Path) -> str:
        try:
            return read_local(path).decode().strip()
        except OSError as error:
            raise self._unavailable(error.strerror or str(error)) from None
        except UnicodeError:
            raise self._unavailable("it is no text in UTF-8") from None

    def _fetch(self) -> str:
        with self._lock:
            fetched = self._fetched
            if fetched is None or fetched.used_until_s <= self._clock_s():
                fetched = self._fetched = self._ask()
        if fetched.failure:
            raise self._unavailable(fetched.failure)
        return fetched.token

    def _ask(self) -> Fetched:
        begin_s = self._clock_s()
        try:
            values = _parse(_request_token(self._source))
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            return Fetched("", str(error), self._clock_s() + RETRY_S)
        return Fetched(values["access_token"], "", begin_s + USED_PART * _lifetime_s(values))


def _request_token(source: TokenSource) -> WebAnswer:
    """RFC 6749, 4.4, with the client's id and secret as in its 2.3.1."""
    form = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    credentials = f"{quote_plus(source.client_id)}:{quote_plus(source.client_secret)}"
    headers = {
        "Accept": "application/json",
        "Authorization": f"Basic {b64encode(credentials.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    return fetch(source.url, urlencode(form).encode(), headers)


def _parse(answer: WebAnswer) -> dict[str, Any]:
    """The values of the answer, with a token. Raises ValueError."""
    values = _json(answer.data)
    if answer.status != 200:
        reason = printable(str(values.get("error_description") or values.get("error") or "")[:REASON_CHARS_MAX])
        raise ValueError(f"the answer has the status {answer.status}: expected 200 {reason}".rstrip())
    if not isinstance(values.get("access_token"), str):
        raise ValueError("the answer has no token: expected JSON with an access_token")
    return values


def _json(data: bytes) -> dict[str, Any]:
    """Empty for anything but an object."""
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _lifetime_s(values: dict[str, Any]) -> float:
    """0 if the answer does not say it, or has no number that ends. Some providers send the number as a text."""
    value = values.get("expires_in", 0)
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return 0.0
    try:
        lifetime_s = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return max(0.0, lifetime_s) if math.isfinite(lifetime_s) else 0.0
