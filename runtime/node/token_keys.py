"""TokenKeys: the keys of signed tokens of one listener. They are read at the start, and again from time to time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..common.errors import StartError
from ..common.logs import get_logger
from ..engine.clock import wall_clock_ms
from ..security.oauthbearer import TokenValidator
from ..security.token_settings import TokenSettings
from ..settings.listener_settings import number_of, value_of
from ..settings.rows import list_items
from ..settings.urls import check_url

if TYPE_CHECKING:
    from ..security.signed_tokens import SignedTokens
    from ..settings.listeners import Listener
    from .environment import Environment

RETRY_S_MIN, RETRY_S_MAX = 1.0, 10.0
"""After the keys could not be read."""
UNKNOWN_KEY_PAUSE_S = 60.0
"""Tokens that name unknown keys make the server read the keys this often, not more (as in Kafka)."""
PREFIX = "sasl_oauthbearer_"

log = get_logger("callboard.runtime")


class TokenKeys:
    """``url``: where the keys are. ``refresh_s``: how often they are read again."""

    def __init__(self, tokens: SignedTokens, url: str, refresh_s: float, environment: Environment) -> None:
        self._tokens = tokens
        self._url = url
        self._refresh_s = refresh_s
        self._environment = environment
        self._wanted = asyncio.Event()
        self.failure = ""

    def want(self) -> None:
        """Have the keys read again, because a token names a key that is not known. That token is refused."""
        self._wanted.set()

    def read(self) -> None:
        """Read the keys. Blocks. ``failure`` says why they could not be read; then the last ones stay in use."""
        from ..security.jwks import JwksUnavailable, read_keys

        try:
            self._tokens.keys = read_keys(self._url)
            self.failure = ""
        except JwksUnavailable as error:
            self.failure = str(error)

    async def keep_fresh(self) -> None:
        """Read the keys again, until cancelled."""
        retry_s = RETRY_S_MIN
        while True:
            await self._wait(retry_s if self.failure else self._refresh_s)
            await self._environment.run_blocking(self.read)
            if self.failure:
                log.warning("the keys of tokens could not be read, so the last ones stay in use", reason=self.failure)
                retry_s = min(2 * retry_s, RETRY_S_MAX)
            else:
                retry_s = RETRY_S_MIN

    async def _wait(self, interval_s: float) -> None:
        """Until the interval is over, or a key is wanted: not before a minute after the last reading."""
        pause_s = min(UNKNOWN_KEY_PAUSE_S, interval_s)
        await asyncio.sleep(pause_s)
        try:
            async with asyncio.timeout(interval_s - pause_s):
                await self._wanted.wait()
        except TimeoutError:
            pass
        self._wanted.clear()


def make_tokens(listener: Listener, environment: Environment) -> tuple[TokenValidator, TokenKeys | None]:
    """What validates the tokens of a listener, and its keys; None for unsigned tokens. Raises StartError."""
    url = value_of(listener.settings, f"{PREFIX}jwks_endpoint_url")
    allows_unsigned = value_of(listener.settings, f"{PREFIX}allow_unsigned") == "true"
    if bool(url) == allows_unsigned:
        raise StartError(
            f"the listener {listener.name} has the mechanism OAUTHBEARER: expected where the public keys of tokens are "
            f"in the setting {PREFIX}jwks_endpoint_url, or, for tests only, {PREFIX}allow_unsigned=true"
        )
    if not url:
        from ..security.unsigned_tokens import UnsignedTokens

        log.warning("anybody can make the tokens of a listener: they are not signed", listener=listener.name)
        return UnsignedTokens(_settings(listener), wall_clock_ms), None
    return _signed(listener, url, environment)


def _signed(listener: Listener, url: str, environment: Environment) -> tuple[TokenValidator, TokenKeys]:
    try:
        import jwt  # noqa: F401
    except ImportError:
        raise StartError("OAUTHBEARER needs the package PyJWT: pip install 'callboard[oauth]'") from None
    from ..security.signed_tokens import SignedTokens

    try:
        check_url(url)
    except ValueError as error:
        raise StartError(f"bad value '{url}' for setting '{PREFIX}jwks_endpoint_url': {error}") from None
    tokens = SignedTokens(_settings(listener))
    keys = TokenKeys(tokens, url, number_of(listener.settings, f"{PREFIX}jwks_endpoint_refresh_ms") / 1000, environment)
    tokens.on_unknown_key = keys.want
    keys.read()
    if keys.failure:
        raise StartError(f"cannot read the keys of tokens: {keys.failure}")
    return tokens, keys


def _settings(listener: Listener) -> TokenSettings:
    values = {
        name: value_of(listener.settings, PREFIX + name)
        for name in ("sub_claim_name", "scope_claim_name", "required_scope", "expected_audience", "expected_issuer")
    }
    return TokenSettings(
        name_claim=values["sub_claim_name"],
        scope_claim=values["scope_claim_name"],
        required_scope=values["required_scope"],
        skew_s=number_of(listener.settings, f"{PREFIX}clock_skew_seconds"),
        audiences=tuple(list_items(values["expected_audience"])),
        issuer=values["expected_issuer"],
    )
