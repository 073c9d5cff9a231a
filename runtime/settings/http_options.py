"""The options of ``callboard serve`` for what it serves over HTTP: the addresses of metrics and of the HTTP API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..common.errors import StartError
from .address import LOCALHOST, Address, is_loopback, parse_address

HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
RESERVED: Final = ("host", "origin", "content-type", "content-length", "connection", "transfer-encoding")
SECRET: Final = ("authorization", "proxy-authorization", "cookie")
"""Headers whose values must not be in the audit trail."""


class WebOptions(NamedTuple):
    """``trusted_header``: the header in which an authenticating proxy names the user; None if there is no proxy."""

    address: Address
    trusted_header: str | None = None


class HttpOptions(NamedTuple):
    """``metrics`` and ``web``: None if they are not served."""

    metrics: Address | None = None
    web: WebOptions | None = None


class GivenWeb(NamedTuple):
    """Options of the command line, not checked yet. None: the configuration file decides."""

    address: str | None = None
    trusted_header: str | None = None


def http_options(file: Mapping[str, Any], metrics: str | None, given: GivenWeb) -> HttpOptions:
    """Options of the command line override those of the file. Raises StartError."""
    address = file.get("metrics") if metrics is None else metrics
    web = file.get("web") if given.address is None else given.address
    trusted_header = file.get("web_trust") if given.trusted_header is None else given.trusted_header
    return HttpOptions(None if address is None else parse_address("metrics", address), parse_web(web, trusted_header))


def parse_web(address: str | None, trusted_header: str | None) -> WebOptions | None:
    """None if the API is not served. Raises StartError for options that would let anybody change groups."""
    if address is None:
        if trusted_header is not None:
            raise StartError("--web-trust needs --web HOST:PORT, the address of the HTTP API")
        return None
    parsed = parse_address("web", address)
    if trusted_header is not None:
        if not HEADER.fullmatch(trusted_header) or trusted_header.lower() in (*RESERVED, *SECRET):
            raise StartError(
                f"bad --web-trust '{trusted_header}': expected the name of a header, as in X-Forwarded-User"
            )
        return WebOptions(parsed, trusted_header)
    if not (parsed.host == LOCALHOST or is_loopback(parsed.host)):
        raise StartError(
            f"bad web '{address}': other machines can reach this address, and the HTTP API authenticates nobody: "
            "expected an address such as 127.0.0.1:9095, or --web-trust HEADER, the header in which an authenticating "
            "proxy in front of it names the user"
        )
    return WebOptions(parsed)
