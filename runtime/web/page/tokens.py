"""Tokens of forms: a page of another site cannot know one, so it cannot make a browser change anything."""

from __future__ import annotations

import hmac
import re
import secrets
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..guard import USER_KEY
from .rendering import base_of

COOKIE: Final = "callboard-form"
FIELD: Final = "token"
_BROWSER: Final = re.compile(r"[0-9a-f]{32}")


class Tokens:
    """A token belongs to a browser, which a cookie tells, to a user, and to this process."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def browser(self, request: Request) -> str:
        """What the cookie of a browser has, or shall have."""
        given = request.cookies.get(COOKIE, "")
        return given if _BROWSER.fullmatch(given) else secrets.token_hex(16)

    def token(self, request: Request, browser: str) -> str:
        user = request.scope.get(USER_KEY, "")
        return hmac.new(self._secret, repr((browser, user)).encode(), "sha256").hexdigest()

    def remember(self, response: Response, request: Request, browser: str) -> None:
        response.set_cookie(COOKIE, browser, path=f"{base_of(request)}/", httponly=True, samesite="strict")

    def check(self, request: Request, token: str) -> None:
        """Raises HTTPException for a form without a cookie, or with another token."""
        expected = self.token(request, request.cookies.get(COOKIE, ""))
        if COOKIE not in request.cookies or not hmac.compare_digest(expected.encode(), token.encode()):
            raise HTTPException(
                403, "the form is not of this server since its start, or the browser sends no cookies: reload it"
            )
