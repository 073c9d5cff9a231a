"""The keystore of a server with TLS, and the truststore of its clients, for measurements."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

from callboard.bench.harness import BenchError
from callboard.runtime.settings.client_settings import ClientSettings
from callboard.runtime.tls.contexts import make_client_context
from callboard.runtime.tls.settings import parse_tls


class TlsFiles(NamedTuple):
    """``keystore``: private key and certificate. ``truststore``: the certificate alone."""

    keystore: Path
    truststore: Path


def make_tls_files(folder: Path) -> TlsFiles:
    """A key of EC P-256, and a certificate of 127.0.0.1 for two days. Needs ``openssl``. Raises BenchError."""
    files = TlsFiles(folder / "keystore.pem", folder / "truststore.pem")
    key = folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=callboard", "-addext", "subjectAltName=IP:127.0.0.1"]
    try:
        subprocess.run([*command, "-keyout", key, "-out", files.truststore], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise BenchError(f"no certificate could be made: {error}; is openssl installed?") from error
    files.keystore.touch(mode=0o600)
    files.keystore.write_text(key.read_text() + files.truststore.read_text())
    return files


def client_context(truststore: Path | None) -> ssl.SSLContext | None:
    """The context of a client; None without TLS."""
    if truststore is None:
        return None
    settings = ClientSettings("SSL", {"ssl_truststore_location": str(truststore)})
    return make_client_context(parse_tls(settings.values))
