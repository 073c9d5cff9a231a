"""URLs in settings: of the public keys of tokens, and of tokens."""

from __future__ import annotations

from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def check_url(url: str) -> None:
    """Raise ValueError for a URL from which nothing that must be trusted, or kept secret, may be read."""
    parts = urlsplit(url)
    is_safe = parts.scheme in ("file", "https") or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    if not is_safe:
        raise ValueError("expected file:///PATH or https://HOST/PATH (http only for this machine)")
