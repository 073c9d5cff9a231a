"""Certificates are read, and their names are written as Java does it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier
from tls_helpers import LOCALHOST, Authority

from callboard.runtime.tls.der import BadCertificate, parse_certificate, parse_identifier
from callboard.runtime.tls.distinguished_name import escape, format_name

COMPANY = (
    x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
    x509.NameAttribute(NameOID.STATE_OR_PROVINCE_NAME, "Bayern"),
    x509.NameAttribute(NameOID.LOCALITY_NAME, "München"),
    x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme, Inc."),
    x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Ops"),
    x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "Dev"),
    x509.NameAttribute(NameOID.COMMON_NAME, "client1"),
    x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.c", _ASN1Type.IA5String),
)


def text_of(name: x509.Name) -> str:
    return format_name(name.public_bytes())


def test_name_is_the_one_that_kafka_has_for_this_certificate() -> None:
    """Measured with Kafka 4.3.1: an ACL on this principal admitted the client."""
    assert text_of(x509.Name(COMPANY)) == (
        r"1.2.840.113549.1.9.1=#16056140622e63,CN=client1,OU=Dev,OU=Ops,O=Acme\, Inc.,L=München,ST=Bayern,C=DE"
    )


def test_attributes_of_one_part_are_joined() -> None:
    two = x509.RelativeDistinguishedName(
        [x509.NameAttribute(NameOID.USER_ID, "u"), x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "org")]
    )
    assert set(text_of(x509.Name([two])).split("+")) == {"UID=u", "DC=org"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r'a,b+c"d\e<f>g;h', r"a\,b\+c\"d\\e\<f\>g\;h"),
        ("#a#", r"\#a#"),
        (" a b ", r"\ a b\ "),
        (" ", r"\ "),
        ("=", "="),
    ],
)
def test_special_characters_are_escaped(text: str, expected: str) -> None:
    assert escape(text) == expected


@pytest.mark.parametrize("kind", [_ASN1Type.BMPString, _ASN1Type.UniversalString, _ASN1Type.T61String])
def test_text_has_the_encoding_of_its_type(kind: _ASN1Type) -> None:
    encoding = {"BMPString": "utf-16-be", "UniversalString": "utf-32-be", "T61String": "latin-1"}[kind.name]
    value = "Grüße".encode(encoding)
    attribute = b"\x06\x03\x55\x04\x03" + bytes((kind.value, len(value))) + value
    part = b"\x30" + bytes((len(attribute),)) + attribute
    parts = b"\x31" + bytes((len(part),)) + part
    assert format_name(b"\x30" + bytes((len(parts),)) + parts) == "CN=Grüße"


@pytest.mark.parametrize("dotted", ["2.5.4.3", "1.2.840.113549.1.9.1", "0.9.2342.19200300.100.1.25", "2.999.3"])
def test_identifiers_are_read(dotted: str) -> None:
    encoded = x509.Name([x509.NameAttribute(ObjectIdentifier(dotted), "x")]).public_bytes()
    content = encoded[8 : 8 + encoded[7]]
    assert parse_identifier(content) == dotted


def test_certificate_has_its_end_serial_and_alternative_names() -> None:
    pair = Authority().issue(x509.Name(COMPANY))
    certificate = parse_certificate(pair.der)
    assert certificate.subject == pair.certificate.subject.public_bytes()
    assert certificate.serial == pair.certificate.serial_number
    assert certificate.not_after == pair.certificate.not_valid_after_utc
    assert len(certificate.alternative_names) == len(LOCALHOST)
    assert parse_certificate(Authority().issue("a", ()).der).alternative_names == frozenset()


def test_end_after_2050_is_read() -> None:
    far = datetime(2060, 1, 2, 3, 4, 5, tzinfo=UTC)
    pair = Authority().issue("a", ends=far - datetime.now(UTC))
    assert abs((parse_certificate(pair.der).not_after - far).total_seconds()) <= 1


def test_damaged_certificates_are_refused() -> None:
    """Each prefix, and bytes that say that an element is longer than all."""
    data = Authority().issue("a").der
    for end in range(len(data)):
        with pytest.raises(BadCertificate):
            parse_certificate(data[:end])
    for damaged in (b"\x30\x84\xff\xff\xff\xff", b"\x30\x00", b"\x02\x01\x00", bytes(40)):
        with pytest.raises(BadCertificate):
            parse_certificate(damaged)
