"""Names in the messages of SCRAM and OAUTHBEARER: ``saslname`` of RFC 5802, as Kafka reads it. Pure."""

from __future__ import annotations

from typing import Final

SASL_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
"""A pattern for an encoded name."""


def encode_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def decode_name(encoded: str) -> str:
    return encoded.replace("=2C", ",").replace("=3D", "=")
