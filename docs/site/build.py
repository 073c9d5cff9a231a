"""Builds the documentation site in build/site/html: ``python docs/site/build.py``.

The pages are README.md, those of docs/, and a reference of the public names, which mkdocstrings makes of docstrings.
Links between pages are adapted to one folder; links to other files of the repository become code.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "build" / "site" / "pages"
CONFIG = Path(__file__).with_name("mkdocs.yml")

RENAMED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
    "CONTRIBUTING.md": "contributing.md",  # the short one at the top; its page is that of docs/
}
"""The pages of files at the top."""

LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]*)(?P<anchor>#[^)]*)?\)")
CODE_BLOCK = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)

SECTIONS = {
    "callboard.runtime.embed": "The embedded coordinator",
    "callboard.runtime.member": "Members",
    "callboard.actors.assignors": "Assignors",
    "callboard": "Errors",
}
"""The sections of the reference, by the package that the names come from; the first that matches."""


def page_names() -> dict[Path, str]:
    """The page of each source file."""
    pages = {path: path.name for path in sorted((ROOT / "docs").glob("*.*"))}
    return pages | {ROOT / name: page for name, page in RENAMED.items() if name != "CONTRIBUTING.md"}


def adapted(text: str, source: Path) -> str:
    """A page's text with its links adapted."""

    def replace(match: re.Match[str]) -> str:
        image, words, target, anchor = match["image"], match["text"], match["target"], match["anchor"] or ""
        if not target or ":" in target:
            return match[0]
        path = (source.parent / target).resolve()
        page = RENAMED.get(path.name) if path.parent == ROOT else page_names().get(path)
        if page is not None:
            return f"{image}[{words}]({page}{anchor})"
        return words if "`" in words else f"`{words}`"

    parts = CODE_BLOCK.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(replace, part) for part in parts)


def reference(homes: dict[str, str]) -> str:
    """The page of the public names. ``homes``: the module of each."""
    lines = ["# Python API", "", "Everything here is imported from `callboard`."]
    remaining = dict(homes)
    for package, title in SECTIONS.items():
        names = sorted(name for name, module in remaining.items() if module.startswith(package))
        lines += ["", f"## {title}"]
        for name in names:
            lines += ["", f"::: {remaining.pop(name)}.{name}"]
    return "\n".join([*lines, ""])


def write_pages() -> None:
    sys.path.insert(0, str(ROOT / "build" / "links"))
    import callboard

    shutil.rmtree(PAGES, ignore_errors=True)
    PAGES.mkdir(parents=True)
    for source, page in page_names().items():
        if source.suffix == ".md":
            (PAGES / page).write_text(adapted(source.read_text(), source))
        else:
            shutil.copy(source, PAGES / page)
    homes: dict[str, str] = callboard._HOMES
    (PAGES / "reference.md").write_text(reference(homes))


def main() -> int:
    write_pages()
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "-f", str(CONFIG)]
    # Without the variable, the theme prints an announcement about other versions of mkdocs.
    return subprocess.run(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
