"""The distinguished name of a certificate as text: the form of Java's X500Principal.getName(RFC2253), as in Kafka.

The parts are in reverse order, without a space behind the comma. Attributes that RFC 2253 has no keyword for are
``OID=#`` and the DER of their value in hexadecimal digits. Characters outside ASCII stay as they are.
"""

from __future__ import annotations

from typing import Final

from .der import Element, elements, parse_identifier

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
ESCAPED: Final = frozenset(',+"\\<>;')
ENCODINGS: Final = {
    0x0C: "utf-8",  # UTF8String
    0x12: "ascii",  # NumericString
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # TeletexString, which Java reads so
    0x16: "ascii",  # IA5String
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
"""The encoding of text by its tag."""


def format_name(encoded: bytes) -> str:
    """The text of a name. ``encoded``: its DER. Raises BadCertificate."""
    [name] = elements(encoded)
    parts = [_format_part(part) for part in elements(name.content)]
    return ",".join(reversed(parts))


def _format_part(part: Element) -> str:
    return "+".join(_format_attribute(attribute) for attribute in elements(part.content))


def _format_attribute(attribute: Element) -> str:
    identifier, value = elements(attribute.content)
    oid = parse_identifier(identifier.content)
    keyword = KEYWORDS.get(oid)
    encoding = ENCODINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or oid}=#{value.encoded.hex()}"
    return f"{keyword}={escape(value.content.decode(encoding, 'replace'))}"


def escape(text: str) -> str:
    """Escape special characters, a space at the beginning or end, and ``#`` at the beginning (RFC 2253, 2.4)."""
    escaped = "".join(f"\\{character}" if character in ESCAPED else character for character in text)
    if escaped.startswith(("#", " ")):
        escaped = f"\\{escaped}"
    if text.endswith(" ") and len(text) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return escaped
