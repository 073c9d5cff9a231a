"""Unsigned tokens (RFC 7519, `alg` none), for tests: whoever can reach the server may be anybody. Pure.

The rules are those of Kafka's OAuthBearerUnsecuredJws.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Any

from .oauthbearer import TokenRefused, ValidToken
from .token_settings import TokenSettings


class UnsignedTokens:
    """``TokenValidator``."""

    def __init__(self, settings: TokenSettings, wall_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._wall_ms = wall_ms

    def validate(self, token: str) -> ValidToken:
        header, claims = _decoded(token)
        if header.get("alg") != "none":
            raise TokenRefused("it is signed, and this listener takes unsigned tokens only")
        settings, now_s = self._settings, self._wall_ms() / 1000
        expires_s = _time(claims, "exp")
        if expires_s is None:
            raise TokenRefused("it has no exp")
        if now_s - settings.skew_s >= expires_s:
            raise TokenRefused("it has expired")
        for name in ("iat", "nbf"):
            time_s = _time(claims, name)
            if time_s is not None and (time_s > now_s + settings.skew_s or time_s >= expires_s):
                raise TokenRefused(f"its {name} is in the future")
        return ValidToken(settings.name_in(claims), int(expires_s * 1000), settings.skew_s * 1000)


def _decoded(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims. Raises TokenRefused."""
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        raise TokenRefused("it is not an unsigned token")
    try:
        header, claims = (json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in parts[:2])
    except (ValueError, RecursionError):
        raise TokenRefused("it cannot be decoded") from None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise TokenRefused("it has no claims")
    return header, claims


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise TokenRefused(f"its {name} is not a time")
    return float(value)
