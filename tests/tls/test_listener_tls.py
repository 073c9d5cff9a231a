"""Keys and certificates of listeners: what is refused, and how changed files are used."""

from __future__ import annotations

import os
import ssl
import subprocess
import traceback
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from tls_helpers import LOCALHOST, SERVER_NAME, Authority, TlsFolder

from callboard.runtime.common.errors import StartError
from callboard.runtime.tls.contexts import make_client_context
from callboard.runtime.tls.listener_tls import ListenerTls
from callboard.runtime.tls.pem import BYTES_MAX
from callboard.runtime.tls.settings import parse_tls


@pytest.fixture
def files(tmp_path: Path) -> TlsFolder:
    return TlsFolder(tmp_path)


def listener_tls(files: TlsFolder, **others: str) -> ListenerTls:
    return ListenerTls("SSL", parse_tls(files.settings(**others)))


def refusal(files: TlsFolder, **others: str) -> str:
    with pytest.raises(StartError) as caught:
        listener_tls(files, **others)
    return str(caught.value)


def test_keystore_is_required(files: TlsFolder) -> None:
    expected = "listener SSL: TLS needs the server's certificate: expected ssl_keystore_location"
    assert refusal(files, ssl_keystore_location="").startswith(expected)


def test_file_that_is_not_there_is_named(files: TlsFolder) -> None:
    path = str(files.folder / "none.pem")
    assert f"cannot read ssl_keystore_location '{path}': No such file" in refusal(files, ssl_keystore_location=path)


@pytest.mark.parametrize("kind", ["FIFO", "device"])
@pytest.mark.parametrize("setting", ["ssl_keystore_location", "ssl_truststore_location"])
def test_path_that_can_be_read_for_ever_is_refused(files: TlsFolder, setting: str, kind: str) -> None:
    path = files.folder / "fifo.pem" if kind == "FIFO" else Path("/dev/zero")
    if kind == "FIFO":
        os.mkfifo(path)
    expected = f"cannot read {setting} '{path}': it is a FIFO, a socket or a device; expected a PEM file on disk,"
    assert expected in refusal(files, ssl_client_auth="required", **{setting: str(path)})


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.mark.parametrize("setting", ["ssl_keystore_location", "ssl_truststore_location"])
def test_formats_that_are_not_pem_are_named_with_the_command_that_converts_them(files: TlsFolder, setting: str) -> None:
    path = files.folder / "other"
    converted = {setting: str(path), "ssl_client_auth": "required"}
    openssl("pkcs12", "-export", "-in", files.keystore, "-out", path, "-passout", "pass:x")
    path.chmod(0o600)
    command = f"; it is PKCS12: convert it by `openssl pkcs12 -in '{path}' -nodes -out NEW.pem`"
    assert refusal(files, **converted).endswith(f" in PEM{command}")
    openssl("x509", "-in", files.keystore, "-outform", "der", "-out", path)
    command = f"; it is DER: convert a certificate by `openssl x509 -inform der -in '{path}' -out NEW.pem`"
    assert refusal(files, **converted).endswith(command)
    path.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    assert "; it is JKS: convert it to PKCS12 by `keytool -importkeystore" in refusal(files, **converted)
    path.write_bytes(b"0 and text")
    assert refusal(files, **converted).endswith(" in PEM")


def test_fifo_in_place_of_a_changed_file_is_not_waited_for(files: TlsFolder, caplog: pytest.LogCaptureFixture) -> None:
    tls = listener_tls(files)
    files.keystore.unlink()
    os.mkfifo(files.keystore)
    tls.reload_if_changed()
    assert "the old TLS certificate stays in use" in caplog.text


def test_large_file_is_refused(files: TlsFolder) -> None:
    os.truncate(files.keystore, BYTES_MAX + 1)
    assert f"it has more than {BYTES_MAX} bytes; expected a PEM file" in refusal(files)


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        (0o644, "every user of this machine may read the private key"),
        (0o602, "every user of this machine may change the private key"),
        (0o646, "every user of this machine may change the private key"),
        (0o660, "every user of its group may change the private key"),
        (0o620, "every user of its group may change the private key"),
    ],
)
def test_private_key_that_others_may_read_or_change_is_refused(files: TlsFolder, mode: int, reason: str) -> None:
    files.keystore.chmod(mode)
    refused = refusal(files)
    assert f"has the permissions {mode:04o}, so {reason}: expected at most 0640" in refused
    subprocess.run(refused[refused.rindex("chmod") :], shell=True, check=True)
    listener_tls(files)


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o440, 0o640])
def test_private_key_of_its_owner_or_for_its_group_to_read_is_used(files: TlsFolder, mode: int) -> None:
    files.keystore.chmod(mode)
    listener_tls(files)


def test_changed_private_key_that_others_may_change_is_not_used(
    files: TlsFolder, caplog: pytest.LogCaptureFixture
) -> None:
    tls = listener_tls(files)
    before = tls.context
    files.authority.issue(SERVER_NAME).write(files.keystore)
    files.keystore.chmod(0o660)
    tls.reload()
    assert tls.context is before
    assert "every user of its group may change the private key" in caplog.text


@pytest.mark.parametrize("missing", ["private key", "certificate"])
def test_keystore_needs_both_parts(files: TlsFolder, missing: str) -> None:
    text = files.server.chain_pem if missing == "private key" else files.server.key_pem()
    files.keystore.write_text(text)
    assert f"has no {missing}: expected a private key and certificates in PEM" in refusal(files)


def test_key_of_another_certificate_is_refused(files: TlsFolder) -> None:
    files.keystore.write_text(files.authority.issue("other").key_pem() + files.server.chain_pem)
    assert "the private key does not belong to the first certificate" in refusal(files)


def test_certificate_that_is_no_certificate_is_refused(files: TlsFolder) -> None:
    text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    files.keystore.write_text(files.server.key_pem() + text)
    assert "cannot be used: " in refusal(files)


@pytest.mark.parametrize("damaged", ["key", "first certificate", "second certificate", "authority"])
def test_damage_is_described_for_people(files: TlsFolder, damaged: str) -> None:
    """OpenSSL reports no more than a line in the source of Python."""
    key, certificate = files.server.key_pem(), files.server.chain_pem
    if damaged == "authority":
        files.truststore.write_text(certificate + damage(certificate))
    else:
        key, chain = {
            "key": (damage(key), certificate),
            "first certificate": (key, damage(certificate)),
            "second certificate": (key, certificate + damage(certificate)),
        }[damaged]
        files.keystore.write_text(key + chain)
    refused = refusal(files, ssl_client_auth="required")
    assert "cannot be used: a key or a certificate in it is damaged: expected PEM that `openssl " in refused


def damage(pem: str) -> str:
    """The first bytes of the content are others."""
    begin, content = pem.split("\n", 1)
    return f"{begin}\nAAAA{content[4:]}"


def test_password_of_the_key(files: TlsFolder) -> None:
    files.server.write(files.keystore, password="geheim")
    assert "has a password: expected ssl_key_password" in refusal(files)
    assert "ssl_key_password is not the password of the private key" in refusal(files, ssl_key_password="falsch")
    listener_tls(files, ssl_key_password="geheim")


def test_secrets_are_in_no_error(files: TlsFolder) -> None:
    """Nor in its causes, and in no representation of the settings."""
    right, wrong = "right".upper(), "wrong".upper()  # not as a literal, since a traceback shows lines of the source
    files.server.write(files.keystore, password=right)
    with pytest.raises(StartError) as caught:
        listener_tls(files, ssl_key_password=wrong)
    text = "".join(traceback.format_exception(caught.value))
    assert not any(secret in text for secret in (right, wrong, *files.keystore.read_text().splitlines()[1:4]))
    assert wrong not in repr(parse_tls(files.settings(ssl_key_password=wrong)))


def test_keys_and_certificates_may_be_texts(files: TlsFolder) -> None:
    texts = {
        "ssl_keystore_key": files.server.key_pem(),
        "ssl_keystore_certificate_chain": files.server.chain_pem,
        "ssl_truststore_certificates": files.authority.pair.chain_pem,
        "ssl_client_auth": "required",
    }
    tls = ListenerTls("SSL", parse_tls(texts))
    assert tls.context.verify_mode is ssl.CERT_REQUIRED
    assert texts["ssl_keystore_key"] not in repr(tls.settings)
    assert "both ssl_keystore_location and ssl_keystore_key are given" in refusal_of(
        {**texts, "ssl_keystore_location": "x"}
    )
    assert "belong together" in refusal_of({"ssl_keystore_key": texts["ssl_keystore_key"]})


def refusal_of(values: dict[str, str]) -> str:
    with pytest.raises(StartError) as caught:
        parse_tls(values)
    return str(caught.value)


def test_client_certificates_need_authorities(files: TlsFolder) -> None:
    assert "ssl_client_auth needs the authorities" in refusal(
        files, ssl_client_auth="required", ssl_truststore_location=""
    )
    files.truststore.write_text("nothing")
    assert "has no certificate: expected those of authorities" in refusal(files, ssl_client_auth="requested")
    files.truststore.write_bytes(b"-----BEGIN CERTIFICATE-----\n\xe4\n-----END CERTIFICATE-----\n")
    assert "cannot be used: OpenSSL answers" in refusal(files, ssl_client_auth="requested")


@pytest.mark.parametrize("text", ["", "TLSv1.1", "TLSv1.2,SSLv3"])
def test_versions(files: TlsFolder, text: str) -> None:
    """Nothing is the default."""
    if not text:
        versions = listener_tls(files, ssl_enabled_protocols=text).settings.versions
        assert versions == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    else:
        assert f"bad ssl_enabled_protocols '{text}': expected one or more of TLSv1.2, TLSv1.3" in refusal(
            files, ssl_enabled_protocols=text
        )


def test_ciphers(files: TlsFolder) -> None:
    assert "bad ssl_cipher_suites 'NONE_SUCH': OpenSSL knows none" in refusal(files, ssl_cipher_suites="NONE_SUCH")
    name = "ECDHE-ECDSA-AES128-GCM-SHA256"
    ciphers = listener_tls(files, ssl_cipher_suites=name).context.get_ciphers()
    assert [each["name"] for each in ciphers if each["protocol"] == "TLSv1.2"] == [name]


@pytest.mark.parametrize("ends", [timedelta(days=-1), timedelta(days=30)])
def test_log_names_certificate_that_is_not_valid_now(
    files: TlsFolder, caplog: pytest.LogCaptureFixture, ends: timedelta
) -> None:
    """At the start, and after a change: clients refuse it."""
    files.authority.issue(SERVER_NAME, ends=ends).write(files.keystore)
    tls = listener_tls(files)
    tls.reload()
    assert caplog.text.count("the TLS certificate is not valid now") == (2 if ends < timedelta() else 0)


@pytest.mark.parametrize(("issuer", "is_accepted"), [("trusted", True), ("root", False), ("other", False)])
def test_intermediate_authority_may_be_the_only_trusted_one(
    files: TlsFolder, tmp_path: Path, issuer: str, is_accepted: bool
) -> None:
    """As in Kafka: then its clients are trusted, and those of no other authority of the same root."""
    trusted = Authority("Clients", files.authority)
    trusted.write(files.truststore)
    issuers = {"trusted": trusted, "root": files.authority, "other": Authority("Others", files.authority)}
    client = ssl.create_default_context(cafile=files.authority.write(tmp_path / "root.pem"))
    client.load_cert_chain(issuers[issuer].issue("client", ()).write(tmp_path / "client.pem"))
    server = listener_tls(files, ssl_client_auth="required").context
    assert shakes_hands(server, client) is is_accepted


def test_client_may_trust_the_certificate_of_the_server_alone(files: TlsFolder) -> None:
    """Kafka's clients may. No other certificate of the same authority is trusted then."""
    files.truststore.write_text(files.server.chain_pem)
    server = listener_tls(files).context
    client = make_client_context(parse_tls({"ssl_truststore_location": str(files.truststore)}))
    assert shakes_hands(server, client)
    files.authority.issue(SERVER_NAME).write(files.keystore)
    assert not shakes_hands(listener_tls(files).context, client)


def shakes_hands(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> bool:
    """Whether both sides accept each other, in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client_context.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server_context.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(3):
        for side in sides:
            with suppress(ssl.SSLWantReadError):
                try:
                    side.do_handshake()
                except ssl.SSLCertVerificationError:
                    return False
    return sides[1].version() is not None


# Reloading ------------------------------------------------------------------------------------------------------------


def test_unchanged_files_are_not_read_again(files: TlsFolder) -> None:
    tls = listener_tls(files)
    context = tls.context
    tls.reload_if_changed()
    assert tls.context is context


def test_changed_certificate_is_used_for_new_connections(files: TlsFolder) -> None:
    tls = listener_tls(files, ssl_client_auth="required")
    context, expires = tls.context, tls.expires
    files.authority.issue(SERVER_NAME, ends=timedelta(days=90)).write(files.keystore)
    tls.reload_if_changed()
    assert tls.context is not context
    assert tls.expires > expires + timedelta(days=50)


def test_changed_authorities_replace_the_old_ones(files: TlsFolder) -> None:
    tls = listener_tls(files, ssl_client_auth="required")
    other = Authority("Another authority")
    other.write(files.truststore)
    tls.reload_if_changed()
    [trusted] = tls.context.get_ca_certs(binary_form=True)
    assert trusted == other.pair.der


@pytest.mark.parametrize("damage", ["removed", "half", "other key"])
def test_old_certificate_stays_if_the_new_one_cannot_be_used(
    files: TlsFolder, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And the next change is used."""
    tls = listener_tls(files)
    context = tls.context
    text = files.keystore.read_text()
    if damage == "removed":
        files.keystore.unlink()
    else:
        files.keystore.write_text(text[:300] if damage == "half" else files.client().read_text())
    tls.reload_if_changed()
    tls.reload_if_changed()
    assert tls.context is context
    assert caplog.text.count("the old TLS certificate stays in use") == 1
    files.authority.issue(SERVER_NAME).write(files.keystore)
    tls.reload_if_changed()
    assert tls.context is not context


def test_file_is_read_again_when_its_permissions_are_corrected(files: TlsFolder) -> None:
    """As the log advises. This changes neither the content nor the time of the file."""
    tls = listener_tls(files)
    context = tls.context
    files.authority.issue(SERVER_NAME).write(files.keystore)
    files.keystore.chmod(0o644)
    tls.reload_if_changed()
    assert tls.context is context
    files.keystore.chmod(0o640)
    tls.reload_if_changed()
    assert tls.context is not context


def test_name_and_alternative_names_may_change_only_if_allowed(
    files: TlsFolder, caplog: pytest.LogCaptureFixture
) -> None:
    changes = (
        ("ssl_allow_dn_changes", "the new certificate is of 'CN=other', expected 'CN=", "other", LOCALHOST),
        ("ssl_allow_san_changes", "lacks alternative names", SERVER_NAME, LOCALHOST[:1]),
    )
    for setting, expected, subject, names in changes:
        for is_allowed in (False, True):
            files.server.write(files.keystore)
            tls = listener_tls(files, **{setting: str(is_allowed).lower()})
            context = tls.context
            files.authority.issue(subject, names).write(files.keystore)
            caplog.clear()
            tls.reload_if_changed()
            assert (tls.context is not context) == is_allowed
            assert (expected in caplog.text) != is_allowed


def test_new_alternative_names_are_allowed(files: TlsFolder) -> None:
    tls = listener_tls(files)
    context = tls.context
    files.authority.issue(SERVER_NAME, (*LOCALHOST, x509.DNSName("more.example"))).write(files.keystore)
    tls.reload_if_changed()
    assert tls.context is not context


# Clients --------------------------------------------------------------------------------------------------------------


def test_client_trusts_its_authorities_and_checks_the_host(files: TlsFolder) -> None:
    settings = parse_tls({"ssl_truststore_location": str(files.truststore)})
    context = make_client_context(settings)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert [*map(len, (context.get_ca_certs(),))] == [1]
    assert not make_client_context(settings, checks_host=False).check_hostname
