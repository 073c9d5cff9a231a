"""The one part of the metadata that setup.cfg cannot state: README.md with links that also work on a package index."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^):\s]+)\)")
"""A link without a scheme: to a file of the repository, or to a heading of the README."""


def source_url() -> str:
    """The ``Source`` of setup.cfg, which has all URLs."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    urls = dict(line.split(" = ") for line in config["metadata"]["project_urls"].strip().splitlines())
    return urls["Source"]


def with_absolute_links(text: str, url: str) -> str:
    def replace(link: re.Match[str]) -> str:
        image, words, target = link.groups()
        kind = "raw" if image else "blob"
        path = f"README.md{target}" if target.startswith("#") else target
        return f"{image}[{words}]({url}/{kind}/main/{path})"

    return LINK.sub(replace, text)


if __name__ == "__main__":
    setup(long_description=with_absolute_links((ROOT / "README.md").read_text(encoding="utf-8"), source_url()))
