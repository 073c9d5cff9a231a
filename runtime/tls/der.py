"""Reads certificates in DER (ITU-T X.690, RFC 5280): names, validity, alternative names.

OpenSSL has parsed each certificate before, so this reader only has to find the fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

OBJECT_IDENTIFIER: Final = 0x06
UTC_TIME: Final = 0x17
VERSION_FIELD: Final = 0xA0
EXTENSIONS_FIELD: Final = 0xA3
ALTERNATIVE_NAMES: Final = "2.5.29.17"
LONG_FORM: Final = 0x80
UTC_TIME_PIVOT: Final = 50
"""A year of two digits below it is in this century (RFC 5280, section 4.1.2.5.1)."""


class BadCertificate(ValueError):
    """The bytes are not a certificate."""


class Element(NamedTuple):
    """``encoded``: all bytes of the element. ``content``: those behind tag and length."""

    tag: int
    content: bytes
    encoded: bytes


def elements(data: bytes) -> Iterator[Element]:
    """The elements that follow each other. Raises BadCertificate if the bytes end within one."""
    start = 0
    while start < len(data):
        element = _element_at(data, start)
        start += len(element.encoded)
        yield element


def _element_at(data: bytes, start: int) -> Element:
    content_start = start + 2
    if content_start > len(data):
        raise BadCertificate("an element ends early")
    length = data[start + 1]
    if length & LONG_FORM:
        length_end = content_start + (length & ~LONG_FORM)
        length = int.from_bytes(data[content_start:length_end], "big")
        content_start = length_end
    end = content_start + length
    if end > len(data):
        raise BadCertificate("an element ends early")
    return Element(data[start], data[content_start:end], data[start:end])


class Certificate(NamedTuple):
    """``subject``: the DER of the distinguished name. ``alternative_names``: the DER of each one."""

    subject: bytes
    serial: int
    not_before: datetime
    not_after: datetime
    alternative_names: frozenset[bytes]


def parse_certificate(data: bytes) -> Certificate:
    """Raises BadCertificate."""
    try:
        return _parse_certificate(data)
    except (StopIteration, ValueError, IndexError) as error:
        raise BadCertificate(f"not a certificate: {error}") from error


def _parse_certificate(data: bytes) -> Certificate:
    [certificate] = elements(data)
    fields = list(elements(next(elements(certificate.content)).content))
    if fields[0].tag == VERSION_FIELD:
        del fields[0]
    serial, _signature, _issuer, validity, subject = fields[:5]
    not_before, not_after = elements(validity.content)
    extensions = [field for field in fields[5:] if field.tag == EXTENSIONS_FIELD]
    names = [name for field in extensions for name in _alternative_names(field.content)]
    return Certificate(
        subject.encoded,
        int.from_bytes(serial.content, "big"),
        _parse_time(not_before),
        _parse_time(not_after),
        frozenset(names),
    )


def _alternative_names(extensions: bytes) -> Iterator[bytes]:
    [sequence] = elements(extensions)
    for extension in elements(sequence.content):
        identifier, *_critical, value = elements(extension.content)
        if parse_identifier(identifier.content) == ALTERNATIVE_NAMES:
            [names] = elements(value.content)
            yield from (name.encoded for name in elements(names.content))


def _parse_time(element: Element) -> datetime:
    text = element.content.decode("ascii")
    if element.tag == UTC_TIME:
        text = f"{'20' if int(text[:2]) < UTC_TIME_PIVOT else '19'}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def parse_identifier(content: bytes) -> str:
    """An object identifier in dotted form."""
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & LONG_FORM:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
