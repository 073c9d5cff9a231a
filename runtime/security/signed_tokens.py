"""Signed tokens (RFC 7519, RFC 7515), checked with the keys of a JWKS. Needs the extra ``oauth``.

The type of the key decides which algorithms its signatures may have, never the token: so nobody can sign with a public
key as if it were a password (HS256), or not at all. The keys are replaced as a whole, by ``jwks``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...actors.text import format_count
from .oauthbearer import TokenRefused, ValidToken
from .token_settings import TokenSettings

if TYPE_CHECKING:
    from jwt import PyJWK

RSA_BITS_MIN = 2048
KEY_IDS_MAX_CHARS = 1000
REASON_CHARS_MAX = 100
ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""By the type of the key (RFC 7518)."""


def _ignore() -> None:
    """The default of ``on_unknown_key``."""


class SignedTokens:
    """``TokenValidator``. ``on_unknown_key`` is called when a token names a key that is not known."""

    def __init__(self, settings: TokenSettings) -> None:
        self.keys: Mapping[str, SigningKey] = {}
        self.on_unknown_key: Callable[[], None] = _ignore
        self._settings = settings

    def validate(self, token: str) -> ValidToken:
        import jwt

        settings = self._settings
        try:
            key = self._key(jwt.get_unverified_header(token))
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=list(key.algorithms),
                audience=list(settings.audiences) or None,
                issuer=settings.issuer or None,
                leeway=settings.skew_s,
                options={"require": ["exp", "iat"], "verify_aud": bool(settings.audiences), "verify_sub": False},
            )
        except jwt.PyJWTError as error:
            text = str(error)[:REASON_CHARS_MAX]  # it may quote the token
            raise TokenRefused(f"{type(error).__name__}: {text!r}") from None
        return ValidToken(settings.name_in(claims), int(float(claims["exp"]) * 1000), settings.skew_s * 1000)

    def _key(self, header: Mapping[str, Any]) -> SigningKey:
        """The key that the token names. A token that names none is checked with the only key."""
        key_id = header.get("kid")
        if key_id is None and len(self.keys) == 1:
            return next(iter(self.keys.values()))
        if not isinstance(key_id, str) or len(key_id) > KEY_IDS_MAX_CHARS:
            raise TokenRefused("it names no key")
        key = self.keys.get(key_id)
        if key is None:
            self.on_unknown_key()
            raise TokenRefused("it names a key that is not known")
        return key


class SigningKey:
    """A public key, and the algorithms that its signatures may have."""

    def __init__(self, jwk: PyJWK, algorithms: tuple[str, ...]) -> None:
        self.key = jwk.key
        self.algorithms = algorithms


def parse_jwks(document: Any) -> dict[str, SigningKey]:
    """The keys of a JWKS (RFC 7517) that may sign, by id. Raises ValueError if there is none."""
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError("expected an object with keys")
    found = {str(entry.get("kid", "")): key for entry in entries if (key := _signing_key(entry)) is not None}
    if not found:
        count = format_count(len(entries), "key")
        raise ValueError(f"none of its {count} can be used: expected RSA of {RSA_BITS_MIN} bits, EC or OKP")
    return found


def _signing_key(entry: Any) -> SigningKey | None:
    """None for keys of other types, for encryption, for keys that are too short, and for what is no key."""
    import jwt

    kind = entry.get("kty") if isinstance(entry, dict) and entry.get("use", "sig") == "sig" else None
    if not isinstance(kind, str) or kind not in ALGORITHMS:
        return None
    algorithms = ALGORITHMS[kind]
    own = entry.get("alg")
    if own is not None:
        algorithms = tuple(name for name in algorithms if name == own)
    try:
        jwk = jwt.PyJWK(entry)
    except (jwt.PyJWTError, KeyError, TypeError, ValueError):
        return None
    if not algorithms or (kind == "RSA" and jwk.key.key_size < RSA_BITS_MIN):
        return None
    return SigningKey(jwk, algorithms)
