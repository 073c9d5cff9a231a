"""PEM files and texts: private keys and certificates."""

from __future__ import annotations

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
        raise StartError(f"cannot read {setting} '{path}': {error.strerror}; expected a PEM file") from error
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
