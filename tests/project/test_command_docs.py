"""Commands on the pages exist, with the options that the pages give them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from command_walk import walk_commands
from project_paths import DOCS, ROOT

from callboard.bench.__main__ import BENCHES
from callboard.runtime.cli.main import COMMANDS

PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted(DOCS.glob("*.md"))]
OPTIONS = {
    command.words: {name for each in command.parameters for name in (*each.opts, *each.secondary_opts)}
    for command in walk_commands()
}

START = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S* )*(?:\S*/)?callboard ")
INLINE = re.compile(r"`((?:\S*/)?callboard [^`]*)`")
OPTION = re.compile(r"^--?[a-z][a-z-]*$")
END = re.compile(r"\s#\s|\s>|\s&&|;| \| (?=tail|grep|head)")
PROGRAM = {"--help", "-h", "--version", "--install-completion", "--show-completion"}
"""Options of ``callboard`` itself."""

OUTPUT = {"ready", "loaded", "COMMAND"}
"""Words after ``callboard`` in its output, and in the general form of a command."""


class Shown(NamedTuple):
    """A command on a page, without comments and what follows it in the shell."""

    page: str
    text: str


def shown(text: str, page: str) -> Iterator[Shown]:
    """Commands in blocks of code, which may continue on the next line, and in the text."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        if START.match(line.strip()):
            yield Shown(page, line[line.index("callboard ") :])
    for match in INLINE.finditer(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)):
        yield Shown(page, " ".join(match[1][match[1].index("callboard ") :].split()))


def words_of(command: str) -> list[str]:
    """Brackets and bars of a synopsis are left out."""
    return re.sub(r"[\[\]()|]", " ", END.split(command)[0]).split()[1:]


def unknown(command: str) -> list[str]:
    """What there is not: a command, a benchmark, or options."""
    words = words_of(command)
    if not words or words[0] in OUTPUT or set(words) <= PROGRAM:
        return []
    if words[0] not in COMMANDS:
        return [words[0]]
    if words[0] == "bench":
        return [word for word in words[1:2] if word not in (*BENCHES, "NAME", "--help")]
    path = tuple(words[:2]) if tuple(words[:2]) in OPTIONS else (words[0],)
    is_group = any(other[:1] == path and len(other) > 1 for other in OPTIONS)
    missing = [word for word in words[1:2] if is_group and len(path) == 1 and not word.startswith("-")]
    return missing + [word for word in words if OPTION.match(word) and word not in OPTIONS[path] | {"--help", "-h"}]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_of_the_page_exist(page: Path) -> None:
    commands = list(shown(page.read_text(), page.name))
    assert [(command.text, found) for command in commands if (found := unknown(command.text))] == []


def test_pages_have_commands() -> None:
    """Otherwise the expressions above find none."""
    commands = [command for page in PAGES for command in shown(page.read_text(), page.name)]
    assert len(commands) > 200
    assert {command.page for command in commands} >= {"README.md", "operate.md", "admin.md", "cluster.md", "log.md"}


def test_readme_lists_all_commands() -> None:
    table = (ROOT / "README.md").read_text().partition("| command | what it does |\n")[2].partition("\n\n")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines()[1:]]
    assert {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)} == set(COMMANDS)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("callboard groups reset g --topic t --to-earliest --execute", []),
        ("callboard groups reset g --to-earlist", ["--to-earlist"]),
        ("callboard groups reset GROUP (--topic T[:P,...]... | --all-topics) [--foo]", ["--foo"]),
        ("callboard groups rest g", ["rest"]),
        ("callboard settings --json", []),
        ("callboard setting", ["setting"]),
        ("callboard bench sever", ["sever"]),
        ("callboard log dump --data data | tail -3", []),
        ("callboard --help", []),
    ],
)
def test_unknown_words_are_found(command: str, expected: list[str]) -> None:
    assert unknown(command) == expected
