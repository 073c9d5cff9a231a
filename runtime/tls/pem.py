"""PEM files and texts: private keys and certificates."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..common.errors import StartError
from ..common.small_files import read_small_file

CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
PRIVATE_KEY: Final = re.compile(r"-----BEGIN ([A-Z]+ )*PRIVATE KEY-----")
DER_LENGTH: Final = r"(?:[\x00-\x80]|\x81.|\x82.{1,2}|\x83.{2,3}|\x84.{3,4})"
"""Bytes as Latin-1, in which ``read_pem`` may have made one of two."""
PKCS12: Final = re.compile(rf"0{DER_LENGTH}\x02\x01\x03", re.DOTALL)
DER_CERTIFICATE: Final = re.compile(rf"0{DER_LENGTH}0", re.DOTALL)
JKS: Final = "\xfe\xed\xfe\xed"
NOT_ALLOWED: Final = stat.S_IWGRP | stat.S_IXGRP | stat.S_IRWXO
"""Permissions that a private key must not have: the rule of PostgreSQL for a key of root. Kafka has none."""

BYTES_MAX: Final = 16 * 1024 * 1024
"""The size of a PEM file. The authorities of a whole system have less than a mebibyte."""


def read_pem(setting: str, path: Path, *, is_private: bool = False) -> str:
    """The content of a file. ``setting``: its name, for errors.

    Raises StartError if it cannot be read, or if it is private and others may change it, or all users may read it.
    """
    try:
        content = read_small_file(path, BYTES_MAX)
    except OSError as error:
        on_disk = " on disk, not the output of a command" if error.errno == errno.EINVAL else ""
        raise StartError(f"cannot read {setting} '{path}': {error.strerror}; expected a PEM file{on_disk}") from error
    mode = content.mode
    if is_private and mode & NOT_ALLOWED:
        who = "every user of this machine" if mode & stat.S_IRWXO else "every user of its group"
        what = "change" if mode & (stat.S_IWGRP | stat.S_IWOTH) else "read"
        raise StartError(
            f"{setting} '{path}' has the permissions {mode:04o}, so {who} may {what} the private key: expected at most"
            f" 0640, as after chmod g-wx,o-rwx '{path}'"
        )
    text = content.data.decode("latin-1")  # text around the blocks has any encoding
    return text.replace("\r\n", "\n").replace("\r", "\n")


def certificates_in(text: str) -> list[str]:
    """The PEM of each certificate, in order."""
    return CERTIFICATE.findall(text)


def conversion(text: str, path: Path | None) -> str:
    """The format of a file that has no PEM, and the command that converts it; "" if that is not known."""
    source = "FILE" if path is None else f"'{path}'"
    if PKCS12.match(text):
        return f"; it is PKCS12: convert it by `openssl pkcs12 -in {source} -nodes -out NEW.pem`"
    if text.startswith(JKS):
        command = f"keytool -importkeystore -srckeystore {source} -destkeystore NEW.p12"
        return f"; it is JKS: convert it to PKCS12 by `{command}`"
    if DER_CERTIFICATE.match(text):
        return f"; it is DER: convert a certificate by `openssl x509 -inform der -in {source} -out NEW.pem`"
    return ""


def has_private_key(text: str) -> bool:
    return PRIVATE_KEY.search(text) is not None


def is_encrypted(text: str) -> bool:
    """Whether the private key has a password."""
    return "ENCRYPTED" in text


@contextmanager
def as_file(text: str) -> Iterator[str]:
    """The path of a file in memory with this content: the library reads keys from files only."""
    descriptor = os.memfd_create("callboard-pem", os.MFD_CLOEXEC)
    try:
        data = memoryview(text.encode("latin-1", "replace"))
        while data:
            data = data[os.write(descriptor, data) :]
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
